"""Consolidation: m nodes become n cheaper ones, or none, wherever that saves more than moving their pods is worth.

Candidates are ordered by what their removal saves per disruption, beyond what their room is worth to pods that move.
Prefixes of that order are tried with the scheduler itself; each splits into independent components, and the prefix
whose components gain most wins. Nodes that a prefix cannot remove are left out, and the rest is tried again.

Replacements have a maximum price, so that no fallback turns a saving into a loss. Removed nodes are in one command only
if their pods share a replacement.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.disruption.current_prices import PoolMarket
from shiplap.disruption.disruption_snapshot import DisruptionInput, DisruptionSettings, PaidNode
from shiplap.disruption.move_costs import MoveCosts
from shiplap.disruption.rescheduling import Relocation, Simulator
from shiplap.instances.catalog.type_catalog import Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import LaunchChoice, Placement, PlannedClaim
from shiplap.scheduling.removal import NodeToWeigh

SPOT_TYPES = 15
"""How many cheaper types a single spot node's replacement must be able to become: with fewer, spot capacity would be
chased down a ladder of prices, each step likelier to be interrupted (Karpenter's rule)."""

_CENT = 1e-9
"""USD per hour below which two prices are the same: sums of prices are not exact."""

_BOUND_ERROR = 1e-6
"""USD per hour and node by which an upper bound of a gain may be too low: it is a sum of many products, and proposals
round what they save."""

_LEAST_COUNTED = 1e-3
"""The least part of what a command gains that counts beside others, however much the priorities of its pods weigh."""

_FEW_TOGETHER = 6
"""Of up to so many nodes, all choices are looked at: whether new nodes for just these are sure to cost too much."""

_SEARCH_SAVES = 0.3
"""The part of the price of a plan for few nodes that the cost search is taken to save at most. Without it a plan takes
half the time, and most questions about few nodes are far from worth it."""

NO_CHEAPER = "can't replace with a cheaper node"

_Options = Mapping[str, tuple[Offering, ...]]
"""The types a replacement may become, with what each may be bought as."""


class NotWorthwhile(ValueError):
    """A replacement is not worth it; the text says why. Caught in this module."""


def restrict_to_cheaper(
    claims: Sequence[PlannedClaim], removed: Sequence[Candidate], market: PoolMarket, *, spot_to_spot: bool
) -> tuple[PlannedClaim, ...]:
    """The claims reduced to types with which all of them together cost less than the removed nodes do.

    A type counts with the most it can cost: any of its offerings may be the one with capacity. What the removed nodes
    cost beyond the cheapest choice is shared between the claims in proportion to their prices.

    Raises:
        NotWorthwhile: no such choice is left.
    """
    paid = sum(candidate.price for candidate in removed)
    options = [_options(claim, market) for claim in claims]
    of_spot = all(candidate.node.metadata.labels.get(labels.CAPACITY_TYPE) == labels.SPOT for candidate in removed)
    from_spot = of_spot and any(_is_spot(offerings) for some in options for offerings in some.values())
    if from_spot and not spot_to_spot:
        raise NotWorthwhile("spot nodes are not replaced by cheaper spot nodes here")
    least = sum(min(map(_worst, some.values()), default=paid) for some in options)
    if not least < paid - _CENT:
        raise NotWorthwhile(NO_CHEAPER)
    same_again = _cheapest_of_same_type(options, removed) if len(claims) == 1 < len(removed) else None
    reduced = []
    for claim, some in zip(claims, options, strict=True):
        most = min(map(_worst, some.values())) * paid / least if least > 0 else paid
        left = {
            name: offerings
            for name, offerings in some.items()
            if _worst(offerings) < most - _CENT and (same_again is None or _worst(offerings) < same_again - _CENT)
        }
        if from_spot and len(removed) == 1:
            left = _enough_for_spot(claim, left)
        reduced.append(_restricted(claim, left))
    return tuple(reduced)


def _options(claim: PlannedClaim, market: PoolMarket) -> dict[str, tuple[Offering, ...]]:
    """The claim's types, cheapest first as it lists them; those bought on demand are dropped where others are spot.

    Otherwise the dearer fallback of an unavailable spot offering could replace a node.
    """
    wanted = Requirements.of(claim.requirements)
    found = {name: market.buyable(claim.node_pool, name, wanted) for name in claim.instance_types}
    spot = any(_is_spot(offerings) for offerings in found.values())
    return {name: offers for name, offers in found.items() if offers and (_is_spot(offers) or not spot)}


def _enough_for_spot(claim: PlannedClaim, left: _Options) -> dict[str, tuple[Offering, ...]]:
    if len(left) < SPOT_TYPES:
        raise NotWorthwhile(f"spot-to-spot requires {SPOT_TYPES} cheaper instance type options, got {len(left)}")
    least = max((entry.min_values or 0 for entry in claim.requirements), default=0)
    by_price = sorted(left, key=lambda name: (left[name][0].price, name))
    return {name: left[name] for name in by_price[: max(SPOT_TYPES, least)]}


def _cheapest_of_same_type(options: Sequence[_Options], removed: Sequence[Candidate]) -> float | None:
    """The price of the cheapest removed node whose type is among the options: to buy that again would save nothing."""
    names = {name for some in options for name in some}
    same = [item.price for item in removed if item.node.metadata.labels.get(labels.INSTANCE_TYPE) in names]
    return min(same, default=None)


def _restricted(claim: PlannedClaim, left: _Options) -> PlannedClaim:
    """The claim for these types only. Raises NotWorthwhile when none is left or minValues would be broken."""
    if not left:
        raise NotWorthwhile(NO_CHEAPER)
    for entry in claim.requirements:
        if entry.key == labels.INSTANCE_TYPE and (entry.min_values or 0) > len(left):
            raise NotWorthwhile(
                f"filtering by price leaves {len(left)} instance types, minValues is {entry.min_values}"
            )
    names = tuple(name for name in claim.instance_types if name in left)
    kinds = tuple(sorted({offering.capacity_type for offerings in left.values() for offering in offerings}))
    narrowed = {labels.INSTANCE_TYPE: tuple(sorted(names)), labels.CAPACITY_TYPE: kinds}
    requirements = tuple(
        replace(entry, operator="In", values=narrowed[entry.key]) if entry.key in narrowed else entry
        for entry in claim.requirements
    )
    first = min(names, key=lambda name: (left[name][0].price, names.index(name)))
    best = left[first][0]
    return replace(
        claim,
        instance_types=names,
        requirements=requirements,
        launch=LaunchChoice(first, best.zone, best.capacity_type, best.price, best.reservation_id),
        relies_on_estimate=tuple(name for name in claim.relies_on_estimate if name in left),
    )


def _worst(offerings: Sequence[Offering]) -> float:
    return offerings[-1].price


def _is_spot(offerings: Sequence[Offering]) -> bool:
    return bool(offerings) and offerings[0].capacity_type == labels.SPOT


class Component(msgspec.Struct, frozen=True, eq=False):
    """Nodes to remove, by name, the nodes that stay and take pods of theirs, and the claims that take the others."""

    nodes: tuple[Candidate, ...]
    claims: tuple[PlannedClaim, ...]
    placements: tuple[Placement, ...]

    @property
    def pools(self) -> frozenset[str]:
        """The NodePools whose nodes it removes or launches."""
        removed = (candidate.pool.metadata.name for candidate in self.nodes)
        return frozenset(removed) | {claim.node_pool for claim in self.claims}

    @property
    def paid(self) -> float:
        """USD per hour of the nodes to remove."""
        return sum(candidate.price for candidate in self.nodes)

    @property
    def moved(self) -> int:
        """Pods that lose their node."""
        return sum(len(candidate.pods) for candidate in self.nodes)


def components_of(relocation: Relocation, removed: Collection[Candidate]) -> list[Component]:
    """The components of a relocation, sorted by their first node; nodes with a stuck pod are in none.

    A claim that also serves a stuck node is left to the others it serves: they need it all the same. Each component
    becomes a command of its own, so those of which one launches what the limit of a NodePool allows only without
    another's nodes are one.
    """
    by_name = {candidate.name: candidate for candidate in removed if candidate.name not in relocation.stuck}
    leader: dict[str, str] = {name: name for name in by_name}
    for served in relocation.serves:
        names = sorted(name for name in served if name in by_name)
        for name in names[1:]:
            _join(leader, names[0], name)
    nodes: dict[str, list[Candidate]] = {}
    for name in sorted(by_name):
        nodes.setdefault(_find(leader, name), []).append(by_name[name])
    claims: dict[str, list[PlannedClaim]] = {}
    for claim, served in zip(relocation.claims, relocation.serves, strict=True):
        names = sorted(name for name in served if name in by_name)
        if names:
            claims.setdefault(_find(leader, names[0]), []).append(claim)
    components = [
        Component(tuple(members), tuple(claims.get(first, ())), _placements(relocation, members))
        for first, members in sorted(nodes.items())
    ]
    parts = [([item.name for item in component.nodes], component.claims) for component in components]
    for pool in sorted(relocation.pools_that_join(parts)):
        components = _as_one(components, pool, relocation)
    return components


def _as_one(components: Sequence[Component], pool: str, relocation: Relocation) -> list[Component]:
    """The components with those that remove or launch nodes of a NodePool as one, in the place of the first of them."""
    touching = [item for item in components if pool in item.pools]
    nodes = sorted((node for item in touching for node in item.nodes), key=lambda node: node.name)
    claims = tuple(claim for item in touching for claim in item.claims)
    one = Component(tuple(nodes), claims, _placements(relocation, nodes))
    others = [item for item in components if pool not in item.pools]
    return sorted([one, *others], key=lambda item: item.nodes[0].name)


def _placements(relocation: Relocation, members: Iterable[Candidate]) -> tuple[Placement, ...]:
    merged: dict[str, list[PodReference]] = {}
    for member in members:
        for name, pods in relocation.received.get(member.name, {}).items():
            merged.setdefault(name, []).extend(pods)
    return tuple(Placement(name, tuple(sorted(pods))) for name, pods in sorted(merged.items()))


def _find(leader: Mapping[str, str], name: str) -> str:
    while leader[name] != name:
        name = leader[name]
    return name


def _join(leader: dict[str, str], one: str, other: str) -> None:
    first, second = sorted((_find(leader, one), _find(leader, other)))
    leader[second] = first


BALANCED = "Balanced"
BALANCE = 0.5
"""The least share of a pool's cost saved per share of its disruption, under the policy Balanced (Karpenter's k = 2)."""

SINGLES = 16
"""Up to this many candidates, each is also tried alone: a bad first one must not hide a good one."""

MOST_NODES = 24
"""At most so many nodes go with one command: it is undone as a whole when one of its replacements fails."""

_RESERVED_NODE_VALUE = 1e-6
"""USD per hour that removing a node in a reservation saves: its price is nominal, as the reservation is paid in
any case, and yet its room is of use to others."""

_SELECTION_SHARE = 0.3
"""The part of the cost search's effort for choosing nodes; the rest is for their replacements."""

_REFINEMENTS = 9
"""How often sizes between the best prefix and its neighbours are tried."""

_FINEST = 3
"""Sizes of prefixes that differ by no more than this are as good as equal."""

_IN_VAIN = 2
"""After so many larger prefixes in a row that gain less than the best one, no larger one is tried: the more nodes go,
the less room is left on those that stay, so each gains less than the one before."""

_QUICK_TRIALS = 64
"""Where so many nodes may go at most, a trial takes some 10 ms: up to 16 further nodes or pairs that gain nothing are
tried beside the best prefix, and elsewhere two."""

_MOST_FURTHER = 32
"""At most so many further nodes or pairs are tried, however many of them gain something."""

_FURTHER_ROUNDS = 3
"""How often nodes behind those that cannot go are tried: a budget must not be kept by nodes that it lets go in vain."""

_MOST_SEARCHED = 512
"""Prefixes of more nodes are compared by first fit alone: the search saves about the same part for all."""


class PoolTotals(msgspec.Struct, frozen=True):
    """The price of all nodes of a pool (USD per hour), and the cost of disrupting all these nodes."""

    price: float
    cost: float


class ConsolidationResult(msgspec.Struct, frozen=True, eq=False):
    """The proposals, and for nodes that were tried without success, why not."""

    proposals: tuple[DisruptionProposal, ...] = ()
    refused: Mapping[str, str] = {}


class _Attempt(msgspec.Struct, frozen=True, eq=False):
    """The gain from the removal of `size` candidates, in USD per hour, and its proposals."""

    gain: float = 0.0
    size: int = 0
    proposals: list[DisruptionProposal] = []


class _Judged(msgspec.Struct, frozen=True, eq=False):
    """The proposals for nodes that were removed together, and why some of them cannot go, by name.

    `final` says that no cheaper claims would change that, as there are none or they would still cost too much.
    """

    proposals: list[DisruptionProposal]
    failed: dict[str, str]
    final: bool


class Consolidator:
    """One search. `totals` are by NodePool."""

    def __init__(
        self,
        simulator: Simulator,
        market: PoolMarket,
        totals: Mapping[str, PoolTotals],
        settings: DisruptionSettings,
        costs: MoveCosts,
        policies: Sequence[DisruptionInput] = (),
    ) -> None:
        self._simulator = simulator
        self._market = market
        self._totals = totals
        self._settings = settings
        self._costs = costs
        self._policies = policies
        self._candidates: dict[str, Candidate] = {}
        self._moves_costs: dict[str, float] = {}
        self._weighed_moves: dict[str, float] = {}
        self._reserved: frozenset[str] = frozenset()
        self._least_hourly: dict[tuple[str, ...], float] = {}
        self._judged: dict[tuple[tuple[str, ...], float], _Judged] = {}

    def search(self, candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> ConsolidationResult:
        """The proposals that gain most, at most `allowed` nodes of each NodePool.

        Raises InvalidInput as `planner.plan`.
        """
        if not _alone(candidates, allowed):
            return ConsolidationResult()
        self._candidates = {candidate.name: candidate for candidate in candidates}
        self._moves_costs = {candidate.name: self._costs.moves(candidate) for candidate in candidates}
        self._weighed_moves = {
            candidate.name: (candidate.cost - 1) * self._costs.per_move(candidate) for candidate in candidates
        }
        self._reserved = frozenset(candidate.name for candidate in candidates if _is_reserved(candidate))
        if (hopeless := self._none_may_go_alone(candidates, allowed)) is not None:
            return ConsolidationResult((), hopeless)
        ordered, dearest = self._by_worth(candidates), _by_price(candidates)
        refused: dict[str, str] = {}
        best = self._best_attempt(ordered, dearest, allowed, refused)
        for _ in range(_FURTHER_ROUNDS):
            if best:
                break
            ordered = [item for item in ordered if item.name not in refused and self._may_gain_alone(item)]
            left = {item.name for item in ordered}
            dearest = [item for item in dearest if item.name in left]
            best = self._best_attempt(ordered, dearest, allowed, refused)
        if any(len(proposal.nodes) > MOST_NODES for proposal in best):
            going = {node for proposal in best for node in proposal.nodes}
            best = [proposal for proposal in best if len(proposal.nodes) <= MOST_NODES]
            batched = self._in_batches([candidate for candidate in ordered if candidate.name in going], refused)
            best = max(best, batched, key=self._gain)
        taken = {node for proposal in best for node in proposal.nodes}
        return ConsolidationResult(
            tuple(merged_proposals(best)), {name: reason for name, reason in refused.items() if name not in taken}
        )

    def _none_may_go_alone(self, candidates: Sequence[Candidate], allowed: Mapping[str, int]) -> dict[str, str] | None:
        """Return why none is worth it where a single node may go and none gains anything.

        The order of the candidates does not matter then. Returns None where several may go, or a node may gain.
        """
        alone = _alone(candidates, allowed)
        if len(alone) == SINGLES or len(within_budgets(candidates, allowed)) > 1:
            return None
        if any(map(self._may_gain_alone, alone)):
            return None
        return {candidate.name: self._too_little(candidate) for candidate in alone}

    def _may_gain_alone(self, candidate: Candidate) -> bool:
        """True if removing one node may gain anything, by a bound that asks no simulation."""
        return self._may_gain_more((candidate,), _Attempt(), 0.0)

    def _by_worth(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """First those whose removal saves most per disruption, beyond what their room is worth to pods that move."""
        weighed = [NodeToWeigh(item.name, item.price, self._weighed_moves[item.name]) for item in candidates]
        room = self._simulator.room_values(weighed)
        worth = {item.name: round((item.price - room.get(item.name, 0.0)) / item.cost, 9) for item in candidates}
        return sorted(candidates, key=lambda item: (-worth[item.name], item.name))

    def _best_attempt(
        self,
        candidates: Sequence[Candidate],
        by_price: Sequence[Candidate],
        allowed: Mapping[str, int],
        refused: dict[str, str],
    ) -> list[DisruptionProposal]:
        """The proposals of the prefix that gains most, of any size, or of one node alone, with further nodes.

        As many of the dearest ones are tried, too: where moves cost nearly what nodes do, they gain a little more.
        `refused` takes up nodes that cannot go.
        """
        ordered, dearest = within_budgets(candidates, allowed), within_budgets(by_price, allowed)
        attempts = attempts_of(ordered, _alone(candidates, allowed))
        refinements = _REFINEMENTS if len(ordered) > SINGLES else 0
        searched = sum(len(some) <= _MOST_SEARCHED for some in attempts)
        effort_s = self._settings.improve_s * _SELECTION_SHARE / searched if searched else 0.0
        best, in_vain = _Attempt(), 0
        tried = {0}
        for together in attempts:
            before, best = best, self._better(best, together, refused, effort_s)
            tried.add(len(together))
            in_vain = in_vain + 1 if best is before and len(best.proposals) and len(together) > SINGLES else 0
            if in_vain == _IN_VAIN:
                break
        for _ in range(refinements):
            between = sizes_between(best.size, tried)
            tried.update(between)
            for size in between:
                best = self._better(best, ordered[:size], refused, effort_s)
        if set(dearest[: best.size]) != set(ordered[: best.size]):
            best = self._better(best, dearest[: best.size], refused, effort_s)
        return self._extended(best, candidates, allowed, refused, effort_s).proposals

    def _extended(
        self,
        best: _Attempt,
        ordered: Sequence[Candidate],
        allowed: Mapping[str, int],
        refused: dict[str, str],
        effort_s: float,
    ) -> _Attempt:
        """The best attempt with further nodes, in order, each of which has to gain something beside those before it.

        A prefix ends at the first node that does harm, and a node that cannot go leaves room in a budget. Nodes behind
        either may still go, and would at the next decision. Of a few candidates, further pairs are tried, too.
        `refused` takes up nodes that cannot go.
        """
        tried = in_vain = 0
        most_in_vain = SINGLES if len(within_budgets(ordered, allowed)) <= _QUICK_TRIALS else _IN_VAIN
        for more in further_attempts(ordered) if best.proposals else ():
            going = {node for proposal in best.proposals for node in proposal.nodes}
            together = [item for item in ordered if item.name in going or item in more]
            if len(together) < len(going) + len(more) or len(within_budgets(together, allowed)) < len(together):
                continue
            if not round(self._most_gain_of(together), 8) > _rounded_gain(best):
                continue
            before, best = best, self._better(best, together, refused, effort_s)
            tried += 1
            in_vain += best is before
            if in_vain == most_in_vain or tried == _MOST_FURTHER:
                break
        return best

    def _better(
        self, best: _Attempt, candidates: Sequence[Candidate], refused: dict[str, str], effort_s: float
    ) -> _Attempt:
        """The better one of an attempt and what these candidates gain.

        Nodes that cannot go stay, and the others are tried again without them, while they may gain more.
        """
        left, improve_s = list(candidates), effort_s if len(candidates) <= _MOST_SEARCHED else 0.0
        while left and self._may_gain_more(left, best, improve_s):
            judged = self._judge_together(left, improve_s)
            if not judged.failed:
                gain = self._gain(judged.proposals)
                return max(best, _Attempt(gain, len(candidates), judged.proposals), key=_rounded_gain)
            left = _staying_out(left, judged.failed, refused)
        for candidate in left if not best.size else ():
            refused.setdefault(candidate.name, self._too_little(candidate))
        return best

    def _may_gain_more(self, candidates: Sequence[Candidate], best: _Attempt, improve_s: float) -> bool:
        """True if some of these nodes, removed together, may gain more than the best attempt so far.

        Nodes judged before gained no more, or their attempt would be the best one.
        """
        least = _rounded_gain(best)
        if not round(self._most_gain(candidates), 8) > least:
            return False
        if not self._are_few(candidates):
            return True
        by_size = (itertools.combinations(candidates, size) for size in range(len(candidates), 0, -1))
        choices = itertools.chain.from_iterable(by_size)
        new = (some for some in choices if (_names(some), improve_s) not in self._judged)
        return any(round(self._most_gain_of(some), 8) > least for some in new)

    def _are_few(self, candidates: Sequence[Candidate]) -> bool:
        """True if so few nodes get a close look. Nodes in reservations get none, as their prices show little."""
        return len(candidates) <= _FEW_TOGETHER and not any(item.name in self._reserved for item in candidates)

    def _most_gain(self, candidates: Iterable[Candidate]) -> float:
        """Return the most that removing any of these nodes gains: each saves its price at most, and all pods move."""
        return sum(
            _RESERVED_NODE_VALUE + candidate.price
            if candidate.name in self._reserved
            else max(0.0, self._counted(candidate.price, (candidate,)))
            for candidate in candidates
        )

    def _most_gain_of(self, candidates: Sequence[Candidate]) -> float:
        """Return the most that removing just these nodes gains.

        Their replacements cost something, and save enough or fail.
        """
        price = sum(candidate.price for candidate in candidates)
        most = self._counted(price, candidates)
        if most <= 0 or not (replaced := self._replaced(candidates)):
            return most
        error = _BOUND_ERROR * len(candidates)
        if price - replaced < self._settings.least_saving_share * price - error:
            return 0.0
        overlap = min(self._costs.overlap((item,), replaced) for item in candidates)
        return self._counted(price - replaced - overlap + error, candidates)

    def _counted(self, saved: float, candidates: Collection[Candidate]) -> float:
        """Return the value of a saving by these nodes beside savings by other nodes, less what their moves cost.

        Moves of pods weigh by their priority and deletion cost here. Whether the saving is worth it does not depend on
        these weights, so every saving that is worth it counts more than nothing.
        """
        weighed = saved - sum(self._weighed_moves[candidate.name] for candidate in candidates)
        return max(weighed, _LEAST_COUNTED * (saved - self._moves_cost(candidates)))

    def _moves_cost(self, candidates: Iterable[Candidate]) -> float:
        """USD per hour that moving all pods of these nodes has to save."""
        return sum(self._moves_costs[candidate.name] for candidate in candidates)

    def _replaced(self, candidates: Sequence[Candidate]) -> float:
        """USD per hour that new nodes for the pods of just these cost at least."""
        names = _names(candidates)
        if names not in self._least_hourly:
            self._least_hourly[names] = self._simulator.least_hourly(names)
        return self._least_hourly[names]

    def _too_little(self, candidate: Candidate) -> str:
        """Return why a node is not worth trying."""
        replaced = self._replaced((candidate,)) if self._most_gain((candidate,)) > 0 else 0.0
        if replaced and replaced >= candidate.price:
            return NO_CHEAPER
        saved = candidate.price - replaced
        needed = self._moves_costs[candidate.name] + self._costs.overlap([candidate], replaced)
        if replaced and saved >= needed:
            return (
                f"replacing ${candidate.price:.4f} an hour would save ${saved:.4f} at most, less than "
                f"{self._settings.least_saving_share:.0%}"
            )
        return f"would save ${saved:.4f} an hour at most, less than ${needed:.4f} for moving {len(candidate.pods)} pods"

    def _in_batches(self, going: Sequence[Candidate], refused: dict[str, str]) -> list[DisruptionProposal]:
        """Commands of bounded size for nodes that are worth removing, each on the room that those before it leave.

        Where that cannot be computed there is only the first; the next decision proposes the others.
        """
        removed = [candidate.name for candidate in going]
        batches = batches_of(going)
        proposals: list[DisruptionProposal] = []
        for batch in batches:
            effort_s = self._settings.improve_s * (1 - _SELECTION_SHARE) / len(batches)
            found, relocation = self._attempt(batch, refused, removed, improve_s=effort_s)
            proposals += found
            if found and relocation is not None and not self._simulator.follow(relocation):
                break
        return proposals

    def _gain(self, proposals: Sequence[DisruptionProposal]) -> float:
        """Return what proposals save together, less what their moves and overlaps cost, as `_counted`; USD per hour."""
        reserved = [item for item in proposals if self._reserved.issuperset(item.nodes)]
        others = [item for item in proposals if not self._reserved.issuperset(item.nodes)]
        nodes = [self._candidates[name] for item in others for name in item.nodes]
        saved = sum(item.savings_hourly - self._overlap(item) for item in others)
        return _RESERVED_NODE_VALUE * sum(len(item.nodes) for item in reserved) + self._counted(saved, nodes)

    def _overlap(self, proposal: DisruptionProposal) -> float:
        nodes = [self._candidates[name] for name in proposal.nodes]
        return self._costs.overlap(nodes, sum(claim.launch.price for claim in proposal.replacements))

    def _attempt(
        self, candidates: Sequence[Candidate], refused: dict[str, str], removed: Sequence[str], *, improve_s: float
    ) -> tuple[list[DisruptionProposal], Relocation | None]:
        """The proposals for these nodes; nodes that cannot go stay, and the others are tried again without them.

        Args:
            candidates: the nodes.
            refused: takes up why those that stay do.
            removed: names of nodes that take no pods.
            improve_s: the effort of the cost search, in seconds.
        """
        left = list(candidates)
        while left:
            names = [candidate.name for candidate in left]
            relocation = self._simulator.without(removed, names, improve_s=improve_s)
            judged = self._judge_all(relocation, left)
            if not judged.failed:
                return judged.proposals, relocation
            left = _staying_out(left, judged.failed, refused)
        return [], None

    def _judge_together(self, candidates: Sequence[Candidate], improve_s: float) -> _Judged:
        """Judge the removal of just these nodes once: many prefixes are the same without the nodes that fail."""
        names, key = tuple(candidate.name for candidate in candidates), (_names(candidates), improve_s)
        if key not in self._judged:
            quick = improve_s > 0 and self._are_few(candidates)
            judged = self._judged_without(names, candidates, 0.0 if quick else improve_s)
            if quick and not judged.final:
                judged = self._judged_without(names, candidates, improve_s)
            self._judged[key] = judged
        return self._judged[key]

    def _judged_without(self, names: Sequence[str], candidates: Sequence[Candidate], improve_s: float) -> _Judged:
        relocation = self._simulator.without(names, names, improve_s=improve_s)
        return self._judge_all(relocation, candidates)

    def _judge_all(self, relocation: Relocation, candidates: Sequence[Candidate]) -> _Judged:
        proposals = []
        failed = dict(relocation.stuck)
        final = True
        for component in components_of(relocation, candidates):
            final &= not component.claims or self._is_hopeless(component)
            moving = [pod for candidate in component.nodes for pod in candidate.pods]
            try:
                if why := self._simulator.false_start(moving, relocation):
                    raise NotWorthwhile(why)
                proposals.append(self._judge(component))
            except NotWorthwhile as refusal:
                failed |= {candidate.name: str(refusal) for candidate in component.nodes}
        return _Judged(proposals, failed, final)

    def _is_hopeless(self, component: Component) -> bool:
        """True if a component is not worth it even at the least that the cost search could make of its claims."""
        least = (1 - _SEARCH_SAVES) * sum(claim.launch.price for claim in component.claims)
        return component.paid - least <= self._moves_cost(component.nodes)

    def _judge(self, component: Component) -> DisruptionProposal:
        """The component as a proposal. Raises NotWorthwhile when it is not worth it."""
        settings = self._settings
        claims = component.claims
        if claims:
            claims = restrict_to_cheaper(claims, component.nodes, self._market, spot_to_spot=settings.spot_to_spot)
        savings = component.paid - sum(claim.launch.price for claim in claims) - self._idle(component.nodes, claims)
        least = 0.0 if all(map(_is_reserved, component.nodes)) else self._costs.least_saving(component.nodes, claims)
        if not savings > least:
            raise NotWorthwhile(
                f"would save ${savings:.4f} an hour, less than ${least:.4f} for moving {component.moved} pods"
            )
        share = settings.least_saving_share if claims else 0.0
        if not savings >= share * component.paid:
            raise NotWorthwhile(
                f"replacing ${component.paid:.4f} an hour would save ${savings:.4f}, less than {share:.0%}"
            )
        self._check_balance(component, savings)
        words = f"{len(component.nodes)} of ${component.paid:.4f} an hour become {len(claims)}"
        return DisruptionProposal(
            Reason.UNDERUTILIZED,
            Method.CONSOLIDATION,
            tuple(candidate.name for candidate in component.nodes),
            claims,
            component.placements,
            round(savings, 6),
            component.moved,
            words,
        )

    def _idle(self, removed: Sequence[Candidate], claims: Sequence[PlannedClaim]) -> float:
        """Return what policies say that a saving at list prices would not save, USD per hour."""
        nodes = [PaidNode(item.node.metadata.labels, item.price) for item in removed]
        launches = [claim.launch for claim in claims]
        return sum((policy.idle_hourly(nodes, launches) for policy in self._policies), 0.0)

    def _check_balance(self, component: Component, savings: float) -> None:
        """Raises NotWorthwhile when a Balanced pool is disturbed more than it saves, both as shares of the pool."""
        for name in sorted({candidate.pool.metadata.name for candidate in component.nodes}):
            mine = [candidate for candidate in component.nodes if candidate.pool.metadata.name == name]
            if mine[0].pool.spec.disruption.consolidation_policy != BALANCED:
                continue
            totals = self._totals[name]
            share = savings * sum(candidate.price for candidate in mine) / component.paid if component.paid else 0.0
            disruption = sum(candidate.cost for candidate in mine) / totals.cost
            score = share / totals.price / disruption if totals.price else 0.0
            if score < BALANCE:
                raise NotWorthwhile(
                    f"its saving scores {score:.2f} per disruption in NodePool {name}, Balanced wants {BALANCE}"
                )


def _names(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    return tuple(sorted(candidate.name for candidate in candidates))


def _staying_out(
    candidates: Iterable[Candidate], failed: Mapping[str, str], refused: dict[str, str]
) -> list[Candidate]:
    """The candidates without those that failed; `refused` takes up why they did, unless it knows another reason."""
    for name, reason in failed.items():
        refused.setdefault(name, reason)
    return [candidate for candidate in candidates if candidate.name not in failed]


def _by_price(candidates: Sequence[Candidate]) -> list[Candidate]:
    """First those with the highest price per disruption, whatever their room is worth."""
    return sorted(candidates, key=lambda item: (-round(item.savings_ratio, 9), item.name))


def _is_reserved(candidate: Candidate) -> bool:
    return candidate.node.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED


def merged_proposals(proposals: Sequence[DisruptionProposal]) -> list[DisruptionProposal]:
    """Merge nodes without replacements into commands of bounded size: none of them can fail for the others."""
    alone = sorted(
        (proposal for proposal in proposals if not proposal.replacements), key=lambda proposal: proposal.nodes
    )
    merged = [proposal for proposal in proposals if proposal.replacements]
    while alone:
        sizes = itertools.accumulate(len(proposal.nodes) for proposal in alone)
        number = max(sum(size <= MOST_NODES for size in sizes), 1)
        merged.append(_joined(alone[:number]))
        alone = alone[number:]
    return sorted(merged, key=lambda proposal: proposal.nodes)


def _joined(proposals: Sequence[DisruptionProposal]) -> DisruptionProposal:
    if len(proposals) == 1:
        return proposals[0]
    taken: dict[str, tuple[PodReference, ...]] = {}
    for proposal in proposals:
        for place in proposal.placements:
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


def within_budgets(ordered: Sequence[Candidate], allowed: Mapping[str, int]) -> list[Candidate]:
    """The first candidates of each NodePool that its budgets allow."""
    left = dict(allowed)
    taken = []
    for candidate in ordered:
        pool = candidate.pool.metadata.name
        if left.get(pool, 0) > 0:
            left[pool] -= 1
            taken.append(candidate)
    return taken


def batches_of(going: Sequence[Candidate]) -> list[list[Candidate]]:
    """Nodes by NodePool and zone in runs of about equal length, none longer than a command may be."""
    by_place = sorted(going, key=lambda item: (item.pool.metadata.name, item.node.metadata.labels.get(labels.ZONE, "")))
    number = -(-len(by_place) // MOST_NODES)
    edges = [len(by_place) * place // number for place in range(number + 1)]
    return [by_place[start:end] for start, end in itertools.pairwise(edges)]


def _rounded_gain(attempt: _Attempt) -> float:
    """Of attempts that gain the same the first is kept: sums of prices are not exact."""
    return round(attempt.gain, 8)


def sizes_between(best: int, tried: Collection[int]) -> list[int]:
    """Sizes half-way from the best one to the next that were tried, while some lie between."""
    below = max((size for size in tried if size < best), default=best)
    above = min((size for size in tried if size > best), default=best)
    return [(best + other) // 2 for other in (below, above) if abs(best - other) > _FINEST]


def _alone(ordered: Sequence[Candidate], allowed: Mapping[str, int]) -> list[Candidate]:
    """The first candidates that the budgets would let go alone: where few may go, a bad first one hides no good one."""
    return [item for item in ordered if allowed.get(item.pool.metadata.name, 0) > 0][:SINGLES]


def further_attempts(ordered: Sequence[Candidate]) -> Iterable[Sequence[Candidate]]:
    """Return what to try beside the best attempt: each candidate, and of a few candidates every two."""
    pairs = itertools.combinations(ordered, 2) if len(ordered) <= SINGLES else ()
    return itertools.chain(((candidate,) for candidate in ordered), pairs)


def attempts_of(ordered: Sequence[Candidate], alone: Sequence[Candidate]) -> list[Sequence[Candidate]]:
    """Prefixes, of a few candidates all of them and of many ever fewer; and a few candidates each alone."""
    total = len(ordered)
    sizes = {size for size in range(1, total + 1) if total <= SINGLES or size & (size - 1) == 0}
    sizes |= {total, total * 3 // 4} - {0}
    attempts: list[Sequence[Candidate]] = [ordered[:size] for size in sorted(sizes)]
    if total <= SINGLES:
        attempts += [(candidate,) for candidate in alone if candidate is not ordered[0]]
    return attempts
