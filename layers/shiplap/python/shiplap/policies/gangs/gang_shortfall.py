"""What a gang lacks in all under the limits of the NodePools that suit it: a plan says it of the next member only.

It is the least that is certain: nodes are taken to hold as many members as they can, and to be of the type that costs
the limit least.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.scheduling.explain.nearest import amount
from shiplap.scheduling.model.resources import PLENTY, Ints, pods_held
from shiplap.scheduling.supply.limits import HOURLY, NODES, SPOT_VCPUS, PoolLimits
from shiplap.scheduling.supply.open_claims import ClaimGroup

_MONEY = (HOURLY, SPOT_VCPUS)
"""Limits whose charge depends on prices and on what else runs."""


class Shortfall(msgspec.Struct, frozen=True):
    """The amount of a resource, canonical, that the limits of NodePools are too low by; `needed` is what is asked."""

    resource: str
    short: int
    needed: int
    pools: tuple[str, ...]

    @property
    def text(self) -> str:
        """`short by at least 8 nvidia.com/gpu in all under the limit of NodePool train`."""
        what = self.resource
        if what == NODES and self.short == 1:
            what = "node"
        limits = "limits of NodePools" if len(self.pools) > 1 else "limit of NodePool"
        by = amount(self.resource, self.short)
        return f"short by at least {by} {what} in all under the {limits} {', '.join(self.pools)}"


class MembersWithoutNode(msgspec.Struct, frozen=True, eq=False):
    """Equal members that no existing node has room for: what one requests [resources], and how many one node takes."""

    requests: Ints
    number: int
    most_of_one: int = PLENTY


def worst_shortfall(
    groups: Iterable[ClaimGroup], limits: Mapping[str, PoolLimits], kinds: Sequence[MembersWithoutNode]
) -> Shortfall | None:
    """Return the limit that kinds of members exceed by the largest share; None where none is exceeded for certain.

    Args:
        groups: the new nodes that suit the members.
        limits: those of NodePools, by name.
        kinds: the members; those of different kinds may share nodes, so the kind that needs most counts.
    """
    of_pools: dict[str, list[ClaimGroup]] = {}
    for group in groups:
        of_pools.setdefault(group.template.pool.metadata.name, []).append(group)
    pools = tuple(sorted(of_pools))
    bounds = [limits[pool] for pool in pools]
    found = []
    if bounds and all(NODES in each.amounts for each in bounds):
        left = sum(max(each.nodes_left, 0) for each in bounds)
        needed = max((_least(of_pools, kind, None) for kind in kinds), default=0)
        found.append(Shortfall(NODES, needed - left, needed, pools))
    for column in sorted(set.intersection(*(set(each.columns.tolist()) for each in bounds))) if bounds else ():
        name = bounds[0].axis.names[column]
        if name not in _MONEY:
            left = sum(max(int(each.left[column]), 0) for each in bounds)
            needed = max((_least(of_pools, kind, column) for kind in kinds), default=0)
            found.append(Shortfall(name, needed - left, needed, pools))
    short = [each for each in found if each.short > 0]
    return max(short, key=lambda each: (each.short / each.needed, each.resource), default=None)


def _least(of_pools: Mapping[str, Sequence[ClaimGroup]], kind: MembersWithoutNode, column: int | None) -> int:
    """The least that a limit, of nodes without a column, is charged for members; 0 where no type holds any."""
    charges = []
    for group in (group for groups in of_pools.values() for group in groups):
        held = np.minimum(pods_held(group.net, kind.requests), min(kind.most_of_one, kind.number))
        holds = held > 0
        if holds.any():
            table = group.template.table
            each = 1 if column is None else table.capacity[table.row_type[group.rows[holds]], column]
            charges.append(int((-(-each * kind.number // held[holds])).min()))
    return min(charges, default=0)
