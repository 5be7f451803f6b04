"""A problem reduced to kinds of pods for the search, and the way back from kinds to the pods of a filling.

Classes that differ only in rules that hardly ever bind (labels that some other pod avoids) are one kind, and only rows
that are worth buying stay. Rules that decide how many nodes there must be are treated like a resource of which every
node has `cap`.

On the way back the rules that patterns do not contain are kept: owners of rules go first and share nodes with owners of
the same rules, so that few nodes are bound; then those that count for a rule; then all others. A pod that finds no
place of its kind within the rules goes to any node with room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.effort import Effort

_PLENTY = float(1 << 52)
"""Amounts are whole numbers held as floats; below this they are exact."""

_STRONG = 0.1
"""A rule that needs at least this part of the nodes is strong: it decides what nodes look like."""

_MOST_STRONG = 4

_AVERAGE_TIMES = 2.0
"""Where weak rules hold, nodes take up to so many times the average number of pods."""

_LEAST_PODS = 10.0


class ReducedProblem(msgspec.Struct, frozen=True, eq=False):
    """`sizes` [kinds, resources] and `net` [rows, resources] are whole numbers; rules come last as resources.

    `demand` [kinds] pods; `rows` [rows] are places in the problem, cheapest first, `price` [rows] in USD per hour;
    `suits` [kinds, rows]. `kind_of` [items]. The last `soft` resources are not exact: they limit patterns to
    those that probably keep the rules that patterns do not contain. The `rules` resources before them are rules,
    the one that needs most nodes first.
    """

    sizes: Floats
    demand: Floats
    net: Floats
    price: Floats
    suits: Bools
    rows: Ints
    kind_of: Ints
    soft: int = 0
    rules: int = 0

    def leading(self) -> Bools:
        """Kinds [kinds] under the rule that needs most nodes; none without such rules."""
        if not self.rules:
            return np.zeros(len(self.sizes), np.bool_)
        found: Bools = self.sizes[:, -self.soft - self.rules] > 0
        return found

    def hard(self) -> ReducedProblem:
        """The problem without its soft resources."""
        width = self.sizes.shape[1] - self.soft
        return msgspec.structs.replace(self, sizes=self.sizes[:, :width], net=self.net[:, :width], soft=0)

    def cheapest(self, patterns: Floats) -> Ints:
        """The first, so cheapest, row that holds each pattern [n, kinds]; -1 for none."""
        found = np.full(len(patterns), -1, np.int64)
        use = pattern_loads(patterns, self.sizes)
        restricted = not self.suits.all()
        step = max(1, (1 << 21) // max(self.net.size, 1))
        for start in range(0, len(patterns), step):
            part = slice(start, start + step)
            holds = (self.net[None, :, :] >= use[part, None, :]).all(axis=2)
            if restricted:
                for kind in np.flatnonzero(~self.suits.all(axis=1)).tolist():
                    holds &= self.suits[kind][None, :] | (patterns[part, kind] == 0)[:, None]
            found[part] = np.where(holds.any(axis=1), holds.argmax(axis=1), -1)
        return found

    def cost(self, patterns: Floats) -> float:
        """USD per hour of nodes with these patterns."""
        return float(self.price[self.cheapest(patterns)].sum())


def pattern_loads(patterns: Floats, sizes: Floats) -> Floats:
    """What patterns [n, kinds] take of each resource, exactly: [n, resources]."""
    return np.stack([(patterns * sizes[None, :, r]).sum(axis=1) for r in range(sizes.shape[1])], axis=1)


class _ProblemWithRules(msgspec.Struct, frozen=True, eq=False):
    """A problem with rules as additional resources: `sizes` [items, resources]; a node has `caps` of the last ones."""

    problem: BinPackingProblem
    sizes: Floats
    caps: tuple[float, ...]
    soft: int

    @property
    def family(self) -> tuple[bytes, int, tuple[float, ...]]:
        """Equal for problems that share patterns: where a node holds the same, whatever it costs."""
        return self.problem.net.tobytes(), self.soft, self.caps[: len(self.caps) - self.soft]


def _with_rules(problem: BinPackingProblem, nodes: int) -> _ProblemWithRules:
    """A problem with its strong rules as resources, for fillings of about `nodes` nodes."""
    rules = strong_rules(problem, nodes)
    columns = [mask for mask, _ in rules]
    caps = [cap for _, cap in rules]
    bound = problem.capped.any(axis=0) | problem.clash.any(axis=0)
    for mask in columns:
        bound = bound & (mask == 0)
    weak = bool((problem.owners.any(axis=0) & bound).any() or (problem.clash.any(axis=0) & bound).any())
    if weak:
        columns.append(np.ones(len(problem.counts)))
        caps.append(max(_LEAST_PODS, np.ceil(_AVERAGE_TIMES * float(problem.counts.sum()) / max(nodes, 1))))
    sizes = np.concatenate([problem.sizes.astype(np.float64), *(column[:, None] for column in columns)], axis=1)
    return _ProblemWithRules(problem, sizes, tuple(caps), int(weak))


def reduce_problems(
    problems: Sequence[BinPackingProblem], nodes: Sequence[int]
) -> list[tuple[list[int], ReducedProblem, list[ReducedProblem]]]:
    """Problems with pods, by families that share patterns: their places, all of them as one, and each of them.

    `nodes` [problems] is about how many nodes each will have.
    """
    ruled = [_with_rules(problem, number) for problem, number in zip(problems, nodes, strict=True)]
    places: dict[object, list[int]] = {}
    for place, each in enumerate(ruled):
        if each.problem.counts.any():
            places.setdefault(each.family, []).append(place)
    return [(members, *_reduce_family([ruled[place] for place in members])) for members in places.values()]


def _reduce_family(ruled: Sequence[_ProblemWithRules]) -> tuple[ReducedProblem, list[ReducedProblem]]:
    """The reduced problem of all problems of one family together, and that of each, with the same kinds.

    In the joint problem a row has its lowest price of all problems, so it is for finding patterns only.
    """
    problems = [each.problem for each in ruled]
    sizes = np.concatenate([each.sizes for each in ruled])
    counts = np.concatenate([problem.counts for problem in problems]).astype(np.float64)
    # Rows that cannot be bought are left out below; until then they must not tell items of two problems apart.
    suits = np.concatenate([problem.suits | ~np.isfinite(problem.price)[None, :] for problem in problems])
    caps = np.max([each.caps for each in ruled], axis=0, initial=0.0)
    net = np.concatenate(
        [problems[0].net.astype(np.float64), np.repeat(caps[None, :], len(problems[0].net), axis=0)], axis=1
    )
    # More of a resource than all pods together need has no value.
    total = (sizes * counts[:, None]).sum(axis=0)
    net = np.minimum(np.minimum(net, total[None, :]), _PLENTY)
    sizes, net = sizes[:, total > 0], net[:, total > 0]
    suited, suit_class = _distinct(np.packbits(suits, axis=1))
    first, kind_of = _distinct(np.concatenate([sizes, suit_class[:, None].astype(np.float64)], axis=1))

    def reduced(price: Floats, kinds: Ints, some: Floats) -> ReducedProblem:
        rows = _undominated(net, sizes.min(axis=0, initial=0.0), price, suits[suited])
        return ReducedProblem(
            sizes=sizes[first],
            demand=np.bincount(kinds, some, len(first)).astype(np.float64),
            net=net[rows],
            price=price[rows],
            suits=suits[first][:, rows],
            rows=rows,
            kind_of=kinds,
            soft=ruled[0].soft,
            rules=len(ruled[0].caps) - ruled[0].soft,
        )

    ends = np.cumsum([len(problem.counts) for problem in problems])[:-1]
    parts = zip(problems, np.split(kind_of, ends), np.split(counts, ends), strict=True)
    cheapest: Floats = np.stack([problem.price for problem in problems]).min(axis=0)
    joint = reduced(cheapest, kind_of, counts)
    return joint, [reduced(problem.price, kinds, some) for problem, kinds, some in parts]


def restricted_to_kinds(reduced: ReducedProblem, kinds: Ints, demand: Floats) -> ReducedProblem:
    """The problem of some kinds only, with a demand of their own [kinds]."""
    return msgspec.structs.replace(
        reduced, sizes=reduced.sizes[kinds], demand=demand, suits=reduced.suits[kinds], kind_of=np.zeros(0, np.int64)
    )


def aggregate_problem(reduced: ReducedProblem, total: Floats, useful: Bools) -> ReducedProblem:
    """One kind of pod that stands for `total` [resources], to ask what mixture of the `useful` [rows] covers that."""
    return msgspec.structs.replace(
        reduced,
        sizes=total[None, :],
        demand=np.ones(1),
        net=reduced.net[useful],
        price=reduced.price[useful],
        rows=reduced.rows[useful],
        suits=np.ones((1, int(useful.sum())), np.bool_),
    )


def _distinct(lines: NDArray[Any]) -> tuple[Ints, Ints]:
    """Where each distinct line of a matrix is first, in lexical order, and which of them every line is."""
    _, first, place = np.unique(lines, axis=0, return_index=True, return_inverse=True)
    return first, place.reshape(-1)


def strong_rules(problem: BinPackingProblem, nodes: int) -> list[tuple[Floats, float]]:
    """The strong rules as resources: the request of one pod [items] and the capacity of a node."""
    # A node that holds an item which is owner and capped is bound, so of those it never holds more than the cap.
    strong = [
        (mask.astype(np.float64), float(cap))
        for mask, cap in zip(problem.capped & problem.owners, problem.caps.tolist(), strict=True)
    ]
    strong += [(mask.astype(np.float64), 1.0) for mask in cliques(problem.clash)]
    needs = [float((mask * problem.counts).sum()) / max(cap, 1.0) for mask, cap in strong]
    order = sorted(range(len(strong)), key=lambda place: (-needs[place], place))
    return [strong[place] for place in order if needs[place] >= _STRONG * max(nodes, 1)][:_MOST_STRONG]


def cliques(clash: Bools) -> list[Bools]:
    """Sets of items [items] of which a node takes one in all: they clash with themselves and in the same way."""
    alone = np.flatnonzero(np.diagonal(clash))
    members: list[Bools] = []
    seen: set[bytes] = set()
    for item in alone.tolist():
        alike = (clash == clash[item][None, :]).all(axis=1) & clash[item]
        if alike.tobytes() not in seen:
            seen.add(alike.tobytes())
            members.append(cast(Bools, alike))
    return members


def _undominated(net: Floats, least: Floats, price: Floats, suits: Bools) -> Ints:
    """Rows that hold the smallest request, cheapest first, without rows that a cheaper or equal row can replace."""
    order = np.lexsort((np.arange(len(price)), -net.sum(axis=1), price))
    order = order[(np.isfinite(price) & suits.any(axis=0) & (net >= least).all(axis=1))[order]]
    restricted = not suits[:, order].all()
    kept: list[int] = []
    for row in order.tolist():
        known = np.array(kept, np.int64)
        better = (net[known] >= net[row]).all(axis=1)
        if restricted:
            better &= (suits[:, known] | ~suits[:, row, None]).all(axis=0)
        if not better.any():
            kept.append(row)
    return np.array(kept, np.int64)


_MANY = 1 << 60


def realise(problem: BinPackingProblem, reduced: ReducedProblem, patterns: Floats, effort: Effort) -> Filling | None:
    """The filling of these patterns [nodes, kinds]; None when a pod finds no place at all."""
    patterns = patterns[patterns.any(axis=1)]
    if Rules(problem).free.all():
        return _in_order(problem, reduced, patterns)
    seating = _Seating(problem, reduced, patterns, effort)
    return seating.filling() if seating.seat_all() else None


def _in_order(problem: BinPackingProblem, reduced: ReducedProblem, patterns: Floats) -> Filling:
    """Without rules any pod may take any place of its kind: items and nodes in their order."""
    kind, place = np.nonzero(patterns.T)
    places = np.repeat(place, patterns[place, kind].astype(np.int64))
    order = np.argsort(reduced.kind_of, kind="stable")
    items = np.repeat(order, problem.counts[order])
    key, number = np.unique(places * len(problem.counts) + items, return_counts=True)
    node, item = key // len(problem.counts), key % len(problem.counts)
    rows = cheapest_rows(problem, len(patterns), node, item, number)
    return Filling(rows, node, item, number.astype(np.int64))


class Rules:
    """The rules of a problem by class of rules: classes of pods that are bound alike are one [classes]."""

    def __init__(self, problem: BinPackingProblem) -> None:
        items = len(problem.counts)
        # Most items clash with none: only those that clash have to be compared.
        clashing = np.flatnonzero(problem.clash.any(axis=0) | problem.clash.any(axis=1))
        key = np.concatenate([problem.owners.T, problem.capped.T, problem.clash[:, clashing]], axis=1)
        key = np.concatenate([key, np.zeros((items, 1), np.bool_)], axis=1)
        _, first, self.class_of = np.unique(np.packbits(key, axis=1), axis=0, return_index=True, return_inverse=True)
        self.class_of = self.class_of.reshape(-1)
        self.owners: Bools = problem.owners[:, first].T
        self.capped: Ints = problem.capped[:, first].T.astype(np.int64)
        self.clash: Bools = problem.clash[np.ix_(first, first)]
        self.caps = problem.caps
        self.free: Bools = ~(self.owners.any(axis=1) | self.capped.any(axis=1) | self.clash.any(axis=1))


class _Seating:
    """Patterns reserve seats: `open` [nodes, kinds]. The state of the rules is kept per node.

    A rule that once bound a node is taken to bind it for good, even if its owner moves on.
    """

    def __init__(self, problem: BinPackingProblem, reduced: ReducedProblem, patterns: Floats, effort: Effort) -> None:
        self.problem, self.reduced, self.effort = problem, reduced, effort
        self.rules = Rules(problem)
        self.open = patterns.astype(np.int64)
        nodes = len(patterns)
        self.owned: Bools = np.zeros((nodes, len(problem.caps)), np.bool_)
        self.count: Ints = np.zeros((nodes, len(problem.caps)), np.int64)
        self.barred: Bools = np.zeros((nodes, len(self.rules.clash)), np.bool_)
        self.use: Ints = np.zeros((nodes, problem.sizes.shape[1]), np.int64)
        self.row = reduced.cheapest(patterns)
        self.seats: dict[int, dict[int, int]] = {}
        self.of_kind: dict[int, list[int]] = {}

    def seat_all(self) -> bool:
        """Give every pod a place; False when one finds none."""
        late = [(item, left) for item in self._order() if (left := self._seat(item, int(self.problem.counts[item])))]
        late = [(item, left) for item, number in late if (left := self._swap_in(item, number))]
        return all(self._place_cheapest(item) for item, number in late for _ in range(number))

    def _order(self) -> list[int]:
        rules, sizes = self.rules, self.problem.sizes
        of = rules.class_of
        owns = rules.owners.sum(axis=1)[of]
        counted = rules.capped.sum(axis=1)[of] + rules.clash.sum(axis=1)[of]
        scale = np.maximum(self.problem.net.max(axis=0), 1)
        size = np.round((sizes / scale).max(axis=1), 12)
        order: list[int] = np.lexsort((np.arange(len(of)), -size, -counted, -owns)).tolist()
        return [item for item in order if self.problem.counts[item]]

    def room(self, item: int, places: Ints) -> Ints:
        """How many more pods of an item the rules let nodes take [places]."""
        rules = self.rules
        mine = int(rules.class_of[item])
        if rules.free[mine]:
            return np.full(len(places), _MANY)
        bound = self.owned[places] | rules.owners[mine]
        spare = np.where(bound, self.problem.caps - self.count[places], _MANY)
        counts = rules.capped[mine] > 0
        # A pod that makes a rule bind must find it kept already, whether or not it counts itself.
        kept = (counts | (spare >= 0)).all(axis=1) & ~self.barred[places, mine]
        most = np.where(kept, np.maximum(spare[:, counts].min(axis=1, initial=_MANY), 0), 0)
        return np.minimum(most, 1) if rules.clash[mine, mine] else most

    def _seat(self, item: int, number: int) -> int:
        """Seat pods where seats of their kind are open; returns how many are left."""
        kind = int(self.reduced.kind_of[item])
        mine = int(self.rules.class_of[item])
        places = np.flatnonzero(self.open[:, kind])
        self.effort.charge(24, len(self.open) + 8.0 * len(places) * max(len(self.problem.caps), 1))
        most = np.minimum(self.open[places, kind], self.room(item, places))
        # New bounds are best put where there are the same bounds already.
        new = (self.rules.owners[mine] & ~self.owned[places]).sum(axis=1)
        order = np.argsort(new, kind="stable")
        order = order[most[order] > 0]
        before = np.cumsum(most[order]) - most[order]
        taken = np.clip(number - before, 0, most[order])
        for place, some in zip(places[order].tolist(), taken.tolist(), strict=True):
            if not some:
                break
            self._put(item, place, some)
            self.open[place, kind] -= some
        return number - int(taken.sum())

    def _put(self, item: int, place: int, number: int) -> None:
        """Account for `number` pods more of an item on a node, or fewer."""
        mine = int(self.rules.class_of[item])
        self.use[place] += self.problem.sizes[item] * number
        if not self.rules.free[mine]:
            self.count[place] += self.rules.capped[mine] * number
            if number > 0:
                self.owned[place] |= self.rules.owners[mine]
                self.barred[place] |= self.rules.clash[mine]
        if item not in self.seats:
            self.seats[item] = {}
            self.of_kind.setdefault(int(self.reduced.kind_of[item]), []).append(item)
        seats = self.seats[item]
        seats[place] = seats.get(place, 0) + number
        if not seats[place]:
            del seats[place]

    def _swap_in(self, item: int, number: int) -> int:
        """Seat pods on seats of others of their kind, who move to seats that are open; returns how many are left."""
        kind = int(self.reduced.kind_of[item])
        for _ in range(number):
            vacant = np.flatnonzero(self.open[:, kind])
            swap = self._find_swap(item, kind, vacant) if len(vacant) else None
            if swap is None:
                return number
            other, place, to = swap
            self._put(other, place, -1)
            self._put(other, to, 1)
            self._put(item, place, 1)
            self.open[to, kind] -= 1
            number -= 1
        return number

    def _find_swap(self, item: int, kind: int, vacant: Ints) -> tuple[int, int, int] | None:
        for other in self.of_kind.get(kind, ()):
            self.effort.charge(30, 8.0 * len(vacant) * max(len(self.problem.caps), 1))
            if other == item:
                continue
            to = vacant[self.room(other, vacant) > 0]
            places = np.array(sorted(self.seats[other]), np.int64)
            if not len(to) or not len(places):
                continue
            places = places[self.room(item, places) > 0]
            if len(places):
                return other, int(places[0]), int(to[0])
        return None

    def _place_cheapest(self, item: int) -> bool:
        """Place a pod that the rules keep from the seats of its kind where it costs least, on a new node if needed."""
        size = self.problem.sizes[item]
        reduced = self.reduced
        self.effort.charge(40, 4.0 * len(self.open) * reduced.net.size)
        places = np.flatnonzero(self.room(item, np.arange(len(self.open))) > 0)
        row = self._cheapest_after(item, places)
        dearer = np.where(row >= 0, reduced.price[row] - reduced.price[self.row[places]], np.inf)
        # The problem leaves out resources that no pod requests; the problem's own match the size.
        alone = reduced.suits[int(reduced.kind_of[item])] & (self.problem.net[reduced.rows] >= size).all(axis=1)
        if not alone.any() and not np.isfinite(dearer).any():
            return False
        fresh = int(np.argmax(alone))
        new_price = reduced.price[fresh] if alone.any() else np.inf
        best = int(np.argmin(np.round(dearer, 9))) if len(places) else -1
        if best >= 0 and dearer[best] <= new_price:
            place = int(places[best])
            self.row[place] = max(int(row[best]), int(self.row[place]))
        else:
            place = self._new_node(fresh)
        self._put(item, place, 1)
        return True

    def _cheapest_after(self, item: int, places: Ints) -> Ints:
        """The cheapest row [places] for what is on nodes and one pod more, -1 for none."""
        after = self.use[places] + self.problem.sizes[item]
        net = self.problem.net[self.reduced.rows]
        holds = (net[None, :, :] >= after[:, None, :]).all(axis=2)
        holds &= self.reduced.suits[int(self.reduced.kind_of[item])][None, :]
        # A row that is dearer than the present one must suit all kinds that the present one suits.
        later = np.arange(len(net))[None, :] >= self.row[places][:, None]
        if not self.reduced.suits.all():
            same = self.reduced.suits[:, self.row[places]][:, :, None] <= self.reduced.suits[:, None, :]
            later &= same.all(axis=0)
        holds &= later
        return np.where(holds.any(axis=1), holds.argmax(axis=1), -1)

    def _new_node(self, row: int) -> int:
        self.open, self.owned, self.count, self.barred, self.use = (
            np.concatenate([array, np.zeros((1, array.shape[1]), array.dtype)])
            for array in (self.open, self.owned, self.count, self.barred, self.use)
        )
        self.row = np.append(self.row, row)
        return len(self.open) - 1

    def filling(self) -> Filling:
        """The filling: without empty nodes, each node with the cheapest row for its pods."""
        entries = sorted((place, item, number) for item, seats in self.seats.items() for place, number in seats.items())
        place, item, number = np.array(entries, np.int64).reshape(-1, 3).T.copy()
        taken, node = np.unique(place, return_inverse=True)
        node = node.reshape(-1)
        return Filling(cheapest_rows(self.problem, len(taken), node, item, number), node, item, number)


def cheapest_rows(problem: BinPackingProblem, nodes: int, node: Ints, item: Ints, number: Ints) -> Ints:
    """The cheapest row [nodes], the first of equal ones, that holds and suits the entries; -1 for none."""
    use = np.zeros((nodes, problem.sizes.shape[1]), np.int64)
    np.add.at(use, node, problem.sizes[item] * number[:, None])
    order = np.argsort(problem.price, kind="stable")
    order = order[np.isfinite(problem.price[order])]
    net = problem.net[order]
    unlike = not problem.suits[:, order].all()
    rows = np.full(nodes, -1, np.int64)
    step = max(1, (1 << 21) // max(net.size, 1))
    for start in range(0, nodes, step):
        holds = (net[None, :, :] >= use[start : start + step, None, :]).all(axis=2)
        if unlike:
            inside = (node >= start) & (node < start + step)
            np.logical_and.at(holds, node[inside] - start, problem.suits[item[inside]][:, order])
        rows[start : start + step] = np.where(holds.any(axis=1), order[holds.argmax(axis=1)], -1)
    return rows
