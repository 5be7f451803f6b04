"""Climb-back: a node of a fallback tier goes once its pods would all get a better tier of its NodePool."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import components_of
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.methods.underutilization import Underutilization

_MOST_CLIMBS = 8
"""How many nodes of fallback tiers are tried in one decision."""

_CLIMB_TURN_S = 900.0
"""For so many seconds the same nodes of fallback tiers are tried, then the next ones, if there are more: several
decisions have to find a node, and no node that cannot climb may keep those behind it for ever."""


class ClimbBack(DisruptionMethod):
    """The node is replaced like a drifted one. One at a time, as little capacity may have come back."""

    waits_for: ClassVar[frozenset[Method]] = Underutilization.waits_for | {Method.CONSOLIDATION}

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """A command for the first node that climbs."""
        fallen = [candidate for candidate in candidates if _may_climb(candidate, progress)]
        ordered = sorted(fallen, key=lambda item: (-item.claim.plan.tier, item.born_at, item.name))
        for item in _whose_turn_it_is(ordered, progress):
            proposal = _climb(item, progress)
            if proposal is not None and not progress.ask_policies([proposal])[0]:
                return (proposal,)
        return ()


def _may_climb(item: Candidate, progress: DecisionProgress) -> bool:
    return (
        item.claim.plan.tier > 0
        and not item.empty
        and progress.clock.has_reached(item.born_at + progress.snapshot.settings.climb_back_s)
        and not progress.unconsolidatable(item)
        and not item.protected
        and not progress.backing_off(item)
        and progress.budgets.left(item.pool, Reason.DRIFTED) > 0
    )


def _whose_turn_it_is(fallen: Sequence[Candidate], progress: DecisionProgress) -> Sequence[Candidate]:
    """As many of the nodes as are tried in one decision; of more than that, others every quarter of an hour."""
    groups, turn = max(-(-len(fallen) // _MOST_CLIMBS), 1), int(progress.clock.now // _CLIMB_TURN_S)
    if groups > 1:
        progress.clock.note(((turn + 1) * _CLIMB_TURN_S,))
    start = turn % groups * _MOST_CLIMBS
    return fallen[start : start + _MOST_CLIMBS]


def _climb(item: Candidate, progress: DecisionProgress) -> DisruptionProposal | None:
    """The command that moves the pods of a node to a better tier, if there is one for all of them."""
    pool, tier = item.claim.plan.node_pool, item.claim.plan.tier
    relocation = progress.simulator.without([item.name])
    claims = relocation.claims
    if relocation.stuck or not claims or not all(claim.node_pool == pool and claim.tier < tier for claim in claims):
        return None
    (part,) = components_of(relocation, [item])
    savings = round(part.paid - sum(claim.launch.price for claim in claims), 6)
    best = min(claim.tier for claim in claims)
    why = f"tier {best} of NodePool {item.pool.metadata.name} has capacity again, the node is of tier {tier}"
    return DisruptionProposal(
        Reason.DRIFTED, Method.CLIMB_BACK, (item.name,), claims, part.placements, savings, part.moved, why
    )
