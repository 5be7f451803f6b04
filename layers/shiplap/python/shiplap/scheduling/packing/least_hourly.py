"""Computes the least that nodes for a batch cost, whichever way it is packed.

Nodes are bought in parts that together have all resources that the pods request, at the lowest price of each type. A
rule on nodes is a resource of which each node has as much as pods may share it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shiplap.kubernetes.labels import HOSTNAME
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.search.column_generation import covering_mixture
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.price_unit import EXACT, least_price


def least_hourly(compiled: CompiledSnapshot, classes: Sequence[PodClass]) -> float:
    """USD per hour that no packing undercuts which gives all pods of these classes a place."""
    net, price = _rows(compiled)
    if float(np.min(price, initial=np.inf)) <= 0 or not len(price):
        return 0.0
    counts = np.array([len(item.members) for item in classes], np.float64)
    needed = counts @ compiled.axis.matrix([item.requests for item in classes])
    nodes = compiled.nodes.free
    needed = needed - np.maximum(nodes, 0).sum(axis=0)
    for number, most in _rules(compiled, classes):
        needed = np.append(needed, number - most * len(nodes))
        net = np.concatenate([net, np.full((len(net), 1), float(most))], axis=1)
    some = needed > 0
    net = np.minimum(net[:, some], needed[some])
    if not some.any() or not net.any(axis=0).all():
        return 0.0
    least, _, _ = covering_mixture(needed[some], net, price, Effort(np.inf))
    return least_price(least, price) * (1 - EXACT)


def _rows(compiled: CompiledSnapshot) -> tuple[Floats, Floats]:
    """The net resources [rows, resources] and the prices [rows] of all nodes that can be bought."""
    templates = [template for template in compiled.templates if not template.blocked]
    if not templates:
        return np.zeros((0, len(compiled.axis))), np.zeros(0)
    net = np.concatenate([template.net for template in templates]).astype(np.float64)
    price = np.concatenate([template.row_prices for template in templates])
    bought = np.isfinite(price) & (net >= 0).all(axis=1)
    return net[bought], price[bought]


def _rules(compiled: CompiledSnapshot, classes: Sequence[PodClass]) -> list[tuple[int, int]]:
    """The numbers of pods of which a node takes only so many: those that spread over nodes, or keep off each other."""
    terms = compiled.base_counts.terms.all
    rules = []
    for item in classes:
        own = [
            spread.max_skew
            for spread in item.constraints.spreads
            if spread.key == HOSTNAME and spread.term in item.selected
        ]
        own += [1 for term in item.constraints.anti if terms[term].key == HOSTNAME and term in item.selected]
        if own:
            rules.append((len(item.members), min(own)))
    return rules
