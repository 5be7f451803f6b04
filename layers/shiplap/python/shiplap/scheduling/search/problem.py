"""A problem reduced for the search: kinds of pods that need the same of a node, and the rows that are worth buying.

Classes that differ only in rules that hardly ever bind (labels that some other pod avoids) are one kind.
`realise` decides afterwards which pod of a kind is on which node. Rules that decide how many nodes there must be are
treated like a resource of which every node has `cap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.search.bin_packing import BinPackingProblem

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


class ProblemWithRules(msgspec.Struct, frozen=True, eq=False):
    """A problem with rules as additional resources: `sizes` [items, resources]; a node has `caps` of the last ones."""

    problem: BinPackingProblem
    sizes: Floats
    caps: tuple[float, ...]
    soft: int

    @property
    def family(self) -> tuple[bytes, int, tuple[float, ...]]:
        """Equal for problems that share patterns: where a node holds the same, whatever it costs."""
        return self.problem.net.tobytes(), self.soft, self.caps[: len(self.caps) - self.soft]


def with_rules(problem: BinPackingProblem, nodes: int) -> ProblemWithRules:
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
    return ProblemWithRules(problem, sizes, tuple(caps), int(weak))


def reduce_problems(ruled: Sequence[ProblemWithRules]) -> tuple[ReducedProblem, list[ReducedProblem]]:
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
    found = [
        (mask.astype(np.float64), float(cap))
        for mask, cap in zip(problem.capped & problem.owners, problem.caps.tolist(), strict=True)
    ]
    found += [(mask.astype(np.float64), 1.0) for mask in cliques(problem.clash)]
    needs = [float((mask * problem.counts).sum()) / max(cap, 1.0) for mask, cap in found]
    order = sorted(range(len(found)), key=lambda place: (-needs[place], place))
    return [found[place] for place in order if needs[place] >= _STRONG * max(nodes, 1)][:_MOST_STRONG]


def cliques(clash: Bools) -> list[Bools]:
    """Sets of items [items] of which a node takes one in all: they clash with themselves and in the same way."""
    alone = np.flatnonzero(np.diagonal(clash))
    found: list[Bools] = []
    seen: set[bytes] = set()
    for item in alone.tolist():
        alike = (clash == clash[item][None, :]).all(axis=1) & clash[item]
        if alike.tobytes() not in seen:
            seen.add(alike.tobytes())
            found.append(cast(Bools, alike))
    return found


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
