"""Consolidation: m nodes become n cheaper ones, or none, wherever that saves more than moving their pods is worth.

Candidates are ordered by what their removal saves per disruption. Prefixes of that order are tried with the scheduler
itself; each falls into components that stand on their own, and the prefix whose components gain most wins. Nodes that
a prefix cannot remove do not spoil it: they are left out and the rest is tried again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Method, Proposal, Reason
from shiplap.disruption.components import Component, split
from shiplap.disruption.market import Market
from shiplap.disruption.replacement import Refused, cheaper
from shiplap.disruption.settings import DisruptionSettings
from shiplap.disruption.simulation import Simulator

BALANCED = "Balanced"
BALANCE = 0.5
"""The least share of a pool's cost saved per share of its disruption, under the policy Balanced (Karpenter's k = 2)."""

SINGLES = 16
"""Up to this many candidates, each is also tried alone: a bad first one must not hide a good one."""


class PoolTotals(msgspec.Struct, frozen=True):
    """What all nodes of a pool cost (USD per hour) and what disrupting all of them would cost."""

    price: float
    cost: float


class Found(msgspec.Struct, frozen=True, eq=False):
    """What is worth doing, and for nodes that were tried in vain, why not."""

    proposals: tuple[Proposal, ...] = ()
    refused: Mapping[str, str] = {}


class Consolidator:
    """One search. `totals` are by NodePool."""

    def __init__(
        self, simulator: Simulator, market: Market, totals: Mapping[str, PoolTotals], settings: DisruptionSettings
    ) -> None:
        self._simulator = simulator
        self._market = market
        self._totals = totals
        self._settings = settings

    def search(self, candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> Found:
        """The proposals that gain most, at most `allowed` nodes of each NodePool.

        Raises InvalidInput as `planner.plan`.
        """
        ordered = sorted(candidates, key=lambda item: (-item.savings_ratio, item.name))
        best: tuple[float, tuple[Proposal, ...]] = (0.0, ())
        refused: dict[str, str] = {}
        for some in _attempts(_within(ordered, allowed)):
            found = self._attempt(some)
            refused = {**found.refused, **refused}
            gain = sum(map(self._gain, found.proposals))
            if gain > best[0] + 1e-9:
                best = (gain, found.proposals)
        taken = {node for proposal in best[1] for node in proposal.nodes}
        return Found(best[1], {name: reason for name, reason in refused.items() if name not in taken})

    def _gain(self, proposal: Proposal) -> float:
        return proposal.savings_hourly - self._settings.least_saving_per_pod * proposal.moved

    def _attempt(self, candidates: Sequence[Candidate]) -> Found:
        """The proposals for these nodes; those that cannot go stay, and the others are judged again without them."""
        refused: dict[str, str] = {}
        left = list(candidates)
        while left:
            relocation = self._simulator.without([candidate.name for candidate in left])
            proposals = []
            failed = dict(relocation.stuck)
            for component in split(relocation, left):
                try:
                    proposals.append(self._judge(component))
                except Refused as reason:
                    failed |= {candidate.name: str(reason) for candidate in component.nodes}
            if not failed:
                return Found(tuple(proposals), refused)
            refused |= failed
            left = [candidate for candidate in left if candidate.name not in failed]
        return Found((), refused)

    def _judge(self, component: Component) -> Proposal:
        """The component as a proposal. Raises Refused when it is not worth it."""
        settings = self._settings
        claims = component.claims
        if claims:
            claims = cheaper(claims, component.nodes, self._market, spot_to_spot=settings.spot_to_spot)
        savings = component.paid - sum(claim.launch.price for claim in claims)
        least = settings.least_saving_per_pod * component.moved
        if not savings > least:
            raise Refused(
                f"would save ${savings:.4f} an hour, less than ${least:.4f} for moving {component.moved} pods"
            )
        self._check_balance(component, savings)
        words = f"{len(component.nodes)} of ${component.paid:.4f} an hour become {len(claims)}"
        return Proposal(
            Reason.UNDERUTILIZED,
            Method.CONSOLIDATION,
            tuple(candidate.name for candidate in component.nodes),
            claims,
            component.placements,
            round(savings, 6),
            component.moved,
            words,
        )

    def _check_balance(self, component: Component, savings: float) -> None:
        """Raises Refused when a Balanced pool would be disturbed more than it saves, both as shares of the pool."""
        for name in sorted({candidate.pool.metadata.name for candidate in component.nodes}):
            mine = [candidate for candidate in component.nodes if candidate.pool.metadata.name == name]
            if mine[0].pool.spec.disruption.consolidation_policy != BALANCED:
                continue
            totals = self._totals[name]
            share = savings * sum(item.price for item in mine) / component.paid if component.paid else 0.0
            disruption = sum(item.cost for item in mine) / totals.cost
            score = share / totals.price / disruption if totals.price else 0.0
            if score < BALANCE:
                raise Refused(
                    f"its saving scores {score:.2f} per disruption in NodePool {name}, Balanced wants {BALANCE}"
                )


def _within(ordered: Sequence[Candidate], allowed: Mapping[str, int]) -> list[Candidate]:
    """The first candidates of each NodePool that its budgets allow."""
    left = dict(allowed)
    taken = []
    for candidate in ordered:
        pool = candidate.pool.metadata.name
        if left.get(pool, 0) > 0:
            left[pool] -= 1
            taken.append(candidate)
    return taken


def _attempts(ordered: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Prefixes, all of a few candidates and ever fewer of many; and a few candidates each alone."""
    total = len(ordered)
    sizes = sorted({min(total, max(step, int(2 ** (step / 2)))) for step in range(1, 2 * total.bit_length() + SINGLES)})
    attempts: list[Sequence[Candidate]] = [ordered[:size] for size in sizes if size]
    if total <= SINGLES:
        attempts += [(candidate,) for candidate in ordered[1:]]
    return attempts
