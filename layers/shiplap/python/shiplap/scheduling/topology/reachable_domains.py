"""The domains that a class of pods may reach: which nodes have them, in which order they are tried, what closes them.

`ReachableDomains` tells with which values of a label NodePools and EC2NodeClasses allow a node for a class, whatever
counts and limits say. `best_first` combines one domain of each label; combinations are made as they are looked at,
because usually the first one will do. `unsatisfied_constraints` names the topology constraints that close domains, with
the counts they go by.

The answers of `ReachableDomains` follow from templates and pods alone, so they hold for a whole packing. They are asked
for every domain of every label of every attempt, so they are shared as far as they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec
import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints
from shiplap.scheduling.model.topology_constraints import Spread
from shiplap.scheduling.supply.open_claims import ClaimGroup, PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class DomainOption(msgspec.Struct, frozen=True, order=True):
    """One domain of one label; no label comes last.

    First comes what attracts the most classes of a series that no pod has begun (`pull`, negative), then the fewest
    counted pods, then the name.
    """

    absent: bool
    pull: int
    count: int
    value: str
    code: int
    most: int


class DomainChoice(msgspec.Struct, frozen=True, eq=False):
    """One combination of domains. `nodes` [nodes] are in it; `attempt` is pinned to it, None if its pods exclude it.

    Claims other than `claims` [claims], None for all, are in another one.

    At most `most` pods may go there before the choice has to be made again. `drawn`: pods of a series that has not
    begun should go there rather than elsewhere.
    """

    attempt: PlacementAttempt | None
    nodes: Bools
    most: int
    drawn: bool = False
    claims: Bools | None = None


class DomainChoices:
    """Choices in the order in which combinations come; each is made once, when it is asked for first."""

    def __init__(
        self, ranked: Iterator[Sequence[DomainOption]], make: Callable[[Sequence[DomainOption]], DomainChoice]
    ) -> None:
        self._ranked = ranked
        self._make = make
        self._made: list[DomainChoice] = []

    def __iter__(self) -> Iterator[DomainChoice]:
        index = 0
        while index < len(self._made) or self._more():
            yield self._made[index]
            index += 1

    def _more(self) -> bool:
        chosen = next(self._ranked, None)
        if chosen is not None:
            self._made.append(self._make(chosen))
        return chosen is not None


def weight(chosen: Sequence[DomainOption]) -> tuple[int, int, int]:
    """Combinations are compared by this first: labels that are absent, attraction, pods counted."""
    return sum(o.absent for o in chosen), sum(o.pull for o in chosen), sum(o.count for o in chosen)


def best_first(options: Sequence[Sequence[DomainOption]]) -> Iterator[Sequence[DomainOption]]:
    """All combinations of one option per label, by weight and then by options; each label's options come sorted.

    Made one after the other, so that the first of very many cost little.
    """

    def entry(
        indexes: tuple[int, ...], last: int
    ) -> tuple[tuple[int, int, int], list[DomainOption], tuple[int, ...], int]:
        chosen = [some[index] for some, index in zip(options, indexes, strict=True)]
        return weight(chosen), chosen, indexes, last

    heap = [entry((0,) * len(options), 0)]
    heapify(heap)
    while heap:
        _, chosen, indexes, last = heappop(heap)
        yield chosen
        # Only labels from the last one changed on move further, so that every combination comes up once.
        for label in range(last, len(options)):
            if indexes[label] + 1 < len(options[label]):
                moved = (*indexes[:label], indexes[label] + 1, *indexes[label + 1 :])
                heappush(heap, entry(moved, label))


_NO_TYPES: Ints = np.zeros(0, np.int64)


class _Entry(msgspec.Struct, frozen=True, eq=False):
    """An attempt and what a claim for it would start as in a template.

    `types` [n] are those that hold one pod; entries with the same ones share the number `known_types`. Where every
    domain has to be asked for by itself, `group` is None.
    """

    attempt: PlacementAttempt
    group: ClaimGroup | None
    types: Ints
    known_types: int


class ReachableDomains:
    """Answers for one packing."""

    def __init__(self, possible: PossibleNodes, attempts: PlacementAttempts) -> None:
        self._possible = possible
        self._attempts = attempts
        self._values: dict[tuple[int, str], list[str]] = {}
        self._labelled: dict[tuple[int, str], Bools] = {}
        self._allowing: dict[tuple[int, str], Bools] = {}
        self._entries: dict[tuple[int, int], list[_Entry]] = {}
        self._types: dict[bytes, int] = {}
        self._having: dict[tuple[int, int, str], Bools] = {}
        self._launching: dict[tuple[tuple[int, ...], str], dict[str, bool]] = {}
        self._lacking: dict[tuple[tuple[int, ...], str, Requirement | None], bool] = {}
        self._suiting: dict[int, tuple[int, ...]] = {}
        self._profiles: dict[int, int] = {}
        self._numbers: dict[tuple[tuple[int, ...], bytes], int] = {}

    def may_launch(self, attempt: PlacementAttempt, key: str, values: Iterable[str | None]) -> Iterator[bool]:
        """Per value of a label, None for no such label, whether a node with it may be launched for a class.

        Only taints and requirements of the templates count. No label but this one can make a difference.
        """
        suiting, wanted = self._suiting_templates(attempt), attempt.term.get(key)
        answers = self._launching.setdefault((suiting, key), {})
        for value in values:
            if value is None:
                yield self._may_lack(suiting, key, wanted)
            elif wanted is not None and not wanted.has(value):
                yield False
            else:
                if value not in answers:
                    pin = {key: Requirement.one_of(key, value)}
                    answers[value] = any(self._allows(index, pin) for index in suiting)
                yield answers[value]

    def _may_lack(self, suiting: tuple[int, ...], key: str, wanted: Requirement | None) -> bool:
        identity = (suiting, key, wanted)
        known = self._lacking.get(identity)
        if known is None:
            absent = Requirement(key)
            term = Requirements(() if wanted is None else (wanted,))
            known = wanted is None or term.compatible({key: absent})
            known = known and any(self._allows(index, term.and_((absent,))) for index in suiting)
            self._lacking[identity] = known
        return known

    def _allows(self, index: int, pin: Mapping[str, Requirement]) -> bool:
        template = self._possible.templates[index]
        return template.requirements.compatible(pin, template.allow_undefined)

    def _suiting_templates(self, attempt: PlacementAttempt) -> tuple[int, ...]:
        """The places of the templates whose taints and requirements let their nodes take pods of a class."""
        known = self._suiting.get(attempt.constraint)
        if known is None:
            suits = (self._possible.suits(template, attempt) for template in self._possible.templates)
            known = self._suiting[attempt.constraint] = tuple(index for index, does in enumerate(suits) if does)
        return known

    def profile(self, pod_class: PodClass) -> int:
        """A number that classes share which can open the same claims: equal attempts of what they require."""
        known = self._profiles.get(pod_class.index)
        if known is None:
            attempts = self._attempts.relaxed(pod_class)
            identity = (tuple(attempt.constraint for attempt in attempts), attempts[0].requests.tobytes())
            known = self._profiles[pod_class.index] = self._numbers.setdefault(identity, len(self._numbers))
        return known

    def opening(self, pod_class: PodClass, template: NodeClaimTemplate, key: str) -> Bools:
        """With which values [values] of a label a claim could be opened in a template for what a class requires."""
        found = np.zeros(len(self.values_of(template, key)), np.bool_)
        for entry in self._entries_of(pod_class, template):
            found |= self._opens(entry, template, key)
        return found

    def values_of(self, template: NodeClaimTemplate, key: str) -> list[str]:
        """The values of a label, by name, that nodes of a template may have."""
        known = self._values.get((template.index, key))
        if known is None:
            known = self._values[template.index, key] = template.values_of(key)
        return known

    def _opens(self, entry: _Entry, template: NodeClaimTemplate, key: str) -> Bools:
        """The answer of one attempt; read off the types of its entry, as far as a pin does no more than leave some."""
        table = template.table
        if entry.group is None or not (table.tells_types(key) or table.tells_columns(key)):
            return np.array(
                [self._opens_pinned(entry.attempt, template, key, value) for value in self.values_of(template, key)],
                np.bool_,
            )
        if table.tells_types(key):
            opens = self._had_by(entry, template, key)
        else:
            bought = table.bought(entry.group.requirements, entry.types, key)
            opens = self._allowed(template, key) & np.array(
                [value in bought for value in self.values_of(template, key)], np.bool_
            )
        wanted = entry.attempt.term.get(key)
        if wanted is not None:
            opens = opens & np.array([wanted.has(value) for value in self.values_of(template, key)], np.bool_)
        return opens

    def _had_by(self, entry: _Entry, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask of a label's values [values] that some of an entry's types may have and the template allows."""
        identity = (entry.known_types, template.index, key)
        known = self._having.get(identity)
        if known is None:
            had: Bools = self._labels_of(template, key)[:, entry.types].any(axis=1)
            known = self._having[identity] = had & self._allowed(template, key)
        return known

    def _allowed(self, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask of a label's values [values] that the requirements of a template allow."""
        known = self._allowing.get((template.index, key))
        if known is None:
            pins = [{key: Requirement.one_of(key, value)} for value in self.values_of(template, key)]
            allows = [template.requirements.compatible(pin, template.allow_undefined) for pin in pins]
            known = self._allowing[template.index, key] = np.array(allows, np.bool_)
        return known

    def _opens_pinned(self, attempt: PlacementAttempt, template: NodeClaimTemplate, key: str, value: str) -> bool:
        pinned = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
        return pinned is not None and self._possible.has_node(template, pinned)

    def _labels_of(self, template: NodeClaimTemplate, key: str) -> Bools:
        """Return a mask [values, types]: True where a type may have that value of a label."""
        known = self._labelled.get((template.index, key))
        if known is None:
            masks = [
                template.table.with_label(Requirement.one_of(key, value), template.given)
                for value in self.values_of(template, key)
            ]
            shape = (len(masks), len(template.table.types))
            known = self._labelled[template.index, key] = np.array(masks, np.bool_).reshape(shape)
        return known

    def _entries_of(self, pod_class: PodClass, template: NodeClaimTemplate) -> list[_Entry]:
        """The attempts that hold to what a class requires and open a claim whatever its labels.

        A pin narrows what a claim may become, so it opens nothing that is closed without it.
        """
        identity = (self.profile(pod_class), template.index)
        known = self._entries.get(identity)
        if known is None:
            known = self._entries[identity] = list(self._asked(pod_class, template))
        return known

    def _asked(self, pod_class: PodClass, template: NodeClaimTemplate) -> Iterator[_Entry]:
        for attempt in self._attempts.relaxed(pod_class):
            group = self._possible.entry(template, attempt)
            if isinstance(group, RefusalKind):
                continue
            if group.minimums or len(template.variants.all) > 1:
                yield _Entry(attempt, None, _NO_TYPES, -1)
                continue
            kinds = template.table.row_type[group.rows[group.holding(attempt.requests)]]
            types = np.flatnonzero(np.bincount(kinds))
            yield _Entry(attempt, group, types, self._types.setdefault(types.tobytes(), len(self._types)))


def has_binding_constraints(pod_class: PodClass, counts: TopologyCounts) -> bool:
    """True if any topology constraint can keep pods of this class out of a domain; otherwise they are only counted."""
    demands = pod_class.constraints
    own = demands.spreads or demands.affinity or demands.anti
    return bool(own or not pod_class.selected.isdisjoint(counts.terms.anti) or counts.joined(pod_class))


def bound_keys(pod_class: PodClass, counts: TopologyCounts, among: frozenset[str]) -> frozenset[str]:
    """Return the labels `among` these, hostname aside, whose domains bind a class."""
    demands, selected = pod_class.constraints, pod_class.selected
    binding = selected & counts.terms.anti | counts.joined(pod_class) | {*demands.affinity, *demands.anti}
    spread_over = among.intersection(spread.key for spread in demands.spreads)
    return (counts.terms.keys_among(among, binding) | spread_over) - {HOSTNAME}


def domains_left_open(pod_class: PodClass, key: str, values: Iterable[str], counts: TopologyCounts) -> list[str]:
    """The values of a label, by name, whose counts let one more pod of a class in, were a node launched there."""
    demands, terms = pod_class.constraints, counts.terms
    ordered = sorted(values)
    if not ordered:
        return []
    codes = np.array([counts.code(key, value) for value in ordered], np.int64)
    free = np.ones(len(codes), np.bool_)
    for term in terms.over(key, demands.anti):
        free &= counts.totals(term, key)[codes] == 0
    for term in terms.over(key, pod_class.selected) & terms.anti:
        free &= counts.totals(term, key, keeping=True)[codes] == 0
    for term in terms.over(key, demands.affinity):
        if term not in pod_class.selected or counts.begun(*pod_class.series(term)):
            free &= counts.totals(term, key)[codes] > 0
    for term in terms.over(key, counts.joined(pod_class)):
        free &= counts.totals(term, key)[codes] > 0
    for spread in demands.spreads:
        if spread.key == key:
            per_domain, present = counts.spread(pod_class, spread)
            here = per_domain[codes]
            enough = present.sum() + ~present[codes] >= spread.min_domains
            lowest = np.where(enough, np.minimum(here, min(per_domain[present].tolist(), default=PLENTY)), 0)
            free &= here + (spread.term in pod_class.selected) - lowest <= spread.max_skew
    return [value for value, is_free in zip(ordered, free.tolist(), strict=True) if is_free]


def unsatisfied_constraints(pod_class: PodClass, counts: TopologyCounts) -> str:
    """The constraints of a class, the first ones with how their domains stand now."""
    demands, terms = pod_class.constraints, counts.terms
    parts = [_spread_words(pod_class, spread, counts) for spread in demands.spreads]
    closing = [(term, _affinity_words) for term in demands.affinity] + [
        (term, _anti_affinity_words) for term in demands.anti
    ]
    others = (pod_class.selected & terms.anti).difference(demands.anti)
    closing += [(term, _anti_affinity_of_others_words) for term in sorted(others)]
    closing += [(term, _held_together) for term in sorted(counts.joined(pod_class))]
    shown = max(BOUNDS.named_rules - len(parts), 1)
    parts += [words(pod_class, term, counts) for term, words in closing[:shown]]
    if len(closing) > shown:
        parts.append(f"{len(closing) - shown} more constraints")
    return f"unsatisfiable topology constraint: no domain is left by {'; '.join(parts)}"


def _anti_affinity_words(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    return f"pod anti-affinity over {key} (such pods are in {_domains_with_pods(counts, term, key) or 'no domain'})"


def _anti_affinity_of_others_words(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    keepers = _domains_with_pods(counts, term, key, keeping=True)
    return f"anti-affinity of other pods over {key} (they are in {keepers or 'no domain'})"


def _held_together(_item: PodClass, term: int, counts: TopologyCounts) -> str:
    key = counts.terms.all[term].key
    where = _domains_with_pods(counts, term, key)
    return f"affinity of other pods over {key} (they start together in {where}, and count this pod)"


def _affinity_words(pod_class: PodClass, term: int, counts: TopologyCounts) -> str:
    """Name the domains with the pods that a class has to join, and state that it may not start without these pods."""
    if claim := counts.terms.all[term].claim:
        where = _domains_with_pods(counts, term, counts.terms.all[term].key)
        return (
            f'volume of persistentvolumeclaim "{claim}", which all its pods share (they are in {where or "no domain"})'
        )
    where = _domains_with_pods(counts, term, counts.terms.all[term].key)
    begun = counts.begun(*pod_class.series(term))
    if not where and not begun:
        return f"pod affinity over {counts.terms.all[term].key} (there is no such pod)"
    words = f"such pods are in {where}" if where else "such pods are only on nodes without this label"
    if term in pod_class.selected and begun:
        words += "; kube-scheduler starts no second group elsewhere"
    return f"pod affinity over {counts.terms.all[term].key} ({words})"


def _spread_words(pod_class: PodClass, spread: Spread, counts: TopologyCounts) -> str:
    head = f"topology spread over {spread.key} (maxSkew {spread.max_skew}"
    if spread.key == HOSTNAME:
        return f"{head}, so at most {spread.max_skew} such pods per node)"
    per_domain, present = counts.spread(pod_class, spread)
    values = counts.values(spread.key)
    here = np.flatnonzero(present).tolist()
    if not here:
        return f"{head}; no node or pool has a domain of it)"
    enough = len(here) >= spread.min_domains
    lowest = min((int(per_domain[code]) for code in here), default=0) if enough else 0
    listed = _listed((values[code], int(per_domain[code])) for code in here)
    fewer = "" if enough else f", {len(here)} domains of at least {spread.min_domains} wanted"
    return f"{head}{fewer}; counted now: {listed}; a domain may hold {lowest + spread.max_skew})"


def _domains_with_pods(counts: TopologyCounts, term: int, key: str, *, keeping: bool = False) -> str:
    """Name the domains with the pods of a term: `a 2, b 1`; for the hostname only the number of nodes."""
    if key == HOSTNAME:
        nodes = _nodes_with_pods(counts, term, keeping=keeping)
        return f"{nodes} node{'' if nodes == 1 else 's'}" if nodes else ""
    totals = counts.totals(term, key, keeping=keeping)
    values = counts.values(key)
    return _listed((values[code], int(totals[code])) for code in np.flatnonzero(totals).tolist())


def _nodes_with_pods(counts: TopologyCounts, term: int, *, keeping: bool) -> int:
    on_nodes = counts.on_nodes_of(term, keeping=keeping)
    return int((on_nodes > 0).sum() + (counts.on_claims(term, keeping=keeping) > 0).sum())


def _listed(per_domain: Iterable[tuple[str, int]]) -> str:
    ordered = sorted(per_domain)
    shown = ", ".join(f"{value} {number}" for value, number in ordered[: BOUNDS.named_domains])
    return shown if len(ordered) <= BOUNDS.named_domains else f"{shown} and {len(ordered) - BOUNDS.named_domains} more"
