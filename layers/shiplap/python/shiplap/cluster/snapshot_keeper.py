"""Follows the bound pods of a cluster and keeps their compact snapshot in the bucket up to date.

The snapshot saves deciding functions a list of all pods; without it they list them, so nothing here has to succeed. The
keeper continues the snapshot of its predecessor, follows changes from its version on, and lists all pods only when it
cannot: there is no snapshot, the API server has forgotten its version, or its last list is an hour old.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from threading import Event, Lock

from shiplap.errors import ClusterError, InvalidInput, ResourceVersionGone, StoreError
from shiplap.kubernetes.compact_pods import PodTable, SnapshotHeader
from shiplap.kubernetes.objects import Pod
from shiplap.ports import Clock, ClusterApi, SnapshotStore, WatchEvent

_LOG = logging.getLogger(__name__)

SAVE_S = 20.0
"""How old a snapshot gets while pods change, in seconds: API servers remember changes for a little over a minute."""

REFRESH_S = 300.0
"""How old it gets while nothing changes, in seconds."""

RELIST_S = 3600.0
"""After how many seconds all pods are listed again, so that no defect and no lost change is kept for good."""

FEWEST_PODS = 2_000
"""Fewer pods than this are listed in a few pages, which is cheaper than to keep them."""

SUCCESSOR_S = 720.0
"""For how long, in seconds, a successor is not expected, and is asked for seldom: each time is a request."""

_SELDOM_S = 240.0
_ROUND_S = 20.0
_LAST_ROUNDS_S = 10.0
_SHARE = 20
"""A snapshot is not written more often than leaves so many times what writing it takes for other work."""

_MANY_PODS = 1_000_000
_BYTES_OF_A_POD = 512
"""Encoded bytes that take the memory of one usual pod, 0.7 KiB: a usual pod has 110, and overheads of its own."""
_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)


class PodMemory:
    """The number of pods that fit into memory, shared by all keepers of a process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[str, int] = {}
        self._lock = Lock()

    def takes(self, cluster: str, pods: int) -> bool:
        """True if so many pods of a cluster fit beside the pods of the other clusters; then it holds room for them.

        Otherwise the cluster holds no room.
        """
        with self._lock:
            others = sum(number for name, number in self._held.items() if name != cluster)
            fits = others + pods <= self._most
            self._held[cluster] = pods if fits else 0
            return fits


class SnapshotKeeper:
    """One watch function's part in keeping a cluster's snapshot.

    Args:
        cluster: its name.
        api: its API server.
        store: where the snapshot is.
        clock: tells the time.
        room: how many pods there is memory for; of a cluster that does not fit none are kept.
        fewest_pods: of a smaller cluster none are kept either.

    Attributes:
        established: set by the owner when it has taken over from its predecessor, which then retires; nothing is
            written before.
        retired: set when a younger keeper has taken over.
        problems: counts of failures by metric name.
    """

    def __init__(
        self,
        cluster: str,
        api: ClusterApi,
        store: SnapshotStore,
        *,
        clock: Clock,
        room: PodMemory | None = None,
        fewest_pods: int = FEWEST_PODS,
    ) -> None:
        self._cluster, self._api, self._store, self._clock = cluster, api, store, clock
        self._room, self._fewest_pods = room or PodMemory(_MANY_PODS), fewest_pods
        self._began_at = clock.now()
        self._asked_at = float("-inf")
        self._table = PodTable()
        self._version = ""
        self._listed_at = 0.0
        self._following = True
        self._saved_at = 0.0
        self._saved_changes = -1
        self._writing_s = 0.0
        self.established, self.retired = Event(), Event()
        self.problems: Counter[str] = Counter()

    def run(self, deadline_at: float, pause: Callable[[float], None], stop: Event) -> None:
        """Keep the snapshot until the deadline (epoch seconds), `stop`, or a successor; `pause` waits seconds.

        Raises nothing: failures are logged and counted, and the round is repeated after a pause.
        """

        def rest(seconds: float) -> None:
            pause(max(0.0, min(seconds, deadline_at - self._clock.now())))

        failures = 0
        while not (stop.is_set() or self.retired.is_set()) and (now := self._clock.now()) < deadline_at:
            try:
                round_s = _ROUND_S if now - self._began_at < SUCCESSOR_S else _LAST_ROUNDS_S
                self.round(min(round_s, deadline_at - now), stop)
                failures = 0
                if self._clock.now() - now < _PAUSES_S[0]:
                    # Without pods to follow, or where a server ends watches at once, it must not be a tight loop.
                    rest(_PAUSES_S[0] if self._following or not self._saved_at else round_s)
            except (ClusterError, StoreError) as error:
                self.problems["SnapshotsNotKept"] += 1
                _LOG.warning("snapshot is not kept: %s", error, extra={"cluster": self._cluster})
                rest(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1

    def round(self, timeout_s: float, stop: Event | None = None) -> None:
        """Begin if that has not been done, follow changes for so many seconds, and write what is due.

        Raises:
            ClusterError: the API server refuses or cannot be reached; the next round goes on where this one stopped.
            StoreError: the bucket refuses; the next round tries again.
        """
        if self._has_successor():
            self.retired.set()
            return
        if not self._version and not (self._listed_at == 0.0 and self._take_over()):
            self._list()
            self._write_if_due()
        if not self._following:
            self._write_if_due()
            return
        try:
            for event in self._api.watch("bound", self._version, timeout_s):
                self._see(event)
                self._write_if_due()
                if stop is not None and stop.is_set():
                    return
        except ResourceVersionGone:
            self._version = ""
        self._write_if_due()
        if self._clock.now() - self._listed_at >= RELIST_S or not self._fits():
            self._version = ""  # the next round lists; if there are too many pods, it gives them up

    def _list(self) -> None:
        """Begin from a list, which is to be written at once: decisions cannot use what was there before."""
        self._table.clear()
        self._saved_at = 0.0
        listed_at, version = self._clock.now(), ""
        for pods, version in self._api.bound_pages():  # noqa: B007 - the version of the last page
            for pod in pods:
                self._table.put(pod)
            if not self._fits():
                self.problems["SnapshotsTooLarge"] += 1
                _LOG.warning(
                    "%d pods and more need a watch function with more memory to be kept",
                    len(self._table),
                    extra={"cluster": self._cluster},
                )
                self._leave_out()
                break
        else:
            if len(self._table) < self._fewest_pods:
                self._leave_out()
        self._listed_at, self._version = listed_at, version

    def _take_over(self) -> bool:
        """Go on from the snapshot in the bucket, if it can be read, is complete and not too old."""
        document = self._store.load(self._cluster)
        if document is None:
            return False
        try:
            table, header = PodTable.of(document)
        except InvalidInput as error:
            self.problems["SnapshotsUnreadable"] += 1
            _LOG.warning("snapshot is made again: %s", error, extra={"cluster": self._cluster})
            return False
        young = self._clock.now() - header.listed_at < RELIST_S
        usable = header.cluster == self._cluster and header.complete and young
        if usable and self._room.takes(self._cluster, _room_of(table)):
            self._table, self._version, self._listed_at = table, header.version, header.listed_at
            return True
        return False

    def _fits(self) -> bool:
        return self._room.takes(self._cluster, _room_of(self._table))

    def _leave_out(self) -> None:
        """Follow no pods: deciding functions list them."""
        self._following = False
        self._table.clear()
        self._room.takes(self._cluster, 0)

    def _see(self, event: WatchEvent) -> None:
        self._version = event.resource_version
        if event.unreadable:
            self.problems["ObjectsUnreadable"] += 1
        if event.type == "BOOKMARK" or not isinstance(event.object, Pod):
            return
        if event.type == "DELETED":
            self._table.drop(event.object.metadata.uid)
        else:
            self._table.put(event.object)

    def _write_if_due(self) -> None:
        now = self._clock.now()
        age = now - self._saved_at
        changed = self._table.changes != self._saved_changes
        wait_s = max(SAVE_S, _SHARE * self._writing_s) if changed else REFRESH_S
        announced = self._saved_at and not self._following
        if not self._version or not self.established.is_set() or age < wait_s or announced:
            return
        self._store.save(self._cluster, self._table.document(self._header(now)), self._began_at)
        self._saved_at, self._saved_changes = now, self._table.changes
        self._writing_s = self._clock.now() - now

    def _header(self, now: float) -> SnapshotHeader:
        return SnapshotHeader(
            cluster=self._cluster,
            version=self._version,
            taken_at=now,
            listed_at=self._listed_at,
            kept_since=self._began_at,
            complete=self._following,
        )

    def _has_successor(self) -> bool:
        now = self._clock.now()
        if now - self._began_at < SUCCESSOR_S and now - self._asked_at < _SELDOM_S:
            return False
        self._asked_at = now
        return self._store.kept_since(self._cluster) > self._began_at


def _room_of(table: PodTable) -> int:
    """For how many usual pods the memory of a table would do: users may write pods of any size."""
    return max(len(table), table.size_bytes // _BYTES_OF_A_POD)
