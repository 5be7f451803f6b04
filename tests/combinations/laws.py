"""Laws of plans: how to change a cluster, and what must then be true of its plan.

A law's change returns None for a cluster that the law says nothing about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod, PodAffinityTerm
from shiplap.manifests.custom_resources import NodePool
from shiplap.records.scheduling_record import (
    RECORDED_SNAPSHOT,
    SchedulingRecord,
    decode,
    encode,
    recorded_snapshot,
    snapshot_of,
)
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import PlanStage, Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.nodes import node
from tests.builders.pools import pool as pool_of
from tests.builders.pools import rule
from tests.checker import violations
from tests.combinations.carrying_out import carried_out
from tests.combinations.cluster_draft import TAINT
from tests.combinations.overlaid_types import overlaid
from tests.conformance import given as case
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import pdb
from tests.policy_parts import policy_parts
from tests.rules import HOST, TYPE, ZONE
from tests.topology_checker import affinity_violations, selected, spreads_of, topology_violations

AMPLE = {"cpu": "100000", "memory": "1000Ti", "nodes": "10000"}
"""Limits that no plan of these clusters comes near."""


@dataclass(frozen=True, eq=False)
class Decided:
    """A cluster and its plan, which is made when it is asked for."""

    snapshot: Snapshot

    @classmethod
    def by(cls, snapshot: Snapshot, made: Plan) -> Decided:
        """A cluster with the plan of another scheduler."""
        decided = cls(snapshot)
        decided.__dict__["plan"] = made
        return decided

    @cached_property
    def plan(self) -> Plan:
        return plan(self.snapshot)


@dataclass(frozen=True)
class KnownDefect:
    """The kind of a defect that breaks a law today, and a cluster that shows it. Once mended, the mark has to go."""

    kind: str
    seed: int
    number: int


@dataclass(frozen=True)
class Law:
    """Changes a cluster, and compares the plan of the changed cluster with the first plan."""

    name: str
    change: Callable[[Decided, Random], Snapshot | None]
    compare: Callable[[Decided, Decided], str]
    known: KnownDefect | None = None

    @classmethod
    def of_plan(cls, name: str, judge: Callable[[Decided], str], known: KnownDefect | None = None) -> Law:
        """A law of a plan by itself."""
        return cls(name, _unchanged, lambda before, _: judge(before), known)

    def broken_by(self, before: Decided, rng: Random) -> str | None:
        """Return the fault; empty if there is none, None if the law does not apply to this cluster."""
        changed = self.change(before, rng)
        return None if changed is None else self.compare(before, Decided(changed))


# How plans are compared


def the_same(before: Decided, after: Decided) -> str:
    """Nothing differs that decides what is launched or where a pod goes. Words may differ: they name NodePools."""
    return _difference(_essence(before.plan), _essence(after.plan))


def the_same_but_ties(before: Decided, after: Decided) -> str:
    """Nothing differs but which of several equal pods goes where, and the names of claims, which follow their pods."""
    was, now = (_by_kind(_essence(one.plan, named=False), before.snapshot) for one in (before, after))
    return _difference(_sorted(was), _sorted(now))


def _by_kind(essence: Mapping[str, Any], snapshot: Snapshot) -> Any:
    """Return the essence of a plan with the workloads of pods in the place of their names."""
    kinds = {
        pod.key: f"{pod.metadata.namespace}/{pod.metadata.labels.get('app')}"
        for pod in snapshot.view.pods
        if pod.metadata.uid not in snapshot.missed_pods
    }
    return _renamed_in(essence, kinds)


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    for part, was in before.items():
        if was != after[part]:
            gone, come = _only_in(was, after[part]), _only_in(after[part], was)
            return f"{part}: {gone} became {come}"
    return ""


def _only_in(one: Any, other: Any) -> Any:
    return [item for item in one if item not in other][:3] if isinstance(one, list) else one


def _sorted(value: Any) -> Any:
    """The same with all lists in an order of their own."""
    if isinstance(value, dict):
        return {part: _sorted(item) for part, item in value.items()}
    return sorted(map(repr, map(_sorted, value))) if isinstance(value, list) else value


def _essence(made: Plan, *, named: bool = True) -> dict[str, Any]:
    return {
        "left out": [entry.pod.key for entry in made.unschedulable],
        "claims": sorted(_compared(claim, named=named) for claim in made.node_claims),
        "placements": [(place.name, [pod.key for pod in place.pods]) for place in made.existing_nodes if place.pods],
        "ignored": [entry.pod.key for entry in made.ignored],
        "hourly": made.hourly,
        "static": [msgspec.to_builtins(replace(pool, reason="")) for pool in made.static_pools],
        "buffers": [msgspec.to_builtins(replace(buffer, reason="")) for buffer in made.buffers],
    }


def _compared(claim: PlannedClaim, *, named: bool) -> tuple[Any, ...]:
    launch = claim.launch
    return (
        claim.name if named else "",
        claim.node_pool,
        (launch.instance_type, launch.zone, launch.capacity_type, launch.price, launch.reservation_id),
        claim.instance_types,
        [pod.key for pod in claim.pods],
        [pod.key for pod in claim.virtual_pods],
    )


def lets_pods_wait(snapshot: Snapshot) -> bool:
    """True if an optional feature decides which pods are planned for."""
    return any(item.stage is PlanStage.PODS for item in snapshot.policies)


def left_out(made: Plan) -> list[str]:
    """The pods without a node."""
    return [entry.pod.key for entry in made.unschedulable]


# A plan by itself


def _unchanged(before: Decided, _: Random) -> Snapshot:
    return before.snapshot


def _keeps_every_rule(before: Decided, _: Decided) -> str:
    """The independent judge of plans finds nothing but what it does not know."""
    found = violations(overlaid(before.snapshot), before.plan)
    return "; ".join([text for text in found if not _is_unknown_to_judges(text, before)][:3])


def _keeps_affinities(before: Decided, _: Decided) -> str:
    return "; ".join(affinity_violations(with_named_namespaces(before.snapshot), before.plan)[:3])


def _keeps_spreads(before: Decided, _: Decided) -> str:
    snapshot = with_named_namespaces(before.snapshot)
    about_pods = set(affinity_violations(snapshot, before.plan))
    return "; ".join([text for text in topology_violations(snapshot, before.plan) if text not in about_pods][:3])


def with_named_namespaces(snapshot: Snapshot) -> Snapshot:
    """The same with the names of namespaces in place of their selectors, which the judge of topology cannot read."""

    def named(term: PodAffinityTerm) -> PodAffinityTerm:
        selector = term.namespace_selector
        if selector is None:
            return term
        names = [
            item.metadata.name
            for item in snapshot.view.namespaces
            if selector.match_labels.items() <= item.metadata.labels.items()
        ]
        return replace(term, namespace_selector=None, namespaces=(*term.namespaces, *(names or ["none"])))

    def with_names_in(pod: Pod) -> Pod:
        affinity = pod.spec.affinity
        if affinity is None:
            return pod
        sides = {
            side: replace(terms, required=tuple(map(named, terms.required)))
            for side in ("pod_affinity", "pod_anti_affinity")
            if (terms := getattr(affinity, side)) is not None
        }
        return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, **sides)))

    return _with_view(snapshot, pods=tuple(map(with_names_in, snapshot.view.pods)))


def _has_stage(snapshot: Snapshot, *stages: PlanStage) -> bool:
    """True if an optional feature of one of these stages takes part in the plan."""
    return any(item.stage in stages for item in snapshot.policies)


def _is_unknown_to_judges(text: str, decided: Decided) -> bool:
    """True for what the judge of plans knows nothing of: ceilings, commitments, reservations and CapacityBuffers.

    A ceiling may leave out the type whose DaemonSets request least. Commitments change prices. minValues do not apply
    to reserved capacity. A claim may hold nothing but room for pods that do not exist.
    """
    spare = {claim.name for claim in decided.plan.node_claims if claim.virtual_pods}
    if " requests " in text and _has_stage(decided.snapshot, PlanStage.ADMISSION):
        return True
    if "cheapest" in text and _has_stage(decided.snapshot, PlanStage.PRICES):
        return True
    reserved = {claim.name for claim in decided.plan.node_claims if claim.launch.reservation_id}
    if " lost minValues " in text and text.split()[1].strip(":") in reserved:
        return True
    return text.endswith(": holds no pod") and text.split()[1].strip(":") in spare


# What has room to spare


def _limits_with_room(before: Decided, _: Random) -> Snapshot:
    """Limits that nothing comes near, where there are none."""

    def limited(pool: NodePool) -> NodePool:
        given = AMPLE if pool.spec.replicas is None else {"nodes": AMPLE["nodes"]}
        return replace(pool, spec=replace(pool.spec, limits=given | pool.spec.limits))

    return _with_pools(before.snapshot, map(limited, before.snapshot.manifests.node_pools))


# A tighter limit


def _tighter_limits(before: Decided, rng: Random) -> Snapshot | None:
    """Limits of about what the plan takes, of one NodePool with claims."""
    used = Counter(claim.node_pool for claim in before.plan.node_claims if claim.pods)
    if not used:
        return None
    name = rng.choice(sorted(used))
    types = {item.name: item for catalog in before.snapshot.catalogs for item in catalog.instance_types}
    taken = sum(
        types[claim.launch.instance_type].capacity["cpu"]
        for claim in before.plan.node_claims
        if claim.node_pool == name
    )
    share = rng.choice([0.5, 1.0, 1.5, 2.5])

    def tightened(pool: NodePool) -> NodePool:
        if pool.metadata.name != name:
            return pool
        limits = pool.spec.limits | {"cpu": f"{round(taken * share)}m"}
        return replace(pool, spec=replace(pool.spec, limits=limits))

    return _with_pools(before.snapshot, map(tightened, before.snapshot.manifests.node_pools))


def _no_zones_merged(before: Decided, after: Decided) -> str:
    """Pods whose spread allows a difference of one stay level over the zones that either plan gives them.

    A zone that the plan puts a pod into is no further above the emptiest of those zones than the spread allows, or than
    one was. Pods that run already may be in fewer zones: a limit that is too tight for any node leaves them there.
    """
    for owner in evenly_spread(before.snapshot):
        zones = _zones_given(before, owner) | _zones_given(after, owner)
        if zones and _steepest(after, owner, zones) > max(1, _steepest(before, owner, zones)):
            return f"{owner[1]}: {dict(zones_of(before, owner))} became {dict(zones_of(after, owner))}"
    return ""


def _steepest(decided: Decided, owner: tuple[str, str], zones: Collection[str]) -> int:
    """Return by how many pods a zone that gets a spread pod exceeds the emptiest of these zones; 0 if none gets one."""
    counts, filled = zones_of(decided, owner), _zones_given(decided, owner)
    return max((counts[zone] for zone in filled), default=0) - min(counts[zone] for zone in zones) if filled else 0


def evenly_spread(snapshot: Snapshot) -> list[tuple[str, str]]:
    """Namespace and app of workloads that spread over zones by themselves, with a skew of 1."""
    return sorted({_owner(pod) for pod in snapshot.view.pods if _is_evenly_spread(pod)})


def _is_evenly_spread(pod: Pod) -> bool:
    rules = [rule for rule in spreads_of(pod) if rule.topology_key == ZONE and rule.max_skew == 1]
    return not pod.spec.node_name and any(selected(rule, pod, pod) for rule in rules)


def _owner(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.labels.get("app", "")


def zones_of(decided: Decided, owner: tuple[str, str]) -> Counter[str]:
    """The number of this app's pods in each zone once the plan is carried out."""
    homes = _homes(decided)
    pods = decided.snapshot.view.pods
    return Counter(homes[pod.key] for pod in pods if pod.key in homes and _owner(pod) == owner)


def _zones_given(decided: Decided, owner: tuple[str, str]) -> set[str]:
    """The zones chosen for pods of this app that are spread. Claims in flight keep the pods promised to them."""
    homes = _homes(decided)
    promised = {pod.key for claim in decided.snapshot.claims for pod in claim.plan.pods}
    spread = (pod for pod in decided.snapshot.view.pods if _is_evenly_spread(pod) and _owner(pod) == owner)
    return {homes[pod.key] for pod in spread if pod.key in homes.keys() - promised}


def _homes(decided: Decided) -> dict[str, str]:
    """The zone of each pod once the plan is carried out, on claims in flight as well."""
    done, places = carried_out(decided.snapshot, decided.plan), decided.plan.existing_nodes
    zones = {claim.name: claim.plan.labels.get(ZONE, "") for claim in done.claims}
    zones |= {node.metadata.name: node.metadata.labels.get(ZONE, "") for node in done.view.nodes}
    running = {pod.key: zones.get(pod.spec.node_name, "") for pod in done.view.pods if pod.spec.node_name}
    return running | {pod.key: zones.get(place.name, "") for place in places for pod in place.pods}


# What has nothing to do with the pods


def _unrelated_pool(before: Decided, _: Random) -> Snapshot | None:
    """A NodePool of a type that does not exist, preferred to all others."""
    if lets_pods_wait(before.snapshot):
        return None  # a pod is awake if an awake NodePool would take it, whatever its sizes
    idle = pool_of("unrelated", rule(TYPE, "In", "none.large"), weight=100, limits={})
    return _with_pools(before.snapshot, (*before.snapshot.manifests.node_pools, idle))


def _unrelated_daemon_set(before: Decided, _: Random) -> Snapshot:
    """A DaemonSet of nodes that do not exist."""
    idle = case.daemon_set("unrelated", cpu="3", memory="2Gi", selector={"example.com/none": "x"}, ports=[8080])
    return _with_view(before.snapshot, daemon_sets=(*before.snapshot.view.daemon_sets, idle))


def _unrelated_node(before: Decided, _: Random) -> Snapshot | None:
    """A node without labels that is full and keeps everybody off."""
    if any(rule for pod in before.snapshot.view.pods for rule in pod.spec.topology_spread_constraints):
        return None  # it may be a domain
    idle = node("unrelated", cpu="0", memory="0", pods="0", taints=[TAINT | {"effect": "NoExecute"}])
    return _with_view(before.snapshot, nodes=(*before.snapshot.view.nodes, idle))


def _unrelated_pdb(before: Decided, _: Random) -> Snapshot:
    idle = pdb("unrelated", 0, app="none")
    return _with_view(before.snapshot, pod_disruption_budgets=(*before.snapshot.view.pod_disruption_budgets, idle))


def _unrelated_namespace(before: Decided, _: Random) -> Snapshot:
    """A namespace without pods, with the labels of another."""
    return _with_view(
        before.snapshot, namespaces=(*before.snapshot.view.namespaces, case.namespace("unrelated", team="blue"))
    )


def _unrelated_storage(before: Decided, _: Random) -> Snapshot:
    view = before.snapshot.view
    return _with_view(
        before.snapshot,
        persistent_volume_claims=(*view.persistent_volume_claims, case.pvc("unrelated", volume="unrelated")),
        persistent_volumes=(*view.persistent_volumes, case.pv("unrelated")),
        storage_classes=(*view.storage_classes, case.storage_class("unrelated")),
    )


def _unrelated_type(before: Decided, _: Random) -> Snapshot:
    """A type that is sold out everywhere, and dear: a ceiling of mode cheapest waits for the cheapest one."""
    item = fake_type("z.large", cpu="64", memory="256Gi", price=100.0)
    gone = replace(item, offerings=tuple(replace(offer, available=False) for offer in item.offerings))
    catalogs = tuple(
        catalog if catalog.not_ready else replace(catalog, instance_types=(*catalog.instance_types, gone))
        for catalog in before.snapshot.catalogs
    )
    return replace(before.snapshot, catalogs=catalogs)


# Order and names


def _reordered(before: Decided, rng: Random) -> Snapshot:
    """Every list of the snapshot in another order."""

    def mixed(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rng.sample(items, len(items)))

    def of(struct: Any) -> Any:
        changes = {
            name: mixed(value)
            for name in struct.__struct_fields__
            if isinstance(value := getattr(struct, name), tuple) and len(value) > 1
        }
        return replace(struct, **changes)

    snapshot: Snapshot = of(before.snapshot)
    catalogs = tuple(map(of, snapshot.catalogs))
    return replace(snapshot, view=of(snapshot.view), manifests=of(snapshot.manifests), catalogs=catalogs)


def _renamed(before: Decided, _: Random) -> Snapshot | None:
    """Other names for all pods and NodePools, in the same order."""
    if _has_stage(before.snapshot, PlanStage.PRICES, PlanStage.ADMISSION):
        return None  # which of equal claims is paid for, or passes a ceiling, is a tie that changes what is left
    names = {pod.metadata.name for pod in before.snapshot.view.pods}
    names |= {pool.metadata.name for pool in before.snapshot.manifests.node_pools}
    return with_names(before.snapshot, {name: f"a-{name}" for name in names})


def _the_same_under_other_names(before: Decided, after: Decided) -> str:
    pods, pools = before.snapshot.view.pods, before.snapshot.manifests.node_pools
    kinds = {f"{pod.metadata.namespace}/a-{pod.metadata.name}": pod.key for pod in pods}
    kinds |= {f"a-{pool.metadata.name}": pool.metadata.name for pool in pools}
    names = [item.metadata.name for item in pods] + [item.metadata.name for item in pools]
    back = with_names(after.snapshot, {f"a-{name}": name for name in names})
    was, now = _essence(before.plan, named=False), _renamed_in(_essence(after.plan, named=False), kinds)
    return _difference(_sorted(_by_kind(was, before.snapshot)), _sorted(_by_kind(now, back)))


def with_names(snapshot: Snapshot, names: Mapping[str, str]) -> Snapshot:
    """The snapshot with other names wherever one stands."""
    plain = msgspec.to_builtins(recorded_snapshot(snapshot))
    return snapshot_of(msgspec.convert(_renamed_in(plain, names), RECORDED_SNAPSHOT))


def _renamed_in(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed_in(item, names) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed_in(item, names) for item in value)
    return names.get(value, value) if isinstance(value, str) else value


# Features that have nothing to do


def _idle(of_policy: Callable[[Snapshot], Snapshot | None]) -> Callable[[Decided, Random], Snapshot | None]:
    """The change of an optional feature that has nothing to do yet."""
    return lambda before, _: of_policy(before.snapshot)


def _idle_reservation_policy(before: Decided, _: Random) -> Snapshot | None:
    """The policy for reserved capacity where there is none."""
    if any(
        offer.reservation_id
        for catalog in before.snapshot.catalogs
        for item in catalog.instance_types
        for offer in item.offerings
    ):
        return None
    return replace(before.snapshot, settings=replace(before.snapshot.settings, reserved_policy="Fallback"))


# What comes after


def _carried_out(before: Decided, _: Random) -> Snapshot | None:
    if any(pool.missing for pool in before.plan.static_pools):
        return None  # the next decision tries again
    return carried_out(before.snapshot, before.plan)


def _nothing_more_to_do(before: Decided, after: Decided) -> str:
    """No node is launched for pods that have one, and none has lost its place."""
    if before.plan.unsettled:
        return ""
    if after.plan.node_claims:
        return f"launches {[_compared(claim, named=True) for claim in after.plan.node_claims[:2]]}"
    lost = sorted({*left_out(after.plan)} - {*left_out(before.plan)})
    return f"loses {lost}" if lost else ""


def _recorded(before: Decided, _: Random) -> Snapshot:
    return decode(encode(SchedulingRecord(before.snapshot, before.plan))).snapshot


def byte_for_byte(before: Decided, after: Decided) -> str:
    if msgspec.json.encode(before.plan) == msgspec.json.encode(after.plan):
        return ""
    return the_same(before, after) or "words differ"


# More supply


def _more_supply(before: Decided, rng: Random) -> Snapshot | None:
    """Bring sold-out offerings back, remove limits, or add one more NodePool for all pods.

    A policy of reservations that is Strict becomes a Fallback: with it, what is reserved at last lets pods wait for the
    decision after the one that gives the last instance away.
    """
    change = rng.choice([_nothing_sold_out, _without_limits, _one_more_pool])
    pods = before.snapshot.view.pods
    if change is _nothing_sold_out and any(map(_spreads_over_supply, pods)):
        return None  # what comes back is a domain again: it holds down the others, whatever a limit leaves of it
    if change is _one_more_pool and any(_spreads_over_supply(pod) and _requires_company(pod) for pod in pods):
        return None  # its zones are domains, too: they hold down the one where the company is
    after = change(before.snapshot)
    return replace(after, settings=replace(after.settings, reserved_policy="Fallback"))


def _spreads_over_supply(pod: Pod) -> bool:
    """True if a required spread of a pod has domains that may be sold out."""
    return any(rule.topology_key != HOST for rule in spreads_of(pod))


def _requires_company(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and affinity.pod_affinity is not None and bool(affinity.pod_affinity.required)


def _nothing_sold_out(snapshot: Snapshot) -> Snapshot:
    catalogs = tuple(
        replace(
            catalog,
            instance_types=tuple(
                replace(item, offerings=tuple(replace(offer, available=True) for offer in item.offerings))
                for item in catalog.instance_types
            ),
        )
        for catalog in snapshot.catalogs
    )
    return replace(snapshot, catalogs=catalogs)


def _without_limits(snapshot: Snapshot) -> Snapshot:
    pools = (replace(pool, spec=replace(pool.spec, limits={})) for pool in snapshot.manifests.node_pools)
    return _with_pools(snapshot, pools)


def _one_more_pool(snapshot: Snapshot) -> Snapshot:
    return _with_pools(snapshot, (*snapshot.manifests.node_pools, pool_of("more", limits={})))


def leaves_no_more_pods(before: Decided, after: Decided) -> str:
    """By count, the most important first: a pod of higher priority may take the place of several."""
    was, now = _ranks(before), _ranks(after)
    return "" if now <= was else f"left out by priority {was} became {now}: {left_out(after.plan)[:5]}"


def _ranks(decided: Decided) -> list[int]:
    priorities = {pod.key: pod.spec.priority for pod in decided.snapshot.view.pods}
    counts = Counter(priorities[key] for key in left_out(decided.plan))
    return [counts[priority] for priority in sorted(set(priorities.values()), reverse=True)]


def _with_pools(snapshot: Snapshot, pools: Iterable[NodePool]) -> Snapshot:
    return replace(snapshot, manifests=replace(snapshot.manifests, node_pools=tuple(pools)))


def _with_view(snapshot: Snapshot, **changes: Any) -> Snapshot:
    return replace(snapshot, view=replace(snapshot.view, **changes))


LAWS = (
    Law("a plan keeps every rule but topology", _unchanged, _keeps_every_rule),
    Law("a plan keeps affinity and anti-affinity", _unchanged, _keeps_affinities),
    Law("a plan keeps spread constraints", _unchanged, _keeps_spreads),
    Law("a limit with room to spare changes nothing", _limits_with_room, the_same),
    Law("a tighter limit merges no zones", _tighter_limits, _no_zones_merged),
    Law("an unrelated NodePool changes nothing", _unrelated_pool, the_same_but_ties),
    Law("an unrelated DaemonSet changes nothing", _unrelated_daemon_set, the_same_but_ties),
    Law("an unrelated node changes nothing", _unrelated_node, the_same_but_ties),
    Law("an unrelated PodDisruptionBudget changes nothing", _unrelated_pdb, the_same_but_ties),
    Law("an unrelated namespace changes nothing", _unrelated_namespace, the_same_but_ties),
    Law("unrelated storage changes nothing", _unrelated_storage, the_same_but_ties),
    Law("a type that is sold out changes nothing", _unrelated_type, the_same_but_ties),
    Law("another order changes nothing", _reordered, byte_for_byte),
    Law("other names change nothing but names", _renamed, _the_same_under_other_names),
    *(Law(module.NAME, _idle(module.idle), the_same) for module in policy_parts("combinations", "laws")),
    *(
        Law(module.ADDED, _idle(module.added), leaves_no_more_pods)
        for module in policy_parts("combinations", "laws")
        if hasattr(module, "added")
    ),
    Law("a policy for reservations without any changes nothing", _idle_reservation_policy, the_same),
    Law(
        "once a plan is carried out there is nothing more to do",
        _carried_out,
        _nothing_more_to_do,
    ),
    Law("a record gives the same plan", _recorded, byte_for_byte),
    Law(
        "more supply leaves no more pods out",
        _more_supply,
        leaves_no_more_pods,
    ),
)
"""Laws of the planner alone."""
