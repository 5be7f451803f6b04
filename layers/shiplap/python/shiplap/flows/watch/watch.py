"""The watch flow: what the watches of clusters show, told to the bus, for as long as one invocation lasts.

Its successor begins before it ends. It knows by the snapshot in the bucket that the successor has seen what there is:
then there is nothing left to do for it. Without a successor it goes on until its deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from threading import Event, Thread

from shiplap.cluster.snapshot_keeper import FEWEST_PODS, PodMemory, SnapshotKeeper
from shiplap.cluster.watcher import ChangeBatch, change_batches
from shiplap.errors import ClustersNotServed, ShiplapError
from shiplap.flows import claim_events
from shiplap.flows.context import FlowContext
from shiplap.flows.messages import MANIFESTS_CHANGED, ROOM_TAKEN, UNSCHEDULABLE
from shiplap.kubernetes.objects import CustomObject, Node, Pod
from shiplap.manifests.nodeclaim import PodReference
from shiplap.ports import BusEvent

_LOG = logging.getLogger(__name__)

_OWN_MIB = 90
_MIB_PER_CLUSTER = 0.5
_PODS_PER_MIB = 1_400
"""The process needs 75 MiB with a page of a list, each cluster beyond the first its connections and threads, and a pod
about 0.7 KiB while a snapshot is made (docs/reference/costs.md)."""

ESTABLISHING_S = 3.0
"""Watches begin one cluster after the other, so that not all lists are in memory at once; one that takes longer than so
many seconds is not waited for."""

_AGAIN_AFTER_S = 60.0
"""After how many seconds a watch that was given up begins anew; the sweep does without meanwhile."""


def watch_all(
    contexts: Mapping[str, FlowContext],
    *,
    deadline: float,
    pause: Callable[[float], None],
    room: PodMemory | None = None,
    live: Collection[str] = (),
    buffered: Collection[str] = (),
) -> int:
    """Watch clusters side by side, each in threads of its own, so that none waits for another.

    Args:
        contexts: by the cluster's name.
        deadline: epoch seconds.
        pause: waits seconds.
        room: how many pods there is memory for, of all clusters together.
        live: names of clusters whose manifests are watched, too.
        buffered: names of others that have CapacityBuffers.

    Returns:
        How many events were told.

    Raises:
        ClustersNotServed: at the end, if the watch of some cluster had to be given up at least once.
    """
    watches = [
        _Watch(name, context, deadline, pause, room, manifests=name in live, buffers=name in buffered)
        for name, context in sorted(contexts.items())
    ]
    threads = [Thread(target=watch.run, name=f"watch-{watch.cluster}", daemon=True) for watch in watches]
    for watch, thread in zip(watches, threads, strict=True):
        thread.start()
        watch.established.wait(ESTABLISHING_S)
    for thread in threads:
        thread.join()
    given_up = [watch.cluster for watch in watches if watch.given_up]
    if given_up:
        raise ClustersNotServed(given_up)
    return sum(watch.told for watch in watches)


class _Watch:
    """The watch of one cluster, begun anew when it was given up, for as long as the invocation lasts."""

    def __init__(
        self,
        cluster: str,
        context: FlowContext,
        deadline: float,
        pause: Callable[[float], None],
        room: PodMemory | None,
        *,
        manifests: bool,
        buffers: bool,
    ) -> None:
        self.cluster = cluster
        self.told = 0
        self.given_up = False
        self.established = Event()
        self._context, self._deadline, self._pause, self._room = context, deadline, pause, room
        self._manifests, self._buffers = manifests, buffers

    def run(self) -> None:
        """The body of its thread."""
        while (now := self._context.clock.now()) < self._deadline:
            try:
                self.told += self._watch()
                break
            except ShiplapError as error:
                self._report_given_up(error)
            except Exception as error:  # noqa: BLE001 - a thread has no caller; a bug is logged with its traceback
                _LOG.exception("a watch broke down", extra={"cluster": self.cluster})
                self._report_given_up(error)
            self._pause(min(_AGAIN_AFTER_S, self._deadline - now))
        self.established.set()

    def _report_given_up(self, error: Exception) -> None:
        self.given_up = True
        self.established.set()
        self._context.meter.count("WatchesGivenUp")
        self._context.meter.count(type(error).__name__ if isinstance(error, ShiplapError) else "UnexpectedErrors")
        _LOG.error("watch given up for now: %s", error, extra={"cluster": self.cluster, "error": type(error).__name__})

    def _watch(self) -> int:
        return watch(
            self.cluster,
            self._context,
            deadline=self._deadline,
            pause=self._pause,
            room=self._room,
            established=self.established,
            manifests=self._manifests,
            buffers=self._buffers,
        )


def watch(
    cluster: str,
    context: FlowContext,
    *,
    deadline: float,
    pause: Callable[[float], None],
    room: PodMemory | None = None,
    established: Event | None = None,
    manifests: bool = False,
    buffers: bool = False,
) -> int:
    """Publish hints and keep the cluster's compact snapshot, until the deadline or until a successor has taken over.

    Args:
        cluster: its name, for the events.
        context: cluster, bus, clock, meter and snapshots are used.
        deadline: epoch seconds.
        pause: waits between tries of a broken connection, seconds.
        room: how many pods there is memory for; of a cluster that does not fit no snapshot is kept.
        established: is set once it is known what was there at the start.
        manifests: whether they are watched, too.
        buffers: whether the cluster has CapacityBuffers although its manifests are not watched.

    Returns:
        How many events were told.

    Raises:
        ClusterError: the API server refuses, or stays unreachable; the sweep goes on without this.
    """
    stop = Event()
    keeper = None
    if context.snapshots is not None:
        keeper = SnapshotKeeper(
            cluster, context.cluster, context.snapshots, clock=context.clock, room=room, fewest_pods=FEWEST_PODS
        )
        Thread(target=keeper.run, args=(deadline, pause, stop), name="keep-snapshot", daemon=True).start()
    try:
        batches = partial(
            change_batches,
            context.cluster,
            clock=context.clock,
            deadline_at=deadline,
            pause=pause,
            retired=keeper.retired if keeper is not None else None,
            manifests=manifests,
            buffers=buffers,
        )
        return _publish_hints(cluster, context, batches, keeper, established or Event())
    finally:
        stop.set()
        for name, number in sorted(keeper.problems.items()) if keeper is not None else ():
            context.meter.count(name, number)


def _publish_hints(
    cluster: str,
    context: FlowContext,
    batches: Callable[..., Iterable[ChangeBatch]],
    keeper: SnapshotKeeper | None,
    established: Event,
) -> int:
    told = 0

    def begun() -> None:
        established.set()
        if keeper is not None:
            keeper.established.set()

    for batch in batches(established=begun):
        hints = hints_of(cluster, batch, context.clock.now())
        context.publish(*hints)
        told += len(hints)
        _LOG.info(
            "seen",
            extra={
                "cluster": cluster,
                "pods": len(batch.pods),
                "joined": [node.metadata.name for node in batch.joined],
                "ready": [node.metadata.name for node in batch.ready],
                "manifests": [item.metadata.name for item in batch.manifests],
            },
        )
    return told


def most_pods(memory_mib: int, clusters: int = 1) -> int:
    """Return how many pods a function of so much memory that watches so many clusters can keep snapshots of."""
    return int(max(0.0, memory_mib - _OWN_MIB - _MIB_PER_CLUSTER * (clusters - 1)) * _PODS_PER_MIB)


def hints_of(cluster: str, batch: ChangeBatch, now: float) -> list[BusEvent]:
    """One event for all pods of a batch, one for all manifests, and one for every node that joined or became ready."""
    hints = []
    if batch.pods:
        pods = [PodReference.of(pod) for pod in batch.pods]
        newest = max(batch.pods, key=lambda pod: (len(_version(pod)), _version(pod)))
        event_id = f"{cluster}/pods/{_version(newest)}"
        hints.append(claim_events.pods_pending(cluster, pods, UNSCHEDULABLE, now, event_id=event_id, source="watch"))
    if batch.manifests:
        newest_edit = max(map(_version, batch.manifests), key=lambda version: (len(version), version))
        event_id = f"{cluster}/manifests/{newest_edit}"
        hints.append(claim_events.pods_pending(cluster, (), MANIFESTS_CHANGED, now, event_id=event_id, source="watch"))
    if batch.room_taken:
        event_id = f"{cluster}/room/{now:.3f}"
        hints.append(claim_events.pods_pending(cluster, (), ROOM_TAKEN, now, event_id=event_id, source="watch"))
    hints += [_of_node(cluster, node, now, ready=False) for node in batch.joined]
    hints += [_of_node(cluster, node, now, ready=True) for node in batch.ready]
    return hints


def _of_node(cluster: str, node: Node, now: float, *, ready: bool) -> BusEvent:
    event_id = f"{cluster}/{node.metadata.name}/{_version(node)}"
    return claim_events.node_seen(
        cluster, node.metadata.name, node.spec.provider_id, now, ready=ready, event_id=event_id
    )


def _version(item: Pod | Node | CustomObject) -> str:
    return item.metadata.resource_version
