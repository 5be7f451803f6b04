"""A spot market drawn from published statistics: how often AWS interrupts, how prices lie, and how fleets are filled.

What is published: EC2's Spot Instance Advisor sorts types into bands of interruptions per month (less than 5 %, 5 to
10, 10 to 15, 15 to 20 and more than 20 %); spot is up to 90 % cheaper than on-demand, prices change slowly;
interruptions come in bursts when capacity of a pool runs out; `price-capacity-optimized` chooses pools with much
capacity and among them the cheap ones. How it weighs the two is not published, so there are three ways here. All
parameters that are not published vary with the seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.spot_risk.risk_evidence import family_of_type

MONTH_HOURS = 730.0
BANDS = ((0.01, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, 0.40))
"""Interruptions per month, as the Spot Instance Advisor divides them; the last band has no published end."""

ZONES = {"us-east-1a": "use1-az1", "us-east-1b": "use1-az2", "us-east-1c": "use1-az4"}
FILLINGS = ("cheapest unless nearly empty", "deepest quarter, then cheapest", "ten deepest, then cheapest")


class SpotPool(msgspec.Struct):
    """One type in one zone: its share of the on-demand price, interruptions per hour, and capacity as EC2 knows it."""

    instance_type: str
    zone: str
    on_demand: float
    discount: float
    rate: float
    depth: float
    drift: float = 0.0
    wave: float = 0.0
    crunch_until: float = 0.0

    @property
    def key(self) -> str:
        """`type/zone`."""
        return f"{self.instance_type}/{self.zone}"

    @property
    def price(self) -> float:
        """USD per hour."""
        return self.on_demand * self.discount * math.exp(self.drift)


class SpotMarket:
    """All pools of a Region; time goes on in steps of hours."""

    def __init__(self, types: Sequence[InstanceType], seed: int, filling: str) -> None:
        self._chance = random.Random(f"market {seed}")
        chance, self.filling, self.now = self._chance, filling, 0.0
        weights = [chance.uniform(3, 6), chance.uniform(1, 3), *(chance.uniform(0.5, 1.5) for _ in range(3))]
        likeness = chance.uniform(0.3, 0.8)
        self.crunch = chance.uniform(3, 10)
        self._crunches_per_hour = chance.uniform(0.0002, 0.001)
        knows = chance.uniform(0.2, 0.8)
        leaning, lean_price = {}, chance.uniform(0.0, 0.3)
        self.pools: dict[str, SpotPool] = {}
        for item in types:
            on_demand = next(o.price for o in item.offerings if o.capacity_type == "on-demand")
            for zone in ZONES:
                family = leaning.setdefault((family_of_type(item.name), zone), chance.gauss(0, 1))
                rank = math.sqrt(likeness) * family + math.sqrt(1 - likeness) * chance.gauss(0, 1)
                monthly = _in_bands(0.5 * (1 + math.erf(rank / math.sqrt(2))), weights)
                discount = chance.uniform(0.28, 0.5) * math.exp(lean_price * 0.2 * rank)
                depth = -knows * rank + math.sqrt(1 - knows**2) * chance.gauss(0, 1)
                pool = SpotPool(item.name, zone, on_demand, discount, -math.log(1 - monthly) / MONTH_HOURS, depth)
                self.pools[pool.key] = pool

    def pass_hours(self, hours: float) -> None:
        """Prices and capacities drift; some pools run short for half a day to two days."""
        self.now += hours
        for pool in self.pools.values():
            pool.drift = 0.98 * pool.drift + self._chance.gauss(0, 0.008)
            pool.wave = 0.8 * pool.wave + self._chance.gauss(0, 0.3)
            if self._chance.random() < self._crunches_per_hour * hours:
                pool.crunch_until = self.now + self._chance.choice((12, 24, 48))

    def rate(self, pool: SpotPool) -> float:
        """Interruptions per hour now."""
        return pool.rate * (self.crunch if pool.crunch_until > self.now else 1.0)

    def fill(self, offered: Sequence[str]) -> SpotPool:
        """The pool from which EC2 takes an instance of a fleet, given `type/zone` of its overrides."""
        pools = [self.pools[key] for key in offered]
        deep = sorted(pools, key=lambda pool: (-self._depth(pool), pool.key))
        if self.filling == FILLINGS[0]:
            enough = [pool for pool in pools if self._depth(pool) > -1.5]
        elif self.filling == FILLINGS[1]:
            enough = deep[: max(len(deep) // 4, 1)]
        else:
            enough = deep[:10]
        return min(enough or pools, key=lambda pool: (pool.price, pool.key))

    def offerings(self, item: InstanceType) -> tuple[Offering, ...]:
        """What a catalogue shows of a type now."""
        pools = [self.pools[f"{item.name}/{zone}"] for zone in ZONES]
        spot = tuple(Offering(pool.zone, "spot", round(pool.price, 6), zone_id=ZONES[pool.zone]) for pool in pools)
        listed = (Offering(pool.zone, "on-demand", pool.on_demand, zone_id=ZONES[pool.zone]) for pool in pools)
        return (*listed, *spot)

    def _depth(self, pool: SpotPool) -> float:
        return pool.depth + pool.wave - (2.0 if pool.crunch_until > self.now else 0.0)


def _in_bands(quantile: float, weights: Sequence[float]) -> float:
    """Interruptions per month at a quantile, with the bands' weights."""
    left = quantile * sum(weights)
    for (low, high), weight in zip(BANDS, weights, strict=True):
        if left <= weight:
            return low + (high - low) * left / weight
        left -= weight
    return BANDS[-1][1]
