"""Finds the faults of a filling: a plain account of every rule, for tests and for people who doubt a rule."""

from __future__ import annotations

import numpy as np

from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling


def faults(problem: BinPackingProblem, filling: Filling) -> list[str]:
    """One sentence for each rule of the problem that the filling breaks; empty when it is valid."""
    found: list[str] = []
    placed = np.zeros(len(problem.counts), np.int64)
    np.add.at(placed, filling.item, filling.number)
    for item in np.flatnonzero(placed != problem.counts).tolist():
        found += [f"item {item}: {placed[item]} pods are placed of {problem.counts[item]}"]
    if (filling.number <= 0).any():
        found.append("an entry without pods")
    keys = filling.node * len(problem.counts) + filling.item
    if (np.diff(keys) <= 0).any():
        found.append("entries are not sorted by node and item, or one is there twice")
    for node, row in enumerate(filling.rows.tolist()):
        found += [f"node {node}: {text}" for text in _node_faults(problem, filling, node, row)]
    return found


def _node_faults(problem: BinPackingProblem, filling: Filling, node: int, row: int) -> list[str]:
    here = filling.node == node
    items, numbers = filling.item[here], filling.number[here]
    if not len(items):
        return ["is empty"]
    found = []
    load = (problem.sizes[items] * numbers[:, None]).sum(axis=0)
    if row < 0 or not np.isfinite(problem.price[row]):
        return [f"row {row} cannot be bought"]
    if (load > problem.net[row]).any():
        found.append(f"row {row} does not hold {load.tolist()}")
    if not problem.suits[items, row].all():
        found.append(f"row {row} does not suit all items")
    for rule, cap in enumerate(problem.caps.tolist()):
        if problem.owners[rule, items].any() and int(numbers[problem.capped[rule, items]].sum()) > cap:
            found.append(f"more than {cap} pods under rule {rule}")
    for place, item in enumerate(items.tolist()):
        others = np.delete(items, place)
        if problem.clash[item, others].any() or (problem.clash[item, item] and numbers[place] > 1):
            found.append(f"item {item} clashes")
    holds = (problem.net >= load).all(axis=1) & problem.suits[items].all(axis=0)
    if problem.price[holds].min(initial=np.inf) < problem.price[row]:
        found.append(f"row {row} is not the cheapest")
    return found
