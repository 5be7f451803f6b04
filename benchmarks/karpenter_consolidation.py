"""A model of how Karpenter consolidates, after its published rules; everything else is Shiplap's.

Candidates are ordered by what disrupting them costs. First the longest prefix that one node or none can replace is
looked for, by bisection among the first hundred; then single nodes are tried in that order. A replacement has to be
cheaper, and a single spot node's be one of 15 cheaper types. Moves cost nothing, and the first command that is found
is the only one of a look: Karpenter waits for 15 seconds and validates it, as Shiplap's second look does. Empty nodes,
`consolidateAfter` and budgets are the same for both.

The model favours Karpenter in two ways: its replacements are planned by price, and they may go to nodes that other pods
are still coming to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Decision, DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import NotWorthwhile, restrict_to_cheaper
from shiplap.disruption.decide import DisruptionDecider
from shiplap.disruption.disruption_snapshot import DisruptionSettings, DisruptionSnapshot
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import Placement

MOST_TOGETHER = 100
"""Candidates of a multi-node consolidation."""

SETTINGS = DisruptionSettings(move_cost=0.0, least_saving_share=0.0, settle_s=0.0, climb_back_s=1e9)
"""Of a cluster whose nodes are consolidated like this."""


def decide_as_karpenter(snapshot: DisruptionSnapshot) -> Decision:
    """Stands in for `decide`."""
    return _KarpenterDecider(snapshot).run()


class _KarpenterDecider(DisruptionDecider):
    def _consolidate(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:
        ordered = sorted(
            (item for item in candidates if not item.empty and self._may_consolidate(item)),
            key=lambda item: (item.cost, item.name),
        )
        allowed = self._within_budgets(ordered, Reason.UNDERUTILIZED)
        found = self._several(allowed[:MOST_TOGETHER])
        for candidate in () if found else allowed:
            found = self._command((candidate,))
            if found:
                break
        return [found] if found else []

    def _climb_back(self, candidates: Sequence[Candidate]) -> list[DisruptionProposal]:  # noqa: ARG002 - it does not
        return []

    def _unsettled_nodes(self) -> frozenset[str]:
        nodes = self.snapshot.scheduling.view.nodes
        return frozenset(node.metadata.name for node in nodes if node.metadata.labels.get(labels.INITIALIZED) != "true")

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
        relocation = self.simulator.without([item.name for item in candidates])
        if relocation.stuck or len(relocation.claims) > 1:
            return None
        claims = relocation.claims
        if claims:
            try:
                claims = restrict_to_cheaper(claims, candidates, self.market, spot_to_spot=True)
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
