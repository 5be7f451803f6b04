"""The watch flow: what the cluster's watches show, told to the bus, for as long as one invocation lasts."""

from __future__ import annotations

import logging
from collections.abc import Callable

from shiplap.api.nodeclaim import PodReference
from shiplap.cluster.watcher import Batch, batches
from shiplap.kubernetes.objects import Node, Pod
from shiplap.ports import BusEvent
from shiplap.provisioning import events
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)

_REASON = "Unschedulable"


def watch(cluster: str, world: World, *, deadline: float, pause: Callable[[float], None]) -> int:
    """Publish hints until the deadline.

    Args:
        cluster: its name, for the events.
        world: cluster, bus, clock and meter are used.
        deadline: epoch seconds.
        pause: waits between tries of a broken connection, seconds.

    Returns:
        How many events were told.

    Raises:
        ClusterError: the API server refuses, or stays unreachable; the sweep goes on without this.
    """
    told = 0
    for batch in batches(world.cluster, clock=world.clock, deadline_at=deadline, pause=pause):
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


def hints_of(cluster: str, batch: Batch, now: float) -> list[BusEvent]:
    """One event for all pods of a batch, and one for every node that joined or became ready."""
    hints = []
    if batch.pods:
        pods = [PodReference(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid) for pod in batch.pods]
        newest = max(batch.pods, key=lambda pod: (len(_version(pod)), _version(pod)))
        event_id = f"{cluster}/pods/{_version(newest)}"
        hints.append(events.pods_pending(cluster, pods, _REASON, now, event_id=event_id, source="watch"))
    hints += [_of_node(cluster, node, now, ready=False) for node in batch.joined]
    hints += [_of_node(cluster, node, now, ready=True) for node in batch.ready]
    return hints


def _of_node(cluster: str, node: Node, now: float, *, ready: bool) -> BusEvent:
    event_id = f"{cluster}/{node.metadata.name}/{_version(node)}"
    return events.node_seen(cluster, node.metadata.name, node.spec.provider_id, now, ready=ready, event_id=event_id)


def _version(item: Pod | Node) -> str:
    return item.metadata.resource_version
