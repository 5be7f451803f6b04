"""The watch flow: what the cluster's watches show, told to the bus, for as long as one invocation lasts.

Its successor begins before it ends. It knows by the snapshot in the bucket that the successor has seen what there is:
then there is nothing left to do for it. Without a successor it goes on until its deadline.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

from shiplap.api.nodeclaim import PodReference
from shiplap.cluster.keeper import Keeper
from shiplap.cluster.watcher import Batch, batches
from shiplap.kubernetes.objects import Node, Pod
from shiplap.ports import BusEvent
from shiplap.provisioning import events
from shiplap.provisioning.messages import UNSCHEDULABLE
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)

_OWN_MIB = 90
_PODS_PER_MIB = 1_400
"""The process needs 75 MiB with a page of a list, a pod about 0.7 KiB while a snapshot is made (docs/costs.md)."""


def watch(cluster: str, world: World, *, deadline: float, pause: Callable[[float], None], most_pods: int = 0) -> int:
    """Publish hints and keep the cluster's compact snapshot, until the deadline or until a successor has taken over.

    Args:
        cluster: its name, for the events.
        world: cluster, bus, clock, meter and snapshots are used.
        deadline: epoch seconds.
        pause: waits between tries of a broken connection, seconds.
        most_pods: how many pods there is memory for; of a larger cluster no snapshot is kept.

    Returns:
        How many events were told.

    Raises:
        ClusterError: the API server refuses, or stays unreachable; the sweep goes on without this.
    """
    stop = Event()
    keeper = None
    if world.snapshots is not None:
        keeper = Keeper(cluster, world.cluster, world.snapshots, clock=world.clock, most_pods=most_pods)
        Thread(target=keeper.run, args=(deadline, pause, stop), name="keep-snapshot", daemon=True).start()
    try:
        return _tell(cluster, world, deadline, pause, keeper)
    finally:
        stop.set()
        for name, number in sorted(keeper.problems.items()) if keeper is not None else ():
            world.meter.count(name, number)


def _tell(cluster: str, world: World, deadline: float, pause: Callable[[float], None], keeper: Keeper | None) -> int:
    told = 0
    for batch in batches(
        world.cluster,
        clock=world.clock,
        deadline_at=deadline,
        pause=pause,
        established=keeper.established if keeper is not None else None,
        retired=keeper.retired if keeper is not None else None,
    ):
        hints = hints_of(cluster, batch, world.clock.now())
        world.tell(*hints)
        told += len(hints)
        _LOG.info(
            "seen",
            extra={
                "cluster": cluster,
                "pods": len(batch.pods),
                "joined": [node.metadata.name for node in batch.joined],
                "ready": [node.metadata.name for node in batch.ready],
            },
        )
    return told


def most_pods(memory_mib: int) -> int:
    """How many pods a function of so much memory can keep a snapshot of."""
    return max(0, memory_mib - _OWN_MIB) * _PODS_PER_MIB


def hints_of(cluster: str, batch: Batch, now: float) -> list[BusEvent]:
    """One event for all pods of a batch, and one for every node that joined or became ready."""
    hints = []
    if batch.pods:
        pods = [PodReference(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) for pod in batch.pods]
        newest = max(batch.pods, key=lambda pod: (len(_version(pod)), _version(pod)))
        event_id = f"{cluster}/pods/{_version(newest)}"
        hints.append(events.pods_pending(cluster, pods, UNSCHEDULABLE, now, event_id=event_id, source="watch"))
    hints += [_of_node(cluster, node, now, ready=False) for node in batch.joined]
    hints += [_of_node(cluster, node, now, ready=True) for node in batch.ready]
    return hints


def _of_node(cluster: str, node: Node, now: float, *, ready: bool) -> BusEvent:
    event_id = f"{cluster}/{node.metadata.name}/{_version(node)}"
    return events.node_seen(cluster, node.metadata.name, node.spec.provider_id, now, ready=ready, event_id=event_id)


def _version(item: Pod | Node) -> str:
    return item.metadata.resource_version
