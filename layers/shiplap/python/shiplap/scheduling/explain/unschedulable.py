"""Explains why a pod was left out and why a claim is where it is, with the nearest miss in numbers.

For a pod that was placed in the first template nothing here runs but the question which domains its spreads do without,
so a plan that works out costs next to no explanations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.explain.lost_domains import LostDomains
from shiplap.scheduling.explain.nearest import (
    CLOSE,
    NEVER,
    ONE_RULE,
    Miss,
    RuleRank,
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
    labels_to_add,
    limits_left,
    ports_taken,
    preferences_lost,
    reservations_before,
    share_of_spot,
    unsuited_daemons,
    untolerated_taints,
)
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.scheduling_plan import NearestMiss, PlannedClaim, shortened
from shiplap.scheduling.model.topology_constraints import UNREAD_PREFERENCES
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.supply.instance_arrays import Offered
from shiplap.scheduling.supply.limits import NODES
from shiplap.scheduling.supply.open_claims import (
    OpenClaim,
    PlacementAttempt,
    Refusal,
    RefusalKind,
    make_group,
    minimums_of,
)
from shiplap.scheduling.supply.reservations import awaited
from shiplap.scheduling.supply.templates import FILTERED_OUT, NodeClaimTemplate
from shiplap.scheduling.topology.reachable_domains import (
    bound_keys,
    domains_left_open,
    has_binding_constraints,
    unsatisfied_constraints,
)

FEWEST_DOMAINS = BOUNDS.explained_domains // 1000
"""The least share of a class, however many classes are left out."""

TOPOLOGY = "topology"
"""The verdict on a template that could hold a pod if its topology constraints allowed it to."""

_PER_CLASS = (RefusalKind.TYPES, RefusalKind.LIMITS, RefusalKind.NODES, RefusalKind.MIN_VALUES)
"""Refusals whose words depend on what the pod requests, not on its constraints alone."""

NO_NODE_POOL = "no dynamic nodepools found"
"""What a pod is told first where nothing can be launched."""


class TemplateVerdict(msgspec.Struct, frozen=True, eq=False):
    """The answer of a template to a class: empty `kind` if it could open a claim, else the reason why not.

    `miss` is how far it is off, `attempt` the attempt that came closest.
    """

    template: NodeClaimTemplate
    kind: str
    text: str = ""
    miss: Miss | None = None
    attempt: PlacementAttempt | None = None


class _Facts(msgspec.Struct, frozen=True, eq=False):
    """Holds what a template offers to a constraint: joined requirements, what they leave, and the rows that suit."""

    requirements: Requirements
    offered: Offered
    rows: Ints


class Explainer:
    """Words for one packing; texts are remembered per class and template.

    `asked` counts the domains that templates were asked about, which bounds what explanations cost.
    """

    def __init__(self, compiled: CompiledSnapshot, packing: Packing) -> None:
        self._compiled = compiled
        self._packing = packing
        self._words: dict[tuple[int, int, RefusalKind], str] = {}
        self._reasons: dict[int, tuple[str, ...]] = {}
        self._facts: dict[tuple[int, int], _Facts] = {}
        self._lost = LostDomains(packing.openings.possible, packing.attempts)
        self._unmerged = packing.openings.unmerged()
        self.asked = 0
        self._domains_to_ask = 0
        self._told = frozenset[str]().union(*(template.table.told for template in compiled.templates))
        self._topology_keys: dict[int, frozenset[str]] = {}
        self._topology_words: dict[int, str] = {}
        self._open_domains: dict[tuple[int, str, frozenset[str]], list[str]] = {}

    def explained(self, claim: OpenClaim, planned: PlannedClaim) -> PlannedClaim:
        """The planned claim with what there is to say about it; mostly that is nothing."""
        lost = (*self._lost_domains(claim), *self._uncompared(claim))
        given_up = self._given_up(claim)
        if not claim.skipped and not given_up and not lost:
            return planned
        reasons = (*self._reasons_of(claim), *lost)
        return replace(planned, reasons=tuple(map(shortened, reasons)), gave_up=tuple(map(shortened, given_up)))

    def _lost_domains(self, claim: OpenClaim) -> tuple[str, ...]:
        """Name the domains that the spreads of a claim's pods do without."""
        words = (self._lost.words(pod_class) for pod_class, _ in claim.pods if pod_class.constraints.spreads)
        return tuple(dict.fromkeys(sentence for sentences in words for sentence in sentences))

    def _reasons_of(self, claim: OpenClaim) -> tuple[str, ...]:
        """Return why the templates before the claim's own were not used for its first pod."""
        if not claim.skipped:
            return ()
        # Claims opened together share the tuple of refusals, which they keep alive.
        known = self._reasons.get(id(claim.skipped))
        if known is None:
            known = self._reasons[id(claim.skipped)] = tuple(map(self._skipped, claim.skipped))
        return known

    def _given_up(self, claim: OpenClaim) -> tuple[str, ...]:
        """The preferences that pods of a claim gave up, by name."""
        unread = any(pod_class.unread for pod_class, _ in claim.pods)
        if not claim.relaxations and not unread:
            return ()
        terms = self._packing.counts.terms.all
        lost = {
            words for attempt in claim.relaxations for words in preferences_lost(attempt, claim.group.template, terms)
        }
        if unread:
            lost.add(UNREAD_PREFERENCES)
        return tuple(sorted(lost))

    def truncated(self, claim: OpenClaim, most: int) -> str:
        """Return why a claim cannot be written within the longest list of types."""
        pool = claim.group.template.pool.metadata.name
        return (
            f"pod didn't schedule because NodePool couldn't meet minValues requirements: "
            f'no {most} instance types of nodepool "{pool}" hold the required distinct values'
        )

    def unschedulable(self, pod_class: PodClass) -> tuple[str, NearestMiss | None]:
        """The message for a class of which pods were left out, and what came closest."""
        if pod_class.problem:
            return pod_class.problem, None
        node = nearest_node(pod_class, self._packing.nodes)
        if not self._compiled.templates:
            return NO_NODE_POOL + (f"; {node.text}" if node is not None else ""), None
        verdicts = self.verdicts(pod_class)
        misses = [(verdict.miss, verdict.text) for verdict in verdicts if verdict.miss is not None]
        if node is not None:
            misses.append((node, ""))
        reasons, lost = _grouped(verdicts), self._lost.words(pod_class)
        if not misses:
            return "; ".join((*reasons.values(), *lost)) + self._stopped(pod_class), None
        nearest, reason = min(misses, key=lambda entry: entry[0].rank)
        # A reason without numbers is the nearest miss as it is, and is not said twice.
        head = reasons.pop(reason) if reason and nearest.text.endswith(f": {reason}") else nearest.text
        rest = "; ".join((*reasons.values(), *lost)) + self._stopped(pod_class)
        return f"{head} ({rest.removeprefix('; ')})" if rest else head, nearest.nearest

    def verdicts(self, pod_class: PodClass) -> list[TemplateVerdict]:
        """Return the verdict of every template on one more pod of a class now, in the order templates are tried."""
        openings = self._packing.openings
        attempts = self._most_lenient_attempts(pod_class)
        topological = pod_class.topological and has_binding_constraints(pod_class, self._packing.counts)
        self._domains_to_ask = max(FEWEST_DOMAINS, BOUNDS.explained_domains // max(len(self._packing.unplaced), 1))
        result = []
        for template in self._compiled.templates:
            left = openings.pool_limits[template.pool.metadata.name].left
            found = []
            for attempt in attempts:
                entry = openings.entry(template, attempt)
                if isinstance(entry, RefusalKind):
                    found.append(self._verdict(Refusal(template, entry, attempt, left)))
                elif topological:
                    found.append(self._closed(template, attempt, left))
                else:
                    found.append(TemplateVerdict(template, "", attempt=attempt))
            result.append(min(found, key=_furthest))
        return result

    def _most_lenient_attempts(self, pod_class: PodClass) -> list[PlacementAttempt]:
        """Of the attempts to place a class the most lenient one per node-affinity term, up to so many labels."""
        attempts = self._packing.attempts.of(pod_class)
        lenient = list({attempt.term: attempt for attempt in attempts if attempt.term in pod_class.terms}.values())
        labels = accumulate(len(attempt.term) for attempt in lenient)
        few = [attempt for attempt, number in zip(lenient, labels, strict=True) if number <= BOUNDS.explained_labels]
        return few or lenient[:1] or attempts[-1:]

    def _closed(self, template: NodeClaimTemplate, attempt: PlacementAttempt, left: Ints) -> TemplateVerdict:
        """A template that could hold the pod but for topology: why it refuses in the domains that counts leave."""
        packing, pod_class = self._packing, attempt.pod_class
        words = self._unsatisfied(pod_class)
        refused = []
        for key in sorted(self._keys(pod_class) & template.table.told):
            if not self._domains_to_ask:
                break
            for value in self._left_open(pod_class, key, template.table.values_of(key))[: self._domains_to_ask]:
                self._domains_to_ask -= 1
                self.asked += 1
                pinned = packing.attempts.pinned(attempt, (Requirement.one_of(key, value),))
                if pinned is None:
                    continue
                entry = packing.openings.entry(template, pinned)
                if isinstance(entry, RefusalKind):
                    refused.append(self._verdict(Refusal(template, entry, pinned, left)))
        if not refused:
            return TemplateVerdict(template, TOPOLOGY, words, _fitting(template, words, 1.0), attempt)
        best = min(refused, key=_furthest)
        return TemplateVerdict(
            template, TOPOLOGY, f"{best.text}, in the domains that are left: {words}", best.miss, attempt
        )

    def _uncompared(self, claim: OpenClaim) -> tuple[str, ...]:
        """That pods of a claim may have had room on other claims, with which they were not compared."""
        words = (self._unmerged.get(pod_class.index, "") for pod_class, _ in claim.pods)
        return tuple(dict.fromkeys(filter(None, words)))

    def _stopped(self, pod_class: PodClass) -> str:
        """Words if the search for a place ended before all claims or combinations of domains were tried."""
        attempt_budget = self._packing.attempt_budget
        uncompared = self._unmerged.get(pod_class.index, "")
        words = f"; {uncompared}" if uncompared else ""
        if pod_class.index not in attempt_budget.spent:
            return words
        number = attempt_budget.failures.get((pod_class.index, False), 0)
        return f"{words}; the search stopped after {number} attempts in vain, and may have left out a domain with room"

    def _unsatisfied(self, pod_class: PodClass) -> str:
        """The words about a class's topology constraints, which are the same for every template."""
        if pod_class.index not in self._topology_words:
            self._topology_words[pod_class.index] = unsatisfied_constraints(pod_class, self._packing.counts)
        return self._topology_words[pod_class.index]

    def _keys(self, pod_class: PodClass) -> frozenset[str]:
        if pod_class.index not in self._topology_keys:
            self._topology_keys[pod_class.index] = bound_keys(pod_class, self._packing.counts, self._told)
        return self._topology_keys[pod_class.index]

    def _left_open(self, pod_class: PodClass, key: str, values: frozenset[str]) -> list[str]:
        known = self._open_domains.get((pod_class.index, key, values))
        if known is None:
            known = domains_left_open(pod_class, key, values, self._packing.counts)
            self._open_domains[pod_class.index, key, values] = known
        return known

    def _skipped(self, refusal: Refusal) -> str:
        key = (refusal.attempt.constraint, refusal.template.index, refusal.kind)
        if refusal.kind in _PER_CLASS or refusal.template.table.upcoming:
            key = (-1 - refusal.attempt.pod_class.index, refusal.template.index, refusal.kind)
        words = self._words.get(key)
        if words is None:
            verdict = self._verdict(refusal)
            numbers = f": {verdict.miss.text}" if refusal.kind is RefusalKind.TYPES and verdict.miss is not None else ""
            words = self._words[key] = f"{refusal.template.name}: {verdict.text}{numbers}"
        return words

    def _verdict(self, refusal: Refusal) -> TemplateVerdict:
        """The reason in the words Karpenter uses for it, and how far the template is off."""
        template, attempt = refusal.template, refusal.attempt
        pool = template.pool.metadata.name
        miss = None
        match refusal.kind:
            case RefusalKind.BLOCKED:
                words = template.blocked
                if words == FILTERED_OUT:
                    words = f"{words}: {filtered_out(template)}{awaited(template, attempt)}"
                if template.requirements.compatible(attempt.term, template.allow_undefined):
                    taints = untolerated_taints(refusal)
                    words += f", and the pod does not tolerate taint {taints}" if taints else ""
                    miss = _fitting(template, words, level=RuleRank.UNTOLERATED if taints else RuleRank.FITS)
            case RefusalKind.TAINT:
                taints = untolerated_taints(refusal)
                words = f"did not tolerate taint {taints}"
                miss = self._but_for(
                    refusal, attempt.term, f"it does not tolerate taint {taints}", RuleRank.UNTOLERATED
                )
            case RefusalKind.REQUIREMENTS:
                conflicts = conflicting(template, attempt)
                words = (
                    f"incompatible requirements, {' and '.join(conflicts.values())}{from_volumes(attempt, conflicts)}"
                )
                rest = Requirements(entry for key, entry in attempt.term.items() if key not in conflicts)
                added = ", ".join(f"{key}: {to}" for key, to in labels_to_add(template, attempt, conflicts).items())
                lacking = f"NodePool {pool} lacks the label: add `{added}` to its spec.template.metadata.labels"
                miss = self._but_for(
                    refusal, rest, lacking if added else " and ".join(conflicts.values()), RuleRank.UNLABELLED
                )
            case RefusalKind.NODES:
                words = f'node limits have been exhausted for nodepool "{pool}"{self._nodes_left(template)}'
                miss = self._nodes_miss(refusal)
            case RefusalKind.RESERVED:
                words = (
                    f"the last instances of its capacity reservations go to other claims of nodepool "
                    f'"{pool}" ({reservations_before(template)})'
                )
                miss = _fitting(template, words)
            case RefusalKind.SPOT_SHARE:
                limits = self._packing.openings.pool_limits[pool]
                words = (
                    f'another node of spot would be too large a share of nodepool "{pool}" ({share_of_spot(limits)})'
                )
                miss = _fitting(template, words)
            case RefusalKind.LIMITS:
                words = f'all available instance types exceed limits for nodepool "{pool}"{limits_left(refusal)}'
                rows = self._facts_of(template, attempt).rows
                miss = limit_miss(refusal, rows[self._buyable(refusal, rows)]) or self._types_miss(refusal)
            case RefusalKind.MIN_VALUES:
                numbers = self._minimums(refusal)
                words = f"pod didn't schedule because NodePool couldn't meet minValues requirements ({numbers})"
                miss = _fitting(template, numbers)
            case RefusalKind.TYPES:
                words = self._no_type(refusal) + awaited(template, attempt)
                miss = self._types_miss(refusal)
        return TemplateVerdict(template, refusal.kind.value, words, miss, attempt)

    def _facts_of(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> _Facts:
        key = (template.index, attempt.constraint)
        known = self._facts.get(key)
        if known is None:
            requirements = template.requirements.and_(attempt.term.values())
            offered = template.table.offered(requirements, template.given)
            suits = offered.suits[template.table.row_type] & template.rows_of_variants(requirements)
            suits &= self._packing.openings.allowed_rows(template, attempt)
            known = self._facts[key] = _Facts(requirements, offered, np.flatnonzero(suits))
        return known

    def _buyable(self, refusal: Refusal, rows: Ints) -> Bools:
        template = refusal.template
        requirements = self._facts_of(template, refusal.attempt).requirements
        buyable: Bools = np.isfinite(template.prices_of_rows(requirements))[rows]
        return buyable

    def _types_miss(self, refusal: Refusal) -> Miss:
        """Return the nearest miss where no type will do: one that is short of something, or cannot be bought."""
        template, attempt = refusal.template, refusal.attempt
        facts = self._facts_of(template, attempt)
        if not len(facts.rows):
            words = (
                unmet(template, facts.requirements)
                or ports_taken(template, attempt)
                or unsuited_daemons(template, attempt)
                or "no instance type is left"
            )
            return Miss(
                (NEVER, 2, 1.0, template.name),
                f"{template.name}: {words}",
                NearestMiss("", template.pool.metadata.name),
            )
        buyable = self._buyable(refusal, facts.rows)
        holds = (template.net[facts.rows] >= attempt.requests).all(axis=1)
        misses = []
        if (holds & ~buyable).any():
            misses.append(offering_miss(refusal, facts.requirements, facts.rows[holds & ~buyable]))
        if buyable.any() or not misses:
            misses.append(resource_miss(refusal, facts.rows[buyable] if buyable.any() else facts.rows))
        return min(misses, key=lambda miss: miss.rank)

    def _holder(self, template: NodeClaimTemplate, attempt: PlacementAttempt, term: Requirements) -> str:
        """The cheapest type that would hold the pod under `term`; empty when none would."""
        requirements = template.requirements.and_(term.values())
        if template.blocked or not template.requirements.compatible(term, template.allow_undefined):
            return ""
        holds = (template.net >= attempt.requests).all(axis=1) & self._packing.openings.allowed_rows(template, attempt)
        price = np.where(holds, template.prices_of_rows(requirements), np.inf)
        row = int(np.argmin(price)) if len(price) else 0
        return template.table.names[template.table.row_type[row]] if len(price) and np.isfinite(price[row]) else ""

    def _but_for(self, refusal: Refusal, term: Requirements, obstacle: str, level: RuleRank) -> Miss | None:
        """A miss if nothing but one rule keeps the pod from a template."""
        template = refusal.template
        name = self._holder(template, refusal.attempt, term)
        if not name:
            return None
        text = f"{name} in {template.name}: would hold the pod, but {obstacle}"
        return Miss((ONE_RULE, level, 0.0, name), text, NearestMiss(name, template.pool.metadata.name))

    def _nodes_miss(self, refusal: Refusal) -> Miss:
        template = refusal.template
        pool = template.pool.metadata.name
        name = self._holder(template, refusal.attempt, refusal.attempt.term)
        if not name:
            return self._types_miss(refusal)
        over = 1 - self._packing.openings.pool_limits[pool].nodes_left
        text = f"{name} in {template.name}: nodes limit short by {over}: would hold the pod{self._nodes_left(template)}"
        return Miss((CLOSE, 0, 0.0, name), text, NearestMiss(name, pool, NODES, over), {NODES: over}, of_limit=True)

    def _nodes_left(self, template: NodeClaimTemplate) -> str:
        left = max(self._packing.openings.pool_limits[template.pool.metadata.name].nodes_left, 0)
        return f" ({left} of {template.limits.amounts[NODES]} left)" if NODES in template.limits.amounts else ""

    def _minimums(self, refusal: Refusal) -> str:
        """`LABEL needs 3 values, the types that hold the pod have 2`."""
        template, attempt = refusal.template, refusal.attempt
        requirements = self._facts_of(template, attempt).requirements
        group = make_group(
            -1,
            template,
            requirements,
            self._packing.openings.allowed_rows(template, attempt),
            minimums_of(requirements),
        )
        holds = group.holding(attempt.requests)
        parts = []
        for key, least in sorted(group.minimums.items()):
            number = int((group.values(key) & holds).any(axis=1).sum())
            if number < least:
                parts.append(f"{key} needs {least} values, the types that hold the pod have {number}")
        return "; ".join(parts) or "within the limits too few values are left"

    def _no_type(self, refusal: Refusal) -> str:
        """Return which of labels, resources and offerings leave no instance type, most specific wording first."""
        template, attempt = refusal.template, refusal.attempt
        offered = self._facts_of(template, attempt).offered
        allowed = self._packing.openings.allowed_rows(template, attempt)
        types = template.table.row_type
        suits = offered.suits[types]
        buyable = np.isfinite(offered.price)[types]
        holds = (template.net >= attempt.requests).all(axis=1) & allowed
        verdicts = (
            (suits, "no instance type met all requirements"),
            (holds, "no instance type has enough resources" + cpu_hint(attempt)),
            (buyable, "no instance type has a required offering available"),
            (suits & holds, "no instance type which met the scheduling requirements had enough resources"),
            (suits & buyable, "no instance type which met the scheduling requirements had a required offering"),
            (holds & buyable, "no instance type which had enough resources had a required offering"),
        )
        everything = (
            "no instance type met the scheduling requirements or had enough resources or had a required offering"
        )
        return next((words for left, words in verdicts if not left.any()), everything)


def _furthest(verdict: TemplateVerdict) -> tuple[int, tuple[int, int, float, str]]:
    """Sorts the verdicts on one template: the attempt that came closest counts."""
    if not verdict.kind:
        return (0, (0, 0, 0.0, ""))
    return (1, verdict.miss.rank) if verdict.miss is not None else (2, (0, 0, 0.0, ""))


def _fitting(template: NodeClaimTemplate, words: str, share: float = 0.0, level: RuleRank = RuleRank.FITS) -> Miss:
    """A miss of a template whose labels fit a pod, without numbers: `words` say what keeps the pod off."""
    pool = template.pool.metadata.name
    return Miss((ONE_RULE, level, share, pool), f"{template.name}: {words}", NearestMiss("", pool))


def _grouped(verdicts: Sequence[TemplateVerdict]) -> dict[str, str]:
    """One sentence per reason, by the reason: templates that say the same are named together."""
    templates: dict[str, list[str]] = {}
    for verdict in verdicts:
        templates.setdefault(verdict.text or "could hold a pod of its kind now", []).append(verdict.template.name)
    return {text: f"{some(names, BOUNDS.named_templates)}: {text}" for text, names in templates.items()}
