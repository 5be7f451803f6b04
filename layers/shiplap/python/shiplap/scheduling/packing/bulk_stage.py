"""The bulk stage: most pods of a large batch are placed in closed form, before `pack` places the rest one by one.

The tier and the domain of all pods that are alike but for their size are decided at once (`size_classes`). The pods of
each tier and domain are a bin packing problem, whose nodes become claims. Each claim is checked like one that the
packer opens; pods of claims that fail stay waiting. Pods that the stage does not understand are left to `pack`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Protocol

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass, ports_collide
from shiplap.scheduling.model.resources import Axis, Bools, Ints, distinct_lines, rows_holding
from shiplap.scheduling.packing.open_room import OpenRoom
from shiplap.scheduling.packing.size_classes import (
    DomainQuotas,
    NodeRule,
    SizeClass,
    Waiting,
    fits_front,
    size_classes_of,
    split_by_quotas,
)
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling, first_fit
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import fill_cached, improve_cached, pod_values
from shiplap.scheduling.search.rule_classes import clashing_items
from shiplap.scheduling.supply.open_claims import ClaimGroup, PlacementAttempt, Refusal, RefusalKind
from shiplap.scheduling.supply.openings import Openings, PossibleNodes
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.topology_counts import TopologyCounts

_MOST_GROWING = 256
"""Up to so many claims, each is asked what it adds to the price if it grows for a pod."""

_MOST_MERGES = 64
"""Up to so many constraints per problem, the pairs that cannot share a node are computed beforehand."""


class _UnclaimedPods:
    """The pods of a problem that have no claim yet.

    Item `i` consists of `counts` pods of the classes at `indexes` in the waiting list, from `starts[i]` to
    `starts[i + 1]`.
    """

    def __init__(self, starts: Ints, indexes: Ints, counts: Ints) -> None:
        self._indexes = indexes
        self._ends: Ints = np.cumsum(counts)
        self._starts: Ints = self._ends - counts
        self._next: Ints = self._starts[starts[:-1]]

    def index(self, item: int, after: int = 0) -> int:
        """The index of the class of an item's next pod, or of that `after` so many others."""
        return int(self._indexes[self._part_of(self._next[item] + after)])

    def take(self, items: Ints, numbers: Ints) -> tuple[Ints, Ints, Ints]:
        """Take the next `numbers` [n] of pods of `items` [n], in this order.

        Returns the pods by class: which of the `n` they are taken for [m], the index of their class [m] and their
        number [m].
        """
        start = self._next[items] + taken_before(items, numbers)
        np.add.at(self._next, items, numbers)
        end = start + numbers
        first, last = self._part_of(start), self._part_of(end - 1)
        parts = last - first + 1
        turn = np.repeat(np.arange(len(items)), parts)
        part = np.repeat(first - np.cumsum(parts) + parts, parts) + np.arange(len(turn))
        number = np.minimum(end[turn], self._ends[part]) - np.maximum(start[turn], self._starts[part])
        return turn, self._indexes[part], number

    def _part_of(self, pod: Ints) -> Ints:
        """Return the places in `indexes` of pods, which `pod` gives by their places among all pods."""
        return np.searchsorted(self._starts, pod, side="right") - 1


def taken_before(keys: Ints, numbers: Ints) -> Ints:
    """The sum of the numbers [n] before each that have the same key [n]."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    before = np.cumsum(numbers[order]) - numbers[order]
    result = np.empty_like(before)
    result[order] = before - before[np.searchsorted(ordered, ordered)]
    return result


class _TierProblem(msgspec.Struct, frozen=True, eq=False):
    """A bin packing problem and where its items come from.

    `attempts` [items] and `groups` [items] say what each item asks of a node and which group a node for it alone is in.
    `counted` [items] are those that some rule on nodes counts, also one of pods of another problem. `domain_matters`:
    other problems depend on the domain of this one.
    """

    template: NodeClaimTemplate
    problem: BinPackingProblem
    attempts: list[PlacementAttempt]
    groups: list[ClaimGroup]
    unclaimed: _UnclaimedPods
    counted: Bools
    domain_matters: bool


class _DomainPart(msgspec.Struct, frozen=True, eq=False):
    """The part of a size class in one problem: `counts` [classes] pods, pinned to the domain by their `attempt`.

    Nodes for these pods alone are in the group `start`.
    """

    size_class: SizeClass
    attempt: PlacementAttempt
    start: ClaimGroup
    counts: Ints


class _ConstraintClasses:
    """Pods of a problem with the same rules and requirements, whatever their size class."""

    def __init__(self, parts: Sequence[_DomainPart]) -> None:
        self.rules: list[NodeRule] = sorted({rule for part in parts for rule in part.size_class.owns})
        self.attempts: list[PlacementAttempt] = []
        self.groups: list[ClaimGroup] = []
        self.of: list[int] = []
        by_rule = {rule: index for index, rule in enumerate(self.rules)}
        by_term: dict[int, list[int]] = {}
        for index, rule in enumerate(self.rules):
            by_term.setdefault(rule.term, []).append(index)
        ruled = frozenset(by_term)
        numbers: dict[tuple[int, tuple[NodeRule, ...], frozenset[int], bool], int] = {}
        counting_of: dict[frozenset[int], frozenset[int]] = {}
        for part in parts:
            size_class = part.size_class
            counting = counting_of.get(size_class.selected)
            if counting is None:
                counting = counting_of[size_class.selected] = size_class.selected & ruled
            key = (part.attempt.constraint, size_class.owns, counting, size_class.counted_on_nodes)
            number = numbers.setdefault(key, len(numbers))
            self.of.append(number)
            if number == len(self.attempts):
                self.attempts.append(part.attempt)
                self.groups.append(part.start)
        width = len(self.rules)
        self.owners = _marks([[by_rule[rule] for rule in owns] for _, owns, _, _ in numbers], width)
        self.capped = _marks([[rule for term in terms for rule in by_term[term]] for _, _, terms, _ in numbers], width)
        self.counted: Bools = np.array([counted for *_, counted in numbers], np.bool_)

    def clash(self, openings: Openings) -> Bools:
        """Return a mask of classes [classes, classes] that can never share a node.

        The cause is host ports or requirements.
        """
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


def _marks(lines: Sequence[Sequence[int]], width: int) -> Bools:
    """A matrix [lines, width] that is true where a line has its columns."""
    marks = np.zeros(len(lines) * width, np.bool_)
    marks[[line * width + column for line, columns in enumerate(lines) for column in columns]] = True
    return marks.reshape(len(lines), width)


def _tier_problem(parts: Sequence[_DomainPart], sizes: Ints, openings: Openings) -> _TierProblem:
    """One problem; `sizes` [classes, resources] are those of the waiting list.

    Items stand largest first, as classes do; of one size those that rules spread over most nodes come first.
    """
    constraint_classes = _ConstraintClasses(parts)
    class_of = np.repeat(np.array(constraint_classes.of, np.int64), [len(part.counts) for part in parts])
    indexes = np.concatenate([part.size_class.indexes for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    some = counts > 0
    class_of, indexes, counts = class_of[some], indexes[some], counts[some]
    distinct, size_of = distinct_lines(sizes[indexes])
    first = np.full(len(distinct), len(sizes), np.int64)
    np.minimum.at(first, size_of, indexes)
    freedom = -(constraint_classes.owners & constraint_classes.capped).sum(axis=1)
    order = np.lexsort((indexes, class_of, freedom[class_of], first[size_of]))
    class_of, indexes, counts, size_of = class_of[order], indexes[order], counts[order], size_of[order]
    first_of = np.flatnonzero(np.r_[True, (np.diff(class_of) != 0) | (np.diff(size_of) != 0)])
    class_of_item = class_of[first_of]
    clash = constraint_classes.clash(openings)
    template = parts[0].size_class.templates[0]
    groups, line_of = _distinct_groups(constraint_classes.groups)
    suits = np.zeros((len(groups), len(template.net)), np.bool_)
    price = np.full(len(template.net), np.inf)
    for line, group in enumerate(groups):
        suits[line, group.rows] = True
        price[group.rows] = np.minimum(price[group.rows], group.price)
    problem = BinPackingProblem(
        sizes=sizes[indexes[first_of]],
        counts=np.add.reduceat(counts, first_of),
        net=template.net,
        price=price,
        suits=suits[line_of[class_of_item]],
        caps=np.array([rule.most for rule in constraint_classes.rules], np.int64),
        capped=constraint_classes.capped[class_of_item].T,
        owners=constraint_classes.owners[class_of_item].T,
        clash=clash[np.ix_(class_of_item, class_of_item)]
        if clash.any()
        else np.zeros((len(class_of_item), len(class_of_item)), np.bool_),
    )
    return _TierProblem(
        template=template,
        problem=problem,
        attempts=[constraint_classes.attempts[number] for number in class_of_item.tolist()],
        groups=[constraint_classes.groups[number] for number in class_of_item.tolist()],
        unclaimed=_UnclaimedPods(np.r_[first_of, len(indexes)], indexes, counts),
        counted=constraint_classes.counted[class_of_item],
        domain_matters=any(part.size_class.needs_domain for part in parts),
    )


def _distinct_groups(groups: Sequence[ClaimGroup]) -> tuple[list[ClaimGroup], Ints]:
    """The different groups among some, which are few, and which of them each is [groups]."""
    numbers: dict[int, int] = {}
    line_of = np.array([numbers.setdefault(group.index, len(numbers)) for group in groups], np.int64)
    by_index = {group.index: group for group in groups}
    return [by_index[index] for index in numbers], line_of


class _FilledNodes(msgspec.Struct, frozen=True, eq=False):
    """The nodes of a filling with their groups, loads and charges.

    The entries of node `n` are from `edges[n]` to `edges[n + 1]`. `groups` [nodes] are the groups of all its pods
    together, None where they exclude each other. `used` [nodes, resources] is the load. `held` [nodes] says whether
    some row holds it, `charges` [nodes, resources] is the largest capacity of those rows where there are limits.
    """

    tier_problem: _TierProblem
    filling: Filling
    groups: Sequence[ClaimGroup | None]
    edges: Ints
    used: Ints
    held: Bools
    charges: Ints


class ClaimBuilder:
    """Turns the problems of one stage into claims, one after the other. `refusals` are by index in the waiting list."""

    def __init__(
        self,
        openings: Openings,
        topology_counts: TopologyCounts,
        waiting: Waiting,
        refusals: Mapping[int, tuple[Refusal, ...]],
    ) -> None:
        self._openings = openings
        self._topology_counts = topology_counts
        self._waiting = waiting
        self._refusals = refusals
        self._placed: Ints = np.zeros(len(waiting), np.int64)
        self._on_claims: list[Ints] = []
        """Of pods that stand on claims: the indexes of their classes, the claims and the numbers [3, n]."""

    def placed_count(self, index: int) -> int:
        """Return how many pods of a class have a place. These are its first pods."""
        return int(self._placed[index])

    def record_placed(self, index: int, number: int) -> None:
        """Note that the next pods of a class got a place elsewhere."""
        self._placed[index] += number

    def fill_open_claims(self, tier_problem: _TierProblem) -> BinPackingProblem:
        """Put pods on claims of other problems; returns the problem that is left.

        They go into paid room, and, up to `_MOST_GROWING` claims, where the next larger row of a claim of the same
        level adds less than they are worth in their own problem. Pods that rules on nodes count stay.
        """
        template, problem, unclaimed = tier_problem.template, tier_problem.problem, tier_problem.unclaimed
        claims = [
            (place, claim.group.template)
            for place, claim in enumerate(self._openings.open.claims)
            if claim.group.template is not template or not tier_problem.domain_matters
        ]
        ruled = tier_problem.counted | problem.owners.any(axis=0) | clashing_items(problem.clash)
        items = np.flatnonzero(~ruled & (problem.counts > 0)).tolist()
        if not claims or not items:
            return problem
        grows = len(claims) <= _MOST_GROWING and any(other.level == template.level for _, other in claims)
        worth = pod_values(problem) if grows else np.zeros(len(problem.counts))
        room = OpenRoom(self._openings, template, [place for place, _ in claims])
        left = problem.counts.copy()
        for item in items:
            pod_class = self._waiting[unclaimed.index(item)][0]
            attempt = msgspec.structs.replace(
                tier_problem.attempts[item], pod_class=pod_class, requests=problem.sizes[item]
            )
            taken = room.take(attempt, int(left[item]), float(worth[item]))
            if not taken:
                continue
            places = np.array([some.place for some in taken], np.int64)
            numbers = np.array([some.number for some in taken], np.int64)
            left[item] -= numbers.sum()
            turns, _, parts = self._hand_out(unclaimed, np.full(len(taken), item), numbers, places)
            for turn, (pod_class, pods) in zip(turns.tolist(), parts, strict=True):
                own = msgspec.structs.replace(attempt, pod_class=pod_class)
                self._openings.fill(taken[turn].place, taken[turn].target, own, pods)
        return msgspec.structs.replace(problem, counts=left)

    def open_claims(
        self,
        tier_problems: Sequence[_TierProblem],
        problems: Sequence[BinPackingProblem],
        fillings: Sequence[Filling],
    ) -> None:
        """Open a claim for every node of these problems of one template that its pods can share and limits allow.

        `problems` are what is left of the tier problems. Where limits do not allow all nodes, they are filled by
        first-fit-decreasing instead: fewer and fuller nodes take less of a limit.

        If domains were decided, all of them are opened or none: the domains that still get a node decide where the pods
        of other problems may go.
        """
        filled = self._with_smaller_types(
            [self._filled_nodes(*pair) for pair in zip(tier_problems, fillings, strict=True)]
        )
        if not self._affordable(filled):
            filled = self._with_smaller_types(
                [
                    self._filled_nodes(tier_problem, first_fit(problem))
                    for tier_problem, problem in zip(tier_problems, problems, strict=True)
                ]
            )
        if any(tier_problem.domain_matters for tier_problem in tier_problems) and not self._affordable(filled):
            return
        for nodes in filled:
            self._open_within_limits(nodes)

    def _filled_nodes(self, tier_problem: _TierProblem, filling: Filling) -> _FilledNodes:
        edges = np.searchsorted(filling.node, np.arange(len(filling.rows) + 1))
        groups = self._groups(tier_problem, filling, edges)
        return _FilledNodes(tier_problem, filling, groups, edges, *_loads(tier_problem, filling, groups))

    def _affordable(self, filled: Sequence[_FilledNodes]) -> bool:
        """True if the limits of their pool allow all nodes of these problems of one template."""
        if not filled:
            return True
        limits = self._openings.pool_limits[filled[0].tier_problem.template.pool.metadata.name]
        if sum(int(nodes.held.sum()) for nodes in filled) > limits.nodes_left:
            return False
        return not len(self._exceeded(filled))

    def _exceeded(self, filled: Sequence[_FilledNodes]) -> Ints:
        """The limited resources, as columns, of which nodes of one template take more than is left."""
        limits = self._openings.pool_limits[filled[0].tier_problem.template.pool.metadata.name]
        return limits.exceeded_by(np.sum([nodes.charges[nodes.held].sum(axis=0) for nodes in filled], axis=0))

    def _with_smaller_types(self, filled: Sequence[_FilledNodes]) -> list[_FilledNodes]:
        """The same nodes; if they take too much of a limit, without types that have more of it than those launched."""
        columns = self._exceeded(filled) if filled else np.zeros(0, np.int64)
        return [self._without_larger(nodes, columns) for nodes in filled] if len(columns) else list(filled)

    def _without_larger(self, nodes: _FilledNodes, columns: Ints) -> _FilledNodes:
        """The same nodes without types that have more of these resources than the type that each would launch."""
        template = nodes.tier_problem.template
        groups = list(nodes.groups)
        for group, members in _by_group(nodes.groups):
            some = members[nodes.held[members]]
            launched = template.table.row_type[group.rows[group.cheapest(nodes.used[some])]]
            for index in np.unique(launched).tolist():
                small = (template.table.capacity[:, columns] <= template.table.capacity[index, columns]).all(axis=1)
                allowed = group.allowed & small[template.table.row_type]
                less = self._openings.open.groups.get(template, group.requirements, allowed, group.minimums)
                for node in some[launched == index].tolist():
                    groups[node] = less
        loads = _loads(nodes.tier_problem, nodes.filling, groups)
        return _FilledNodes(nodes.tier_problem, nodes.filling, groups, nodes.edges, *loads)

    def _open_within_limits(self, nodes: _FilledNodes) -> None:
        limits = self._openings.pool_limits[nodes.tier_problem.template.pool.metadata.name]
        held, charges = nodes.held, nodes.charges
        within = held & (np.cumsum(held) <= limits.nodes_left)
        if len(limits.columns):
            spent = np.cumsum(np.where(held[:, None], charges, 0), axis=0)[:, limits.columns]
            within &= (spent <= np.maximum(limits.left[limits.columns], 0)).all(axis=1)
        # Later nodes are smaller: they must not overtake a node that the limits refuse.
        kept = np.flatnonzero(within & (np.cumsum(held & ~within) == 0))
        if len(kept):
            limits.charge(charges[kept].sum(axis=0))
            limits.nodes_left -= len(kept) - 1
            self._open(nodes, kept)

    def finish(self) -> list[tuple[PodClass, list[Pod]]]:
        """Record the placements for topology counts; returns the pods that no claim holds."""
        if self._on_claims:
            self._record_on_claims(*np.concatenate(self._on_claims, axis=1))
        return [
            (item, pods[placed_count:])
            for (item, pods), placed_count in zip(self._waiting, self._placed.tolist(), strict=True)
            if placed_count < len(pods)
        ]

    def _record_on_claims(self, index: Ints, claim: Ints, number: Ints) -> None:
        """Record that pods of the classes at `index` [n] stand on claims [n]; topology tells few classes apart."""
        known: dict[tuple[int, int], int] = {}
        alike: Ints = np.full(len(self._waiting), -1, np.int64)
        first: list[PodClass] = []
        for place in dict.fromkeys(index.tolist()):
            pod_class = self._waiting[place][0]
            if pod_class.topological:
                seen = alike[place] = known.setdefault((id(pod_class.selected), id(pod_class.constraints)), len(known))
                if seen == len(first):
                    first.append(pod_class)
        some = alike[index] >= 0
        self._topology_counts.record_claims(first, alike[index][some], claim[some], number[some])

    def _groups(self, tier_problem: _TierProblem, filling: Filling, edges: Ints) -> list[ClaimGroup | None]:
        """The group of each node with all its pods; None when their requirements exclude each other."""
        constraints: dict[int, int] = {}
        numbers = np.array(
            [constraints.setdefault(attempt.constraint, len(constraints)) for attempt in tier_problem.attempts],
            np.int64,
        )
        if len(constraints) == 1:
            return [tier_problem.groups[0]] * (len(edges) - 1)
        entry = numbers[filling.item]
        known: dict[tuple[int, ...], ClaimGroup | None] = {}
        attempts = dict(zip(numbers.tolist(), tier_problem.attempts, strict=True))
        starts = dict(zip(numbers.tolist(), tier_problem.groups, strict=True))
        result = []
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            key = tuple(sorted(set(entry[start:stop].tolist())))
            if key not in known:
                group: ClaimGroup | None = starts[key[0]]
                for number in key[1:]:
                    group = self._openings.merge(group, attempts[number]) if group is not None else None
                known[key] = group
            result.append(known[key])
        return result

    def _open(self, nodes: _FilledNodes, kept: Ints) -> None:
        """Open claims for the nodes `kept`, whose rows hold them."""
        first = len(self._openings.open)
        groups = [group for node in kept.tolist() if (group := nodes.groups[node]) is not None]
        charges = nodes.charges[kept]
        if nodes.tier_problem.template.table.explores:
            for turn, node in enumerate(kept.tolist()):
                items = nodes.filling.item[nodes.edges[node] : nodes.edges[node + 1]].tolist()
                attempts = [nodes.tier_problem.attempts[item] for item in items]
                groups[turn], charges[turn] = self._widened(groups[turn], charges[turn], nodes.used[node], attempts)
                self._openings.take_estimates(groups[turn], first + turn)
        opened = self._openings.open.install(groups, charges, nodes.used[kept])
        claim_of = np.full(len(nodes.groups), -1, np.int64)
        claim_of[kept] = np.arange(len(kept))
        entries = np.flatnonzero(claim_of[nodes.filling.node] >= 0)
        claims = claim_of[nodes.filling.node[entries]]
        turns, index, parts = self._hand_out(
            nodes.tier_problem.unclaimed, nodes.filling.item[entries], nodes.filling.number[entries], first + claims
        )
        edges = np.searchsorted(claims[turns], np.arange(len(kept) + 1))
        refused = index[edges[:-1]].tolist() if self._refusals else ()
        with_ports = any(self._waiting[place][0].ports for place in set(index.tolist()))
        for number, (claim, start, stop) in enumerate(zip(opened, edges.tolist(), edges[1:].tolist(), strict=False)):
            claim.pods = parts[start:stop]
            if refused:
                claim.skipped = self._refusals.get(refused[number], ())
            if with_ports:
                claim.ports.update(*(pod_class.ports for pod_class, _ in claim.pods))

    def _widened(
        self, group: ClaimGroup, charge: Ints, used: Ints, attempts: Sequence[PlacementAttempt]
    ) -> tuple[ClaimGroup, Ints]:
        """The group with the estimates that no claim relies on yet, so that a launch verifies them, and its charge."""
        template = group.template
        hopeful = template.table.row_estimate
        for attempt in attempts:
            hopeful = hopeful & self._openings.allowed_rows(template, attempt)
        if not attempts or not hopeful.any():
            return group, charge
        wider = self._openings.open.groups.get(template, group.requirements, group.allowed | hopeful, group.minimums)
        limits = self._openings.pool_limits[template.pool.metadata.name]
        larger = template.table.capacity[template.table.row_type[wider.rows[wider.holding(used)]]].max(axis=0)
        extra = np.maximum(larger - charge, 0)
        if (extra > limits.left)[limits.columns].any():
            return group, charge
        limits.left[limits.columns] -= extra[limits.columns]
        return wider, np.maximum(larger, charge)

    def _hand_out(
        self, unclaimed: _UnclaimedPods, items: Ints, numbers: Ints, claims: Ints
    ) -> tuple[Ints, Ints, list[tuple[PodClass, Sequence[Pod]]]]:
        """The next `numbers` [n] of pods of `items` [n] for `claims` [n]: oldest first within each class.

        Returns which of the `n` they are for [m], the indexes of their classes [m], and these classes with the pods.
        """
        turn, index, number = unclaimed.take(items, numbers)
        start = self._placed[index] + taken_before(index, number)
        np.add.at(self._placed, index, number)
        self._on_claims.append(np.stack([index, claims[turn], number]))
        waiting = self._waiting
        parts = zip(index.tolist(), start.tolist(), (start + number).tolist(), strict=True)
        return turn, index, [(waiting[place][0], waiting[place][1][first:last]) for place, first, last in parts]


def _by_group(groups: Sequence[ClaimGroup | None]) -> list[tuple[ClaimGroup, Ints]]:
    """The different groups of nodes, each with the nodes in it."""
    by_group: dict[int, tuple[ClaimGroup, list[int]]] = {}
    for node, group in enumerate(groups):
        if group is not None:
            by_group.setdefault(group.index, (group, []))[1].append(node)
    return [(group, np.array(members, np.int64)) for group, members in by_group.values()]


def _loads(
    tier_problem: _TierProblem, filling: Filling, groups: Sequence[ClaimGroup | None]
) -> tuple[Ints, Bools, Ints]:
    """`used`, `held` and `charges` of these nodes."""
    sizes = tier_problem.problem.sizes
    used = np.zeros((len(groups), sizes.shape[1]), np.int64)
    np.add.at(used, filling.node, filling.number[:, None] * sizes[filling.item])
    held = np.zeros(len(groups), np.bool_)
    charges = np.zeros_like(used)
    for group, some in _by_group(groups):
        loads = used[some]
        first, load_of = distinct_lines(loads)
        holds = rows_holding(group.net, loads[first])
        held[some] = holds.any(axis=1)[load_of]
        for column in tier_problem.template.limits.columns.tolist():
            capacity = tier_problem.template.table.capacity[tier_problem.template.table.row_type[group.rows], column]
            largest = np.argsort(-capacity, kind="stable")
            charges[some, column] = capacity[largest][holds[:, largest].argmax(axis=1)][load_of]
    return used, held, charges


class ExistingCapacity(Protocol):
    """Nodes that exist and claims in flight."""

    def might_take(self, attempt: PlacementAttempt, least: Ints) -> bool:
        """True if some node with room for `least` [resources] suits."""

    def fill(self, attempt: PlacementAttempt, pods: list[Pod], inside: Bools | None) -> int:
        """Put the first of these pods there, `inside` [rooms] if given; returns how many."""


class BulkStage:
    """Places as many of the waiting pods as it can on new nodes. One instance serves one run."""

    def __init__(
        self,
        axis: Axis,
        openings: Openings,
        attempts: PlacementAttempts,
        topology_counts: TopologyCounts,
        possible: PossibleNodes,
        effort: Effort,
        existing: ExistingCapacity | None,
        *,
        free_last: bool = False,
        bound: frozenset[str] = frozenset(),
    ) -> None:
        """`effort` is what may be spent on cheaper nodes than the first filling has.

        Pods whose domain matters do not get nodes of pools in `bound`, which limits may refuse: where their siblings
        may go depends on it.

        With `free_last` pods that no constraint concerns get no domain: they go onto the claims of the others, whatever
        their domain, and what is left onto claims of their own.
        """
        self._free_last, self._bound = free_last, bound
        self.has_free = False
        """Whether pods that no constraint concerns were given a domain."""
        self._axis = axis
        self._openings = openings
        self._attempts = attempts
        self._topology_counts = topology_counts
        self._domains: dict[tuple[int, int, str], dict[str, ClaimGroup]] = {}
        self._possible = possible
        self._reached: dict[tuple[tuple[int, ...], str], list[tuple[str, ClaimGroup]]] = {}
        self._refusals: dict[int, tuple[Refusal, ...]] = {}
        self._effort = effort
        self._existing = existing
        self._unfilled = 0
        self._first_hourly = 0.0
        self._search_changed = False
        self.baseline_hourly = np.inf
        """Lower bound of the cost of the first fillings, USD per hour; infinite where the search found nothing."""
        self._waiting: Waiting = ()
        self._sizes: Ints = np.zeros((0, len(axis)), np.int64)
        self._counts: Ints = np.zeros(0, np.int64)
        self._totals: Ints = np.ones(len(axis), np.int64)
        self._pins: dict[tuple[int, str, str], PlacementAttempt | None] = {}
        self._alike: dict[int, int] = {}
        self._by_rows: dict[tuple[int, bytes, bytes], int] = {}
        self._fits: dict[bytes, Bools] = {}
        self._fits_of: dict[int, tuple[Ints, Bools, bool]] = {}

    def run(self, waiting: Waiting) -> list[tuple[PodClass, list[Pod]]]:
        """Place pods; returns the pods that are still waiting, in the same order."""
        self._waiting = waiting
        self._sizes = _sizes_of(waiting, self._axis)
        self._counts = np.array([len(pods) for _, pods in waiting], np.int64)
        builder = ClaimBuilder(self._openings, self._topology_counts, waiting, self._refusals)
        size_classes = size_classes_of(waiting, self._attempts, self._topology_counts.terms, self._openings.templates)
        if self._existing is not None:
            size_classes = self._fill_existing(self._existing, size_classes, builder)
        self._totals = np.maximum(self._counts @ self._sizes, 1)
        parts = [part for size_class in size_classes for part in self._by_tier(size_class)]
        self._weigh(parts)
        size_classes = self._with_quotas(parts)
        if self._existing is not None:
            self._fill_existing_by_domain(self._existing, size_classes, builder)
        # Fallback templates first, so that what their nodes leave over can be used by pods that may go anywhere.
        tier_problems = self._tier_problems(size_classes)
        self._unfilled = _number(tier_problems)
        by_template = [
            list(some)
            for _, some in groupby(reversed(tier_problems), lambda one: (one.template.index, one.domain_matters))
        ]
        for some in by_template:
            self._fill(some, builder)
        left = builder.finish()
        if self._search_changed:
            # Cheaper nodes may leave less free room to other templates and to the pods left over.
            self.baseline_hourly = self._first_hourly if len(by_template) == 1 and not left else 0.0
        return left

    def _fill_existing(
        self, existing: ExistingCapacity, size_classes: Sequence[SizeClass], builder: ClaimBuilder
    ) -> list[SizeClass]:
        """Fill existing nodes with pods that may use any domain; returns the size classes that continue."""
        going = []
        free: list[tuple[int, SizeClass]] = []
        for size_class in size_classes:
            if not size_class.binds(self._topology_counts.terms):
                free += [(index, size_class) for index in size_class.indexes.tolist()]
            elif (not size_class.spreads or size_class.affinity or size_class.anti) and existing.might_take(
                size_class.attempt, self._sizes[size_class.indexes].min(axis=0)
            ):
                continue  # where followers start, and which pods keep apart, depends on where there is room
            going.append(size_class)
        counted = frozenset[int]().union(
            *(size_class.selected for _, size_class in free if not size_class.attempt.pod_class.constraints.spreads)
        )
        for index, size_class in sorted(free, key=lambda pair: (_counts_any(pair[1], counted), pair[0])):
            pod_class, pods = self._waiting[index]
            own = msgspec.structs.replace(size_class.attempt, pod_class=pod_class, requests=self._sizes[index])
            self._record_placed(index, existing.fill(own, pods, None), builder)
        return going

    def _fill_existing_by_domain(
        self, existing: ExistingCapacity, size_classes: Sequence[SizeClass], builder: ClaimBuilder
    ) -> None:
        """Fill existing nodes with pods in the domain chosen for them."""
        rooms = self._topology_counts.base.existing
        for size_class in size_classes:
            if not size_class.binds(self._topology_counts.terms):
                continue
            codes = self._topology_counts.node_codes(size_class.key)[:rooms]
            (shares,) = split_by_quotas([list(size_class.quotas.values())], [size_class.counts])
            for share, value in zip(shares.T, list(size_class.quotas), strict=True):
                inside = codes == self._topology_counts.code(size_class.key, value)
                if not inside.any():
                    continue
                for at in np.flatnonzero(share).tolist():
                    index = int(size_class.indexes[at])
                    pod_class, pods = self._waiting[index]
                    own = msgspec.structs.replace(size_class.attempt, pod_class=pod_class, requests=self._sizes[index])
                    start = builder.placed_count(index)
                    number = existing.fill(own, pods[start : start + int(share[at])], inside)
                    self._record_placed(index, number, builder)
                    size_class.counts[at] -= number
                    size_class.quotas[value] -= number

    def _record_placed(self, index: int, number: int, builder: ClaimBuilder) -> None:
        """Note that some pods of a class have a place."""
        self._counts[index] -= number
        builder.record_placed(index, number)

    def _fill(self, tier_problems: Sequence[_TierProblem], builder: ClaimBuilder) -> None:
        """Fill the problems of one template and open claims for them."""
        number = _number(tier_problems)
        problems = [builder.fill_open_claims(tier_problem) for tier_problem in tier_problems]
        first = fill_cached(problems)
        fillings: Sequence[Filling] = first
        if not self._effort.spent:
            part = self._effort.share(number / max(self._unfilled, 1))
            fillings = improve_cached(problems, first, part)
            self._effort.give_back(part)
            self._search_changed |= any(filling is not cheap for filling, cheap in zip(fillings, first, strict=True))
            self._first_hourly += sum(filling.hourly(problem) for problem, filling in zip(problems, first, strict=True))
        self._unfilled -= number
        builder.open_claims(tier_problems, problems, fillings)

    def _by_tier(self, size_class: SizeClass) -> list[SizeClass]:
        """The classes of a size class by the first template that holds them, as far as that is certain."""
        indexes = size_class.indexes[self._counts[size_class.indexes] > 0]
        taken = [part for some in self._by_pool(size_class, indexes) for part in self._taken(size_class, some)]
        return [self._of_tier(size_class, template, some) for template, some in taken]

    def _by_pool(self, size_class: SizeClass, indexes: Ints) -> Iterable[Ints]:
        """The classes at `indexes`, those together for which the same NodePools of equal weight are the cheapest."""
        cheapest = self._openings.cheapest_pools(size_class.attempt, self._sizes[indexes])
        if not len(cheapest) or not len(indexes):
            return [indexes]
        kinds, kind = np.unique(cheapest, axis=1, return_inverse=True)
        return [indexes[kind == one] for one in range(len(kinds.T))]

    def _in_order(self, size_class: SizeClass, indexes: Ints) -> Sequence[NodeClaimTemplate]:
        """The templates in the order in which they are tried for these classes, by their pods of average size."""
        counts = self._counts[indexes]
        number = max(int(counts.sum()), 1)
        most = min((rule.most for rule in size_class.owns), default=number)
        average = msgspec.structs.replace(size_class.attempt, requests=counts @ self._sizes[indexes] // number)
        return self._openings.in_order(average, min(number, most))

    def _taken(self, size_class: SizeClass, indexes: Ints) -> list[tuple[NodeClaimTemplate, Ints]]:
        """The templates that take the classes at `indexes`, each with its own, as far as that is certain."""
        taken: list[tuple[NodeClaimTemplate, Ints]] = []
        for template in self._in_order(size_class, indexes):
            if not len(indexes):
                break
            group = self._openings.careful_start(template, size_class.attempt)
            if isinstance(group, RefusalKind):
                self._record_refusal(template, size_class.attempt, group, indexes)
                continue
            if group.minimums or template.counted:
                break  # the packer's order decides which pods fit such nodes
            if size_class.needs_domain and template.pool.metadata.name in self._bound:
                break
            if self._all_fit(group, indexes):
                taken.append((template, indexes))
                break
            fits = self._fitting(group)[indexes]
            if fits.any():
                taken.append((template, indexes[fits]))
            indexes = indexes[~fits]
            if template.table.explores and len(indexes):
                hopeful = self._openings.start(template, size_class.attempt)
                if not isinstance(hopeful, RefusalKind):  # pods that fit by an estimate only are left to the packer
                    indexes = indexes[~self._fitting(hopeful)[indexes]]
            self._record_refusal(template, size_class.attempt, RefusalKind.TYPES, indexes)
        return taken

    def _of_tier(self, size_class: SizeClass, template: NodeClaimTemplate, indexes: Ints) -> SizeClass:
        """Return the part of a size class that a template takes: the classes at `indexes`."""
        part = msgspec.structs.replace(
            size_class,
            templates=(template,),
            indexes=indexes,
            counts=self._counts[indexes],
        )
        if part.needs_domain:
            self._open_domains(part, part.key)
        return part

    def _open_domains(self, size_class: SizeClass, key: str) -> None:
        """Let a size class choose among the domains of a label."""
        size_class.key = key
        known = self._domains_of(size_class.templates[0], size_class.attempt, key)
        indexes = size_class.indexes
        size_class.domains = tuple(value for value, group in known.items() if self._all_fit(group, indexes))
        if size_class.spreads:
            groups = self._possible_domains(size_class.attempt, key)
            size_class.reachable = frozenset(
                value for value, group in groups if self._all_fit(group, indexes) or self._fitting(group)[indexes].any()
            )

    def _possible_domains(self, attempt: PlacementAttempt, key: str) -> Sequence[tuple[str, ClaimGroup]]:
        """The values of a label that any template allows for these pods, whatever limits leave, with their groups.

        A value counts if any node-affinity term of the pods allows it, as for kube-scheduler.
        """
        by_term = self._attempts.relaxed(attempt.pod_class)
        identity = (tuple(one.constraint for one in by_term), key)
        known = self._reached.get(identity)
        if known is None:
            known = self._reached[identity] = [
                (value, group)
                for one in by_term
                for template in self._possible.templates
                for value in template.values_of(key)
                if (pinned := self._pinned(one, key, value)) is not None
                if not isinstance(group := self._possible.group(template, pinned), RefusalKind)
            ]
        return known

    def _fitting(self, group: ClaimGroup) -> Bools:
        """Return a mask [classes]: True if pods fit a node of a group.

        Most groups of a template hold as much.
        """
        return self._fits_of_group(group)[1]

    def _all_fit(self, group: ClaimGroup, indexes: Ints) -> bool:
        """True if the pods of the classes at `indexes` all fit a node of a group; mostly the pods of any class do."""
        _, fits, every = self._fits_of_group(group)
        return every or bool(fits[indexes].all())

    def _fits_of_group(self, group: ClaimGroup) -> tuple[Ints, Bools, bool]:
        front = group.front
        known = self._fits_of.get(id(front))
        if known is None:
            content = front.tobytes()
            if content not in self._fits:
                self._fits[content] = fits_front(self._sizes, front)
            fits = self._fits[content]
            known = self._fits_of[id(front)] = (front, fits, bool(fits.all()))
        return known

    def _weigh(self, size_classes: Sequence[SizeClass]) -> None:
        """Count the pods of each size class, and what one of them requests on average."""
        if not size_classes:
            return
        lengths = np.array([len(size_class.indexes) for size_class in size_classes], np.int64)
        starts = np.cumsum(lengths) - lengths
        indexes = np.concatenate([size_class.indexes for size_class in size_classes])
        counts = self._counts[indexes]
        requests = np.add.reduceat(counts[:, None] * self._sizes[indexes], starts, axis=0)
        numbers = np.add.reduceat(counts, starts)
        weights = (requests / self._totals).sum(axis=1) / np.maximum(numbers, 1)
        averages = requests // np.maximum(numbers, 1)[:, None]
        for size_class, number, weight, average in zip(
            size_classes, numbers.tolist(), weights.tolist(), averages, strict=True
        ):
            size_class.number, size_class.weight, size_class.average = number, weight, average

    def _domains_of(self, template: NodeClaimTemplate, attempt: PlacementAttempt, key: str) -> dict[str, ClaimGroup]:
        """The values of a label that nodes of a template can have for these pods, with the groups they start in."""
        identity = (template.index, attempt.constraint, key)
        known = self._domains.get(identity)
        if known is None:
            known = self._domains[identity] = {}
            for value in template.values_of(key):
                pinned = self._pinned(attempt, key, value)
                group = (
                    self._openings.careful_start(template, pinned) if pinned is not None else RefusalKind.REQUIREMENTS
                )
                if not isinstance(group, RefusalKind) and not group.minimums:
                    known[value] = group
        return known

    def _record_refusal(
        self, template: NodeClaimTemplate, attempt: PlacementAttempt, kind: RefusalKind, indexes: Ints
    ) -> None:
        left = self._openings.pool_limits[template.pool.metadata.name].left.copy()
        for index in indexes.tolist():
            pod_class = self._waiting[index][0]
            own = msgspec.structs.replace(attempt, pod_class=pod_class, requests=self._sizes[index])
            self._refusals[index] = (*self._refusals.get(index, ()), Refusal(template, kind, own, left))

    def _with_quotas(self, size_classes: Sequence[SizeClass]) -> list[SizeClass]:
        """Return the size classes whose pods all got a domain, with their quotas.

        The domain is "" where none has to be decided.
        """
        keys: dict[int, set[str]] = {}
        for size_class in size_classes:
            keys.setdefault(size_class.templates[0].index, set()).update({size_class.key} - {""})
        for size_class in size_classes:
            known = keys[size_class.templates[0].index]
            if not size_class.key and len(known) == 1 and not (self._free_last and size_class.is_free):
                self.has_free |= size_class.is_free
                self._open_domains(size_class, next(iter(known)))
        self._price_domains(size_classes)
        settled: list[SizeClass] = []
        for key in sorted({size_class.key for size_class in size_classes}):
            some = [size_class for size_class in size_classes if size_class.key == key]
            if key:
                settled += DomainQuotas(key, some, self._topology_counts).run()
                continue
            for size_class in some:
                size_class.quotas = {"": size_class.number}
            settled += some
        return settled

    def _price_domains(self, size_classes: Sequence[SizeClass]) -> None:
        """Put the cheapest domains of size classes first."""
        offers = [self._offers(size_class) for size_class in size_classes]
        asking: dict[int, list[int]] = {}
        for place, known in enumerate(offers):
            for offer in dict.fromkeys(known.values()):
                asking.setdefault(offer, []).append(place)
        prices: dict[tuple[int, int], float] = {}
        for offer, places in asking.items():
            averages = np.array([size_classes[place].average for place in places], np.int64)
            found = self._openings.open.groups.all[offer].prices_of_parts(averages)
            prices |= {(place, offer): price for place, price in zip(places, found.tolist(), strict=True)}
        for place, size_class in enumerate(size_classes):
            if offers[place]:
                size_class.prices = {value: prices[place, offer] for value, offer in offers[place].items()}
                size_class.domains = tuple(sorted(size_class.domains, key=size_class.prices.__getitem__))

    def _offers(self, size_class: SizeClass) -> dict[str, int]:
        """Per domain, the first group with the same rows at the same prices; nothing where there is only one."""
        if len(size_class.domains) < 2:
            return {}
        groups = self._domains_of(size_class.templates[0], size_class.attempt, size_class.key)
        offers = {value: self._first_alike(groups[value]) for value in size_class.domains}
        return offers if len(set(offers.values())) > 1 else {}

    def _first_alike(self, group: ClaimGroup) -> int:
        known = self._alike.get(group.index)
        if known is None:
            rows = (group.template.index, group.rows.tobytes(), group.price.tobytes())
            known = self._alike[group.index] = self._by_rows.setdefault(rows, group.index)
        return known

    def _tier_problems(self, size_classes: Sequence[SizeClass]) -> list[_TierProblem]:
        """The problems of these size classes, by template and domain."""
        asked: list[tuple[SizeClass, PlacementAttempt, str, Ints]] = []
        shares = split_by_quotas(
            [list(size_class.quotas.values()) for size_class in size_classes],
            [size_class.counts for size_class in size_classes],
        )
        for size_class, share in zip(size_classes, shares, strict=True):
            for counts, (value, number) in zip(share.T, size_class.quotas.items(), strict=True):
                attempt = self._pinned(size_class.attempt, size_class.key, value) if number else None
                if attempt is not None:
                    asked.append((size_class, attempt, value, counts))
        grouped: dict[tuple[int, str, str], list[_DomainPart]] = {}
        for size_class, attempt, value, counts in asked:
            template = size_class.templates[0]
            start = self._openings.careful_start(template, attempt)
            if not isinstance(start, RefusalKind):
                identity = (template.index, size_class.key, value)
                grouped.setdefault(identity, []).append(_DomainPart(size_class, attempt, start, counts))
        return [
            _tier_problem(parts, self._sizes, self._openings)
            for _, parts in sorted(grouped.items(), key=lambda pair: pair[0])
        ]

    def _pinned(self, attempt: PlacementAttempt, key: str, value: str) -> PlacementAttempt | None:
        if not key:
            return attempt
        identity = (attempt.constraint, key, value)
        if identity not in self._pins:
            self._pins[identity] = self._attempts.pinned(attempt, (Requirement.one_of(key, value),))
        known = self._pins[identity]
        if known is None:
            return None
        return msgspec.structs.replace(attempt, term=known.term, constraint=known.constraint)


def _counts_any(size_class: SizeClass, counted: frozenset[int]) -> bool:
    """True if a spread of these pods counts pods that no spread binds, which go first, as in `followers_last`."""
    return any(spread.term in counted for spread in size_class.attempt.pod_class.constraints.spreads)


def _sizes_of(waiting: Waiting, axis: Axis) -> Ints:
    """The requests of each class [classes, resources]; classes of one specification have the same object for them."""
    distinct = {id(pod_class.requests): pod_class.requests for pod_class, _ in waiting}
    place = {identity: number for number, identity in enumerate(distinct)}
    return axis.matrix(list(distinct.values()))[[place[id(pod_class.requests)] for pod_class, _ in waiting]]


def _number(tier_problems: Iterable[_TierProblem]) -> int:
    """Return the number of pods in these problems."""
    return sum(int(tier_problem.problem.counts.sum()) for tier_problem in tier_problems)
