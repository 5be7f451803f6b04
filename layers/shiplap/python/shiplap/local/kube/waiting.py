"""The pods that wait for the kube-scheduler, in the order in which it takes them.

Each step begins at the front again, and most pods are like others that nothing fits: they are passed over together, so
that a step costs what it tries, not what waits.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heapify, heappop, heappush

from shiplap.local.kube.fit import PodNeeds

_Order = tuple[int, float, str, str]
"""The most important first, then those tried longest ago, then the oldest; the key decides between equals."""

_NOMINATED = b""
"""The line of pods that are nominated somewhere; all others stand in line with those of their shape."""


class Waiting:
    """Pods by key, each in a line of its like."""

    def __init__(self) -> None:
        self._needs: dict[str, PodNeeds] = {}
        self._at: dict[str, tuple[_Order, bytes]] = {}
        self._lines: dict[bytes, list[_Order]] = {}
        self._hopeless: set[bytes] = set()

    def put(self, key: str, needs: PodNeeds, tried_at: float) -> None:
        """Let a pod wait, or what is known of it now in the place of what was known before.

        Where it is put while pods are being taken counts from the next time on.
        """
        order = (-needs.pod.spec.priority, tried_at, needs.pod.metadata.creation_timestamp or "", key)
        place = order, _line_of(needs)
        self._needs[key] = needs
        if self._at.get(key) != place:
            self._at[key] = place
            heappush(self._lines.setdefault(place[1], []), order)

    def drop(self, key: str) -> PodNeeds | None:
        """A pod waits no longer; its place is kept in case it comes back unchanged. Returns what was known of it."""
        return self._needs.pop(key, None)

    def pass_over(self, needs: PodNeeds) -> None:
        """Nothing fits pods of this shape: of those being taken, leave out its like that have been tried before."""
        if _line_of(needs) != _NOMINATED:
            self._hopeless.add(needs.shape)

    def in_order(self) -> Generator[tuple[str, PodNeeds]]:
        """Each pod once; to be closed."""
        self._hopeless.clear()
        lines, self._lines = self._lines, {}
        heads = [(line[0], name) for name, line in lines.items() if line]
        heapify(heads)
        taken: list[tuple[_Order, bytes]] = []
        try:
            while heads:
                order, name = heappop(heads)
                line, key = lines[name], order[3]
                tried = order[1] > 0
                if tried and name in self._hopeless:
                    continue  # behind it there are none in this line that have not been tried
                heappop(line)
                if line:
                    heappush(heads, (line[0], name))
                if self._at.get(key) != (order, name):
                    continue
                if key in self._needs:
                    taken.append((order, name))
                    yield key, self._needs[key]
                else:
                    del self._at[key]
        finally:
            for order, name in taken:
                if self._at.get(order[3]) == (order, name):
                    heappush(lines[name], order)
            for name, fresh in self._lines.items():
                for order in fresh:
                    heappush(lines.setdefault(name, []), order)
            self._lines = lines


def _line_of(needs: PodNeeds) -> bytes:
    return _NOMINATED if needs.pod.status.nominated_node_name else needs.shape
