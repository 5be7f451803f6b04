"""Consolidation: m nodes become n cheaper ones, or none, wherever that saves more than moving their pods is worth.

Candidates are ordered by what their removal saves per disruption. Prefixes of that order are tried with the scheduler
itself; each falls into components that stand on their own, and the prefix whose components gain most wins. Nodes that
a prefix cannot remove do not spoil it: they are left out and the rest is tried again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from shiplap.api.nodeclaim import PodReference
from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Method, Proposal, Reason
from shiplap.disruption.components import Component, split
from shiplap.disruption.market import Market
from shiplap.disruption.replacement import Refused, cheaper
from shiplap.disruption.settings import DisruptionSettings
from shiplap.disruption.simulation import Relocation, Simulator
from shiplap.kubernetes import labels
from shiplap.scheduling.plan import Placement

BALANCED = "Balanced"
BALANCE = 0.5
"""The least share of a pool's cost saved per share of its disruption, under the policy Balanced (Karpenter's k = 2)."""

SINGLES = 16
"""Up to this many candidates, each is also tried alone: a bad first one must not hide a good one."""

MOST_NODES = 24
"""At most so many nodes go with one command: it is undone as a whole when one of its replacements fails."""

_TRIFLE = 1e-6
"""USD per hour that giving up a node in a reservation counts for: its price is nominal, as the reservation is paid in
any case, and yet its room is of use to others."""

_LOOKING = 0.3
"""The part of the cost search's effort that goes into choosing which nodes go; the rest into what replaces them."""

_SEARCHED = 512
"""Prefixes of more nodes are compared by first fit alone: what the search saves is about the same part for all."""


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
        self._disturbs: dict[str, float] = {}
        self._reserved: frozenset[str] = frozenset()

    def search(self, candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> Found:
        """The proposals that gain most, at most `allowed` nodes of each NodePool.

        Raises InvalidInput as `planner.plan`.
        """
        ordered = sorted(candidates, key=lambda item: (-item.savings_ratio, item.name))
        self._disturbs = {item.name: item.cost - 1 for item in candidates}
        self._reserved = frozenset(item.name for item in candidates if _is_reserved(item))
        refused: dict[str, str] = {}
        best = self._best_prefix(_within(ordered, allowed), refused)
        if any(len(proposal.nodes) > MOST_NODES for proposal in best):
            going = {node for proposal in best for node in proposal.nodes}
            best = [proposal for proposal in best if len(proposal.nodes) <= MOST_NODES]
            batched = self._in_batches([item for item in ordered if item.name in going], refused)
            best = max(best, batched, key=lambda some: sum(map(self._gain, some)))
        taken = {node for proposal in best for node in proposal.nodes}
        return Found(tuple(_merged(best)), {name: reason for name, reason in refused.items() if name not in taken})

    def _best_prefix(self, ordered: Sequence[Candidate], refused: dict[str, str]) -> list[Proposal]:
        """The proposals of the prefix that gains most, of whatever size; notes in `refused` what cannot go."""
        attempts = _attempts(ordered)
        searched = sum(len(some) <= _SEARCHED for some in attempts)
        best: tuple[float, list[Proposal]] = (0.0, [])
        for some in attempts:
            effort_s = self._settings.improve_s * _LOOKING / searched if len(some) <= _SEARCHED else 0.0
            found, _ = self._attempt(some, refused, improve_s=effort_s)
            gain = sum(map(self._gain, found))
            if gain > best[0] + 1e-9:
                best = (gain, found)
        return best[1]

    def _in_batches(self, going: Sequence[Candidate], refused: dict[str, str]) -> list[Proposal]:
        """Commands of bounded size for nodes that are worth removing, each on the room that those before it leave.

        Where that cannot be reckoned there is only the first; the next decision sees to the others.
        """
        removed = [item.name for item in going]
        batches = _batches(going)
        proposals: list[Proposal] = []
        for batch in batches:
            effort_s = self._settings.improve_s * (1 - _LOOKING) / len(batches)
            found, relocation = self._attempt(batch, refused, removed, improve_s=effort_s)
            proposals += found
            if found and relocation is not None and not self._simulator.follow(relocation):
                break
        return proposals

    def _gain(self, proposal: Proposal) -> float:
        """What a proposal saves beyond what disturbing its pods is worth, each by its eviction cost; USD per hour."""
        if self._reserved.issuperset(proposal.nodes):
            return _TRIFLE * len(proposal.nodes)
        disturbs = sum(self._disturbs[name] for name in proposal.nodes)
        return proposal.savings_hourly - self._settings.least_saving_per_pod * disturbs

    def _attempt(
        self,
        candidates: Sequence[Candidate],
        refused: dict[str, str],
        removed: Sequence[str] | None = None,
        *,
        improve_s: float,
    ) -> tuple[list[Proposal], Relocation | None]:
        """The proposals for these nodes; those that cannot go stay, and the others are judged again without them.

        Args:
            candidates: the nodes.
            refused: takes up why those that stay do.
            removed: names of nodes that take no pods either; the same nodes if not given.
            improve_s: the effort of the cost search, in seconds.
        """
        left = list(candidates)
        while left:
            names = [candidate.name for candidate in left]
            relocation = self._simulator.without(removed or names, names, improve_s=improve_s)
            proposals = []
            failed = dict(relocation.stuck)
            for component in split(relocation, left):
                try:
                    proposals.append(self._judge(component))
                except Refused as refusal:
                    failed |= {candidate.name: str(refusal) for candidate in component.nodes}
            if not failed:
                return proposals, relocation
            for name, reason in failed.items():
                refused.setdefault(name, reason)
            left = [candidate for candidate in left if candidate.name not in failed]
        return [], None

    def _judge(self, component: Component) -> Proposal:
        """The component as a proposal. Raises Refused when it is not worth it."""
        settings = self._settings
        claims = component.claims
        if claims:
            claims = cheaper(claims, component.nodes, self._market, spot_to_spot=settings.spot_to_spot)
        savings = component.paid - sum(claim.launch.price for claim in claims)
        least = 0.0 if all(map(_is_reserved, component.nodes)) else settings.least_saving_per_pod * component.moved
        if not savings > least:
            raise Refused(
                f"would save ${savings:.4f} an hour, less than ${least:.4f} for moving {component.moved} pods"
            )
        share = settings.least_saving_share if claims else 0.0
        if not savings >= share * component.paid:
            raise Refused(f"replacing ${component.paid:.4f} an hour would save ${savings:.4f}, less than {share:.0%}")
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


def _is_reserved(candidate: Candidate) -> bool:
    return candidate.node.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED


def _merged(proposals: Sequence[Proposal]) -> list[Proposal]:
    """Nodes that go without replacements, so that nothing can fail for the others, in commands of bounded size."""
    alone = sorted((some for some in proposals if not some.replacements), key=lambda some: some.nodes)
    merged = [some for some in proposals if some.replacements]
    while alone:
        sizes = itertools.accumulate(len(some.nodes) for some in alone)
        number = max(sum(size <= MOST_NODES for size in sizes), 1)
        merged.append(_joined(alone[:number]))
        alone = alone[number:]
    return sorted(merged, key=lambda some: some.nodes)


def _joined(proposals: Sequence[Proposal]) -> Proposal:
    if len(proposals) == 1:
        return proposals[0]
    taken: dict[str, tuple[PodReference, ...]] = {}
    for some in proposals:
        for place in some.placements:
            taken[place.name] = (*taken.get(place.name, ()), *place.pods)
    saved = round(sum(some.savings_hourly for some in proposals), 6)
    nodes = tuple(sorted(node for some in proposals for node in some.nodes))
    return msgspec.structs.replace(
        proposals[0],
        nodes=nodes,
        placements=tuple(Placement(name, tuple(sorted(pods))) for name, pods in sorted(taken.items())),
        savings_hourly=saved,
        moved=sum(some.moved for some in proposals),
        detail=f"{len(nodes)} of ${saved:.4f} an hour become 0",
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


def _batches(going: Sequence[Candidate]) -> list[list[Candidate]]:
    """Nodes by NodePool and zone in runs of about equal length, none longer than a command may be."""
    by_place = sorted(going, key=lambda item: (item.pool.metadata.name, item.node.metadata.labels.get(labels.ZONE, "")))
    number = -(-len(by_place) // MOST_NODES)
    edges = [len(by_place) * place // number for place in range(number + 1)]
    return [by_place[start:end] for start, end in itertools.pairwise(edges)]


def _attempts(ordered: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Prefixes, of a few candidates all of them and of many ever fewer; and a few candidates each alone."""
    total = len(ordered)
    sizes = {size for size in range(1, total + 1) if total <= SINGLES or size & (size - 1) == 0}
    sizes |= {total, total * 3 // 4} - {0}
    attempts: list[Sequence[Candidate]] = [ordered[:size] for size in sorted(sizes)]
    if total <= SINGLES:
        attempts += [(candidate,) for candidate in ordered[1:]]
    return attempts
