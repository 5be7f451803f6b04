"""The watch function's surroundings in virtual time: watches that last, and the bucket with snapshots of bound pods."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from shiplap.errors import ClusterUnreachable, ResourceVersionGone
from shiplap.kubernetes.objects import ObjectMeta, Pod, RawObject
from shiplap.ports import KnownPods, WatchEvent
from shiplap.scheduling.model.snapshot import ClusterView
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.fakes.cluster import WATCHED
from shiplap_lab.fakes.stores import FakeSnapshots
from shiplap_lab.faults.objects.watch_gone import WatchGoneFault
from shiplap_lab.virtual_time.checked_fakes import CheckedCluster
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from shiplap_lab.virtual_time.virtual_threads import VirtualThreads, WaitingTasks

_WATCH = "watch"
_SENT_AFTER_S = 0.05
"""How long a change takes from the API server to a watch, in seconds."""


class ClusterWithWatches(CheckedCluster):
    """A cluster whose watches last as long as they were asked for; deciding functions are told only what there is.

    Attributes:
        on_known: called with the version that was asked for and the pods that a decision knows without listing them,
            each with its node and whether it was asked to end.
        looks_without_list: how often a decision knew them so.
    """

    def __init__(self, server: ApiServer, faults: FaultInjector, threads: VirtualThreads) -> None:
        super().__init__(server, faults)
        self.on_known: list[Callable[[str, Sequence[tuple[str, str, bool]]], object]] = []
        self.looks_without_list = 0
        self._loop = threads.loop
        self._news: dict[str, WaitingTasks] = {plural: threads.waiting() for plural, _, _ in WATCHED.values()}
        server.on_write(self._written)

    def _written(self, kind: str, plural: str, item: RawObject) -> None:  # noqa: ARG002 - a listener
        if plural in self._news:
            self._news[plural].wake(_SENT_AFTER_S)

    def watch(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes since a version as they happen, and a bookmark at the end. Raises ResourceVersionGone."""
        invocation = self._injector.current
        if invocation is not None and invocation.function == _WATCH:
            return self._follow(kind, resource_version, timeout_s)
        return super().watch(kind, resource_version, timeout_s)

    def _follow(self, kind: str, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        plural, typed, selection = WATCHED[kind]
        self._injector.before("cluster.watch")
        until, newest = self._loop.now() + timeout_s, resource_version
        while True:
            self._check_stream()
            try:
                changes, newest = self.server.changes(plural, newest, selection)
            except ResourceVersionGone:
                self._injector.of(WatchGoneFault).took_effect()
                raise
            for change in changes:
                yield self._event(change, typed)
            left = until - self._loop.now()
            if left <= 0 or self._is_closed(kind):
                break
            self._news[plural].wait(partial(self._is_behind, newest), left)
        yield WatchEvent("BOOKMARK", typed(metadata=ObjectMeta(resource_version=newest)), newest)
        self._injector.after("cluster.watch")

    def _is_behind(self, version: str) -> bool:
        return self.server.resource_version != version

    def _is_closed(self, watched: str) -> bool:
        return any(kind.closes_watch(watched) for kind in self._injector.at_work)

    def _check_stream(self) -> None:
        if any(kind.breaks_watches() for kind in self._injector.at_work):
            raise ClusterUnreachable("connection reset")

    def view(
        self, leaving: Collection[str] = (), *, workloads: bool = False, known: KnownPods | None = None
    ) -> ClusterView:
        """As the fake."""
        return super().view(leaving, workloads=workloads, known=partial(self._known, known) if known else None)

    def _known(self, known: KnownPods, nodes: int, version: str) -> Sequence[Pod] | None:
        pods = known(nodes, version)
        if pods is not None:
            self.looks_without_list += 1
            placed = [(pod.key, pod.spec.node_name, bool(pod.metadata.deletion_timestamp)) for pod in pods]
            for listener in self.on_known:
                listener(version, placed)
        return pods


class CheckedSnapshots(FakeSnapshots):
    """Snapshots that faults corrupt or lose.

    Attributes:
        on_save: called with the cluster and each document that is stored.
    """

    def __init__(self, faults: FaultInjector) -> None:
        super().__init__(faults)
        self.on_save: list[Callable[[str, bytes], object]] = []
        self._injector = faults

    def load(self, cluster: str) -> bytes | None:
        """As the fake, unless a fault is active."""
        document = super().load(cluster)
        if document is None or self._is_lost():
            return None
        for kind in self._injector.at_work:
            document = kind.reads_snapshot(document)
        return document

    def kept_since(self, cluster: str) -> float:
        """As the fake, unless the object is lost."""
        known = super().kept_since(cluster)
        return 0.0 if known and self._is_lost() else known

    def _is_lost(self) -> bool:
        return any(kind.loses_snapshot() for kind in self._injector.at_work)

    def save(self, cluster: str, document: bytes, kept_since: float) -> None:
        """As the fake."""
        super().save(cluster, document, kept_since)
        for listener in self.on_save:
            listener(cluster, document)
