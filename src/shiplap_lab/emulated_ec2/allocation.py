"""Decides which pool an instant fleet buys from first: EC2's allocation strategies, made deterministic.

EC2 does not publish how it weighs capacity against price. What is kept here is what a caller may rely on: price
decides under `lowest-price`, the caller's priorities under `prioritized`, and spot strategies avoid pools that are
nearly empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

SCARCE = 5
"""A spot pool with fewer instances left than this counts as nearly empty."""


class CapacityPool(msgspec.Struct, frozen=True, order=True):
    """One pool that EC2 keeps count of: one instance type in one zone, sold in one way."""

    instance_type: str
    zone: str
    capacity_type: str


class FleetCandidate(msgspec.Struct, frozen=True):
    """One override of a fleet request, resolved. `price` in USD per hour; `available` None means plenty.

    `template` is the launch template specification to echo, `override` the request's own override.
    """

    pool: CapacityPool
    price: float
    available: int | None
    priority: float
    subnet_id: str
    image_id: str
    template: dict[str, Any]
    override: dict[str, Any]
    data: dict[str, Any]

    @property
    def scarce(self) -> bool:
        return self.available is not None and self.available < SCARCE


_Key = Callable[[FleetCandidate], tuple[Any, ...]]

_STRATEGIES: dict[str, _Key] = {
    "lowest-price": lambda candidate: (candidate.price,),
    "prioritized": lambda candidate: (candidate.priority,),
    "price-capacity-optimized": lambda candidate: (candidate.scarce, candidate.price),
    "capacity-optimized": lambda candidate: (candidate.scarce,),
    "capacity-optimized-prioritized": lambda candidate: (candidate.scarce, candidate.priority),
}


def order(candidates: Iterable[FleetCandidate], strategy: str) -> list[FleetCandidate]:
    """Candidates in the order EC2 would try them; ties break by type, zone and subnet.

    Raises:
        ValueError: the strategy is unknown.
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"unknown allocation strategy {strategy!r}: one of {', '.join(sorted(_STRATEGIES))}")
    key = _STRATEGIES[strategy]
    return sorted(candidates, key=lambda candidate: (*key(candidate), candidate.pool, candidate.subnet_id))
