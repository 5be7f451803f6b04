"""Lists of instance types, shortened until the claims of each NodePool fit into its limits.

A limit is charged with the largest type that each claim may become. While pods are placed, limits are left aside; then
claims give up types that have most of what the limits are short of, never the type that they would launch. Only what
does not fit even then is decided again within the limits. So a limit with room for the nodes changes nothing but lists,
and a limit with room for the lists changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.packing.planned_claims import choose_types
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap.scheduling.supply.open_claims import ClaimGroup, OpenClaims
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class _Alike(msgspec.Struct, eq=False):
    """Claims at `places` of one group with equal loads.

    `charge` [resources] is the most of each resource that the limits are short of on their list, else the most that
    they may still become; `launch` is what the type has that they would launch. `allowed` [rows] are the rows of the
    catalogue that they keep.
    """

    group: ClaimGroup
    holds: Bools
    places: list[int]
    charge: Ints
    launch: Ints
    allowed: Bools


def limits_aside(
    templates: Sequence[NodeClaimTemplate], limits: Mapping[str, PoolLimits], bound: frozenset[str]
) -> dict[str, PoolLimits]:
    """The limits by pool, with room for any number of nodes where claims may be shortened; the same ones elsewhere.

    Limits of pools in `bound` stay, and limits that leave no node at all. So do those of pools with a share that must
    not be spot: each claim decides what the next one may be.
    """
    tables = {template.pool.metadata.name: template.table for template in templates}

    def is_aside(pool: str, left: PoolLimits) -> bool:
        if pool in bound or pool not in tables or left.shares or not left.is_bounded:
            return False
        return left.nodes_left > 0 and bool(left.allowed(tables[pool].capacity).any())

    return {pool: left.lifted() if is_aside(pool, left) else left for pool, left in limits.items()}


class Shortened(msgspec.Struct, frozen=True, eq=False):
    """Holds what is left of limits by pool, and the pools whose claims exceed their limits whatever their lists are."""

    left: Mapping[str, PoolLimits]
    over: frozenset[str]


def shorten(open_claims: OpenClaims, limits: Mapping[str, PoolLimits], most_types: int) -> Shortened:
    """Shorten lists of open claims, of at most this many types, until limits allow them all.

    Args:
        open_claims: all that were opened while these limits were left aside; those of a pool change only if they fit.
        limits: by pool.
        most_types: the length of a list.
    """
    by_pool: dict[str, list[int]] = {}
    for place, claim in enumerate(open_claims.claims):
        by_pool.setdefault(claim.group.template.pool.metadata.name, []).append(place)
    left, over = {}, set()
    for pool, known in limits.items():
        left[pool] = known.copy()
        alike = list(_alike(open_claims, by_pool.get(pool, [])))
        short = known.exceeded_by(_spent(alike, len(known.left)))
        if sum(len(one.places) for one in alike) > known.nodes_left or not _fit(alike, known, short, most_types):
            over.add(pool)
            continue
        for one in alike:
            left[pool].charge(one.charge, len(one.places))
            _keep(open_claims, one, short)
    return Shortened(left, frozenset(over))


def _alike(open_claims: OpenClaims, places: Sequence[int]) -> Iterator[_Alike]:
    found: dict[tuple[int, bytes], list[int]] = {}
    for place in places:
        key = (int(open_claims.group_of[place]), open_claims.used[place].tobytes())
        found.setdefault(key, []).append(place)
    for members in found.values():
        group = open_claims.claims[members[0]].group
        holds = group.holding(open_claims.used[members[0]])
        table = group.template.table
        most = table.capacity[table.row_type[group.rows[holds]]].max(axis=0)
        yield _Alike(group, holds, members, most, most, group.allowed)


def _spent(alike: Sequence[_Alike], resources: int) -> Ints:
    """Return the charge for these claims together [resources]."""
    spent = np.zeros(resources, np.int64)
    for one in alike:
        spent += one.charge * len(one.places)
    return spent


def _listed(group: ClaimGroup, holds: Bools, allowed: Bools, most_types: int) -> Ints | None:
    """The rows of the list of a claim that may use no more than these rows [rows]; None if it breaks minValues."""
    columns = np.flatnonzero(holds & allowed[group.rows])
    types = choose_types(group, columns, most_types) if len(columns) else None
    return None if types is None else types.rows


def _fit(alike: Sequence[_Alike], limits: PoolLimits, short: Ints, most_types: int) -> bool:
    """Drop the types of these claims of one pool with most of what is `short`, until the limits allow what is left."""
    if not len(short):
        return True
    for one in alike:
        _charge_list(one, short, most_types)
    stuck: set[tuple[int, int]] = set()
    while len(exceeded := limits.exceeded_by(_spent(alike, len(limits.left)))):
        over = int(exceeded[0])
        able = [place for place in range(len(alike)) if (place, over) not in stuck]
        largest = max((int(alike[place].charge[over]) for place in able), default=0)
        if not largest:
            return False
        for place in able:
            if alike[place].charge[over] == largest and not _drop(alike[place], over, largest, short, most_types):
                stuck.add((place, over))
    return True


def _charge_list(one: _Alike, short: Ints, most_types: int) -> None:
    """Charge claims with the types on their list alone, of the resources that are short."""
    listed = _listed(one.group, one.holds, one.allowed, most_types)
    if listed is None:  # no list is short enough for minValues: the claim is never written
        listed = one.group.rows[one.holds]
    table = one.group.template.table
    capacity = table.capacity[table.row_type[listed]]
    one.launch, one.charge = capacity[0], one.charge.copy()
    one.charge[short] = capacity.max(axis=0)[short]


def _drop(one: _Alike, column: int, amount: int, short: Ints, most_types: int) -> bool:
    """Let claims give up types with this amount of a resource or more; false if they need one of them."""
    table = one.group.template.table
    if one.launch[column] >= amount:
        return False
    allowed = one.allowed & (table.capacity[:, column] < amount)[table.row_type]
    listed = _listed(one.group, one.holds, allowed, most_types)
    if listed is None:
        return False
    capacity = table.capacity[table.row_type[listed]]
    if (capacity[0] != one.launch).any():
        return False
    one.allowed = allowed
    one.charge[short] = capacity.max(axis=0)[short]
    return True


def _keep(open_claims: OpenClaims, one: _Alike, columns: Ints) -> None:
    """Let claims become nothing that has more of these resources than what is charged for them."""
    table = one.group.template.table
    small = (table.capacity[:, columns] <= one.charge[columns]).all(axis=1)[table.row_type]
    allowed = one.allowed & small
    for place in one.places:
        open_claims.charges[place] = one.charge
        if not allowed[one.group.rows].all():
            open_claims.restrict(place, allowed)
