"""Plans for the time after a node has gone: what it holds of limits and of its reservation is free by then."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate, is_reschedulable
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod, PodStatus
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap.scheduling.packing.planned_claims import plan_of
from shiplap.scheduling.planner import plan
from shiplap.scheduling.supply.reservations import held_by


def is_reserved(node: Candidate) -> bool:
    """True if a node runs in a capacity reservation or block."""
    return bool(_reservation_of(node))


def homeless_without(snapshot: Snapshot, node: Candidate) -> str:
    """Return which pod of a node has no place once it is gone, or that its static NodePool stays short; or nothing.

    Raises InvalidInput as `planner.plan`.
    """
    later, name = _without(snapshot, node), node.pool.metadata.name
    decided = plan(later)
    if node.pool.spec.replicas is not None:
        short = next((item for item in decided.static_pools if item.node_pool == name), None)
        if short is None or short.missing:
            return f"NodePool {name} can launch no replacement: {short.reason if short else 'it is being deleted'}"
        # Nodes of static pools are planned without pods: these use them once they are on their way.
        coming = (_in_flight(claim, later) for claim in decided.node_claims if claim.node_pool == name)
        decided = plan(replace(later, claims=(*later.claims, *coming)))
    moved = {pod.key for pod in node.pods}
    for entry in (*decided.unschedulable, *decided.ignored):
        if entry.pod.key in moved:
            return f"pod {entry.pod.key} has no place: {entry.message}"
    return ""


def _reservation_of(node: Candidate) -> str:
    said = node.node.metadata.labels
    if said.get(labels.CAPACITY_TYPE, node.claim.known_instance.capacity_type) != labels.RESERVED:
        return ""
    return said.get(labels.RESERVATION_ID, "") or next(iter(held_by(node.claim)), "")


def _without(snapshot: Snapshot, node: Candidate) -> Snapshot:
    view, reservation = snapshot.view, _reservation_of(node)
    pods = []
    for pod in view.pods:
        if pod.spec.node_name != node.name:
            pods.append(pod)
        elif is_reschedulable(pod):
            pods.append(_waiting(pod))
    freed = {(reservation, zone) for zone in _open_zones(snapshot.catalogs)} if reservation else frozenset()
    return replace(
        snapshot,
        view=replace(
            view, pods=tuple(pods), nodes=tuple(item for item in view.nodes if item.metadata.name != node.name)
        ),
        claims=tuple(claim for claim in snapshot.claims if claim.name != node.claim.name),
        catalogs=tuple(_with_one_more(catalog, freed) for catalog in snapshot.catalogs),
        settings=replace(snapshot.settings, reserved_policy="Fallback", improve_s=0.0),
    )


def _in_flight(claim: PlannedClaim, snapshot: Snapshot) -> NodeClaim:
    return NodeClaim(cluster=snapshot.cluster, name=claim.name, plan=plan_of(claim), created_at=snapshot.now)


def _waiting(pod: Pod) -> Pod:
    """The pod as its owner makes it anew."""
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=None),
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(),
    )


def _open_zones(catalogs: Iterable[NodeClassCatalog]) -> frozenset[str]:
    """The zones in which nodes may be launched now.

    A full reservation is not available, whatever its zone is: other offerings show whether traffic was shifted away.
    """
    offerings = [offering for catalog in catalogs for kind in catalog.instance_types for offering in kind.offerings]
    others = [offering for offering in offerings if not offering.reservation_id]
    closed = {offering.zone for offering in others} - {offering.zone for offering in others if offering.available}
    return frozenset(offering.zone for offering in offerings) - closed


def _with_one_more(catalog: NodeClassCatalog, freed: Collection[tuple[str, str]]) -> NodeClassCatalog:
    """The catalogue with one instance more in a reservation, given with each zone that is open."""
    if not freed:
        return catalog
    return replace(catalog, instance_types=tuple(_with_freed(kind, freed) for kind in catalog.instance_types))


def _with_freed(kind: InstanceType, freed: Collection[tuple[str, str]]) -> InstanceType:
    offerings = tuple(
        replace(offering, available=True, reservation_capacity=offering.reservation_capacity + 1)
        if (offering.reservation_id, offering.zone) in freed
        else offering
        for offering in kind.offerings
    )
    return replace(kind, offerings=offerings)
