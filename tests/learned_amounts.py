"""The smallest amounts that an entry of learned capacity holds, whoever reported them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shiplap.instances.capacity.reported_amounts import reports_of
from shiplap.instances.catalog.type_catalog import LearnedCapacity


def smallest_capacity(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest capacity of the last 60 days, per resource."""
    return _smallest(each.capacity for each in reports_of(learned))


def smallest_allocatable(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest allocatable of the last 60 days, per resource."""
    return _smallest(each.allocatable for each in reports_of(learned))


def _smallest(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    least: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            least[resource] = min(amount, least.get(resource, amount))
    return dict(sorted(least.items()))
