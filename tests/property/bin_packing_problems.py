"""Random small problems with a valid filling of each, for tests of what fills problems."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.pod_kinds import cheapest_rows


@st.composite
def problems(draw: st.DrawFn, *, most_items: int = 8, most_pods: int = 12, rules: bool = True) -> BinPackingProblem:
    """A problem in which every pod fits some row by itself and may stand there alone."""
    items = draw(st.integers(1, most_items))
    sizes = [
        (draw(st.sampled_from((100, 250, 500, 1000, 1500))), draw(st.integers(1, 40)) * 100, 1) for _ in range(items)
    ]
    rows = draw(st.integers(1, 7))
    net = [
        (draw(st.integers(2, 16)) * 950, draw(st.integers(41, 160)) * 100, draw(st.integers(2, 20)))
        for _ in range(rows)
    ]
    net.append((16_000, 16_000, 20))
    price = [draw(st.integers(10, 400)) / 1000 for _ in net]
    if draw(st.booleans()):  # a resource that nobody asks for
        sizes, net = [(*size, 0) for size in sizes], [(*amounts, 4) for amounts in net]
    suits = np.array([[draw(st.booleans()) for _ in range(rows)] + [True] for _ in range(items)], np.bool_)
    number = draw(st.integers(0, 3)) if rules else 0
    masks = st.lists(st.booleans(), min_size=items, max_size=items)
    capped = np.array([draw(masks) for _ in range(number)], np.bool_).reshape(number, items)
    owners = np.array([draw(masks) for _ in range(number)], np.bool_).reshape(number, items)
    clash = np.zeros((items, items), np.bool_)
    for _ in range(draw(st.integers(0, 3)) if rules else 0):
        one, two = draw(st.integers(0, items - 1)), draw(st.integers(0, items - 1))
        clash[one, two] = clash[two, one] = True
    return BinPackingProblem(
        sizes=np.array(sizes, np.int64),
        counts=np.array([draw(st.integers(1, most_pods)) for _ in range(items)], np.int64),
        net=np.array(net, np.int64),
        price=np.array(price),
        suits=suits,
        caps=np.array([draw(st.integers(1, 3)) for _ in range(number)], np.int64),
        capped=capped,
        owners=owners,
        clash=clash,
    )


def without_rules(sizes: Any, counts: Any, net: Any, price: Any) -> BinPackingProblem:
    """Items of these sizes that suit every row and have no caps, owners or clashes."""
    items, rows = len(counts), len(price)
    return BinPackingProblem(
        sizes=np.array(sizes),
        counts=np.array(counts),
        net=np.array(net),
        price=np.array(price),
        suits=np.ones((items, rows), np.bool_),
        caps=np.zeros(0, np.int64),
        capped=np.zeros((0, items), np.bool_),
        owners=np.zeros((0, items), np.bool_),
        clash=np.zeros((items, items), np.bool_),
    )


def one_each(problem: BinPackingProblem) -> Filling:
    """A node for every pod."""
    item = np.repeat(np.arange(len(problem.counts)), problem.counts)
    node, number = np.arange(len(item)), np.ones(len(item), np.int64)
    return Filling(cheapest_rows(problem, len(item), node, item, number), node, item, number)


def only(problem: BinPackingProblem, items: np.ndarray) -> BinPackingProblem:
    """The problem with its items in another order, or some of them."""
    return BinPackingProblem(
        sizes=problem.sizes[items],
        counts=problem.counts[items],
        net=problem.net,
        price=problem.price,
        suits=problem.suits[items],
        caps=problem.caps,
        capped=problem.capped[:, items],
        owners=problem.owners[:, items],
        clash=problem.clash[np.ix_(items, items)],
    )
