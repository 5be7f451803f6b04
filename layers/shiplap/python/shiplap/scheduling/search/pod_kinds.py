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
from typing import cast

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import PLENTY, ROUNDING, Bools, Floats, Ints, distinct_lines, rows_holding
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.column_generation import ReducedProblem
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.rule_classes import RuleBounds, clashing_items

_PLENTY = float(1 << 52)
"""Amounts are whole numbers held as floats; below this they are exact."""

_STRONG, _MOST_STRONG = 0.1, 4
"""A rule that needs at least this part of the nodes is strong: it decides what nodes look like.

Of several the strongest count: each is one more resource of every pattern."""

_AVERAGE_TIMES = 2.0
"""Where weak rules hold, nodes take up to so many times the average number of pods."""


_LEAST_PRICE = ROUNDING / 1000
"""USD per hour at which the search reckons with free rows: it looks for what is worth most for its price."""


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
    clashing = clashing_items(problem.clash)
    bound = problem.capped.any(axis=0) | clashing
    for mask in columns:
        bound = bound & (mask == 0)
    weak = bool((problem.owners.any(axis=0) & bound).any() or (clashing & bound).any())
    if weak:
        columns.append(np.ones(len(problem.counts)))
        caps.append(max(1.0, np.ceil(_AVERAGE_TIMES * float(problem.counts.sum()) / max(nodes, 1))))
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
    # An item without pods makes no kind: there might be no row for it. It is taken for the first one that has some.
    shown = np.where(counts > 0, np.arange(len(counts)), np.flatnonzero(counts)[0])
    sizes = sizes[shown]
    suits, suit_class = _suit_classes(problems, shown)
    caps = np.max([each.caps for each in ruled], axis=0, initial=0.0)
    net = np.concatenate(
        [problems[0].net.astype(np.float64), np.repeat(caps[None, :], len(problems[0].net), axis=0)], axis=1
    )
    # More of a resource than all pods together need has no value.
    total = (sizes * counts[:, None]).sum(axis=0)
    net = np.minimum(np.minimum(net, total[None, :]), _PLENTY)
    sizes, net = sizes[:, total > 0], net[:, total > 0]
    first, kind_of = _distinct(np.concatenate([sizes, suit_class[:, None].astype(np.float64)], axis=1))

    rows_at: dict[bytes, Ints] = {}

    def reduced(price: Floats, kinds: Ints, some: Floats) -> ReducedProblem:
        at = price.tobytes()
        if at not in rows_at:  # zones mostly have the same prices
            rows_at[at] = _undominated(net, sizes.min(axis=0, initial=0.0), price, suits)
        rows = rows_at[at]
        return ReducedProblem(
            sizes=sizes[first],
            demand=np.bincount(kinds, some, len(first)).astype(np.float64),
            net=net[rows],
            price=np.maximum(price[rows], _LEAST_PRICE),
            suits=suits[suit_class[first]][:, rows],
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


def _suit_classes(problems: Sequence[BinPackingProblem], items: Ints) -> tuple[Bools, Ints]:
    """Return the distinct masks of rows that items of all problems suit [classes, rows], and that of each [items]."""
    # Rows that cannot be bought are left out later; until then they must not tell items of two problems apart.
    found = [(lines | ~np.isfinite(each.price)[None, :], of) for each in problems for lines, of in [each.suit_lines]]
    starts = np.cumsum([0, *(len(lines) for lines, _ in found[:-1])])
    of = np.concatenate([start + of for start, (_, of) in zip(starts, found, strict=True)])[items]
    used, of = np.unique(of, return_inverse=True)
    lines = np.concatenate([lines for lines, _ in found])[used]
    first, class_of = distinct_lines(np.packbits(lines, axis=1))
    return lines[first], class_of[of.reshape(-1)]


def _distinct(lines: Floats) -> tuple[Ints, Ints]:
    """Return where each distinct line of a matrix is first, in lexical order, and each line's number among these."""
    order = np.lexsort(lines.T[::-1])
    ordered = lines[order]
    starts = np.r_[True, (ordered[1:] != ordered[:-1]).any(axis=1)]
    place = np.empty(len(lines), np.int64)
    place[order] = np.cumsum(starts) - 1
    return order[starts], place


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
    # Of equal rows only the first stays, which leaves few of a catalogue with many generations to compare.
    key = np.concatenate([net[order], suits[:, order].T.astype(np.float64)], axis=1) if not suits.all() else net[order]
    _, first = np.unique(np.ascontiguousarray(key).view(f"V{key.shape[1] * 8}").reshape(-1), return_index=True)
    order = order[np.sort(first)]
    restricted = not suits[:, order].all()
    known = net[order]
    replaced = np.tri(len(order), k=-1, dtype=np.bool_)
    for column in known.T:
        replaced &= column[None, :] >= column[:, None]
    if restricted:
        for line in suits[:, order]:
            replaced &= line[None, :] | ~line[:, None]
    return order[~replaced.any(axis=1)]


def realise(problem: BinPackingProblem, reduced: ReducedProblem, patterns: Floats, effort: Effort) -> Filling | None:
    """The filling of these patterns [nodes, kinds]; None when a pod finds no place at all."""
    patterns = patterns[patterns.any(axis=1)]
    if not (problem.owners.any() or problem.capped.any() or problem.clash.any()):
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
    rows = cheapest_rows(problem, len(patterns), node, item, number, reduced.rows)
    return Filling(rows, node, item, number.astype(np.int64))


class _Seating:
    """Patterns reserve seats: `_open` [kinds] is, as bits, the nodes with a free seat of a kind.

    Sets of nodes are whole numbers with a bit for each node, so that all nodes are asked at once, however few pods an
    item has. A rule that once bound a node is taken to bind it for good, even if its owner moves on.
    """

    def __init__(self, problem: BinPackingProblem, reduced: ReducedProblem, patterns: Floats, effort: Effort) -> None:
        self._problem, self._reduced, self._effort = problem, reduced, effort
        self._rules = problem.rules
        self._class_of: list[int] = self._rules.class_of.tolist()
        self._kind_of: list[int] = reduced.kind_of.tolist()
        self._bounds = problem.rules.bounds
        self._caps: list[int] = problem.caps.tolist()
        self._nodes = len(patterns)
        self._patterns = patterns
        self._bit = [1 << node for node in range(len(patterns))]
        self._seats: list[dict[int, int]] = [{} for _ in range(patterns.shape[1])]
        kind, node = patterns.T.nonzero()
        number = patterns[node, kind].astype(np.int64)
        for own, place, seats in zip(kind.tolist(), node.tolist(), number.tolist(), strict=True):
            self._seats[own][place] = seats
        self._open: list[int] = [sum(map(self._bit.__getitem__, seats)) for seats in self._seats]
        # For each rule: pods counted by node, the nodes that it binds, that are at its cap, and beyond.
        self._counted: list[dict[int, int]] = [{} for _ in self._caps]
        self._owned = [0] * len(self._caps)
        self._full = [0 if cap > 0 else -1 for cap in self._caps]
        self._over = [0] * len(self._caps)
        self._barred = [0] * len(self._rules.clash)
        self._placed: dict[int, dict[int, int]] = {}
        self._of_kind: dict[int, list[int]] = {}
        self._use: Ints | None = None
        self._row: Ints = np.zeros(0, np.int64)

    def seat_all(self) -> bool:
        """Give every pod a place; False when one finds none."""
        counts: list[int] = self._problem.counts.tolist()
        late = [(item, left) for item in self._order() if (left := self._seat(item, counts[item]))]
        late = [(item, left) for item, number in late if (left := self._swap_in(item, number))]
        return all(self._place_cheapest(item) for item, number in late for _ in range(number))

    def _order(self) -> list[int]:
        rules, sizes = self._rules, self._problem.sizes
        of = rules.class_of
        owns = rules.owners.sum(axis=1)[of]
        counted = rules.capped.sum(axis=1)[of] + rules.clash.sum(axis=1)[of]
        scale = np.maximum(self._problem.net.max(axis=0), 1)
        size = np.round((sizes / scale).max(axis=1), 12)
        order: list[int] = np.lexsort((np.arange(len(of)), -size, -counted, -owns)).tolist()
        return [item for item in order if self._problem.counts[item]]

    def _allowed(self, item: int, nodes: int) -> int:
        """Return the nodes among `nodes`, one bit each, on which the rules allow one more pod of an item."""
        mine = self._class_of[item]
        bounds = self._bounds[mine]
        for rule in bounds.counting_owns:
            nodes &= ~self._full[rule]
        for rule in bounds.only_owns:
            # A pod that makes a rule bind must find it kept already, whether or not it counts itself.
            nodes &= ~self._over[rule]
        for rule in bounds.only_counting:
            nodes &= ~(self._owned[rule] & self._full[rule])
        return nodes & ~self._barred[mine]

    def _most(self, item: int, node: int) -> int:
        """Return how many more pods of an item the rules allow on a node that may take one."""
        bounds = self._bounds[self._class_of[item]]
        if bounds.alone:
            return 1
        binding = [rule for rule in bounds.only_counting if self._owned[rule] >> node & 1]
        return min(
            (self._caps[rule] - self._counted[rule].get(node, 0) for rule in (*bounds.counting_owns, *binding)),
            default=PLENTY,
        )

    def _seat(self, item: int, number: int) -> int:
        """Seat the first pods of an item where seats of its kind are open; returns how many are left."""
        kind = self._kind_of[item]
        self._effort.charge(2, 8.0 * number)
        allowed = self._allowed(item, self._open[kind])
        bounds = self._bounds[self._class_of[item]]
        bound = allowed
        for rule in bounds.owns:
            bound &= self._owned[rule]
        seats, bit_of = self._seats[kind], self._bit
        placed: dict[int, int] = {}
        taken = emptied = 0
        # New bounds are best put where there are the same bounds already.
        for nodes in (bound, allowed & ~bound):
            left = nodes
            while left and number:
                node = (left & -left).bit_length() - 1
                bit = bit_of[node]
                left ^= bit
                free = seats[node]
                some = min(number, free)
                if some > 1 and not bounds.free:
                    some = min(some, self._most(item, node))
                seats[node] = free - some
                if some == free:
                    emptied |= bit
                taken |= bit
                placed[node] = some
                number -= some
        self._open[kind] ^= emptied
        if placed:
            self._placed[item] = placed
            self._of_kind.setdefault(kind, []).append(item)
            if not bounds.free:
                self._count_seated(bounds, placed, taken)
        return number

    def _count_seated(self, bounds: RuleBounds, placed: dict[int, int], nodes: int) -> None:
        """Account for pods that were seated on some `nodes`, by node."""
        for rule in bounds.counting:
            counted, cap = self._counted[rule], self._caps[rule]
            full = over = 0
            for node, number in placed.items():
                now = counted[node] = counted.get(node, 0) + number
                if now >= cap:
                    full |= self._bit[node]
                    if now > cap:
                        over |= self._bit[node]
            self._full[rule] |= full
            self._over[rule] |= over
        for rule in bounds.owns:
            self._owned[rule] |= nodes
        for other in bounds.bars:
            self._barred[other] |= nodes

    def _take_seats(self, kind: int, node: int, number: int) -> None:
        left = self._seats[kind][node] - number
        self._seats[kind][node] = left
        if not left:
            self._open[kind] ^= 1 << node

    def _put(self, item: int, node: int, number: int) -> None:
        """Account for `number` pods more of an item on a node, or fewer."""
        bounds = self._bounds[self._class_of[item]]
        if not bounds.free:
            self._count(bounds, node, number)
        if self._use is not None:
            self._use[node] += self._problem.sizes[item] * number
        if item not in self._placed:
            self._placed[item] = {}
            self._of_kind.setdefault(self._kind_of[item], []).append(item)
        placed = self._placed[item]
        placed[node] = placed.get(node, 0) + number
        if not placed[node]:
            del placed[node]

    def _count(self, bounds: RuleBounds, node: int, number: int) -> None:
        bit = 1 << node
        for rule in bounds.counting:
            counted = self._counted[rule]
            now = counted[node] = counted.get(node, 0) + number
            cap = self._caps[rule]
            self._full[rule] = self._full[rule] | bit if now >= cap else self._full[rule] & ~bit
            self._over[rule] = self._over[rule] | bit if now > cap else self._over[rule] & ~bit
        if number > 0:
            for rule in bounds.owns:
                self._owned[rule] |= bit
            for other in bounds.bars:
                self._barred[other] |= bit

    def _swap_in(self, item: int, number: int) -> int:
        """Seat pods on seats of others of their kind, who move to seats that are open; returns how many are left."""
        kind = self._kind_of[item]
        for _ in range(number):
            vacant = self._open[kind]
            swap = self._find_swap(item, kind, vacant) if vacant else None
            if swap is None:
                return number
            other, node, to = swap
            self._put(other, node, -1)
            self._put(other, to, 1)
            self._put(item, node, 1)
            self._take_seats(kind, to, 1)
            number -= 1
        return number

    def _find_swap(self, item: int, kind: int, vacant: int) -> tuple[int, int, int] | None:
        taken = self._allowed(item, (1 << self._nodes) - 1)
        for other in self._of_kind.get(kind, ()):
            self._effort.charge(2, 0.0)
            if other == item:
                continue
            to = self._allowed(other, vacant)
            if not to:
                continue
            node = min((node for node in self._placed[other] if taken >> node & 1), default=-1)
            if node >= 0:
                return other, node, (to & -to).bit_length() - 1
        return None

    def _loads(self) -> Ints:
        """Compute once the loads [nodes, resources] and rows of the nodes; few problems have pods that need them."""
        if self._use is None:
            self._row = self._reduced.launched(self._patterns)
            self._use = np.zeros((self._nodes, self._problem.sizes.shape[1]), np.int64)
            node, item, number = self._entries()
            np.add.at(self._use, node, self._problem.sizes[item] * number[:, None])
        return self._use

    def _place_cheapest(self, item: int) -> bool:
        """Place a pod that the rules keep from the seats of its kind where it costs least, on a new node if needed."""
        size = self._problem.sizes[item]
        reduced, use = self._reduced, self._loads()
        self._effort.charge(40, 4.0 * self._nodes * reduced.net.size)
        allowed = self._allowed(item, (1 << self._nodes) - 1)
        places = np.array([node for node in range(self._nodes) if allowed >> node & 1], np.int64)
        row = self._cheapest_after(item, places, use[places])
        dearer = np.where(row >= 0, reduced.price[row] - reduced.price[self._row[places]], np.inf)
        # The problem leaves out resources that no pod requests; the problem's own match the size.
        alone = reduced.suits[self._kind_of[item]] & (self._problem.net[reduced.rows] >= size).all(axis=1)
        if not alone.any() and not np.isfinite(dearer).any():
            return False
        fresh = int(np.argmax(alone))
        new_price = reduced.price[fresh] if alone.any() else np.inf
        best = int(np.argmin(np.round(dearer, 9))) if len(places) else -1
        if best >= 0 and dearer[best] <= new_price:
            place = int(places[best])
            self._row[place] = max(int(row[best]), int(self._row[place]))
        else:
            place = self._new_node(fresh)
        self._put(item, place, 1)
        return True

    def _cheapest_after(self, item: int, places: Ints, use: Ints) -> Ints:
        """The cheapest row [places] for loads [places, resources] and one pod more, -1 for none."""
        after = use + self._problem.sizes[item]
        net = self._problem.net[self._reduced.rows]
        holds = (net[None, :, :] >= after[:, None, :]).all(axis=2)
        holds &= self._reduced.suits[self._kind_of[item]][None, :]
        # A row that is dearer than the present one must suit all kinds that the present one suits.
        later = np.arange(len(net))[None, :] >= self._row[places][:, None]
        if not self._reduced.suits.all():
            same = self._reduced.suits[:, self._row[places]][:, :, None] <= self._reduced.suits[:, None, :]
            later &= same.all(axis=0)
        holds &= later
        return np.where(holds.any(axis=1), holds.argmax(axis=1), -1)

    def _new_node(self, row: int) -> int:
        use = self._loads()
        self._use = np.concatenate([use, np.zeros((1, use.shape[1]), np.int64)])
        self._row = np.append(self._row, row)
        self._nodes += 1
        return self._nodes - 1

    def _entries(self) -> Ints:
        """Node, item and number of pods [3, entries]."""
        every = self._placed.values()
        node = [node for placed in every for node in placed]
        number = [some for placed in every for some in placed.values()]
        item = np.repeat(np.array(list(self._placed), np.int64), list(map(len, every)))
        return np.stack([np.array(node, np.int64), item, np.array(number, np.int64)])

    def filling(self) -> Filling:
        """The filling: without empty nodes, each node with the cheapest row for its pods."""
        place, item, number = self._entries()
        order = np.lexsort((item, place))
        place, item, number = place[order], item[order], number[order]
        taken, node = np.unique(place, return_inverse=True)
        node = node.reshape(-1)
        rows = cheapest_rows(self._problem, len(taken), node, item, number, self._reduced.rows)
        return Filling(rows, node, item, number)


def cheapest_rows(
    problem: BinPackingProblem, nodes: int, node: Ints, item: Ints, number: Ints, among: Ints | None = None
) -> Ints:
    """The cheapest row [nodes], the first of equal ones, that holds and suits the entries; -1 for none.

    `among` are the rows that can be the cheapest of those that hold a load, if that is known."""
    use = np.zeros((nodes, problem.sizes.shape[1]), np.int64)
    for column in range(use.shape[1]):
        np.add.at(use[:, column], node, problem.sizes[item, column] * number)
    if among is None:
        among = np.flatnonzero(np.isfinite(problem.price))
    order = among[np.argsort(problem.price[among], kind="stable")]
    net = problem.net[order]
    unlike = not problem.suit_lines[0][:, order].all()
    rows = np.full(nodes, -1, np.int64)
    step = max(1, (1 << 21) // max(net.size, 1))
    for start in range(0, nodes, step):
        holds = rows_holding(net, use[start : start + step])
        if unlike:
            inside = (node >= start) & (node < start + step)
            np.logical_and.at(holds, node[inside] - start, problem.suits[item[inside]][:, order])
        rows[start : start + step] = np.where(holds.any(axis=1), order[holds.argmax(axis=1)], -1)
    return rows
