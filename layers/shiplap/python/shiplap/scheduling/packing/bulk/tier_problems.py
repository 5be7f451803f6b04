"""Lots: parcels made of what was allotted to one template and domain, and how to find the pods of their items again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.pod_classes import ports_collide
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.packing.bulk.size_classes import NodeRule, SizeClass
from shiplap.scheduling.search.bin_packing import BinPackingProblem
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt, Refusal
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_MOST_MERGES = 64
"""Constraints per lot up to which it is worked out beforehand which of them can share a node."""


class ProblemPart(msgspec.Struct, frozen=True, eq=False):
    """Pods of one shape in one lot: `attempt` is pinned to the domain, `start` the group of a node for them alone.

    `counts` [classes] pods of the classes at `places` [classes] in the waiting list.
    """

    shape: SizeClass
    attempt: PlacementAttempt
    start: ClaimGroup
    places: Ints
    counts: Ints


class TierProblem(msgspec.Struct, frozen=True, eq=False):
    """A parcel and where its items come from.

    `attempts` [items] and `groups` [items] say what each item asks of a node and which group a node for it alone is in.
    Item `i` consists of `counts` pods of the classes at `places` in the waiting list, from `starts[i]` to
    `starts[i + 1]`. `refusals` are by place. `domain_matters`: which domain it is in matters to other lots.
    """

    template: NodeClaimTemplate
    parcel: BinPackingProblem
    attempts: list[PlacementAttempt]
    groups: list[ClaimGroup]
    starts: Ints
    places: Ints
    counts: Ints
    refusals: Mapping[int, tuple[Refusal, ...]]
    domain_matters: bool


class UnclaimedPods:
    """The pods of a lot that have no claim yet."""

    def __init__(self, lot: TierProblem) -> None:
        self._cursor: list[int] = lot.starts[:-1].tolist()
        self._left: list[int] = lot.counts.tolist()
        self._places: list[int] = lot.places.tolist()

    def place(self, item: int) -> int:
        """The class that the next pod of an item belongs to."""
        return self._places[self._cursor[item]]

    def take(self, item: int, number: int) -> Iterator[tuple[int, int]]:
        """The classes, with numbers, of the next pods of an item."""
        while number:
            at = self._cursor[item]
            some = min(number, self._left[at])
            self._left[at] -= some
            if not self._left[at]:
                self._cursor[item] = at + 1
            number -= some
            yield self._places[at], some


class _ConstraintClasses:
    """Pods of a lot that no rule and no requirement tells apart, whatever their shape."""

    def __init__(self, parts: Sequence[ProblemPart]) -> None:
        self.rules: list[NodeRule] = sorted({rule for part in parts for rule in part.shape.owns})
        self.attempts: list[PlacementAttempt] = []
        self.groups: list[ClaimGroup] = []
        self.of: list[int] = []
        by_rule = {rule: place for place, rule in enumerate(self.rules)}
        by_term: dict[int, list[int]] = {}
        for place, rule in enumerate(self.rules):
            by_term.setdefault(rule.term, []).append(place)
        ruled = frozenset(by_term)
        numbers: dict[tuple[int, tuple[NodeRule, ...], frozenset[int]], int] = {}
        for part in parts:
            counting = part.shape.selected & ruled
            number = numbers.setdefault((part.attempt.constraint, part.shape.owns, counting), len(numbers))
            self.of.append(number)
            if number == len(self.attempts):
                self.attempts.append(part.attempt)
                self.groups.append(part.start)
        self.owners: Bools = np.zeros((len(numbers), len(self.rules)), np.bool_)
        self.capped: Bools = np.zeros((len(numbers), len(self.rules)), np.bool_)
        for number, (_, owns, terms) in enumerate(numbers):
            self.owners[number, [by_rule[rule] for rule in owns]] = True
            self.capped[number, [place for term in terms for place in by_term[term]]] = True

    def clash(self, openings: Openings) -> Bools:
        """Which sorts [sorts, sorts] can never share a node: by their host ports, or because nothing is both."""
        clash = np.zeros((len(self.attempts), len(self.attempts)), np.bool_)
        with_ports = [number for number, attempt in enumerate(self.attempts) if attempt.pod_class.ports]
        for left in with_ports:
            for right in with_ports:
                clash[left, right] = ports_collide(
                    self.attempts[left].pod_class.ports, self.attempts[right].pod_class.ports
                )
        distinct: dict[int, list[int]] = {}
        for number, attempt in enumerate(self.attempts):
            distinct.setdefault(attempt.constraint, []).append(number)
        if len(distinct) > _MOST_MERGES:
            return clash
        for mine in distinct.values():
            for others in distinct.values():
                if mine is others:
                    continue
                merged = openings.merge(self.groups[mine[0]], self.attempts[others[0]])
                if merged is None or not len(merged.rows):
                    clash[np.ix_(mine, others)] = clash[np.ix_(others, mine)] = True
        return clash


def tier_problem_of(
    parts: Sequence[ProblemPart], sizes: Ints, openings: Openings, refusals: Mapping[int, tuple[Refusal, ...]]
) -> TierProblem:
    """One lot; `sizes` [classes, resources] are those of the waiting list.

    Items stand largest first, as classes do; of one size those that rules spread over most nodes come first.
    """
    sorts = _ConstraintClasses(parts)
    sort_of = np.repeat(np.array(sorts.of, np.int64), [len(part.places) for part in parts])
    places = np.concatenate([part.places for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    known: dict[bytes, int] = {}
    size_of = np.array([known.setdefault(line.tobytes(), len(known)) for line in sizes[places]], np.int64)
    first = np.full(len(known), len(sizes), np.int64)
    np.minimum.at(first, size_of, places)
    freedom = -(sorts.owners & sorts.capped).sum(axis=1)
    order = np.lexsort((places, sort_of, freedom[sort_of], first[size_of]))
    sort_of, places, counts, size_of = sort_of[order], places[order], counts[order], size_of[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(sort_of) != 0) | (np.diff(size_of) != 0)])
    item_sort = sort_of[starts]
    clash = sorts.clash(openings)
    template = parts[0].start.template
    suits = np.zeros((len(sorts.groups), len(template.net)), np.bool_)
    price = np.full(len(template.net), np.inf)
    for line, group in enumerate(sorts.groups):
        suits[line, group.rows] = True
        price[group.rows] = np.minimum(price[group.rows], group.price)
    parcel = BinPackingProblem(
        sizes=sizes[places[starts]],
        counts=np.add.reduceat(counts, starts),
        net=template.net,
        price=price,
        suits=suits[item_sort],
        caps=np.array([rule.most for rule in sorts.rules], np.int64),
        capped=sorts.capped[item_sort].T,
        owners=sorts.owners[item_sort].T,
        clash=clash[np.ix_(item_sort, item_sort)]
        if clash.any()
        else np.zeros((len(item_sort), len(item_sort)), np.bool_),
    )
    return TierProblem(
        template=template,
        parcel=parcel,
        attempts=[sorts.attempts[number] for number in item_sort.tolist()],
        groups=[sorts.groups[number] for number in item_sort.tolist()],
        starts=np.r_[starts, len(places)],
        places=places,
        counts=counts,
        refusals=refusals,
        domain_matters=any(part.shape.key for part in parts),
    )
