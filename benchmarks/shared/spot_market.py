"""A spot market drawn from published statistics: how often AWS interrupts, how prices lie, and how fleets are filled.

What is published: EC2's Spot Instance Advisor sorts types into bands of interruptions per month (less than 5 %, 5 to
10, 10 to 15, 15 to 20 and more than 20 %); spot is up to 90 % cheaper than on-demand, prices change slowly; nine in ten
interruptions of a type in a zone come within three minutes of another one there (arXiv 2604.16457);
`price-capacity-optimized` chooses pools with much capacity and among them the cheap ones. How it weighs the two is not
published, so there are four ways here, and in each the depth of a pool differs a little from request to request. All
that is not published varies with the seed, such as whether what is interrupted often is dearer or cheaper.

Four kinds of interruptions: `independent` ones at constant rates; `bursts`, which take most nodes of a pool at once,
in some days much more often; at a `time of day` that is one of a family in a zone; and `regimes`, where every three
weeks a third of the pools get another rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.policies.spot_risk.risk_evidence import family_of_type

MONTH_HOURS = 730.0
BANDS = ((0.01, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.20), (0.20, 0.40))
"""Interruptions per month, as the Spot Instance Advisor divides them; the last band has no published end."""

ZONES = {"us-east-1a": "use1-az1", "us-east-1b": "use1-az2", "us-east-1c": "use1-az4"}
FILLINGS = (
    "cheapest unless nearly empty",
    "cheapest that is deep",
    "deepest quarter, then cheapest",
    "ten deepest, then cheapest",
)
KINDS = ("independent", "bursts", "time of day", "regimes")

_REGIME_HOURS = 21 * 24.0
_BURST = (0.3, 1.0)
"""The part of a pool's nodes that a burst takes."""


class SpotPool(msgspec.Struct):
    """One type in one zone: its share of the on-demand price, interruptions per hour, and capacity as EC2 knows it."""

    instance_type: str
    zone: str
    on_demand: float
    discount: float
    rate: float
    depth: float
    busy_hour: float
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

    def __init__(self, types: Sequence[InstanceType], seed: int, filling: str, kind: str) -> None:
        self._chance = random.Random(f"market {seed}")
        self._requests = random.Random(f"requests {seed}")
        chance, self.filling, self.kind, self.now = self._chance, filling, kind, 0.0
        self._weights = [chance.uniform(3, 6), chance.uniform(1, 3), *(chance.uniform(0.5, 1.5) for _ in range(3))]
        self._likeness = chance.uniform(0.3, 0.8)
        self._crunch = chance.uniform(3, 10)
        self._crunches_per_hour = chance.uniform(0.0002, 0.001)
        self._daily = chance.uniform(0.3, 0.9)
        self._regime = 0
        knows, lean = chance.uniform(0.2, 0.8), chance.uniform(-0.3, 0.3)
        families: dict[tuple[str, str], tuple[float, float]] = {}
        self.pools: dict[str, SpotPool] = {}
        for item in types:
            on_demand = next(o.price for o in item.offerings if o.capacity_type == "on-demand")
            for zone in ZONES:
                of_family = (family_of_type(item.name), zone)
                family, busy = families.setdefault(of_family, (chance.gauss(0, 1), chance.uniform(0, 24)))
                rank = math.sqrt(self._likeness) * family + math.sqrt(1 - self._likeness) * chance.gauss(0, 1)
                discount = chance.uniform(0.28, 0.5) * math.exp(lean * 0.2 * rank)
                depth = -knows * rank + math.sqrt(1 - knows**2) * chance.gauss(0, 1)
                pool = SpotPool(item.name, zone, on_demand, discount, self._rate_of(rank), depth, busy)
                self.pools[pool.key] = pool

    def _rate_of(self, rank: float) -> float:
        """Interruptions per hour of a pool at a place among all pools, as a normal deviate."""
        monthly = _in_bands(0.5 * (1 + math.erf(rank / math.sqrt(2))), self._weights)
        return -math.log(1 - monthly) / MONTH_HOURS

    def pass_hours(self, hours: float) -> None:
        """Prices and capacities drift; some pools run short for half a day to two days."""
        self.now += hours
        for pool in self.pools.values():
            pool.drift = 0.98 * pool.drift + self._chance.gauss(0, 0.008)
            pool.wave = 0.8 * pool.wave + self._chance.gauss(0, 0.3)
            if self._chance.random() < self._crunches_per_hour * hours:
                pool.crunch_until = self.now + self._chance.choice((12, 24, 48))
        if self.kind == "regimes" and self.now >= (self._regime + 1) * _REGIME_HOURS:
            self._regime += 1
            for pool in self.pools.values():
                if self._chance.random() < 1 / 3:
                    pool.rate = self._rate_of(self._chance.gauss(0, 1))

    def rate(self, pool: SpotPool) -> float:
        """Interruptions of a node per hour now."""
        if self.kind == "bursts":
            return pool.rate * (self._crunch if pool.crunch_until > self.now else 1.0)
        if self.kind == "time of day":
            return pool.rate * (1 + self._daily * math.cos((self.now - pool.busy_hour) / 24 * 2 * math.pi))
        return pool.rate

    def burst(self, pool: SpotPool, hours: float, chance: random.Random) -> float:
        """Draw what happens to a pool in the hours to come, and return how likely that interrupts each of its nodes."""
        expected = self.rate(pool) * hours
        if self.kind != "bursts":
            return 1 - math.exp(-expected)
        taken = chance.uniform(*_BURST)
        return taken if chance.random() < 1 - math.exp(-expected / (sum(_BURST) / 2)) else 0.0

    def fill(self, offered: Sequence[str]) -> SpotPool:
        """The pool from which EC2 takes an instance of a fleet, given `type/zone` of its overrides."""
        depths = {key: self._depth(self.pools[key]) + self._requests.gauss(0, 0.3) for key in offered}
        deep = sorted(depths, key=lambda key: (-depths[key], key))
        if self.filling == FILLINGS[0]:
            deep = [key for key in deep if depths[key] > -1.5] or deep
        elif self.filling == FILLINGS[1]:
            deep = [key for key in deep if depths[key] > 0.5] or deep
        elif self.filling == FILLINGS[2]:
            deep = deep[: max(len(deep) // 4, 1)]
        else:
            deep = deep[:10]
        return min((self.pools[key] for key in deep), key=lambda pool: (pool.price, pool.key))

    def offerings(self, item: InstanceType) -> tuple[Offering, ...]:
        """Return the offerings that a catalogue shows of a type now."""
        pools = [self.pools[f"{item.name}/{zone}"] for zone in ZONES]
        spot = tuple(Offering(pool.zone, "spot", round(pool.price, 6), zone_id=ZONES[pool.zone]) for pool in pools)
        listed = (Offering(pool.zone, "on-demand", pool.on_demand, zone_id=ZONES[pool.zone]) for pool in pools)
        return (*listed, *spot)

    def _depth(self, pool: SpotPool) -> float:
        return pool.depth + pool.wave - (2.0 if self.kind == "bursts" and pool.crunch_until > self.now else 0.0)


def _in_bands(quantile: float, weights: Sequence[float]) -> float:
    """Interruptions per month at a quantile, with the bands' weights."""
    left = quantile * sum(weights)
    for (low, high), weight in zip(BANDS, weights, strict=True):
        if left <= weight:
            return low + (high - low) * left / weight
        left -= weight
    return BANDS[-1][1]
