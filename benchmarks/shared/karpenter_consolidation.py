"""A model of how Karpenter consolidates, after its published rules; everything else is Shiplap's.

Candidates are ordered by price per disruption. First the longest prefix within the budgets that one node or none can
replace is looked for, by bisection among the first hundred. Then every node is tried alone, the NodePools in turns,
whatever place it has among its pool's: a budget that allows one node allows any one. A replacement has to be cheaper,
and a single spot node's be one of 15 cheaper types. Moves cost nothing. The first command that is found is the only one
of a look, and it is carried out at the next look, 15 seconds later, if its nodes could still become the same. Empty
nodes, `consolidateAfter`, budgets and the times of looks are the same for both.

The model favours Karpenter in four ways: spot nodes may become cheaper spot nodes, which is off by default there;
empty and underutilized nodes go in one look; nodes that are starting keep no other node; and replacements are
planned by price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import NotWorthwhile, restrict_to_cheaper
from shiplap.disruption.decide import ask
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot
from shiplap.disruption.methods.emptiness import Emptiness
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.methods.replacement import Replacement
from shiplap.disruption.methods.scale_down import ScaleDown
from shiplap.disruption.methods.underutilization import Underutilization
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import Placement

MOST_TOGETHER = 100
"""Candidates of a multi-node consolidation."""

SETTINGS = DisruptionSettings(move_cost=0.0, least_saving_share=0.0, settle_s=0.0, climb_back_s=1e9)
"""Of a cluster whose nodes are consolidated like this."""


class KarpenterModel:
    """Stands in for `decide`; keeps what was found at the last look, by cluster."""

    def __init__(self) -> None:
        self._found: dict[str, DisruptionProposal] = {}

    def __call__(self, snapshot: DisruptionSnapshot, clock: DecisionClock | None = None) -> Decision:
        nodes = snapshot.scheduling.view.nodes
        starting = [node.metadata.name for node in nodes if node.metadata.labels.get(labels.INITIALIZED) != "true"]
        progress = DecisionProgress(snapshot, clock or DecisionClock(snapshot.scheduling.now), unsettled=starting)
        consolidation = _KarpenterConsolidation(progress, self._found.pop(snapshot.scheduling.cluster, None))
        decision = ask((ScaleDown(), Emptiness(), Replacement(), consolidation), progress)
        if consolidation.found is not None:
            self._found[snapshot.scheduling.cluster] = consolidation.found
        return decision


class _KarpenterConsolidation(DisruptionMethod):
    """Of one decision; `before` is what the last one found, `found` what this one finds."""

    waits_for = Underutilization.waits_for

    def __init__(self, progress: DecisionProgress, before: DisruptionProposal | None) -> None:
        self._progress = progress
        self._before = before
        self.found: DisruptionProposal | None = None

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        able = [item for item in candidates if not item.empty and progress.may_consolidate(item)]
        ordered = sorted(able, key=lambda item: (-item.savings_ratio, item.name))
        valid = self._validated(ordered)
        if valid:
            return (valid,)
        within = progress.within_budgets(ordered, Reason.UNDERUTILIZED)
        self.found = self._several(within[:MOST_TOGETHER])
        for candidate in () if self.found else self._in_turns(ordered):
            self.found = self._command((candidate,))
            if self.found:
                break
        return (self.found,) if self.found else ()

    def _validated(self, able: Sequence[Candidate]) -> DisruptionProposal | None:
        """Return the proposal of the last look, if the same nodes may still go and become the same."""
        if self._before is None:
            return None
        again = [item for item in able if item.name in self._before.nodes]
        within = self._progress.within_budgets(again, Reason.UNDERUTILIZED)
        if len(within) < len(self._before.nodes):
            return None
        command = self._command(within)
        if command is None or len(command.replacements) != len(self._before.replacements):
            return None
        for now, then in zip(command.replacements, self._before.replacements, strict=True):
            if not set(then.instance_types) <= set(now.instance_types):
                return None
        return command

    def _in_turns(self, ordered: Sequence[Candidate]) -> list[Candidate]:
        """The candidates of pools whose budgets allow any, the first of each pool before the second of any."""
        before: Counter[str] = Counter()
        places = []
        for item in ordered:
            pool = item.pool.metadata.name
            if self._progress.budgets.left(item.pool, Reason.UNDERUTILIZED) > 0:
                places.append((before[pool], pool, item))
            before[pool] += 1
        return [item for *_, item in sorted(places, key=lambda place: place[:2])]

    def _several(self, candidates: Sequence[Candidate]) -> DisruptionProposal | None:
        """The command for the longest prefix of two or more that bisection finds one for."""
        best, least, most = None, 2, len(candidates)
        while least <= most:
            size = (least + most) // 2
            found = self._command(candidates[:size])
            if found:
                best, least = found, size + 1
            else:
                most = size - 1
        return best

    def _command(self, candidates: Sequence[Candidate]) -> DisruptionProposal | None:
        """One command that replaces these nodes by one or none, if there is one that saves anything."""
        relocation = self._progress.simulator.without([item.name for item in candidates])
        if relocation.stuck or len(relocation.claims) > 1:
            return None
        claims = relocation.claims
        if claims:
            try:
                claims = restrict_to_cheaper(claims, candidates, self._progress.market, spot_to_spot=True)
            except NotWorthwhile:
                return None
        saved = sum(item.price for item in candidates) - sum(claim.launch.price for claim in claims)
        return DisruptionProposal(
            Reason.UNDERUTILIZED,
            Method.CONSOLIDATION,
            tuple(sorted(item.name for item in candidates)),
            claims,
            _placements(relocation.received.values()),
            round(saved, 6),
            sum(len(item.pods) for item in candidates),
            "as Karpenter",
        )


def _placements(received: Iterable[dict[str, list[PodReference]]]) -> tuple[Placement, ...]:
    merged: dict[str, list[PodReference]] = {}
    for places in received:
        for name, pods in places.items():
            merged.setdefault(name, []).extend(pods)
    return tuple(Placement(name, tuple(sorted(pods))) for name, pods in sorted(merged.items()))
