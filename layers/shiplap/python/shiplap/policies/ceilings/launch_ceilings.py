"""A plan within ceilings in dollars: claims that no ceiling lets pass are left out, and their pods say which one.

Pods of a claim that is left out are planned again, on nodes that cost no more than what is left of their ceilings: the
claims that passed hold their pods meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.labels import ZONE
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.selectors import matches
from shiplap.manifests.nodeclaim import PodReference
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.ceilings.ceilings import (
    CeilingMode,
    SpendingView,
    Standing,
    admit,
    short_ceilings,
)
from shiplap.policies.ceilings.launch_costs import LaunchCosts
from shiplap.scheduling.model.pod_classes import signature
from shiplap.scheduling.model.pod_volumes import PodVolumes
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Placement, Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.held_claims import holding, still_held, together
from shiplap.scheduling.packing.unlaunched_claims import with_claims, without_claims
from shiplap.scheduling.supply.templates import usable_pools

_MOST_PLANS = 8
"""Plans of smaller nodes. Each has about half the room of the one before."""

_MOST_ASKED = 4
"""Plans that find out why pods wait which the first plan left out."""

_MOST_WITHOUT_COMPANY = 4
"""Plans without pods that have no node, for those that require their company or spread beside them."""

_MOST_COMPARED = 100_000
"""Constraints and labels that are compared for that: some 50 ms."""


def within_ceilings(snapshot: Snapshot, view: SpendingView, decided: Plan, again: Callable[[Snapshot], Plan]) -> Plan:
    """The plan without what ceilings refuse, with smaller or cheaper nodes for its pods where these fit.

    `again` plans a snapshot regardless of ceilings.
    """
    search = _SmallerNodes(snapshot, view, LaunchCosts(snapshot, view), again)
    best, told = search.below(decided)
    for _ in range(_MOST_WITHOUT_COMPANY):
        left = frozenset(entry.pod.key for entry in told.unschedulable)
        if not best.reasons or not _relies_on(left, told, snapshot.view.pods):
            break
        best, now = search.without(left)
        waiting = tuple(sorted((*told.unschedulable, *now.unschedulable), key=lambda entry: entry.pod))
        told = replace(now, unschedulable=waiting, stats=told.stats, unsettled=told.unsettled or now.unsettled)
        if not now.unschedulable:
            break
    return search.shortened(told, best)


def _relies_on(left: Collection[str], told: Plan, pods: Sequence[Pod]) -> bool:
    """True if a pod with a node requires the company of pods that have none, or spreads beside them.

    Pods of equal constraints are asked for once, and about pods of equal labels once. It is also true once there are
    too many to compare.
    """
    served = _served(told)
    kinds = _kinds(pods, served)
    missing = {_labels(pod): pod for pod in pods if pod.key in left}
    if len(kinds) * len(missing) > _MOST_COMPARED:
        return True
    return any(_is_about(pod, other) for pod in kinds for other in missing.values())


def _kinds(pods: Iterable[Pod], keys: Collection[str]) -> Collection[Pod]:
    """One pod of each kind among those of these keys that require company or a spread."""
    return {_kind(pod): pod for pod in pods if pod.key in keys and _is_topological(pod)}.values()


def _is_topological(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return bool(pod.spec.topology_spread_constraints) or (affinity is not None and affinity.pod_affinity is not None)


def _kind(pod: Pod) -> bytes:
    return msgspec.msgpack.encode((pod.metadata.namespace, pod.spec.affinity, pod.spec.topology_spread_constraints))


def _labels(pod: Pod) -> tuple[str, frozenset[tuple[str, str]]]:
    return pod.metadata.namespace, frozenset(pod.metadata.labels.items())


def _is_about(pod: Pod, other: Pod) -> bool:
    """True if another pod counts for a required affinity term or spread of this one, wherever it is."""
    affinity = pod.spec.affinity.pod_affinity if pod.spec.affinity is not None else None
    if any(matches(term.label_selector, other.metadata.labels) for term in (affinity.required if affinity else ())):
        return True
    return pod.metadata.namespace == other.metadata.namespace and any(
        spread.when_unsatisfiable == "DoNotSchedule" and matches(spread.label_selector, other.metadata.labels)
        for spread in pod.spec.topology_spread_constraints
    )


def _served(plan: Plan) -> frozenset[str]:
    parts: tuple[PlannedClaim | Placement, ...] = (*plan.node_claims, *plan.existing_nodes)
    return frozenset(pod.key for part in parts for pod in part.pods)


def _without_pods(snapshot: Snapshot, left: Collection[str]) -> Snapshot:
    pods = tuple(pod for pod in snapshot.view.pods if pod.key not in left)
    return replace(snapshot, view=replace(snapshot.view, pods=pods))


class _Bounded(msgspec.Struct, frozen=True):
    """The admitted part of a plan, and why other claims are refused, by their name.

    `lists` are the types for which short ceilings have room, by claim. `after` is what the plan leaves of the ceilings
    if each claim becomes the cheapest type on its list.
    """

    plan: Plan
    lists: Mapping[str, Collection[str]]
    after: SpendingView
    reasons: Mapping[str, str]

    @property
    def served(self) -> frozenset[str]:
        """The pods that have a node in the plan, by `namespace/name`."""
        return _served(self.plan)


def _bounded(plan: Plan, view: SpendingView, launches: LaunchCosts) -> _Bounded:
    wanted = launches.wanted(plan.node_claims)
    verdicts = admit(view, wanted)
    passed = {launch.name: launch.instance_types for launch in verdicts.admitted}
    kept = [claim for claim in plan.node_claims if claim.name in passed]
    short = short_ceilings(view, wanted)
    bound = [claim.name for claim in kept if any(ceiling.bounds(claim.node_pool) for ceiling in short)]
    lists = {name: passed[name] for name in bound}
    return _Bounded(with_claims(plan, kept), lists, verdicts.at_least, verdicts.refused)


class _SmallerNodes:
    """Looks for nodes that fit below ceilings, for pods whose nodes do not.

    Pods that ceilings regard alike are planned together, those that may have most first: so important pods do not lose
    a node because others would share it. A plan is taken if it serves more of them; nodes that are admitted go only if
    ceilings have less room for them once the important ones are there. So the search ends.
    """

    def __init__(
        self, snapshot: Snapshot, view: SpendingView, launches: LaunchCosts, again: Callable[[Snapshot], Plan]
    ) -> None:
        self._snapshot, self._view, self._launches, self._again = snapshot, view, launches, again
        self._pools = usable_pools(snapshot.manifests.node_pools)
        self._plans_left = _MOST_PLANS
        self._steps: list[int] = []
        """The least priorities that pass ceilings with too little room for the decided nodes."""
        self._pods: Mapping[str, PodReference] = {}
        self._left_out: Mapping[str, PodReference] = {}

    def below(self, decided: Plan) -> tuple[_Bounded, Plan]:
        """The best plan for the pods of a decided one, and what it says."""
        first = _bounded(decided, self._view, self._launches)
        if not first.reasons:
            return first, first.plan
        best = self._search(first, decided)
        return best, _told(best, first, decided, self._launches, self._reasons_beside(best))

    def without(self, left: Collection[str]) -> tuple[_Bounded, Plan]:
        """The best plan from now on without these pods, and what it says."""
        self._snapshot = _without_pods(self._snapshot, left)
        return self.below(self._again(self._snapshot))

    def shortened(self, told: Plan, best: _Bounded) -> Plan:
        """The plan with the types of each claim for which ceilings have room."""
        claims = [
            _reduced(claim, best.lists[claim.name], self._launches) if claim.name in best.lists else claim
            for claim in told.node_claims
        ]
        return with_claims(told, claims)

    def _search(self, first: _Bounded, decided: Plan) -> _Bounded:
        """The plan with all that could be found for the pods of the decided claims, and for those that were left out.

        A limit that was full in the decided plan has room again once ceilings refuse its nodes.
        """
        self._left_out = {entry.pod.key: entry.pod for entry in decided.unschedulable}
        self._pods = {pod.key: pod for claim in decided.node_claims for pod in claim.pods} | self._left_out
        self._launches.look_up(self._pods)
        short = short_ceilings(self._view, self._launches.wanted(decided.node_claims))
        self._steps = [item.above_priority + 1 for item in short if item.mode is CeilingMode.PRIORITY]
        by_standing: dict[Standing, list[str]] = {}
        for key, pod in self._pods.items():
            by_standing.setdefault(self._standing(pod), []).append(key)
        best = first
        for standing in sorted(by_standing, key=_importance, reverse=True):
            best = self._serve(best, standing, frozenset(by_standing[standing]))
        return best

    def _reasons_beside(self, best: _Bounded) -> dict[str, Unschedulable]:
        """Return why pods that the decided plan left out still wait beside the best plan, by pod.

        Equal pods wait for the same reason, so one of them is planned. Those that a limit leaves out beside nodes that
        ceilings refuse are planned again without the pods of these nodes.
        """
        asked = {keys[0]: keys for keys in self._equal_pods(self._left_out.keys() - best.served)}
        found: dict[str, Unschedulable] = {}
        for _ in range(_MOST_ASKED):
            if not asked:
                break
            made = self._again(self._beside(best.plan.node_claims, self._pods.keys() - best.served - asked.keys(), {}))
            waits = self._refused_beside(best, made)
            for entry in (*made.unschedulable, *waits):
                for key in asked.get(entry.pod.key, ()):
                    found[key] = replace(entry, pod=self._left_out[key])
            refused = {entry.pod.key for entry in waits}
            asked = {first: keys for first, keys in asked.items() if refused and first not in refused}
        return found

    def _equal_pods(self, left: Collection[str]) -> list[list[str]]:
        """Pods in groups of equal constraints, requests and labels."""
        volumes, missed = PodVolumes(self._snapshot.view), self._snapshot.missed_pods
        alike: dict[object, list[str]] = {}
        for pod in self._snapshot.view.pods:
            if pod.key in left:
                labels, needs = _labels(pod), volumes.needs(pod)
                kind = (labels, signature(pod.spec), needs, pod.metadata.uid in missed)
                alike.setdefault(kind, []).append(pod.key)
        return [sorted(keys) for keys in alike.values()]

    def _refused_beside(self, best: _Bounded, made: Plan) -> list[Unschedulable]:
        """The pods of a plan whose new nodes ceilings refuse beside the best plan, and which ceilings."""
        known = {claim.name for claim in best.plan.node_claims}
        fresh = [claim for claim in made.node_claims if claim.name not in known]
        refused = admit(best.after, self._launches.wanted(fresh)).refused
        return [
            Unschedulable(pod, refused[claim.name]) for claim in fresh if claim.name in refused for pod in claim.pods
        ]

    def _standing(self, pod: PodReference) -> Standing:
        """That of the pod, with the least priority for which ceilings decide as for its own."""
        known = self._launches.standing_of(pod)
        passed = [step for step in self._steps if known.priority >= step]
        return Standing(max(passed, default=min(self._steps, default=1) - 1), known.is_exempt)

    def _serve(self, best: _Bounded, standing: Standing, keys: frozenset[str]) -> _Bounded:
        while self._plans_left and (left := keys - best.served):
            dearest = {pool.metadata.name: best.after.dearest(pool.metadata.name, standing) for pool in self._pools}
            if not self._may_serve(left, dearest):
                break
            tried = self._better(best, left, dearest, standing)
            if tried is None:
                break
            best = tried
        return best

    def _better(
        self, best: _Bounded, left: frozenset[str], dearest: Mapping[str, int | None], standing: Standing
    ) -> _Bounded | None:
        """A plan that serves more of these pods; if pods lose their places to them, one in which nobody moves."""
        for placed in ((), best.plan.existing_nodes):
            if not self._plans_left:
                break
            self._plans_left -= 1
            tried = self._smaller(best, left, dearest, placed)
            if tried is not None and self._serves_more(tried, best, standing):
                return tried
            if tried is None or not best.served - tried.served:
                break
        return None

    def _serves_more(self, tried: _Bounded, best: _Bounded, standing: Standing) -> bool:
        """True if more pods have a new node, and only less important pods have lost theirs."""
        return bool(tried.served - best.served) and all(
            key in self._pods and _importance(self._standing(self._pods[key])) < _importance(standing)
            for key in best.served - tried.served
        )

    def _may_serve(self, keys: frozenset[str], dearest: Mapping[str, int | None]) -> bool:
        pods = [self._pods[key] for key in sorted(keys)]
        return any(self._launches.may_hold(pods, pool, dearest[pool.metadata.name]) for pool in self._pools)

    def _smaller(
        self,
        best: _Bounded,
        keys: frozenset[str],
        dearest: Mapping[str, int | None],
        placed: tuple[Placement, ...],
    ) -> _Bounded | None:
        """A plan for these pods beside what is admitted, on nodes no dearer than this; None if it moves what was."""
        kept = self._in_known_zones(best.plan.node_claims, keys)
        beside = self._beside(kept, self._pods.keys() - best.served - keys, dearest)
        made = self._again(replace(beside, placed=placed))
        if not still_held(made, kept):
            return None
        fresh = replace(made, node_claims=tuple(claim for claim in made.node_claims if claim.pods))
        added = _bounded(fresh, best.after, self._launches)
        whole = _bounded(together(added.plan, kept), self._view, self._launches)
        return replace(whole, reasons={**best.reasons, **whole.reasons})

    def _in_known_zones(self, claims: Sequence[PlannedClaim], keys: frozenset[str]) -> list[PlannedClaim]:
        """The claims, in the zone of their launch if pods that are planned beside them count their pods by zone.

        Such pods could follow them nowhere as long as each zone is possible.
        """
        pods = self._snapshot.view.pods
        kinds = _kinds(pods, keys)
        anywhere = {pod.key for claim in claims if ZONE not in claim.labels for pod in claim.pods} if kinds else set()
        there: dict[object, list[Pod]] = {}
        for pod in pods:
            if pod.key in anywhere:
                there.setdefault(_labels(pod), []).append(pod)
        is_all = len(kinds) * len(there) > _MOST_COMPARED
        counted = {
            pod.key
            for alike in there.values()
            if is_all or any(_is_about(kind, alike[0]) for kind in kinds)
            for pod in alike
        }
        return [
            self._launches.in_zone_of_launch(claim) if any(pod.key in counted for pod in claim.pods) else claim
            for claim in claims
        ]

    def _beside(
        self, kept: Sequence[PlannedClaim], without: Collection[str], dearest: Mapping[str, int | None]
    ) -> Snapshot:
        """The snapshot with claims that are kept, without these pods, and with a bound of what a new node may cost."""
        snapshot = _without_pods(holding(self._snapshot, kept), without)
        return replace(
            snapshot,
            manifests=replace(snapshot.manifests, capacity_buffers=()),
            most_node_price={pool: most / MICROS for pool, most in dearest.items() if most is not None},
            policies=tuple(policy.behind(kept) for policy in snapshot.policies),
            standalone_claims=(),
            domain_pools=self._snapshot.manifests.node_pools,
        )


def _importance(standing: Standing) -> tuple[bool, int]:
    return standing.is_exempt, standing.priority


def _told(
    best: _Bounded, first: _Bounded, decided: Plan, launches: LaunchCosts, by_pod: Mapping[str, Unschedulable]
) -> Plan:
    """The best plan, with the reasons for which pods, static pools and buffers of the decided one wait.

    `by_pod` has those of pods that the decided plan left out, as far as they are others now.
    """
    # A smaller node for the same pods has the same name. It has no room for virtual ones.
    kept = {(claim.name, claim.virtual_pods) for claim in best.plan.node_claims}
    left_out = [claim for claim in decided.node_claims if (claim.name, claim.virtual_pods) not in kept]
    reasons = best.reasons
    if best is not first:
        reasons = {**reasons, **admit(best.after, launches.wanted(left_out)).refused}
    still = tuple(by_pod.get(entry.pod.key, entry) for entry in decided.unschedulable)
    waits = without_claims(replace(decided, unschedulable=still), left_out, reasons)
    served = best.served
    return replace(
        best.plan,
        unschedulable=tuple(entry for entry in waits.unschedulable if entry.pod.key not in served),
        static_pools=waits.static_pools,
        buffers=waits.buffers,
        stats=decided.stats,
        unsettled=decided.unsettled or best.plan.unsettled,
    )


def _reduced(claim: PlannedClaim, fitting: Collection[str], launches: LaunchCosts) -> PlannedClaim:
    kept = tuple(name for name in claim.instance_types if name in fitting)
    # Types that are sold as another capacity type only have no price here, but minValues may count them.
    if any(line.min_values for line in claim.requirements) and not _leaves_out(claim, fitting, launches):
        return claim
    if kept == claim.instance_types or not kept:
        return claim
    estimates = tuple(name for name in claim.relies_on_estimate if name in kept)
    reduced = replace(claim, instance_types=kept, relies_on_estimate=estimates)
    if claim.launch.instance_type in kept:
        return reduced
    offers = ((offering.price, name, offering) for name in kept for offering in launches.offerings(claim, name))
    _, name, offering = min(offers, key=lambda offer: (offer[0], offer[1], offer[2].zone))
    choice = LaunchChoice(name, offering.zone, offering.capacity_type, offering.price, offering.reservation_id)
    return replace(reduced, launch=choice)


def _leaves_out(claim: PlannedClaim, fitting: Collection[str], launches: LaunchCosts) -> bool:
    """True if ceilings have no room for a type on the claim's list that may be launched as planned."""
    return any(name not in fitting and launches.offerings(claim, name) for name in claim.instance_types)
