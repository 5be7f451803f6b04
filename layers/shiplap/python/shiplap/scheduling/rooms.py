"""Rooms: nodes that exist and claims in flight, each as something to put pods into.

Capacity of every node counts, whoever owns it; nodes that are cordoned or on their way out do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from shiplap.api.nodeclaim import IN_FLIGHT, LEAVING, ClaimState, NodeClaim
from shiplap.instances.types import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod, Taint
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.taints import is_ephemeral
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.reservations import held_by
from shiplap.scheduling.resources import Ints
from shiplap.scheduling.volumes import ATTACHED, Attachments

STARTING_S = 900.0
"""How long a foreign node that is not Ready counts as one that is about to be."""


class Room(msgspec.Struct, eq=False):
    """One node to fill. `labels` are certain; `possible` holds what an unlaunched claim has not decided yet, as do the
    labels of the instance types (places in the lane's catalogue) it may become. `net` [resources] is what is left for
    pods next to daemons where that follows from the types, not from a Node.

    `attachments` are the volumes on it where their number is limited: on nodes whose CSI drivers have registered.
    `promised` are the pods (uid, or namespace/name) an in-flight claim was planned for.
    """

    name: str
    initialized: bool
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    allocatable: dict[str, int]
    possible: Requirements = msgspec.field(default_factory=Requirements)
    lane: Lane | None = None
    types: tuple[int, ...] = ()
    net: Ints | None = None
    pods: list[Pod] = msgspec.field(default_factory=list)
    promised: frozenset[str] = frozenset()
    estimated: bool = False
    attachments: Attachments | None = None


def rooms_of(
    nodes: Sequence[Node],
    paired: Mapping[str, NodeClaim],
    waiting: Sequence[NodeClaim],
    pods: Mapping[str, Sequence[Pod]],
    now: float,
    lanes: Sequence[Lane],
) -> list[Room]:
    """Usable nodes, finished ones first, then by name; claims without a Node come last.

    Args:
        nodes: all of the cluster.
        paired: claims by the name of the node they became.
        waiting: claims without a node.
        pods: by node name, those that use it.
        now: epoch seconds.
        lanes: of all NodePools; a claim in flight is reckoned as its lane would open it now.
    """
    known = {(lane.tier.pool, lane.tier.index, lane.reserved): lane for lane in reversed(lanes)}
    of_pool = {label_value_of(lane.tier.pool): lane for lane in lanes}
    rooms = []
    for node in nodes:
        claim = paired.get(node.metadata.name)
        room = _room_of_node(node, claim, of_pool.get(node.metadata.labels.get(labels.NODE_POOL, "")), now)
        if room is not None:
            room.pods = list(pods.get(room.name, ()))
            rooms.append(room)
    rooms.sort(key=lambda room: (not room.initialized, room.name))
    return rooms + [
        _room_of_claim(claim, known.get((claim.node_pool, claim.tier, bool(held_by(claim)))))
        for claim in waiting
        if claim.state in IN_FLIGHT
    ]


def _room_of_node(node: Node, claim: NodeClaim | None, lane: Lane | None, now: float) -> Room | None:
    """A Node as room, or None when pods cannot or should not go there.

    `lane` is one of its NodePool's: it knows the startup taints and what the type yields when the claim is not known.
    """
    meta, spec = node.metadata, node.spec
    if spec.unschedulable or meta.deletion_timestamp or (claim is not None and claim.state in LEAVING):
        return None
    managed = claim is not None or labels.NODE_POOL in meta.labels
    ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
    initialized = meta.labels.get(labels.INITIALIZED) == "true" if managed else ready
    if not ready and not (managed and not initialized) and not _starting(node, now):
        return None
    taints = spec.taints
    allocatable = parse_resources(node.status.allocatable)
    if not initialized:
        startup: tuple[Taint, ...] = ()
        expected: dict[str, int] = {}
        if claim is not None:
            startup, expected = claim.startup_taints, claim.allocatable
        elif lane is not None:
            startup = lane.pool.spec.template.spec.startup_taints
            place = lane.table.index.get(meta.labels.get(labels.INSTANCE_TYPE, ""))
            expected = lane.table.types[place].careful_allocatable if place is not None else {}
        taints = tuple(taint for taint in taints if taint not in startup and not is_ephemeral(taint))
        allocatable |= {name: amount for name, amount in expected.items() if not allocatable.get(name)}
    room = Room(meta.name, initialized, meta.labels, taints, allocatable)
    if claim is not None and claim.state not in (ClaimState.INITIALIZED, ClaimState.DISRUPTING):
        room.promised = _promised(claim)
        room.estimated = bool(claim.relies_on_estimate) and not node.status.allocatable
    return room


def _starting(node: Node, now: float) -> bool:
    born = node.metadata.creation_timestamp
    return born is not None and born != "" and now - epoch(born) < STARTING_S


def _room_of_claim(claim: NodeClaim, lane: Lane | None) -> Room:
    certain = {
        **claim.labels,
        labels.NODE_POOL: label_value_of(claim.node_pool),
        labels.NODE_CLASS: label_value_of(claim.node_class),
    }
    launched = {
        labels.INSTANCE_TYPE: claim.instance_type,
        labels.ZONE: claim.zone,
        labels.CAPACITY_TYPE: claim.capacity_type,
    }
    certain |= {key: value for key, value in launched.items() if value}
    possible = Requirements.of(claim.requirements).and_(Requirements.of_labels(certain).values())
    types = _may_become(claim, lane) if lane is not None else ()
    return Room(
        claim.name,
        False,
        certain,
        claim.taints,
        dict(claim.allocatable),
        possible=possible,
        lane=lane,
        types=types,
        net=_net(claim, lane, types) if lane is not None and types else None,
        promised=_promised(claim),
        estimated=bool(claim.relies_on_estimate),
    )


def _may_become(claim: NodeClaim, lane: Lane) -> tuple[int, ...]:
    """Places of the types a claim may still be launched as: one that was found too small meanwhile is not asked for."""
    table = lane.table
    if claim.instance_type:
        return (table.index[claim.instance_type],) if claim.instance_type in table.index else ()
    listed = [table.index[name] for name in claim.instance_types if name in table.index]
    return tuple(place for place in listed if still_fits(claim, table.types[place])) or tuple(listed)


def still_fits(claim: NodeClaim, instance_type: InstanceType) -> bool:
    """Whether what is known of a type by now is enough for what was planned for a claim that is not launched yet."""
    room = counted_on(instance_type, claim)
    return all(amount <= room.get(resource, 0) for resource, amount in claim.requests.items())


def counted_on(instance_type: InstanceType, claim: NodeClaim) -> dict[str, int]:
    """What a claim's plan relied on for a type: the estimate where it was allowed to, else the careful bound.

    Returns:
        Allocatable in canonical units.
    """
    if instance_type.verified or instance_type.name in claim.relies_on_estimate:
        return instance_type.allocatable
    return instance_type.careful_allocatable


def _net(claim: NodeClaim, lane: Lane, types: Sequence[int]) -> Ints:
    """What is left for pods [resources] whichever of the types is launched: by the figures counted on, less daemons."""
    table = lane.table
    if claim.instance_type and claim.allocatable:
        counted = table.axis.vector(claim.allocatable)[None, :]
    else:
        counted = table.axis.matrix([counted_on(table.types[place], claim) for place in types])
    net: Ints = (counted - lane.daemons.overhead[list(types)]).min(axis=0)
    attached = [column for column, name in enumerate(table.axis.names) if name.startswith(ATTACHED)]
    if attached:
        net[attached] = table.allocatable[np.isin(table.row_type, types)][:, attached].min(axis=0)
    return net


def _promised(claim: NodeClaim) -> frozenset[str]:
    return frozenset(pod.uid or f"{pod.namespace}/{pod.name}" for pod in claim.pods)
