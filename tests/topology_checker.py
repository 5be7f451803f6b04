"""An independent judge of topology constraints: it shares no code with the planner and knows only the rules.

Affinity and anti-affinity are judged on the finished plan. Spread constraints speak about the moment a pod is placed,
so they are kept if the pods of the plan can be placed in some order; a few are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shiplap.kubernetes.objects import LabelSelector, Pod, PodAffinityTerm, Taint, TopologySpreadConstraint
from shiplap.manifests.nodeclaim import ClaimPlan
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from tests.rules import holds

HOST = "kubernetes.io/hostname"


@dataclass
class Place:
    """A node, or what will become one: every label with the values it may have."""

    name: str
    labels: Mapping[str, frozenset[str]]
    taints: Sequence[Taint]
    leaving: bool = False
    planned: bool = False
    old: list[Pod] = field(default_factory=list)
    new: list[Pod] = field(default_factory=list)

    def domain(self, key: str) -> str | None:
        """The value of a label when it is certain."""
        values = self.labels.get(key, frozenset())
        return next(iter(values)) if len(values) == 1 else None


def topology_violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Every required topology constraint that the plan breaks."""
    places = list(places_of(snapshot, plan))
    return [*_too_close(places), *lacking_company(places), *_uneven(places)]


def affinity_violations(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Every required affinity and anti-affinity that the plan breaks."""
    places = list(places_of(snapshot, plan))
    return [*_too_close(places), *lacking_company(places)]


def places_of(snapshot: Snapshot, plan: Plan) -> Iterator[Place]:
    """All nodes once the plan is carried out, those in flight and those planned included."""
    pods = {(pod.metadata.namespace or "default", pod.metadata.name): pod for pod in snapshot.view.pods}
    planned = {place.name: [pods[e.namespace, e.name] for e in place.pods] for place in plan.existing_nodes}
    moving = {entry.name for place in plan.existing_nodes for entry in place.pods}
    moving |= {entry.name for claim in plan.node_claims for entry in claim.pods}
    moving |= {record.pod.name for record in plan.unschedulable}
    bound: dict[str, list[Pod]] = {}
    for pod in snapshot.view.pods:
        ended = pod.metadata.deletion_timestamp or pod.status.phase in ("Succeeded", "Failed")
        if pod.spec.node_name and not ended and pod.metadata.name not in moving:
            bound.setdefault(pod.spec.node_name, []).append(pod)
    for node in snapshot.view.nodes:
        name = node.metadata.name
        labels = {key: frozenset((value,)) for key, value in {HOST: name, **node.metadata.labels}.items()}
        gone = bool(node.metadata.deletion_timestamp)
        yield Place(name, labels, node.spec.taints, gone, False, bound.get(name, []), planned.get(name, []))
    for flight in snapshot.claims:
        labels = _claim_labels(flight.name, flight.plan)
        yield Place(flight.name, labels, flight.plan.taints, new=planned.get(flight.name, []))
    for claim in plan.node_claims:
        members = [pods[entry.namespace, entry.name] for entry in claim.pods]
        yield Place(claim.name, _claim_labels(claim.name, claim), claim.taints, planned=True, new=members)


def _claim_labels(name: str, plan: ClaimPlan | PlannedClaim) -> dict[str, frozenset[str]]:
    labels = {entry.key: frozenset(entry.values) for entry in plan.requirements if entry.operator == "In"}
    return {
        **labels,
        **{key: frozenset((value,)) for key, value in plan.labels.items()},
        HOST: frozenset((name,)),
    }


def _too_close(places: Sequence[Place]) -> Iterator[str]:
    for here in places:
        for there in places:
            for keeper in (*here.old, *here.new):
                for term in required_terms(keeper, "pod_anti_affinity"):
                    shared = here.labels.get(term.topology_key, frozenset()) & there.labels.get(
                        term.topology_key, frozenset()
                    )
                    for other in (*there.old, *there.new) if shared else ():
                        planned = keeper in here.new or other in there.new
                        if planned and other is not keeper and counts(term, keeper, other):
                            yield f"{_name(keeper)} has to stay away from {_name(other)} over {term.topology_key}"


def lacking_company(places: Sequence[Place]) -> Iterator[str]:
    """Pods that some order of binding leaves without company: one that all required terms select, in each domain.

    Pods bind in any order, each again and again until kube-scheduler takes it. So company counts that is there anyway:
    pods on nodes, pods of the plan that require none, and pods whose own company counts. A pod without such company has
    to be the first of a series, which kube-scheduler allows only while no pod anywhere meets its terms. Whichever of
    the plan's pods binds first, the others have to be in the same domains.
    """
    followers = {id(pod): (here, pod) for here in places for pod in here.new if required_terms(pod, "pod_affinity")}
    certain = {id(pod) for here in places for pod in (*here.old, *here.new)} - followers.keys()
    waiting = dict(followers)
    while found := [
        number
        for number, (here, pod) in waiting.items()
        if _joins(here, pod, places, certain) or not _why_it_starts_nothing(here, pod, places)
    ]:
        certain.update(found)
        for number in found:
            del waiting[number]
    for here, pod in waiting.values():
        yield f"{_name(pod)} on {here.name} lacks company: {_why_it_starts_nothing(here, pod, places)}"


def _why_it_starts_nothing(here: Place, pod: Pod, places: Sequence[Place]) -> str:
    """Return the reason why a pod cannot be the first of a series, or the other pods cannot join it; empty if none."""
    terms = required_terms(pod, "pod_affinity")
    keys = {term.topology_key for term in terms}
    if any(here.domain(key) is None for key in keys):
        return "a label of its affinity is not certain there"
    if not _all_count(terms, pod, pod):
        return "it does not meet its own terms"
    for there in places:
        labelled = any(there.labels.get(key) for key in keys)
        if labelled and any(there.domain(key) != here.domain(key) for key in keys):
            for other in (*there.old, *there.new):
                if other is not pod and _all_count(terms, pod, other):
                    return f"{_name(other)} is on {there.name}"
    return ""


def _joins(here: Place, pod: Pod, places: Sequence[Place], certain: Collection[int]) -> bool:
    """True if pods that are certain to be there are company for a pod, over the label of each of its terms."""
    terms = required_terms(pod, "pod_affinity")
    return all(
        any(
            other is not pod and id(other) in certain and _all_count(terms, pod, other)
            for there in places
            if here.domain(term.topology_key) is not None
            and there.domain(term.topology_key) == here.domain(term.topology_key)
            for other in (*there.old, *there.new)
        )
        for term in terms
    )


def _all_count(terms: Sequence[PodAffinityTerm], pod: Pod, other: Pod) -> bool:
    return all(counts(term, pod, other) for term in terms)


def _uneven(places: Sequence[Place]) -> Iterator[str]:
    """Pods that no order tried can place one by one, each only where its spread constraints hold then."""
    waiting = [(place, pod) for place in places for pod in place.new]
    spreaders = [pod for _, pod in waiting if spreads_of(pod)]
    if not spreaders:
        return

    def harmless_first(place: Place, pod: Pod, heights: list[int]) -> tuple[Any, ...]:
        counted = any(selected(rule, other, pod) for other in spreaders for rule in spreads_of(other))
        return (counted, not spreads_of(pod), heights)

    def strictest_first(place: Place, pod: Pod, heights: list[int]) -> tuple[Any, ...]:
        return (
            not spreads_of(pod),
            -len(spreads_of(pod)),
            min((r.max_skew for r in spreads_of(pod)), default=0),
            heights,
        )

    def largest_first(place: Place, pod: Pod, heights: list[int]) -> tuple[Any, ...]:
        cpu = str(pod.spec.containers[0].resources.requests.get("cpu", "0m"))
        return (-int(cpu.removesuffix("m")), pod.metadata.uid, heights)

    def smallest_first(place: Place, pod: Pod, heights: list[int]) -> tuple[Any, ...]:
        return (-largest_first(place, pod, heights)[0], pod.metadata.uid, heights)

    def bound_first(place: Place, pod: Pod, heights: list[int]) -> tuple[Any, ...]:
        bound = any(selected(rule, pod, pod) for rule in spreads_of(pod))
        return (not bound, heights, -len(spreads_of(pod)))

    orders = (harmless_first, strictest_first, largest_first, smallest_first, bound_first)
    left = [_left_over(places, waiting, order) for order in orders]
    if all(left) and _left_by_least_harm(places, waiting):
        yield f"no order places {[(_name(pod), place.name) for place, pod in min(left, key=len)]} evenly"


def _left_over(
    places: Sequence[Place],
    waiting: Sequence[tuple[Place, Pod]],
    order: Callable[[Place, Pod, list[int]], tuple[Any, ...]],
) -> list[tuple[Place, Pod]]:
    standing = {place.name: list(place.old) for place in places}
    waiting = list(waiting)
    while waiting:
        ready = [
            (order(place, pod, heights), step)
            for step, (place, pod) in enumerate(waiting)
            if (heights := _heights(place, pod, places, standing)) is not None
        ]
        if not ready:
            break
        place, pod = waiting.pop(min(ready)[1])
        standing[place.name].append(pod)
    return waiting


def _left_by_least_harm(places: Sequence[Place], waiting: Sequence[tuple[Place, Pod]]) -> Sequence[tuple[Place, Pod]]:
    """Return the pods left over if each step places one after which most of the others could still be placed.

    Pods alike on one place are tried once. Workloads that count each other's pods need such an order.
    """
    standing = {place.name: list(place.old) for place in places}
    kinds: dict[tuple[str, bytes], list[tuple[Place, Pod]]] = {}
    for place, pod in waiting:
        alike = msgspec.json.encode((pod.metadata.namespace, pod.metadata.labels, pod.spec))
        kinds.setdefault((place.name, alike), []).append((place, pod))

    def able(place: Place, pod: Pod) -> bool:
        return _heights(place, pod, places, standing) is not None

    def others_able(kind: tuple[str, bytes]) -> int:
        place, pod = kinds[kind][0]
        standing[place.name].append(pod)
        count = sum(able(*members[0]) for other, members in kinds.items() if other != kind)
        standing[place.name].pop()
        return count

    while ready := [kind for kind, members in kinds.items() if able(*members[0])]:
        chosen = max(ready, key=lambda kind: (others_able(kind), len(kinds[kind])))
        place, pod = kinds[chosen].pop()
        standing[place.name].append(pod)
        if not kinds[chosen]:
            del kinds[chosen]
    return [item for members in kinds.values() for item in members]


def _heights(
    place: Place, pod: Pod, places: Sequence[Place], standing: Mapping[str, Sequence[Pod]]
) -> list[int] | None:
    """Return the number of counted pods in each of the pod's domains now; None when a constraint forbids them."""
    heights = []
    rules = spreads_of(pod)
    labelled = [other for other in places if all(other.labels.get(rule.topology_key) for rule in rules)]
    for rule in rules:
        mine = place.domain(rule.topology_key)
        if mine is None:
            return None
        found: dict[str, int] = {}
        for other in labelled:
            domain = other.domain(rule.topology_key)
            if domain is None or not looks_at(pod, other, rule):
                continue
            found.setdefault(domain, 0) if _takes_part(other, pod, rule) else None
            number = sum(selected(rule, pod, one) for one in standing[other.name])
            if number:
                found[domain] = found.get(domain, 0) + number
        lowest = min(found.values(), default=0) if len(found) >= (rule.min_domains or 1) else 0
        height = found.get(mine, 0)
        if height + selected(rule, pod, pod) - lowest > rule.max_skew:
            return None
        heights.append(height)
    return heights


def _takes_part(place: Place, pod: Pod, rule: TopologySpreadConstraint) -> bool:
    """True if a place makes its domain one to compare with. Nodes for other pods alone may turn out anywhere."""
    if place.leaving:
        return False
    return not place.planned or any(selected(rule, pod, one) or rule in spreads_of(one) for one in place.new)


def looks_at(pod: Pod, place: Place, rule: TopologySpreadConstraint | None = None) -> bool:
    """True if the pod's selector and node affinity allow the place, and, if the rule asks, the pod's tolerations."""
    if rule is not None and rule.node_taints_policy == "Honor":
        for taint in place.taints:
            if taint.effect != "PreferNoSchedule" and not any(
                entry.key in ("", taint.key) and (entry.operator == "Exists" or entry.value == taint.value)
                for entry in pod.spec.tolerations
            ):
                return False
    if rule is not None and rule.node_affinity_policy == "Ignore":
        return True
    selector = all(value in place.labels.get(key, frozenset((value,))) for key, value in pod.spec.node_selector.items())
    return selector and _may_be_required(pod, place)


def _may_be_required(pod: Pod, place: Place) -> bool:
    """True if the place meets a term of the pod's required node affinity with some value of each label."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    if affinity is None or affinity.required is None:
        return True
    return any(
        all(
            entry.key not in place.labels
            or any(holds(value, entry.operator, entry.values) for value in place.labels[entry.key])
            for entry in term.match_expressions
        )
        for term in affinity.required.node_selector_terms
    )


def spreads_of(pod: Pod) -> list[TopologySpreadConstraint]:
    """A pod's required spread constraints."""
    return [rule for rule in pod.spec.topology_spread_constraints if rule.when_unsatisfiable == "DoNotSchedule"]


def required_terms(pod: Pod, kind: str) -> tuple[PodAffinityTerm, ...]:
    """A pod's required terms of `pod_affinity` or `pod_anti_affinity`."""
    affinity = getattr(pod.spec.affinity, kind) if pod.spec.affinity else None
    return affinity.required if affinity else ()


def selected(rule: TopologySpreadConstraint, pod: Pod, other: Pod) -> bool:
    """True if a pod's spread constraint counts another pod."""
    same = (pod.metadata.namespace or "default") == (other.metadata.namespace or "default")
    alike = all(
        other.metadata.labels.get(key) == pod.metadata.labels[key]
        for key in rule.match_label_keys
        if key in pod.metadata.labels
    )
    return same and alike and _matches(rule.label_selector, other.metadata.labels)


def counts(term: PodAffinityTerm, pod: Pod, other: Pod) -> bool:
    """True if a pod's (anti-)affinity term counts another pod; namespaces are listed, all or the pod's own."""
    everywhere = term.namespace_selector is not None
    names = term.namespaces or (pod.metadata.namespace or "default",)
    return (everywhere or (other.metadata.namespace or "default") in names) and _matches(
        term.label_selector, other.metadata.labels
    )


def _matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is not None and selector.match_labels.items() <= labels.items()


def _name(pod: Pod) -> str:
    return pod.metadata.name
