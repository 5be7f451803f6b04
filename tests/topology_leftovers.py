"""A brute force for pods that a plan left out: is there a node, existing or new, that could have held one of them?

It knows only the rules, tries every node and every single new node, and shares no code with the planner.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Pod, Taint
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.topology_checker import (
    Place,
    counts,
    lacking_company,
    looks_at,
    places_of,
    required_terms,
    selected,
    spreads_of,
)

HOST = "kubernetes.io/hostname"
CPU, PODS = "cpu", "pods"


@dataclass
class Candidate:
    """A place that may take one more pod: what is free on it, and where it is."""

    place: Place
    free: Mapping[str, int]


def missed_chances(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Every node or single new node that could still hold a pod which was left out, by cpu, pods and topology.

    For pools without limits, and pods that ask for cpu only.
    """
    places = list(places_of(snapshot, plan))
    by_name = {pod.metadata.name: pod for pod in snapshot.view.pods}
    found = []
    for entry in plan.unschedulable:
        pod = by_name[entry.pod.name]
        chances = [c for c in (*_existing(snapshot, places), *_new(snapshot)) if _suits(pod, c)]
        domains = [place for place in places if not place.leaving] + [chance.place for chance in chances]
        found += [
            f"{pod.metadata.name} could be on {chance.place.name} ({dict(chance.place.labels)})"
            for chance in chances
            if _allowed(pod, chance.place, places, domains)
        ]
    return found


def _existing(snapshot: Snapshot, places: Sequence[Place]) -> Iterator[Candidate]:
    for node in snapshot.view.nodes:
        if node.spec.unschedulable or node.metadata.deletion_timestamp:
            continue
        place = next(place for place in places if place.name == node.metadata.name)
        free = {key: parse_amount(key, str(node.status.allocatable[key])) for key in (CPU, PODS)}
        for pod in (*place.old, *place.new):
            free[CPU] -= _cpu(pod)
            free[PODS] -= 1
        yield Candidate(place, free)


def _new(snapshot: Snapshot) -> Iterator[Candidate]:
    for pool in snapshot.manifests.node_pools:
        for item in snapshot.catalogs[0].instance_types:
            yield from _nodes_of(pool, item)


def _nodes_of(pool: NodePool, item: InstanceType) -> Iterator[Candidate]:
    rules = {rule.key: rule.values for rule in pool.spec.template.spec.requirements if rule.operator == "In"}
    racks = rules.get("example.com/rack", ("",))
    for offering in item.offerings:
        where = {
            "topology.kubernetes.io/zone": offering.zone,
            "karpenter.sh/capacity-type": offering.capacity_type,
            "karpenter.sh/nodepool": pool.metadata.name,
        }
        if not offering.available or any(key in rules and value not in rules[key] for key, value in where.items()):
            continue
        for rack in racks:
            known = where | ({"example.com/rack": rack} if rack else {})
            name = f"new {item.name} of {pool.metadata.name}"
            labels = {key: frozenset((value,)) for key, value in {**known, HOST: name}.items()}
            free = {key: item.allocatable[key] for key in (CPU, PODS)}
            yield Candidate(Place(name, labels, pool.spec.template.spec.taints), free)


def _suits(pod: Pod, candidate: Candidate) -> bool:
    """True if resources, taints and the pod's node selection allow the candidate."""
    return (
        candidate.free[PODS] >= 1
        and candidate.free[CPU] >= _cpu(pod)
        and all(_tolerated(pod, taint) for taint in candidate.place.taints)
        and looks_at(pod, candidate.place)
    )


def _allowed(pod: Pod, here: Place, places: Sequence[Place], domains: Sequence[Place]) -> bool:
    return (
        _kept_apart(pod, here, places)
        and _in_company(pod, here, places)
        and _even(pod, here, places, domains)
        and _parts_nobody(pod, here, places)
    )


def _parts_nobody(pod: Pod, here: Place, places: Sequence[Place]) -> bool:
    """True if every pod of the plan still has its company if this pod binds before all other pods."""
    others = [place for place in places if place is not here]
    return not list(lacking_company([*others, replace(here, new=[*here.new, pod])]))


def _kept_apart(pod: Pod, here: Place, places: Sequence[Place]) -> bool:
    """No pod that it avoids, or that avoids it, may be in its domain; an open domain may turn out to be that one."""
    for there in places:
        for other in (*there.old, *there.new):
            for keeper, kept in ((pod, other), (other, pod)):
                for term in required_terms(keeper, "pod_anti_affinity"):
                    key = term.topology_key
                    shared = here.labels.get(key, frozenset()) & there.labels.get(key, frozenset())
                    if shared and counts(term, keeper, kept):
                        return False
    return True


def _in_company(pod: Pod, here: Place, places: Sequence[Place]) -> bool:
    terms = required_terms(pod, "pod_affinity")
    if not terms:
        return True
    company = [
        there
        for there in places
        if any(there.labels.get(term.topology_key) for term in terms)
        for other in (*there.old, *there.new)
        if all(counts(term, pod, other) for term in terms)
    ]
    if any(here.domain(term.topology_key) is None for term in terms):
        return False
    if all(any(there.domain(t.topology_key) == here.domain(t.topology_key) for there in company) for t in terms):
        return True
    return not company and all(counts(term, pod, pod) for term in terms)


def _even(pod: Pod, here: Place, places: Sequence[Place], domains: Sequence[Place]) -> bool:
    for rule in spreads_of(pod):
        mine = here.domain(rule.topology_key)
        if mine is None:
            return False
        found = {
            domain: 0
            for place in domains
            if (domain := place.domain(rule.topology_key)) is not None and looks_at(pod, place, rule)
        }
        for place in places:
            domain = place.domain(rule.topology_key)
            if domain is not None and looks_at(pod, place, rule):
                number = sum(selected(rule, pod, other) for other in (*place.old, *place.new))
                found[domain] = found.get(domain, 0) + number
        enough = len(found) >= (rule.min_domains or 1)
        lowest = min(found.values(), default=0) if enough and rule.topology_key != HOST else 0
        if found.get(mine, 0) + selected(rule, pod, pod) - lowest > rule.max_skew:
            return False
    return True


def _tolerated(pod: Pod, taint: Taint) -> bool:
    return taint.effect == "PreferNoSchedule" or any(
        entry.key in ("", taint.key) and (entry.operator == "Exists" or entry.value == taint.value)
        for entry in pod.spec.tolerations
    )


def _cpu(pod: Pod) -> int:
    return sum(parse_amount(CPU, str(item.resources.requests.get(CPU, "0"))) for item in pod.spec.containers)
