"""Zone balance: pods that prefer to be spread over zones go back to a zone that had no capacity for them.

A spread is out of balance if its pods differ between two zones by more than `maxSkew`. A node goes if the plan has a
place for all its pods that brings them closer: the sum of the squares of a spread's pods in each zone falls for one
spread that is out of balance, and rises for none. So each command lowers a whole number, and there is an end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import Component, components_of
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.climb_back import ClimbBack
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES, LabelSelector, Pod
from shiplap.kubernetes.selectors import matcher
from shiplap.manifests.shiplap_annotations import ZoneBalance, zone_balance
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.topology_constraints import with_label_keys

_MOST_TRIED = 8
"""How many nodes are tried in one decision."""

_CROWDED = "its zone has too many pods of a spread; "


class _Spread(NamedTuple):
    """A constraint over zones that is no must, with the pods that it counts."""

    namespace: str
    selector: bytes
    max_skew: int


class _Counted(msgspec.Struct, frozen=True):
    """The pods of a spread by zone, the names of them all, and whether some are on their way to another place."""

    zones: Counter[str]
    members: frozenset[str]
    in_motion: bool = False

    @property
    def weight(self) -> int:
        """The sum of squares, which falls with each pod that goes to a zone with at least two fewer."""
        return sum(number * number for number in self.zones.values())

    def moved(self, ways: Iterable[tuple[str, str, str]]) -> _Counted:
        """The same behind moves, each a pod and its zones before and after."""
        zones = Counter(self.zones)
        for pod, before, after in ways:
            if pod in self.members:
                zones[before] -= 1
                zones[after] += 1
        return _Counted(+zones, self.members, self.in_motion)

    def words(self, zones: Iterable[str]) -> str:
        """The pods of each zone."""
        return ", ".join(f"{zone} {self.zones[zone]}" for zone in sorted({*self.zones, *zones}))


class ZoneRebalance(DisruptionMethod):
    """The node is replaced like a drifted one, within the bounds that its NodePool states. One at a time."""

    waits_for: ClassVar[frozenset[Method]] = ClimbBack.waits_for | {Method.CLIMB_BACK}

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """A command for the first node whose pods come closer to balance."""
        bounds = {
            pool.metadata.name: bound
            for pool in progress.snapshot.scheduling.manifests.node_pools
            if (bound := zone_balance(pool)) is not None
        }
        able = [item for item in candidates if item.pool.metadata.name in bounds and _may_go(item, progress)]
        if not able:
            return ()
        search = _Search(progress)
        crowded = [item for item in able if search.is_crowded(item)]
        crowded.sort(key=lambda item: (len(item.pods), item.name))
        spent = [item for item in crowded if progress.budgets.left(item.pool, Reason.DRIFTED) <= 0]
        progress.keep_within_budget(spent, Reason.DRIFTED)
        for item in [item for item in crowded if item not in spent][:_MOST_TRIED]:
            found = search.command(item, bounds[item.pool.metadata.name])
            if isinstance(found, str):
                progress.blocked[item.name] = found
            elif not progress.ask_policies([found])[0]:
                return (found,)
        return ()


def _may_go(item: Candidate, progress: DecisionProgress) -> bool:
    return not (item.empty or item.protected or progress.unconsolidatable(item) or progress.backing_off(item))


class _Search:
    """Looks for nodes whose pods would be closer to balance elsewhere."""

    def __init__(self, progress: DecisionProgress) -> None:
        self._simulator = progress.simulator
        view = progress.snapshot.scheduling.view
        self._zones = {node.metadata.name: node.metadata.labels.get(labels.ZONE, "") for node in view.nodes}
        going = progress.snapshot.busy | progress.candidate_nodes.leaving
        self._counted = _counted(view.pods, self._zones, going)
        self._sold = frozenset(
            offering.zone
            for catalog in progress.snapshot.scheduling.catalogs
            for item in catalog.instance_types
            for offering in item.offerings
            if offering.available
        )

    def is_crowded(self, item: Candidate) -> bool:
        """True if the node is in a zone with more pods of a spread than `maxSkew` allows beside another zone."""
        own = {spread for pod in item.pods for spread in _spreads(pod)}
        return any(self._is_out(spread, item) for spread in own)

    def _is_out(self, spread: _Spread, item: Candidate) -> bool:
        counted = self._counted[spread]
        if counted.in_motion:
            return False
        least = min((counted.zones[zone] for zone in {*counted.zones, *self._sold}), default=0)
        return counted.zones[self._zones[item.name]] - least > spread.max_skew

    def command(self, item: Candidate, bound: ZoneBalance) -> DisruptionProposal | str:
        """The command that moves the pods of a node, or why there is none."""
        if len(item.pods) > bound.most_pods:
            return f"{_CROWDED}zone balance may move {bound.most_pods} pods at a time, not its {len(item.pods)}"
        relocation = self._simulator.without([item.name])
        if relocation.stuck:
            return f"{_CROWDED}{relocation.stuck[item.name]}"
        (part,) = components_of(relocation, [item])
        ways = list(self._ways(item, part))
        changes = [(spread, before, before.moved(ways)) for spread, before in sorted(self._counted.items())]
        if any(before.in_motion and after.zones != before.zones for _, before, after in changes):
            return f"{_CROWDED}others of its pods belong to a spread of which pods are on their way"
        better = [
            (spread, before, after)
            for spread, before, after in changes
            if after.weight < before.weight and self._is_out(spread, item)
        ]
        if not better or any(after.weight > before.weight for _, before, after in changes):
            return f"{_CROWDED}no place for its pods would bring them closer to balance now"
        dearer = round(sum(claim.launch.price for claim in part.claims) - part.paid, 6)
        if dearer > bound.most_hourly:
            return f"{_CROWDED}zone balance would cost {dearer:g} USD per hour, of at most {bound.most_hourly:g}"
        spread, before, after = better[0]
        zones = {zone for _, *both in ways for zone in both}
        why = (
            f"zone balance: pods in {spread.namespace} per zone are {before.words(zones)}, then {after.words(zones)}; "
            f"maxSkew is {spread.max_skew}; {part.moved} of at most {bound.most_pods} pods move, "
            f"for {max(dearer, 0.0):g} of at most {bound.most_hourly:g} USD per hour"
        )
        return DisruptionProposal(
            Reason.DRIFTED, Method.ZONE_BALANCE, (item.name,), part.claims, part.placements, -dearer, part.moved, why
        )

    def _ways(self, item: Candidate, part: Component) -> Iterable[tuple[str, str, str]]:
        """Each pod of the node with its zone and the next one; of a claim that may be in several, the same zone."""
        here = self._zones[item.name]
        for place in part.placements:
            for pod in place.pods:
                yield f"{pod.namespace}/{pod.name}", here, self._zones.get(place.name, here)
        for claim in part.claims:
            for pod in claim.pods:
                yield f"{pod.namespace}/{pod.name}", here, _zone_of(claim) or here


def _zone_of(claim: PlannedClaim) -> str:
    """The zone of a claim; empty if it may be launched in several."""
    for wanted in claim.requirements:
        if wanted.key == labels.ZONE and wanted.operator == "In" and len(wanted.values) == 1:
            return wanted.values[0]
    return ""


def _spreads(pod: Pod) -> Iterable[_Spread]:
    """The constraints of a pod over zones that kube-scheduler may give up."""
    for constraint in pod.spec.topology_spread_constraints:
        may_be_given_up = constraint.when_unsatisfiable == "ScheduleAnyway"
        if constraint.topology_key != labels.ZONE or not may_be_given_up:
            continue
        selector = with_label_keys(constraint.label_selector, pod.metadata.labels, constraint.match_label_keys, ())
        if selector is not None:
            written = msgspec.json.encode(selector, order="deterministic")
            yield _Spread(pod.metadata.namespace or "default", written, constraint.max_skew)


def _counted(pods: Iterable[Pod], zones: Mapping[str, str], going: Collection[str]) -> dict[_Spread, _Counted]:
    """The pods that each spread counts. Those without a node, or on one that goes, are on their way."""
    alive: defaultdict[str, list[Pod]] = defaultdict(list)
    spreads: set[_Spread] = set()
    for pod in pods:
        if pod.status.phase not in TERMINAL_PHASES:
            alive[pod.metadata.namespace or "default"].append(pod)
            spreads.update(_spreads(pod))
    found = {}
    for spread in sorted(spreads):
        selects = matcher(msgspec.json.decode(spread.selector, type=LabelSelector))
        own = [pod for pod in alive[spread.namespace] if selects(pod.metadata.labels)]
        here = [pod for pod in own if zones.get(pod.spec.node_name)]
        in_motion = any(
            pod.metadata.deletion_timestamp or not zones.get(pod.spec.node_name) or pod.spec.node_name in going
            for pod in own
        )
        names = frozenset(f"{spread.namespace}/{pod.metadata.name}" for pod in here)
        found[spread] = _Counted(Counter(zones[pod.spec.node_name] for pod in here), names, in_motion)
    return found
