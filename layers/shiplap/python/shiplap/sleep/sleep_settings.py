"""What shiplap.yaml says of sleep in one cluster: nothing sleeps that it does not name."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from shiplap.sleep.sleep_windows import parse_window

Where = tuple[str | int, ...]


class WindowSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """A window and what sleeps in it: these NodePools, all armed ones without a name, or the pods of namespaces.

    `when` is in one of the forms of `sleep_windows.FORMS`.
    """

    when: str
    node_pools: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()


class SleepSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`node_pools` are armed: nodes of no others leave for sleep, and never more than `most_nodes` in one sleep."""

    node_pools: tuple[str, ...]
    most_nodes: int
    windows: tuple[WindowSettings, ...]

    def problems(self) -> Iterator[tuple[Where, str]]:
        """Invalid settings: the field as written, and the reason."""
        if not self.node_pools:
            yield ("nodePools",), "must name at least one NodePool whose nodes may leave"
        if self.most_nodes < 1:
            yield ("mostNodes",), f"{self.most_nodes} must be at least 1: the most nodes that one sleep may take"
        if not self.windows:
            yield ("windows",), "must hold at least one window"
        for place, window in enumerate(self.windows):
            where = ("windows", place)
            try:
                parse_window(window.when)
            except ValueError as error:
                yield (*where, "when"), str(error)
            if window.node_pools and window.namespaces:
                yield where, "is of nodePools or of namespaces: write two windows"
            for name in window.node_pools:
                if name not in self.node_pools:
                    yield (*where, "nodePools"), f"{name!r} is not armed: name it under `nodePools` of `sleep` too"
