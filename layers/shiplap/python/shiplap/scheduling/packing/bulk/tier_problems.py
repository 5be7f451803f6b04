"""The bin packing problem of one template and domain, and how to find the pods of its items again."""

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
"""Up to so many constraints per problem, the pairs that cannot share a node are computed beforehand."""


class ProblemPart(msgspec.Struct, frozen=True, eq=False):
    """Pods of one size class in one problem.

    `attempt` is pinned to the domain; `start` is the group of a node for them alone.

    `counts` [classes] pods of the classes at `indexes` [classes] in the waiting list.
    """

    size_class: SizeClass
    attempt: PlacementAttempt
    start: ClaimGroup
    indexes: Ints
    counts: Ints


class TierProblem(msgspec.Struct, frozen=True, eq=False):
    """A bin packing problem and where its items come from.

    `attempts` [items] and `groups` [items] say what each item asks of a node and which group a node for it alone is in.
    Item `i` consists of `counts` pods of the classes at `indexes` in the waiting list, from `starts[i]` to
    `starts[i + 1]`. `refusals` are by index. `domain_matters`: other problems depend on the domain of this one.
    """

    template: NodeClaimTemplate
    problem: BinPackingProblem
    attempts: list[PlacementAttempt]
    groups: list[ClaimGroup]
    starts: Ints
    indexes: Ints
    counts: Ints
    refusals: Mapping[int, tuple[Refusal, ...]]
    domain_matters: bool


class UnclaimedPods:
    """The pods of a problem that have no claim yet."""

    def __init__(self, tier_problem: TierProblem) -> None:
        self._cursor: list[int] = tier_problem.starts[:-1].tolist()
        self._left: list[int] = tier_problem.counts.tolist()
        self._indexes: list[int] = tier_problem.indexes.tolist()

    def index(self, item: int) -> int:
        """The index of the class that the next pod of an item belongs to."""
        return self._indexes[self._cursor[item]]

    def take(self, item: int, number: int) -> Iterator[tuple[int, int]]:
        """The indexes of the classes of the next pods of an item, with the number of pods."""
        while number:
            at = self._cursor[item]
            some = min(number, self._left[at])
            self._left[at] -= some
            if not self._left[at]:
                self._cursor[item] = at + 1
            number -= some
            yield self._indexes[at], some


class _ConstraintClasses:
    """Pods of a problem with the same rules and requirements, whatever their size class."""

    def __init__(self, parts: Sequence[ProblemPart]) -> None:
        self.rules: list[NodeRule] = sorted({rule for part in parts for rule in part.size_class.owns})
        self.attempts: list[PlacementAttempt] = []
        self.groups: list[ClaimGroup] = []
        self.of: list[int] = []
        by_rule = {rule: index for index, rule in enumerate(self.rules)}
        by_term: dict[int, list[int]] = {}
        for index, rule in enumerate(self.rules):
            by_term.setdefault(rule.term, []).append(index)
        ruled = frozenset(by_term)
        numbers: dict[tuple[int, tuple[NodeRule, ...], frozenset[int]], int] = {}
        for part in parts:
            counting = part.size_class.selected & ruled
            number = numbers.setdefault((part.attempt.constraint, part.size_class.owns, counting), len(numbers))
            self.of.append(number)
            if number == len(self.attempts):
                self.attempts.append(part.attempt)
                self.groups.append(part.start)
        self.owners: Bools = np.zeros((len(numbers), len(self.rules)), np.bool_)
        self.capped: Bools = np.zeros((len(numbers), len(self.rules)), np.bool_)
        for number, (_, owns, terms) in enumerate(numbers):
            self.owners[number, [by_rule[rule] for rule in owns]] = True
            self.capped[number, [index for term in terms for index in by_term[term]]] = True

    def clash(self, openings: Openings) -> Bools:
        """Which classes [classes, classes] can never share a node, because of host ports or of requirements."""
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
    """One problem; `sizes` [classes, resources] are those of the waiting list.

    Items stand largest first, as classes do; of one size those that rules spread over most nodes come first.
    """
    constraint_classes = _ConstraintClasses(parts)
    class_of = np.repeat(np.array(constraint_classes.of, np.int64), [len(part.indexes) for part in parts])
    indexes = np.concatenate([part.indexes for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    known: dict[bytes, int] = {}
    size_of = np.array([known.setdefault(line.tobytes(), len(known)) for line in sizes[indexes]], np.int64)
    first = np.full(len(known), len(sizes), np.int64)
    np.minimum.at(first, size_of, indexes)
    freedom = -(constraint_classes.owners & constraint_classes.capped).sum(axis=1)
    order = np.lexsort((indexes, class_of, freedom[class_of], first[size_of]))
    class_of, indexes, counts, size_of = class_of[order], indexes[order], counts[order], size_of[order]
    starts = np.flatnonzero(np.r_[True, (np.diff(class_of) != 0) | (np.diff(size_of) != 0)])
    class_of_item = class_of[starts]
    clash = constraint_classes.clash(openings)
    template = parts[0].start.template
    suits = np.zeros((len(constraint_classes.groups), len(template.net)), np.bool_)
    price = np.full(len(template.net), np.inf)
    for line, group in enumerate(constraint_classes.groups):
        suits[line, group.rows] = True
        price[group.rows] = np.minimum(price[group.rows], group.price)
    problem = BinPackingProblem(
        sizes=sizes[indexes[starts]],
        counts=np.add.reduceat(counts, starts),
        net=template.net,
        price=price,
        suits=suits[class_of_item],
        caps=np.array([rule.most for rule in constraint_classes.rules], np.int64),
        capped=constraint_classes.capped[class_of_item].T,
        owners=constraint_classes.owners[class_of_item].T,
        clash=clash[np.ix_(class_of_item, class_of_item)]
        if clash.any()
        else np.zeros((len(class_of_item), len(class_of_item)), np.bool_),
    )
    return TierProblem(
        template=template,
        problem=problem,
        attempts=[constraint_classes.attempts[number] for number in class_of_item.tolist()],
        groups=[constraint_classes.groups[number] for number in class_of_item.tolist()],
        starts=np.r_[starts, len(indexes)],
        indexes=indexes,
        counts=counts,
        refusals=refusals,
        domain_matters=any(part.size_class.key for part in parts),
    )
