"""Why a pod was left out and why a claim is where it is, with the nearest miss in numbers.

Nothing here runs for a pod that was placed in the first lane, so a plan that works out costs no explanations.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.explain.nearest import (
    CLOSE,
    NEVER,
    ONE_RULE,
    Miss,
    limit_miss,
    nearest_node,
    offering_miss,
    resource_miss,
    some,
    unmet,
)
from shiplap.scheduling.explain.refusal_words import (
    conflicting,
    cpu_hint,
    filtered_out,
    from_volumes,
    limits_left,
    ports_taken,
    preferences_lost,
    reservations_before,
    share_of_spot,
    untolerated_taints,
)
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.scheduling_plan import NearestMiss
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.supply.claim_groups import group_of, minimums_of
from shiplap.scheduling.supply.instance_arrays import Offered
from shiplap.scheduling.supply.limits import NODES
from shiplap.scheduling.supply.open_claims import Kind, OpenClaim, Refusal, Want
from shiplap.scheduling.supply.templates import FILTERED_OUT, Lane
from shiplap.scheduling.topology.closed_domains import binds, keys, left_open, unsatisfied

_NAMED_LANES = 5

MOST_DOMAINS, FEWEST_DOMAINS = 8_000, 8
"""Domains that are asked about to explain all classes left out, who share them equally; and the least for each."""

TOPOLOGY = "topology"
"""The verdict on a lane that could hold a pod if its topology constraints allowed it to."""

_PER_CLASS = (Kind.TYPES, Kind.LIMITS, Kind.NODES, Kind.MIN_VALUES)
"""Refusals whose words depend on what the pod requests, not on its constraints alone."""


class Verdict(msgspec.Struct, frozen=True, eq=False):
    """What a lane says to a class: empty `kind` if it could open a claim, else why not.

    `miss` is how far it is off, `want` the attempt that came closest.
    """

    lane: Lane
    kind: str
    text: str = ""
    miss: Miss | None = None
    want: Want | None = None


class _Facts(msgspec.Struct, frozen=True, eq=False):
    """What a lane offers to a constraint: joined requirements, what they leave, and the rows that suit."""

    requirements: Requirements
    offered: Offered
    rows: Ints


class Explainer:
    """Words for one packing; texts are remembered per class and lane.

    `asked` counts the domains that lanes were asked about, which bounds what explanations cost.
    """

    def __init__(self, compiled: CompiledSnapshot, packing: Packing) -> None:
        self._compiled = compiled
        self._packing = packing
        self._words: dict[tuple[int, int, Kind], str] = {}
        self._reasons: dict[int, tuple[str, ...]] = {}
        self._facts: dict[tuple[int, int], _Facts] = {}
        self.asked = 0
        self._domains_to_ask = 0
        self._topology_keys: dict[int, frozenset[str]] = {}
        self._topology_words: dict[int, str] = {}
        self._open_domains: dict[tuple[int, str, frozenset[str]], list[str]] = {}

    def reasons(self, claim: OpenClaim) -> tuple[str, ...]:
        """Why the lanes before the claim's own were not used for its first pod."""
        if not claim.skipped:
            return ()
        # Claims opened together share the tuple of refusals, which they keep alive.
        known = self._reasons.get(id(claim.skipped))
        if known is None:
            known = self._reasons[id(claim.skipped)] = tuple(map(self._skipped, claim.skipped))
        return known

    def gave_up(self, claim: OpenClaim) -> tuple[str, ...]:
        """The preferences that pods of a claim gave up, by name."""
        if not claim.relaxations:
            return ()
        terms = self._packing.ledger.terms.all
        lost = {words for want in claim.relaxations for words in preferences_lost(want, claim.group.lane, terms)}
        return tuple(sorted(lost))

    def truncated(self, claim: OpenClaim, most: int) -> str:
        """Why a claim cannot be written within the longest list of types."""
        pool = claim.group.lane.pool.metadata.name
        return (
            f"pod didn't schedule because NodePool couldn't meet minValues requirements: "
            f'no {most} instance types of nodepool "{pool}" hold the required distinct values'
        )

    def unschedulable(self, item: PodClass) -> tuple[str, NearestMiss | None]:
        """The message for a class of which pods were left out, and what came closest."""
        if item.problem:
            return item.problem, None
        node = nearest_node(item, self._packing.nodes)
        if not self._compiled.lanes:
            return "no dynamic nodepools found" + (f"; {node.text}" if node is not None else ""), None
        verdicts = self.verdicts(item)
        misses = [verdict.miss for verdict in verdicts if verdict.miss is not None]
        if node is not None:
            misses.append(node)
        texts = "; ".join(_grouped(verdicts)) + self._stopped(item)
        if not misses:
            return texts, None
        nearest = min(misses, key=lambda miss: miss.rank)
        return f"{nearest.text} ({texts})", nearest.nearest

    def verdicts(self, item: PodClass) -> list[Verdict]:
        """What every lane says to one more pod of a class now, in the order lanes are tried."""
        openings = self._packing.openings
        wants = self._last_wants(item)
        topological = item.topological and binds(item, self._packing.ledger)
        self._domains_to_ask = max(FEWEST_DOMAINS, MOST_DOMAINS // max(len(self._packing.unplaced), 1))
        result = []
        for lane in self._compiled.lanes:
            left = openings.budgets[lane.pool.metadata.name].left
            found = []
            for want in wants:
                entry = openings.entry(lane, want)
                if isinstance(entry, Kind):
                    found.append(self._verdict(Refusal(lane, entry, want, left)))
                elif topological:
                    found.append(self._closed(lane, want, left))
                else:
                    found.append(Verdict(lane, "", want=want))
            result.append(min(found, key=_furthest))
        return result

    def _last_wants(self, item: PodClass) -> list[Want]:
        """Of the attempts to place a class the most lenient one per node-affinity term."""
        wants = self._packing.wants.of(item)
        return list({want.term: want for want in wants if want.term in item.terms}.values()) or wants[-1:]

    def _closed(self, lane: Lane, want: Want, left: Ints) -> Verdict:
        """A lane that could hold the pod but for topology: in the domains its counts leave, what stands in its way?"""
        packing, item = self._packing, want.item
        words = self._unsatisfied(item)
        refused = []
        for key in sorted(self._keys(item) & lane.table.told):
            if not self._domains_to_ask:
                break
            for value in self._left_open(item, key, lane.table.values_of(key))[: self._domains_to_ask]:
                self._domains_to_ask -= 1
                self.asked += 1
                pinned = packing.wants.pinned(want, (Requirement(key, False, frozenset((value,))),))
                if pinned is None:
                    continue
                entry = packing.openings.entry(lane, pinned)
                if isinstance(entry, Kind):
                    refused.append(self._verdict(Refusal(lane, entry, pinned, left)))
        if not refused:
            return Verdict(lane, TOPOLOGY, words, want=want)
        best = min(refused, key=_furthest)
        return Verdict(lane, TOPOLOGY, f"{best.text}, in the domains that are left: {words}", best.miss, want)

    def _stopped(self, item: PodClass) -> str:
        """Words if the search for a place ended before all combinations of domains were tried."""
        attempts = self._packing.attempts
        if item.index not in attempts.spent:
            return ""
        number = attempts.failures.get((item.index, False), 0)
        return f"; the search stopped after {number} attempts in vain, and may have left out a domain with room"

    def _unsatisfied(self, item: PodClass) -> str:
        """The words about a class's topology constraints, which are the same for every lane."""
        if item.index not in self._topology_words:
            self._topology_words[item.index] = unsatisfied(item, self._packing.ledger)
        return self._topology_words[item.index]

    def _keys(self, item: PodClass) -> frozenset[str]:
        if item.index not in self._topology_keys:
            self._topology_keys[item.index] = keys(item, self._packing.ledger)
        return self._topology_keys[item.index]

    def _left_open(self, item: PodClass, key: str, values: frozenset[str]) -> list[str]:
        known = self._open_domains.get((item.index, key, values))
        if known is None:
            known = left_open(item, key, values, self._packing.ledger)
            self._open_domains[item.index, key, values] = known
        return known

    def _skipped(self, refusal: Refusal) -> str:
        key = (refusal.want.constraint, refusal.lane.index, refusal.kind)
        if refusal.kind in _PER_CLASS:
            key = (-1 - refusal.want.item.index, refusal.lane.index, refusal.kind)
        words = self._words.get(key)
        if words is None:
            verdict = self._verdict(refusal)
            numbers = f": {verdict.miss.text}" if refusal.kind is Kind.TYPES and verdict.miss is not None else ""
            words = self._words[key] = f"{refusal.lane.name}: {verdict.text}{numbers}"
        return words

    def _verdict(self, refusal: Refusal) -> Verdict:
        """The reason in the words Karpenter uses for it, and how far the lane is off."""
        lane, want = refusal.lane, refusal.want
        pool = lane.pool.metadata.name
        miss = None
        match refusal.kind:
            case Kind.BLOCKED:
                words = lane.blocked
                if words == FILTERED_OUT:
                    words = f"{words}: {filtered_out(lane)}"
            case Kind.TAINT:
                words = f"did not tolerate taint {', '.join(untolerated_taints(refusal))}"
                miss = self._but_for(
                    refusal, want.term, "it does not tolerate taint " + ", ".join(untolerated_taints(refusal))
                )
            case Kind.REQUIREMENTS:
                conflicts = conflicting(lane, want)
                words = f"incompatible requirements, {' and '.join(conflicts.values())}{from_volumes(want, conflicts)}"
                rest = Requirements(entry for key, entry in want.term.items() if key not in conflicts)
                miss = self._but_for(refusal, rest, f"{' and '.join(conflicts.values())}")
            case Kind.NODES:
                words = f'node limits have been exhausted for nodepool "{pool}"{self._nodes_left(lane)}'
                miss = self._nodes_miss(refusal)
            case Kind.RESERVED:
                words = (
                    f"the last instances of its capacity reservations go to other claims of nodepool "
                    f'"{pool}" ({reservations_before(lane)})'
                )
            case Kind.SPOT_SHARE:
                budget = self._packing.openings.budgets[pool]
                words = (
                    f'another node of spot would be too large a share of nodepool "{pool}" ({share_of_spot(budget)})'
                )
            case Kind.LIMITS:
                words = f'all available instance types exceed limits for nodepool "{pool}"{limits_left(refusal)}'
                rows = self._facts_of(lane, want).rows
                miss = limit_miss(refusal, rows[self._buyable(refusal, rows)]) or self._types_miss(refusal)
            case Kind.MIN_VALUES:
                numbers = self._minimums(refusal)
                words = f"pod didn't schedule because NodePool couldn't meet minValues requirements ({numbers})"
                miss = Miss((ONE_RULE, 0, 0.0, pool), f"{lane.name}: {numbers}", NearestMiss("", pool))
            case Kind.TYPES:
                words = self._no_type(refusal)
                miss = self._types_miss(refusal)
        return Verdict(lane, refusal.kind.value, words, miss, want)

    def _facts_of(self, lane: Lane, want: Want) -> _Facts:
        key = (lane.index, want.constraint)
        known = self._facts.get(key)
        if known is None:
            requirements = lane.template.and_(want.term.values())
            offered = lane.table.offered(requirements, lane.given)
            suits = offered.suits[lane.table.row_type] & self._packing.openings.allowed_rows(lane, want)
            known = self._facts[key] = _Facts(requirements, offered, np.flatnonzero(suits))
        return known

    def _buyable(self, refusal: Refusal, rows: Ints) -> Bools:
        lane = refusal.lane
        offered = self._facts_of(lane, refusal.want).offered
        buyable: Bools = np.isfinite(offered.price[lane.table.row_type[rows]])
        return buyable

    def _types_miss(self, refusal: Refusal) -> Miss:
        """What is closest where no type will do: one that is short of something, or one that cannot be bought."""
        lane, want = refusal.lane, refusal.want
        facts = self._facts_of(lane, want)
        if not len(facts.rows):
            words = unmet(lane, facts.requirements) or ports_taken(lane, want) or "no instance type is left"
            return Miss((NEVER, 2, 1.0, lane.name), f"{lane.name}: {words}", NearestMiss("", lane.pool.metadata.name))
        buyable = self._buyable(refusal, facts.rows)
        holds = (lane.net[facts.rows] >= want.requests).all(axis=1)
        misses = []
        if (holds & ~buyable).any():
            misses.append(offering_miss(refusal, facts.requirements, facts.rows[holds & ~buyable]))
        if buyable.any() or not misses:
            misses.append(resource_miss(refusal, facts.rows[buyable] if buyable.any() else facts.rows))
        return min(misses, key=lambda miss: miss.rank)

    def _holder(self, lane: Lane, want: Want, term: Requirements) -> str:
        """The cheapest type that would hold the pod under `term`; empty when none would."""
        requirements = lane.template.and_(term.values())
        if lane.blocked or not lane.template.compatible(term, lane.allow_undefined):
            return ""
        offered = lane.table.offered(requirements, lane.given)
        price = np.where(offered.suits, offered.price, np.inf)[lane.table.row_type]
        holds = (lane.net >= want.requests).all(axis=1) & self._packing.openings.allowed_rows(lane, want)
        price = np.where(holds, price, np.inf)
        row = int(np.argmin(price)) if len(price) else 0
        return lane.table.names[lane.table.row_type[row]] if len(price) and np.isfinite(price[row]) else ""

    def _but_for(self, refusal: Refusal, term: Requirements, obstacle: str) -> Miss | None:
        """A miss if nothing but one rule keeps the pod from a lane."""
        lane = refusal.lane
        name = self._holder(lane, refusal.want, term)
        if not name:
            return None
        text = f"{name} in {lane.name}: would hold the pod, but {obstacle}"
        return Miss((ONE_RULE, 1, 0.0, name), text, NearestMiss(name, lane.pool.metadata.name))

    def _nodes_miss(self, refusal: Refusal) -> Miss:
        lane = refusal.lane
        pool = lane.pool.metadata.name
        name = self._holder(lane, refusal.want, refusal.want.term)
        if not name:
            return self._types_miss(refusal)
        over = 1 - self._packing.openings.budgets[pool].nodes_left
        text = f"{name} in {lane.name}: nodes limit short by {over}: would hold the pod{self._nodes_left(lane)}"
        return Miss((CLOSE, 0, 0.0, name), text, NearestMiss(name, pool, NODES, over), {NODES: over}, of_limit=True)

    def _nodes_left(self, lane: Lane) -> str:
        left = max(self._packing.openings.budgets[lane.pool.metadata.name].nodes_left, 0)
        return f" ({left} of {lane.budget.limits[NODES]} left)" if NODES in lane.budget.limits else ""

    def _minimums(self, refusal: Refusal) -> str:
        """`LABEL needs 3 values, the types that hold the pod have 2`."""
        lane, want = refusal.lane, refusal.want
        requirements = self._facts_of(lane, want).requirements
        group = group_of(
            -1, lane, requirements, self._packing.openings.allowed_rows(lane, want), minimums_of(requirements)
        )
        holds = group.holding(want.requests)
        parts = []
        for key, least in sorted(group.minimums.items()):
            number = int((group.values(key) & holds).any(axis=1).sum())
            if number < least:
                parts.append(f"{key} needs {least} values, the types that hold the pod have {number}")
        return "; ".join(parts) or "within the limits too few values are left"

    def _no_type(self, refusal: Refusal) -> str:
        """Which of labels, resources and offerings leave no instance type, most specific wording first."""
        lane, want = refusal.lane, refusal.want
        offered = self._facts_of(lane, want).offered
        allowed = self._packing.openings.allowed_rows(lane, want)
        types = lane.table.row_type
        suits = offered.suits[types]
        buyable = np.isfinite(offered.price)[types]
        holds = (lane.net >= want.requests).all(axis=1) & allowed
        verdicts = (
            (suits, "no instance type met all requirements"),
            (holds, "no instance type has enough resources" + cpu_hint(want)),
            (buyable, "no instance type has a required offering available"),
            (suits & holds, "no instance type which met the scheduling requirements had enough resources"),
            (suits & buyable, "no instance type which met the scheduling requirements had a required offering"),
            (holds & buyable, "no instance type which had enough resources had a required offering"),
        )
        everything = (
            "no instance type met the scheduling requirements or had enough resources or had a required offering"
        )
        return next((words for left, words in verdicts if not left.any()), everything)


def _furthest(verdict: Verdict) -> tuple[int, tuple[int, int, float, str]]:
    """Sorts the verdicts on one lane: the attempt that came closest counts."""
    if not verdict.kind:
        return (0, (0, 0, 0.0, ""))
    return (1, verdict.miss.rank) if verdict.miss is not None else (2, (0, 0, 0.0, ""))


def _grouped(verdicts: Sequence[Verdict]) -> list[str]:
    """One text per reason: lanes that say the same are named together."""
    lanes: dict[str, list[str]] = {}
    for verdict in verdicts:
        lanes.setdefault(verdict.text or "could hold a pod of its kind now", []).append(verdict.lane.name)
    return [f"{some(names, _NAMED_LANES)}: {text}" for text, names in lanes.items()]
