"""Bin packing problems: pods whose pool tier and domain are decided, so that only the filling of new nodes is open.

Nodes of a problem are independent of each other: it is a vector bin packing problem with a few rules per node. The
bulk stage fills problems by first-fit-decreasing; the cost search fills them again, cheaper.
"""

from __future__ import annotations

import msgspec

from shiplap.scheduling.model.resources import Bools, Floats, Ints


class BinPackingProblem(msgspec.Struct, frozen=True, eq=False):
    """Items (classes of pods) and rows (instance types as one pool tier offers them in one domain).

    `sizes` [items, resources] is what one pod takes, `counts` [items] how many there are. `net` [rows, resources] is
    what a node leaves to pods next to daemons, `price` [rows] its cheapest available offering in USD per hour,
    infinite where there is none. `suits` [items, rows] says which rows an item may use: a node's row has to suit all
    its items. Rule `c` binds a node as soon as it holds a pod of an item in `owners[c]` ([rules, items]): it may then
    hold at most `caps[c]` pods of the items in `capped[c]` ([rules, items]), owners among them included. Two items that
    `clash` [items, items] never share a node; an item that clashes with itself has at most one pod on each.
    """

    sizes: Ints
    counts: Ints
    net: Ints
    price: Floats
    suits: Bools
    caps: Ints
    capped: Bools
    owners: Bools
    clash: Bools


class Filling(msgspec.Struct, frozen=True, eq=False):
    """Nodes that together hold a problem: `rows` [nodes] names each node's cheapest sufficient row.

    `number` [entries] pods of `item` [entries] stand on `node` [entries]; entries are sorted by node, then item.
    """

    rows: Ints
    node: Ints
    item: Ints
    number: Ints

    def hourly(self, problem: BinPackingProblem) -> float:
        """USD per hour of all its nodes."""
        return float(problem.price[self.rows].sum())
