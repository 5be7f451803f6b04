"""Clusters after a plan or a disruption command has been carried out exactly as decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from shiplap.disruption.commands import DisruptionProposal
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.quantity import format_resources
from shiplap.kubernetes.related_objects import PersistentVolume, PersistentVolumeClaim
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from tests.builders.pools import rule
from tests.conformance import given as case
from tests.living_cluster import LivingCluster
from tests.policy_parts import policy_parts
from tests.rules import ZONE


def launched(snapshot: Snapshot, claims: Iterable[PlannedClaim]) -> list[tuple[Node, NodeClaim]]:
    """The nodes of planned claims, each as its launch choice says, with the claims that they leave behind."""
    types = [item for catalog in snapshot.catalogs for item in catalog.instance_types]
    living = LivingCluster(snapshot.manifests.node_pools, types, now=snapshot.now)
    made = []
    for claim in claims:
        living.start(claim)
        made.append((_with_overlaid(living.nodes[claim.name], claim), living.claims[claim.name]))
    return made


def _with_overlaid(node: Node, claim: PlannedClaim) -> Node:
    """The node with the resources that a NodeOverlay adds, which a device plugin reports."""
    more = {name: amount for name, amount in claim.allocatable.items() if name not in node.status.allocatable}
    if not more:
        return node
    added = msgspec.convert(format_resources(more), dict[str, str])
    status = replace(
        node.status, capacity={**node.status.capacity, **added}, allocatable={**node.status.allocatable, **added}
    )
    return replace(node, status=status)


def carried_out(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """The cluster once every node of a plan has joined and its pods run there. Claims in flight stay in flight."""
    nodes = launched(snapshot, plan.node_claims)
    there = {node.metadata.name for node in snapshot.view.nodes}
    placements = [Placement(claim.name, claim.pods) for claim in plan.node_claims]
    placements += [place for place in plan.existing_nodes if place.name in there]
    grown = replace(
        snapshot,
        view=replace(snapshot.view, nodes=(*snapshot.view.nodes, *(node for node, _ in nodes))),
        claims=(*snapshot.claims, *(claim for _, claim in nodes)),
        catalogs=_with_reservations_used(snapshot.catalogs, plan.node_claims),
        epoch=snapshot.epoch + 1,
    )
    for module in policy_parts("combinations", "laws"):
        if hasattr(module, "carried_out"):
            for changed in module.carried_out(snapshot, plan):
                grown = grown.with_policy(changed)
    return with_volumes(with_bound(grown, placements))


def _with_reservations_used(
    catalogs: tuple[NodeClassCatalog, ...], claims: Iterable[PlannedClaim]
) -> tuple[NodeClassCatalog, ...]:
    """The catalogues with what is left of capacity reservations once claims have been launched into them."""
    used = Counter(claim.launch.reservation_id for claim in claims if claim.launch.reservation_id)
    if not used:
        return catalogs

    def left(item: InstanceType) -> InstanceType:
        offerings = (
            replace(
                offer,
                reservation_capacity=offer.reservation_capacity - used[offer.reservation_id],
                available=offer.available and offer.reservation_capacity > used[offer.reservation_id],
            )
            if offer.reservation_id
            else offer
            for offer in item.offerings
        )
        return replace(item, offerings=tuple(offerings))

    return tuple(replace(catalog, instance_types=tuple(map(left, catalog.instance_types))) for catalog in catalogs)


def after_command(snapshot: Snapshot, command: DisruptionProposal) -> Snapshot:
    """The cluster once a command is over: replacements have joined, pods have moved, its nodes are gone."""
    nodes = launched(snapshot, command.replacements)
    gone = set(command.nodes)
    grown = replace(
        snapshot,
        view=replace(
            snapshot.view,
            nodes=(
                *(node for node in snapshot.view.nodes if node.metadata.name not in gone),
                *(node for node, _ in nodes),
            ),
        ),
        claims=(*(claim for claim in snapshot.claims if claim.node_name not in gone), *(claim for _, claim in nodes)),
        epoch=snapshot.epoch + 1,
    )
    moves = [*(Placement(claim.name, claim.pods) for claim in command.replacements), *command.placements]
    return with_bound(grown, moves)


def with_bound(snapshot: Snapshot, placements: Iterable[Placement]) -> Snapshot:
    """The cluster with pods running where they are placed."""
    homes = {(pod.namespace, pod.name): place.name for place in placements for pod in place.pods}
    pods = tuple(
        _running(pod, homes[key]) if (key := (pod.metadata.namespace, pod.metadata.name)) in homes else pod
        for pod in snapshot.view.pods
    )
    return replace(snapshot, view=replace(snapshot.view, pods=pods))


def _running(pod: Pod, node: str) -> Pod:
    status = replace(pod.status, phase="Running", conditions=(), nominated_node_name="")
    return replace(pod, spec=replace(pod.spec, node_name=node), status=status)


def with_volumes(snapshot: Snapshot) -> Snapshot:
    """The cluster with a volume for each claim whose pod has a node, made in the node's zone by its CSI driver."""
    zones = {node.metadata.name: node.metadata.labels.get(ZONE, "") for node in snapshot.view.nodes}
    used = {
        (pod.metadata.namespace, volume.persistent_volume_claim.claim_name): zones.get(pod.spec.node_name, "")
        for pod in snapshot.view.pods
        if pod.spec.node_name
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    }
    claims: list[PersistentVolumeClaim] = []
    volumes: list[PersistentVolume] = []
    for claim in snapshot.view.persistent_volume_claims:
        zone = used.get((claim.metadata.namespace, claim.metadata.name), "")
        if claim.spec.volume_name or not zone:
            claims.append(claim)
            continue
        name = f"made-{claim.metadata.namespace}-{claim.metadata.name}"
        bound = case.pvc(claim.metadata.name, volume=name, storage_class=claim.spec.storage_class_name)
        claims.append(replace(bound, metadata=replace(bound.metadata, namespace=claim.metadata.namespace)))
        volumes.append(case.pv(name, [rule(ZONE, "In", zone)], storageClassName=claim.spec.storage_class_name))
    view = replace(
        snapshot.view,
        persistent_volume_claims=tuple(claims),
        persistent_volumes=(*snapshot.view.persistent_volumes, *volumes),
    )
    return replace(snapshot, view=view)
