"""Laws of our plans beside those of Karpenter's own scheduler, on the same pods, NodePools, types and DaemonSets.

The program knows neither nodes nor volumes, and nothing of what Shiplap adds: its clusters are drawn without. A law
says nothing about a cluster for which Karpenter's plan exceeds a limit, or has pods that kube-scheduler does not bind
once there is a node in every domain that NodePools allow, as sooner or later there is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

from msgspec.structs import replace

from shiplap.kubernetes.objects import Node
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Plan, PlannedClaim, PodReference, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot
from tests.combinations import cluster_options
from tests.combinations.drawn_clusters import DrawnCluster, options_drawn, options_of, with_options
from tests.combinations.kube_scheduler import KubeScheduler
from tests.combinations.launchable_nodes import launchable_nodes
from tests.combinations.laws import Decided, Law, evenly_spread, leaves_no_more_pods, zones_of
from tests.e2e.arbiter import plain
from tests.karpenter.karpenter_scheduler import KarpenterScheduler, OpenedClaim, ScheduledBatch, as_written
from tests.policy_parts import policy_parts
from tests.rules import HOST, KIND, POOL, TYPE, ZONE, add, amount

_NOT_OF_SUPPLY = {
    "best_effort_min_values",
    "broken_node_class",
    "capacity_buffer",
    "capacity_overlay",
    "other_node_class",
    "price_overlay",
    "reserved_capacity",
    "static_pool",
    "tiers",
    "unverified_types",
}
_NOT_OF_PODS = {"bound_volume", "other_namespace", "own_volumes", "waiting_volume"}
_OF_CLUSTERS = {"daemon_set", "daemon_set_port", "selective_daemon_set"}

_FURTHER = options_of(cluster_options, *policy_parts("combinations", "options")).keys() - _OF_CLUSTERS

UNKNOWN = frozenset(_NOT_OF_SUPPLY | _NOT_OF_PODS | _FURTHER)
"""Options that the program cannot be given."""


def drawn_for_karpenter(seed: int, number: int) -> DrawnCluster:
    """The cluster of this number without what the program does not know."""
    return with_options(seed, number, [name for name in options_drawn(seed, number) if name not in UNKNOWN])


def karpenter_laws(karpenter: KarpenterScheduler, kube_scheduler: KubeScheduler) -> tuple[Law, ...]:
    """The laws, both by one answer of Karpenter's program and one verdict of kube-scheduler's on it."""

    @lru_cache(maxsize=1)
    def theirs(ours: Decided) -> Decided:
        return decided_by(karpenter.schedule(as_batch(ours.snapshot)), ours.snapshot)

    @lru_cache(maxsize=1)
    def is_sound(ours: Decided) -> bool:
        snapshot, plan = ours.snapshot, theirs(ours).plan
        orders = Random(repr(plan))  # noqa: S311 - a draw for a test
        unbound = kube_scheduler.judge(with_full_nodes(snapshot), plan, orders).unbound
        return not (unbound or exceeds_limits(snapshot, plan))

    def if_sound(ours: Decided, _: Random) -> Snapshot | None:
        return ours.snapshot if is_sound(ours) else None

    def law(name: str, judge: Callable[[Decided, Decided], str]) -> Law:
        return Law(name, if_sound, lambda ours, _: judge(theirs(ours), ours))

    return (
        law("no more pods are left out than by Karpenter", leaves_no_more_pods),
        law("no fewer zones are used than by Karpenter", uses_no_fewer_zones),
    )


def with_full_nodes(snapshot: Snapshot) -> Snapshot:
    """The cluster with a node without room of each NodePool, zone, capacity type and instance type."""
    full: dict[tuple[str, ...], Node] = {}
    for chance in launchable_nodes(snapshot, Plan()):
        node = chance.node
        place = tuple(node.metadata.labels[key] for key in (POOL, ZONE, KIND, TYPE))
        if place not in full:
            name = f"full-{len(full)}"
            metadata = replace(node.metadata, name=name, labels={**node.metadata.labels, HOST: name})
            full[place] = replace(node, metadata=metadata, status=replace(node.status, allocatable={"pods": "0"}))
    return replace(snapshot, view=replace(snapshot.view, nodes=tuple(full.values())))


def exceeds_limits(snapshot: Snapshot, plan: Plan) -> bool:
    """True if the nodes of a plan are more than the limits of their NodePools. Karpenter obeys no limit of nodes."""
    types = {item.name: item for catalog in snapshot.catalogs for item in catalog.instance_types}
    for pool in snapshot.manifests.node_pools:
        nodes = [claim for claim in plan.node_claims if claim.node_pool == pool.metadata.name]
        used = add([{"nodes": 1, **types[claim.launch.instance_type].capacity} for claim in nodes])
        if any(used.get(resource, 0) > amount(resource, limit) for resource, limit in pool.spec.limits.items()):
            return True
    return False


def uses_no_fewer_zones(theirs: Decided, ours: Decided) -> str:
    """Pods that a constraint spreads, if both place as many, are in as many zones as in Karpenter's plan."""
    for owner in evenly_spread(ours.snapshot):
        was, now = zones_of(theirs, owner), zones_of(ours, owner)
        if was.total() == now.total() and len(now) < len(was):
            return f"{owner[1]}: {dict(was)} of Karpenter are {dict(now)}"
    return ""


def as_batch(snapshot: Snapshot) -> dict[str, Any]:
    """A cluster as the program reads it: DaemonSets as the pods that they would have."""
    [catalog] = snapshot.catalogs
    daemons = [
        {"metadata": plain(daemon)["metadata"], "spec": plain(daemon)["spec"]["template"]["spec"]}
        for daemon in snapshot.view.daemon_sets
    ]
    return {
        "types": [as_written(item) for item in catalog.instance_types],
        "nodePools": [plain(pool) for pool in snapshot.manifests.node_pools],
        "pods": [_with_uid(plain(pod), pod.metadata.uid) for pod in snapshot.view.pods],
        "daemonPods": daemons,
    }


def _with_uid(body: dict[str, Any], uid: str) -> dict[str, Any]:
    """Karpenter tells pods apart by their uids."""
    return {**body, "metadata": {**body["metadata"], "uid": uid}}


def decided_by(answer: ScheduledBatch, snapshot: Snapshot) -> Decided:
    """The cluster with Karpenter's plan for it."""
    pods = {pod.metadata.name: PodReference(pod.metadata.namespace, pod.metadata.name) for pod in snapshot.view.pods}
    claims = [_as_planned(f"theirs-{place}", opened, pods, snapshot) for place, opened in enumerate(answer.claims)]
    left_out = tuple(Unschedulable(pods[name], reason) for name, reason in sorted(answer.left_out.items()))
    return Decided.by(snapshot, Plan(node_claims=tuple(claims), unschedulable=left_out))


def _as_planned(name: str, opened: OpenedClaim, pods: dict[str, PodReference], snapshot: Snapshot) -> PlannedClaim:
    pool = next(pool for pool in snapshot.manifests.node_pools if pool.metadata.name == opened.node_pool)
    launch = opened.launch
    return PlannedClaim(
        name=name,
        node_pool=opened.node_pool,
        node_class=pool.spec.template.spec.node_class_ref.name,
        tier=0,
        requirements=opened.requirements,
        taints=pool.spec.template.spec.taints,
        labels=pool.spec.template.metadata.labels,
        instance_types=opened.instance_types,
        launch=LaunchChoice(launch.instance_type, launch.zone, launch.capacity_type, launch.price),
        requests={},
        pods=tuple(pods[pod] for pod in opened.pods),
    )
