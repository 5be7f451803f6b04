"""Pictures of what a decision looks at: the cluster as it is, and as it would be once a plan has come true."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PendingPicture, PodPicture
from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap.instances.offerings.node_prices import NodePrices, capacity_type_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, Node, Pod, is_ready
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import ACCELERATOR_DEVICES, CPU, MEMORY, PODS, parse_amount
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import FINAL, LEAVING, ClaimState, NodeClaim, PodReference
from shiplap.scheduling.model.planned_pods import leaving, pair
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot

_NO_PRICES = NodePrices()


def picture_amounts(resources: Mapping[str, int]) -> Amounts:
    """Canonical resources as a picture shows them."""
    return Amounts(resources.get(CPU, 0), resources.get(MEMORY, 0), resources.get(PODS, 0), _accelerators(resources))


def picture_of_cluster(
    cluster: str,
    now: float,
    nodes: Sequence[Node],
    pods: Iterable[Pod],
    claims: Sequence[NodeClaim] = (),
    prices: NodePrices = _NO_PRICES,
) -> ClusterPicture:
    """The cluster as it is.

    Args:
        cluster: its name.
        now: epoch seconds.
        nodes: all of them, foreign ones included.
        pods: bound and pending ones; those that have ended are left out.
        claims: of the cluster; those that are over are left out.
        prices: what nodes and claims cost.
    """
    paired, waiting = pair(nodes, claims)
    going = leaving(nodes, paired)
    on_node: dict[str, list[Pod]] = {}
    pending: dict[str, Pod] = {}
    for pod in pods:
        if pod.status.phase in TERMINAL_PHASES:
            continue
        if pod.spec.node_name:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
        else:
            pending[pod.metadata.uid or pod.key] = pod
    drawn = [
        _node(node, paired.get(node.metadata.name), on_node.get(node.metadata.name, ()), prices, going)
        for node in nodes
    ]
    for claim in waiting:
        expected = [_pod(found, fresh=True) for each in claim.plan.pods if (found := _find(pending, each)) is not None]
        drawn.append(claim_picture(claim, expected, prices))
    return ClusterPicture(
        cluster=cluster,
        taken_at=now,
        nodes=tuple(sorted(drawn, key=lambda node: node.name)),
        pending=_oldest_first(_pending(pod, now) for pod in pending.values() if not pod.metadata.deletion_timestamp),
    )


def picture_of_snapshot(snapshot: Snapshot, prices: NodePrices) -> ClusterPicture:
    """The cluster that a decision looks at, before it."""
    view = snapshot.view
    return picture_of_cluster(snapshot.cluster, snapshot.now, view.nodes, view.pods, snapshot.claims, prices)


def picture_after_plan(snapshot: Snapshot, plan: Plan, prices: NodePrices) -> ClusterPicture:
    """The cluster once a plan has come true: its nodes are there with its pods on them; pods left out still wait.

    Pods that move away from a node on its way out are drawn where they go, and still where they are.
    """
    before = picture_of_snapshot(snapshot, prices)
    pods = _by_reference(snapshot.view.pods)
    placed: dict[str, list[PodPicture]] = {}
    for place in plan.existing_nodes:
        placed[place.name] = [_pod(pods[key], fresh=True) for ref in place.pods if (key := ref.key) in pods]
    nodes = [_filled(node, placed.get(node.name, ())) for node in before.nodes]
    nodes += [_planned(claim, pods, prices) for claim in plan.node_claims]
    found = {entry.pod.key: entry.message for entry in (*plan.unschedulable, *plan.ignored)}
    settled = {ref.key for place in plan.existing_nodes for ref in place.pods}
    settled |= {ref.key for claim in plan.node_claims for ref in claim.pods}
    pending = tuple(
        msgspec.structs.replace(pod, reason=found.get(pod.key, pod.reason))
        for pod in before.pending
        if pod.key not in settled
    )
    return msgspec.structs.replace(before, nodes=tuple(sorted(nodes, key=lambda node: node.name)), pending=pending)


def picture_of_claims(
    cluster: str,
    now: float,
    claims: Sequence[NodeClaim],
    pods: Mapping[str, Sequence[Pod]] | None = None,
    learned: Sequence[LearnedCapacity] = (),
) -> ClusterPicture:
    """A cluster by its claims alone, for readers without access to it.

    Without `pods`, by the name of their node, what was planned for each node is taken as used. A node in service has
    what it reported, as far as `learned` has its report or that of a node like it, and not what its plan counted on.
    """
    reports = {(entry.ami, entry.instance_type, entry.kubelet_hash): entry.recent for entry in learned}
    nodes = []
    for claim in claims:
        if claim.state not in FINAL:
            drawn = claim_picture(claim)
            if pods is not None and claim.node_name:
                drawn = _holding(drawn, pods.get(claim.node_name, ()))
            if claim.state is ClaimState.INITIALIZED:
                room = _reported(claim, reports) or drawn.allocatable
                ready = NodePictureState.READY
                drawn = msgspec.structs.replace(drawn, state=ready, note=claim.cordoned, allocatable=room)
            nodes.append(drawn)
    return ClusterPicture(cluster=cluster, taken_at=now, nodes=tuple(sorted(nodes, key=lambda node: node.name)))


def _reported(claim: NodeClaim, reports: Mapping[tuple[str, str, str], Sequence[Observation]]) -> Amounts | None:
    """Return what a node reported to have for pods, else what the newest of its type, image and settings reported."""
    instance = claim.known_instance
    known = reports.get((instance.ami, instance.type, instance.kubelet_hash), ())
    own = [item for item in known if (item.cluster, item.node) == (claim.cluster, claim.node_name)]
    found = own or known
    return picture_amounts(found[-1].allocatable) if found else None


def _holding(node: NodePicture, pods: Sequence[Pod]) -> NodePicture:
    drawn = tuple(sorted((_pod(pod) for pod in pods), key=lambda pod: (-pod.millicores, -pod.memory_bytes, pod.key)))
    used = sum((pod.amounts for pod in drawn), Amounts())
    return msgspec.structs.replace(node, used=used, pods=drawn)


def claim_picture(claim: NodeClaim, pods: Sequence[PodPicture] = (), prices: NodePrices = _NO_PRICES) -> NodePicture:
    """A claim that no Node is known of, with those of its pods of which more is known than a name."""
    price = prices.of_claim(claim)
    allocatable, requested = picture_amounts(claim.plan.allocatable), picture_amounts(claim.plan.requests)
    return NodePicture(
        name=claim.node_name or claim.name,
        pool=claim.plan.node_pool,
        tier=claim.plan.tier,
        instance_type=claim.known_instance.type or (claim.plan.instance_types[0] if claim.plan.instance_types else ""),
        zone=claim.known_instance.zone,
        capacity_type=claim.known_instance.capacity_type,
        hourly=price.hourly,
        estimated=price.estimated,
        list_hourly=prices.listed(claim.known_instance.type),
        state=NodePictureState.LEAVING if claim.state in LEAVING else NodePictureState.STARTING,
        note=claim.failure or str(claim.state),
        allocatable=allocatable,
        used=msgspec.structs.replace(requested, pods=requested.pods or len(claim.plan.pods)),
        pods=tuple(pods),
        created_at=claim.created_at,
    )


def _node(
    node: Node, claim: NodeClaim | None, pods: Sequence[Pod], prices: NodePrices, going: frozenset[str]
) -> NodePicture:
    node_labels = node.metadata.labels
    kind = labels.value_of(node_labels, labels.INSTANCE_TYPE) or (claim.known_instance.type if claim else "")
    zone = labels.value_of(node_labels, labels.ZONE) or (claim.known_instance.zone if claim else "")
    ours = claim is not None or labels.NODE_POOL in node_labels
    capacity_type = capacity_type_of(node) or (claim.known_instance.capacity_type if claim else "")
    price = prices.of(node, claim)
    drawn = tuple(sorted((_pod(pod) for pod in pods), key=lambda pod: (-pod.millicores, -pod.memory_bytes, pod.key)))
    born = node.metadata.creation_timestamp
    state, note = _state(node, claim, going)
    return NodePicture(
        name=node.metadata.name,
        pool=(claim.plan.node_pool if claim else node_labels.get(labels.NODE_POOL, "")) if ours else "",
        tier=claim.plan.tier if claim else 0,
        instance_type=kind,
        zone=zone,
        capacity_type=capacity_type,
        hourly=price.hourly,
        estimated=price.estimated,
        list_hourly=prices.listed(kind) if price.known else 0.0,
        state=state,
        note=note,
        allocatable=picture_amounts({name: _amount(node, name) for name in (CPU, MEMORY, PODS, *ACCELERATOR_DEVICES)}),
        used=sum((pod.amounts for pod in drawn), Amounts()),
        pods=drawn,
        created_at=epoch(born) if born else 0.0,
    )


def _state(node: Node, claim: NodeClaim | None, going: frozenset[str]) -> tuple[NodePictureState, str]:
    if node.metadata.name in going:
        reason = (claim.failure or str(claim.state)) if claim is not None else "is being deleted"
        return NodePictureState.LEAVING, reason
    if not is_ready(node.status):
        # Files often hold nodes without conditions: what says nothing is not said to be broken.
        return (
            (NodePictureState.NOT_READY, "kubelet is not ready")
            if node.status.conditions
            else (NodePictureState.READY, "")
        )
    if node.spec.unschedulable:
        return NodePictureState.READY, "cordoned"
    return NodePictureState.READY, claim.cordoned if claim is not None else ""


def _planned(claim: PlannedClaim, pods: Mapping[str, Pod], prices: NodePrices) -> NodePicture:
    launch = claim.launch
    drawn = [_pod(pods[key], fresh=True) for ref in claim.pods if (key := ref.key) in pods]
    requested = picture_amounts(claim.requests)
    return NodePicture(
        name=claim.name,
        pool=claim.node_pool,
        tier=claim.tier,
        instance_type=launch.instance_type,
        zone=launch.zone,
        capacity_type=launch.capacity_type,
        hourly=launch.price,
        estimated=prices.is_estimated(claim.node_pool, launch.instance_type, launch.zone, launch.capacity_type),
        list_hourly=prices.listed(launch.instance_type),
        state=NodePictureState.PLANNED,
        note="; ".join(claim.reasons),
        allocatable=picture_amounts(claim.allocatable),
        used=msgspec.structs.replace(requested, pods=requested.pods or len(claim.pods)),
        pods=tuple(sorted(drawn, key=lambda pod: (-pod.millicores, -pod.memory_bytes, pod.key))),
    )


def _filled(node: NodePicture, fresh: Sequence[PodPicture]) -> NodePicture:
    """A node with further pods. Pods that were promised to a claim in flight are on it already."""
    there = {pod.key for pod in node.pods}
    more = [pod for pod in fresh if pod.key not in there]
    if not more:
        return node
    used = sum((pod.amounts for pod in more), node.used)
    return msgspec.structs.replace(node, used=used, pods=(*node.pods, *more))


def _pod(pod: Pod, *, fresh: bool = False) -> PodPicture:
    requests = pod_requests(pod)
    namespace = pod.metadata.namespace or "default"
    amounts = picture_amounts(requests)
    return PodPicture(
        namespace, pod.metadata.name, amounts.millicores, amounts.memory_bytes, fresh, amounts.accelerators
    )


def _accelerators(resources: Mapping[str, int]) -> int:
    return sum(resources.get(name, 0) for name in ACCELERATOR_DEVICES)


def _pending(pod: Pod, now: float) -> PendingPicture:
    drawn, born = _pod(pod), pod.metadata.creation_timestamp
    said = next((item.message or item.reason for item in pod.status.conditions if item.type == "PodScheduled"), "")
    return PendingPicture(
        namespace=drawn.namespace,
        name=drawn.name,
        millicores=drawn.millicores,
        memory_bytes=drawn.memory_bytes,
        age_s=max(0.0, now - epoch(born)) if born else 0.0,
        reason=said,
    )


def _oldest_first(pending: Iterable[PendingPicture]) -> tuple[PendingPicture, ...]:
    return tuple(sorted(pending, key=lambda pod: (-pod.age_s, pod.namespace, pod.name)))


def _amount(node: Node, resource: str) -> int:
    return parse_amount(resource, node.status.allocatable.get(resource, 0))


def _find(pods: Mapping[str, Pod], wanted: PodReference) -> Pod | None:
    return pods.get(wanted.uid) or pods.get(wanted.key)


def _by_reference(pods: Iterable[Pod]) -> dict[str, Pod]:
    return {pod.key: pod for pod in pods if pod.status.phase not in TERMINAL_PHASES}
