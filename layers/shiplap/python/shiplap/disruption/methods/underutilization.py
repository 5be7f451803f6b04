"""Underutilization: nodes go where it saves more than moving their pods is worth; `consolidation` finds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from shiplap.disruption.candidates import Candidate, disruption_cost, reschedulable_pods
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.consolidation import BALANCED, Consolidator, PoolTotals
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.method import DisruptionMethod
from shiplap.disruption.move_costs import MoveCosts, expected_lives_s
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label

_MOST_SEARCHES = 3
"""How often consolidation is searched again without nodes whose replacements a policy refuses."""


class Underutilization(DisruptionMethod):
    """Nodes with pods that their NodePool lets go for money."""

    waits_for: ClassVar[frozenset[Method]] = frozenset(
        {Method.EXPIRATION, Method.DRIFT, Method.STATIC_DRIFT, Method.TERMINATE_FIRST}
    )

    def commands(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> Sequence[DisruptionProposal]:
        """The commands that gain most, without those that a policy refuses."""
        pools = progress.snapshot.scheduling.manifests.node_pools
        eligible = [item for item in candidates if not item.empty and progress.may_consolidate(item)]
        allowed = {pool.metadata.name: progress.budgets.left(pool, Reason.UNDERUTILIZED) for pool in pools}
        proposals = _search(progress, eligible, allowed)
        taken = {node for proposal in proposals for node in proposal.nodes}
        going = Counter(item.pool.metadata.name for item in eligible if item.name in taken)
        for candidate in eligible:
            pool = candidate.pool.metadata.name
            if candidate.name in taken or candidate.name in progress.blocked:
                continue
            if going[pool] < allowed[pool]:
                progress.blocked[candidate.name] = "removing it now saves less than what is done instead"
            else:
                progress.keep_within_budget([candidate], Reason.UNDERUTILIZED)
        return proposals

    def wait(self, progress: DecisionProgress, candidates: Sequence[Candidate]) -> None:
        """Say so of every node that consolidation would have looked at, and of every other why it would not."""
        unsaid = [item for item in candidates if not item.empty and item.name not in progress.blocked]
        progress.blocked |= {item.name: _WAITS for item in unsaid if progress.may_consolidate(item)}


_WAITS = "consolidation waits for nodes that expire or drift"


def _search(
    progress: DecisionProgress, eligible: Sequence[Candidate], allowed: Mapping[str, int]
) -> list[DisruptionProposal]:
    snapshot, clock = progress.snapshot, progress.clock
    totals = _pool_totals(progress)
    costs = MoveCosts(snapshot.settings, expected_lives_s(snapshot.scheduling.claims, clock), clock.now)
    proposals: list[DisruptionProposal] = []
    policies = progress.policies
    for _ in range(_MOST_SEARCHES):
        search = Consolidator(progress.simulator, progress.market, totals, snapshot.settings, costs, snapshot.policies)
        found = search.search(eligible, allowed)
        refused, policies = progress.ask_policies(found.proposals)
        progress.blocked.update(found.refused)
        proposals = [item for item in found.proposals if not refused.keys() & item.nodes]
        if not refused:
            break
        eligible = [item for item in eligible if item.name not in refused]
    progress.policies = policies
    return proposals


def _pool_totals(progress: DecisionProgress) -> dict[str, PoolTotals]:
    """Of the Balanced pools: what all their nodes cost and what disrupting all of them would, candidates or not."""
    view = progress.snapshot.scheduling.view
    pools = progress.snapshot.scheduling.manifests.node_pools
    balanced = (pool for pool in pools if pool.spec.disruption.consolidation_policy == BALANCED)
    totals = {pool.metadata.name: PoolTotals(0.0, 0.0) for pool in balanced}
    if not totals:
        return totals
    held = view.of_pods(reschedulable_pods)
    for node in view.nodes:
        pool = name_of_label(node.metadata.labels.get(labels.NODE_POOL, ""), totals)
        if pool in totals:
            price, cost = progress.market.price_of(pool, node), disruption_cost(held.get(node.metadata.name, ()))
            totals[pool] = PoolTotals(totals[pool].price + price, totals[pool].cost + cost)
    return totals
