"""A lower bound of the price of any packing: the pods' total, spread over the cheapest mixture of offerings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.quantity import CPU, MEMORY, PODS
from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.search.column_generation import covering_mixture
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.supply.templates import NodeClaimTemplate

_RESOURCES = (CPU, MEMORY, PODS)


class Offers(msgspec.Struct, frozen=True, eq=False):
    """The nodes on offer: `net` [rows, resources] is left for pods beside daemons, `price` [rows] in USD per hour."""

    net: Floats
    price: Floats


def offers_of(snapshot: Snapshot) -> Offers | None:
    """Return the nodes that the pools of a snapshot may launch, at its prices.

    None if nothing is sold, or something for nothing, as instances of a capacity reservation are: that bounds nothing.
    """
    rows = [
        row
        for template in compile_snapshot(snapshot, _RESOURCES).templates
        if not template.blocked
        for row in _rows(template)
    ]
    if not rows or any(row[-1] <= 0 for row in rows):
        return None
    return Offers(np.array([row[:-1] for row in rows]), np.array([row[-1] for row in rows]))


def merged_offers(offers: Sequence[Offers | None]) -> Offers | None:
    """Everything that is offered; None if one of them bounds nothing, or there are none."""
    known = [item for item in offers if item is not None]
    if not known or len(known) < len(offers):
        return None
    return Offers(np.concatenate([item.net for item in known]), np.concatenate([item.price for item in known]))


def hourly_bound(offers: Offers, requested: Mapping[str, int]) -> float | None:
    """USD per hour that nodes for some pods cost at least; None if nothing that is offered has what they ask for.

    Pods and nodes may be cut at will and whatever else the pods ask for is left out, so this is less than any packing
    costs, except where nodes were bought cheaper than they are offered.

    Args:
        offers: what may be launched.
        requested: the sum of what the pods ask for, canonical units, `pods` being their number.
    """
    total = np.array([float(requested.get(name, 0)) for name in _RESOURCES])
    wanted = total > 0
    if not wanted.any():
        return 0.0
    if (offers.net[:, wanted].max(axis=0) <= 0).any():
        return None
    net = np.maximum(offers.net[:, wanted], 0.0)
    return covering_mixture(total[wanted], net, offers.price, Effort.of(5))[0]


def _rows(template: NodeClaimTemplate) -> list[list[float]]:
    """Return the resources for pods of each node that a template may launch, and its price."""
    offered = template.table.offered(template.requirements, template.allow_undefined)
    columns = [template.table.axis.names.index(name) for name in _RESOURCES]
    rows = []
    for row, kind in enumerate(template.table.row_type.tolist()):
        price = float(offered.price[kind])
        if offered.suits[kind] and np.isfinite(price):
            rows.append([*template.net[row, columns].astype(float).tolist(), price])
    return rows
