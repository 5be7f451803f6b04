"""Claims that one plan keeps and the next one builds on: they hold their pods and have no room for others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import pilot_key
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import add_resources
from shiplap.manifests.nodeclaim import ClaimState, LaunchedInstance, NodeClaim
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.planned_claims import plan_of


def holding(snapshot: Snapshot, claims: Sequence[PlannedClaim]) -> Snapshot:
    """The snapshot with these claims, whose estimates nobody else tries."""
    if not claims:
        return snapshot
    keys = {pod.key for claim in claims for pod in claim.pods}
    pods = {pod.key: pod for pod in snapshot.view.pods if pod.key in keys}
    return replace(
        snapshot,
        claims=(*snapshot.claims, *(_held(snapshot, claim, pods) for claim in claims)),
        closed_claims=snapshot.closed_claims.union(claim.name for claim in claims),
        piloted=snapshot.piloted | _pilots(snapshot, claims),
    )


def _held(snapshot: Snapshot, claim: PlannedClaim, pods: Mapping[str, Pod]) -> NodeClaim:
    """A claim as if it were launched. Its zone and capacity type are known if its labels name them.

    Its type is known if its list names one only: limits count the largest that it may become.
    """
    requested = add_resources(*(pod_requests(pods[pod.key]) for pod in claim.pods))
    return NodeClaim(
        cluster=snapshot.cluster,
        name=claim.name,
        plan=replace(plan_of(claim), allocatable=requested),
        state=ClaimState.LAUNCHED,
        instance=LaunchedInstance(
            id="",
            type=claim.launch.instance_type if len(claim.instance_types) == 1 else "",
            zone=claim.labels.get(labels.ZONE, ""),
            capacity_type=claim.labels.get(labels.CAPACITY_TYPE, ""),
        ),
        created_at=snapshot.now,
        changed_at=snapshot.now,
    )


def _pilots(snapshot: Snapshot, claims: Sequence[PlannedClaim]) -> frozenset[str]:
    tried = {(claim.node_class, name) for claim in claims for name in claim.relies_on_estimate}
    return frozenset(
        pilot_key(item.ami, item.name, item.kubelet_hash)
        for catalog in snapshot.catalogs
        for item in catalog.instance_types
        if (catalog.node_class, item.name) in tried
    )


def still_held(plan: Plan, claims: Sequence[PlannedClaim]) -> bool:
    """True if the pods of kept claims have stayed there, and no other pods have come."""
    placed = {place.name: place.pods for place in plan.existing_nodes}
    return all(sorted(placed.get(claim.name, ())) == sorted(claim.pods) for claim in claims)


def together(plan: Plan, claims: Sequence[PlannedClaim]) -> Plan:
    """The last plan with the claims that were kept before it, or that are narrowed of its own."""
    kept = {claim.name for claim in claims}
    everything = [*claims, *(claim for claim in plan.node_claims if claim.name not in kept)]
    return replace(
        plan,
        node_claims=tuple(sorted(everything, key=lambda claim: claim.name)),
        existing_nodes=tuple(place for place in plan.existing_nodes if place.name not in kept),
        hourly=round(sum(claim.launch.price for claim in everything), 6),
    )
