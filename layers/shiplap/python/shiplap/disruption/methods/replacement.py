"""Replacement: expired and drifted nodes go at any cost, each with its replacements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import Component, components_of
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.methods.outdated_nodes import OutdatedNode, find_outdated
from shiplap.disruption.methods.static_replacement import replace_static


class Replacement(DisruptionMethod):
    """Static NodePools first: their replacements are known, and then no moved pod goes to a node that is replaced."""

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """Commands for expired nodes, then for drifted ones."""
        outdated = find_outdated(progress, candidates)
        proposals: list[DisruptionProposal] = []
        for static, reason in itertools.product((True, False), (Reason.EXPIRED, Reason.DRIFTED)):
            due = [item for item in outdated if item.reason is reason]
            due = [item for item in due if (item.node.pool.spec.replicas is not None) is static]
            proposals += replace_static(progress, due, reason) if static else _replace(progress, due, reason)
        progress.keep_outdated(item.node for item in outdated)
        return proposals


def _replace(progress: DecisionProgress, due: Sequence[OutdatedNode], reason: Reason) -> Sequence[DisruptionProposal]:
    """Commands for these nodes; a node whose pods have no place elsewhere stays and uses up no budget.

    Their needs add to those of commands before. Where that cannot be computed they wait for the next decision, as do
    nodes that will take moved pods.
    """
    simulator, why = progress.simulator, {item.node.name: item.why for item in due}
    waiting = [item.node for item in due if simulator.follows and item.node.name not in simulator.receiving]
    later = why.keys() - {candidate.name for candidate in waiting}
    progress.blocked |= dict.fromkeys(sorted(later), "pods of nodes that go now are moved first")
    while candidates := progress.within_budgets(waiting, reason):
        relocation = simulator.without([candidate.name for candidate in candidates])
        staying = relocation.stuck
        if not staying:
            parts = components_of(relocation, candidates)
            proposals = [
                _proposal(part, reason, "; ".join(sorted({why[item.name] for item in part.nodes}))) for part in parts
            ]
            staying, policies = progress.ask_policies(proposals)
            if not staying:
                progress.policies = policies
                progress.use_budget(candidates)
                simulator.follow(relocation)
                return proposals
        progress.blocked |= staying
        waiting = [candidate for candidate in waiting if candidate.name not in staying]
    return ()


def _proposal(part: Component, reason: Reason, why: str) -> DisruptionProposal:
    method = Method.EXPIRATION if reason is Reason.EXPIRED else Method.DRIFT
    names = tuple(candidate.name for candidate in part.nodes)
    savings = round(part.paid - sum(claim.launch.price for claim in part.claims), 6)
    return DisruptionProposal(reason, method, names, part.claims, part.placements, savings, part.moved, why)
