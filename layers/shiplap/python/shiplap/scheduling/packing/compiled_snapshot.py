"""A snapshot compiled for the packer, with the resources that a decision reckons with.

These are the resources that pods, DaemonSets and limits name, up to a number. Each is a column of every array of
instance types, nodes and claims. Whoever may create pods may invent names of resources, so names that no instance type
has make room first, then names that the fewest nodes have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.related_objects import has_claims
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import price_rules
from shiplap.scheduling.model import planned_pods as pods
from shiplap.scheduling.model import pod_classes as classes
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.planned_pods import leaving, pair
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.pod_volumes import ATTACHED, PodVolumes, UnusableVolume, VolumeNeeds
from shiplap.scheduling.model.resources import Axis
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.model.topology_constraints import (
    DefaultSpread,
    Terms,
    WidenedTerms,
    keeps_away,
    widened_terms,
)
from shiplap.scheduling.supply.charges import limits_of_pools
from shiplap.scheduling.supply.daemons import Daemon, DaemonTerms, daemon_terms, daemons_of
from shiplap.scheduling.supply.existing_nodes import ExistingNode, ExistingNodes, list_existing_nodes
from shiplap.scheduling.supply.limits import HOURLY, NODES, SPOT_VCPUS, PoolLimits, price_limits
from shiplap.scheduling.supply.node_loads import NodeLoad, loads_by_node
from shiplap.scheduling.supply.open_claims import ClaimGroups
from shiplap.scheduling.supply.pool_catalogs import catalogues_of
from shiplap.scheduling.supply.reservations import units_left
from shiplap.scheduling.supply.templates import NodeClaimTemplate, templates_of, usable_pools
from shiplap.scheduling.topology.topology_counts import (
    NO_BASE_COUNTS,
    BaseCounts,
    ExpectedDomains,
    base_counts_of,
)

if TYPE_CHECKING:
    from shiplap.scheduling.packing.buffers import Buffer
    from shiplap.scheduling.packing.static_pools import StaticPlan


class CompiledSnapshot(msgspec.Struct, frozen=True, eq=False):
    """Everything a packing needs; a packing changes none of it. `taken` are claim names that exist, `limits` what
    NodePools may still launch, by name.

    `groups` are the groups of claims that packings of it have met, so that none is made twice.

    `virtual` are the classes of the pods of CapacityBuffers, which come after all others; their indexes go on.
    `domain_templates` are those whose domains count, mostly `templates` themselves.
    Limits of NodePools in `bound` count while pods are placed; those of the others once all pods have a place.
    `expected_domains` are those of nodes that a packing before this one has launched for other pods.
    """

    axis: Axis
    templates: tuple[NodeClaimTemplate, ...]
    domain_templates: tuple[NodeClaimTemplate, ...]
    limits: Mapping[str, PoolLimits]
    nodes: ExistingNodes
    classes: list[PodClass]
    pods: pods.SortedPods
    base_counts: BaseCounts
    daemons: tuple[Daemon, ...]
    daemon_terms: DaemonTerms
    taken: frozenset[str]
    static: StaticPlan | None = None
    buffers: tuple[Buffer, ...] = ()
    virtual: tuple[PodClass, ...] = ()
    bound: frozenset[str] = frozenset()
    expected_domains: ExpectedDomains = {}
    groups: ClaimGroups = msgspec.field(default_factory=ClaimGroups)


def compile_snapshot(snapshot: Snapshot, resources: Collection[str] = ()) -> CompiledSnapshot:
    """Compile a snapshot.

    Args:
        snapshot: of the cluster.
        resources: names to include beside those of its pods, daemons and limits.

    Raises:
        ValueError: a quantity, requirement or timestamp is malformed; the message names it.
    """
    view, settings = snapshot.view, snapshot.settings
    paired, waiting = pair(view.nodes, snapshot.claims)
    gone = leaving(view.nodes, paired)
    pools = usable_pools(snapshot.manifests.node_pools)
    sorted_pods = pods.sort_pods_of_view(
        view,
        nodes=frozenset(node.metadata.name for node in view.nodes),
        leaving=gone,
        held=pods.held_by_cluster_autoscaler(view.events, snapshot.now, settings.autoscaler_hold_s),
        now=snapshot.now,
        rules=settings.claim_rules,
    )
    storage = PodVolumes(view) if any(map(has_claims, sorted_pods.pending)) else None
    needs = _volume_needs(storage, sorted_pods) if storage is not None else None
    daemons = daemons_of(view)
    terms = bound_pod_terms(anti_affine_pods(view, sorted_pods), snapshot, daemons)
    pod_classes = classes.group(sorted_pods.pending, snapshot.missed_pods, needs, terms)
    if storage is not None:
        _request_attachments(pod_classes, storage)
    buffers: tuple[Buffer, ...] = ()
    virtual: list[PodClass] = []
    if snapshot.manifests.capacity_buffers:
        from shiplap.scheduling.packing.buffers import buffers_of  # noqa: PLC0415 - few installs have buffers

        buffers = buffers_of(snapshot)
        virtual = classes.group((pod for buffer in buffers for pod in buffer.pods), terms=terms)
        for pod_class in virtual:
            pod_class.index += len(pod_classes)
    axis = axis_of(
        frozenset(resources).union(*(pod_class.requests for pod_class in (*pod_classes, *virtual))),
        daemons,
        pools,
        snapshot,
    )
    for pod_class in (*pod_classes, *virtual):
        pod_class.problem = pod_class.problem or outside_of(axis, pod_class.requests)
    catalogues = catalogues_of(snapshot, pools, axis)
    tables = {name: catalogue.table for name, catalogue in catalogues.items()}
    if storage is not None:
        for table in {id(table): table for table in tables.values()}.values():
            table.bound_attachments(storage.by_type)
    budgets = limits_of_pools(pools, axis, tables, view.nodes, paired, waiting)
    static, units = None, units_left(tables.values(), snapshot.claims, snapshot.now)
    if any(pool.spec.replicas is not None for pool in snapshot.manifests.node_pools):
        from shiplap.scheduling.model.protected_pods import pdb_limits_of  # noqa: PLC0415 - few installs have static pools
        from shiplap.scheduling.packing.static_pools import StaticPoolInputs, plan_static  # noqa: PLC0415 - as above

        limits = pdb_limits_of(view.pod_disruption_budgets, view.pods)
        inputs = StaticPoolInputs(view.nodes, gone, paired, waiting, sorted_pods.bound, limits)
        static = plan_static(snapshot, daemons, inputs)
        units |= static.units
    templates = templates_of(pools, catalogues, daemons, budgets, units)
    domain_templates = templates
    if snapshot.domain_pools:
        wide = usable_pools(snapshot.domain_pools)
        domain_templates = templates_of(
            wide, catalogues_of(replace(snapshot, most_node_price={}), wide, axis), daemons, budgets, units
        )
    on_nodes = pods_by_node(sorted_pods)
    rooms = list_existing_nodes(
        view.nodes, paired, waiting, on_nodes, snapshot.now, templates, snapshot.closed_claims, snapshot.placed
    )
    if storage is not None:
        for room in rooms:
            room.attachments = storage.attached(
                room.name, room.pods, room.labels.get(labels.INSTANCE_TYPE, ""), snapshot.now
            )
    nodes = ExistingNodes(rooms, daemons, axis, _node_loads(view, sorted_pods))
    bystanders = unavailable_nodes(view.nodes, rooms, gone)
    standing = counted_pods(sorted_pods)
    base_counts, of_daemons = topology_of(terms, daemons, nodes, bystanders, standing)
    if storage is not None:
        _count_users(base_counts, standing, storage)
    return CompiledSnapshot(
        axis,
        templates,
        domain_templates,
        budgets,
        nodes,
        pod_classes,
        sorted_pods,
        base_counts,
        daemons,
        of_daemons,
        frozenset(claim.name for claim in snapshot.claims)
        | {node.metadata.labels.get(labels.NODE_CLAIM, "") for node in view.nodes},
        static,
        buffers,
        tuple(virtual),
    )


def anti_affine_pods(view: ClusterView, sorted_pods: pods.SortedPods) -> list[Pod]:
    """Pods on nodes, or nominated for nodes, that other pods must keep away from."""
    return [*view.of_pods(_running_anti_affine), *_with_anti_affinity(sorted_pods.nominated)]


def _running_anti_affine(view: ClusterView) -> list[Pod]:
    return _with_anti_affinity(view.of_pods(pods.running))


def _with_anti_affinity(by_node: Mapping[str, Sequence[Pod]]) -> list[Pod]:
    return [
        pod for on_node in by_node.values() for pod in on_node if pod.spec.affinity is not None and keeps_away(pod.spec)
    ]


def _node_loads(view: ClusterView, sorted_pods: pods.SortedPods) -> Mapping[str, NodeLoad]:
    """The known loads of nodes; without nodes that kube-scheduler has nominated for other pods."""
    known = view.of_pods(loads_by_node)
    promised = sorted_pods.nominated
    return {node: load for node, load in known.items() if node not in promised} if promised else known


def topology_of(
    terms: Terms,
    daemons: Sequence[Daemon],
    nodes: ExistingNodes,
    bystanders: Sequence[tuple[ExistingNode, bool]],
    standing: Mapping[str, Sequence[Pod]],
) -> tuple[BaseCounts, DaemonTerms]:
    """The counts before packing, pods of DaemonSets that are still to come included, and the terms of DaemonSets.

    Raises ValueError for a malformed selector.
    """
    if not terms.all:
        return NO_BASE_COUNTS, DaemonTerms(terms)
    counts = base_counts_of(terms, nodes.all, bystanders, standing)
    found = daemon_terms(daemons, terms)
    for daemon in daemons:
        counting, keeping = found.counting.get(daemon.owner, ()), found.keeping.get(daemon.owner, ())
        if counting or keeping:
            coming = np.append(nodes.will_run(daemon), np.zeros(len(counts.nodes) - counts.existing, np.bool_))
            counts.counted[sorted(counting)] += coming
            counts.keeping[sorted(keeping)] += coming
    begun = np.flatnonzero(counts.counted.any(axis=1)).tolist()
    return counts, replace(found, begun=frozenset(begun))


def widened_pods(keeping: Iterable[Pod], snapshot: Snapshot, daemons: Iterable[Daemon]) -> WidenedTerms:
    """The pods of `bound_pod_terms` whose anti-affinity is beyond what a decision reads."""
    own = [daemon.pod for daemon in daemons if keeps_away(daemon.pod.spec)]
    of_nodes = (node.metadata.labels for node in snapshot.view.nodes)
    return widened_terms([*keeping, *own], chain(of_nodes, (claim.plan.labels for claim in snapshot.claims)))


def bound_pod_terms(
    keeping: Sequence[Pod], snapshot: Snapshot, daemons: Sequence[Daemon], widened: WidenedTerms | None = None
) -> Terms:
    """The terms of the pods of `anti_affine_pods`, and of those by which DaemonSets keep pods off their nodes.

    `widened` are those of `widened_pods` where they are known.
    """
    view, settings = snapshot.view, snapshot.settings
    terms = Terms(
        prefer=settings.preference_policy != "Ignore",
        namespaces={namespace.metadata.name: namespace.metadata.labels for namespace in view.namespaces},
        defaults=DefaultSpread(settings.default_spread, view) if settings.default_spread else None,
        widened=widened_pods(keeping, snapshot, daemons) if widened is None else widened,
    )
    for pod in keeping:
        terms.constraints_of(pod, standing=True)
    for daemon in daemons:
        if keeps_away(daemon.pod.spec):
            terms.constraints_of(daemon.pod, standing=True)
    return terms


def counted_pods(sorted_pods: pods.SortedPods) -> dict[str, list[Pod]]:
    """Pods that topology constraints count, by node: those that are not terminating and not pending."""
    by_node = pods_by_node(sorted_pods)
    moving = {id(pod) for pod in sorted_pods.pending} if by_node else ()
    return {
        node: [pod for pod in on_node if not pod.metadata.deletion_timestamp and id(pod) not in moving]
        for node, on_node in by_node.items()
    }


def unavailable_nodes(
    nodes: Iterable[Node], rooms: Iterable[ExistingNode], gone: frozenset[str]
) -> list[tuple[ExistingNode, bool]]:
    """Nodes that take no new pods, by name, and whether they are leaving; topology counts include their pods."""
    usable_names = {room.name for room in rooms}
    others = [node for node in nodes if node.metadata.name not in usable_names]
    others.sort(key=lambda node: node.metadata.name)
    return [
        (
            ExistingNode(node.metadata.name, False, node.metadata.labels, node.spec.taints, {}),
            node.metadata.name in gone,
        )
        for node in others
    ]


def _volume_needs(storage: PodVolumes, sorted_pods: pods.SortedPods) -> dict[str, VolumeNeeds]:
    """The volume needs of pending pods, by `namespace/name`; pods with unusable volumes are ignored."""
    needs = {}
    pending = []
    for pod in sorted_pods.pending:
        try:
            if has_claims(pod):
                needs[pod.key] = storage.needs(pod)
        except UnusableVolume as error:
            sorted_pods.ignored.append((pod, str(error)))
        else:
            pending.append(pod)
    sorted_pods.pending = pending
    return needs


def _count_users(counts: BaseCounts, standing: Mapping[str, Sequence[Pod]], storage: PodVolumes) -> None:
    """Count the pods on nodes, or nominated for them, that decide where volumes will be which other pods wait for."""
    for place, node in enumerate(counts.nodes) if storage.joins_pods else ():
        for pod in standing.get(node.name, ()):
            for term in counts.terms.known_of_volumes(storage.together(pod)):
                counts.counted[term, place] += 1


def _request_attachments(pod_classes: Iterable[PodClass], storage: PodVolumes) -> None:
    """Let volumes count like a resource where it is known how many a new node will take.

    Claims that several pods share are left out: how many a node needs of them is not known before it is filled.
    """
    limited = {driver for limits in storage.by_type.values() for driver in limits}
    for pod_class in pod_classes:
        counted = {ATTACHED + driver: number for driver, number in pod_class.volumes.private if driver in limited}
        if counted:
            pod_class.requests = {**pod_class.requests, **counted}


def pods_by_node(sorted_pods: pods.SortedPods) -> dict[str, list[Pod]]:
    """Pods by node, including those that kube-scheduler has nominated for it."""
    result = dict(sorted_pods.bound)
    for node, promised in sorted_pods.nominated.items():
        result[node] = [*result.get(node, ()), *promised]
    return result


def axis_of(names: Collection[str], daemons: Iterable[Daemon], pools: Iterable[NodePool], snapshot: Snapshot) -> Axis:
    """The axis of a decision for these names, which pods request, and those of DaemonSets and limits."""
    wanted = set(names)
    for daemon in daemons:
        wanted.update(daemon.requests)
    for pool in pools:
        wanted.update(pool.spec.limits)
        wanted.update(price_limits(price_rules(pool)))
    wanted -= {NODES}
    return Axis(wanted if len(wanted) <= BOUNDS.resources else _most_offered(wanted, snapshot))


def outside_of(axis: Axis, requests: Collection[str]) -> str:
    """Return why requests for these resources cannot be planned, or ""."""
    outside = set(requests) - {NODES, *axis.names}
    if not outside:
        return ""
    return (
        f"asks for {min(outside)}: no instance type has it, and pods, DaemonSets and limits of the cluster "
        f"name more than {BOUNDS.resources} resources"
    )


def _most_offered(names: Collection[str], snapshot: Snapshot) -> list[str]:
    """Of these names the first `Bounds.resources`: first those of instance types, then by how many nodes have them."""
    types = {name for catalog in snapshot.catalogs for item in catalog.instance_types for name in item.capacity}
    types |= {name for overlay in snapshot.manifests.node_overlays for name in overlay.spec.capacity}
    types |= {HOURLY, SPOT_VCPUS, *(name for name in names if name.startswith(ATTACHED))}
    on_nodes = Counter(name for node in snapshot.view.nodes for name in node.status.allocatable)
    return sorted(names, key=lambda name: (name not in types, -on_nodes[name], name))[: BOUNDS.resources]
