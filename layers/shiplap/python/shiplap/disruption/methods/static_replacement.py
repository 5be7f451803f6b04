"""Replaces nodes of static NodePools, each by a node of its pool: no pod has to have a place first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.outdated_nodes import OutdatedNode
from shiplap.scheduling.model.scheduling_plan import PlannedClaim


def replace_static(
    progress: DecisionProgress, due: Sequence[OutdatedNode], reason: Reason
) -> Sequence[DisruptionProposal]:
    """One command for each of these nodes that budgets, limits and policies let go."""
    claims = _replacements(progress, due, reason)
    method = Method.EXPIRATION if reason is Reason.EXPIRED else Method.STATIC_DRIFT
    proposals = []
    for item in due:
        node, pool = item.node, item.node.pool
        if not progress.budgets.left(pool, reason):
            progress.keep_within_budget([node], reason)
            continue
        if not claims[pool.metadata.name]:
            progress.blocked[node.name] = f"NodePool {pool.metadata.name} can launch no replacement now"
            continue
        claim = claims[pool.metadata.name][0]
        savings = round(node.price - claim.launch.price, 6)
        proposal = DisruptionProposal(reason, method, (node.name,), (claim,), (), savings, len(node.pods), item.why)
        refused, policies = progress.ask_policies([proposal])
        if refused:
            continue
        progress.policies = policies
        del claims[pool.metadata.name][0]
        progress.simulator.take_static_claim(claim)
        progress.use_budget([node])
        proposals.append(proposal)
    return proposals


def _replacements(
    progress: DecisionProgress, due: Sequence[OutdatedNode], reason: Reason
) -> dict[str, list[PlannedClaim]]:
    """The claims that each NodePool may launch for these nodes."""
    pools = {item.node.pool.metadata.name: item.node.pool for item in due}
    number = Counter(item.node.pool.metadata.name for item in due)
    claims = {}
    for name, pool in sorted(pools.items()):
        most = min(number[name], progress.budgets.left(pool, reason))
        claims[name] = list(progress.simulator.static_claims(name, most)) if most else []
    return claims
