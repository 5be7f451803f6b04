"""Ceilings in dollars, against their bars: months below a ceiling, the forecast on day 10, and what the tables hold.

    python -m benchmarks.policies.ceilings --seeds 20 --first 1000

Months are played hour by hour with the functions that decide: launches come and nodes end by chance, spot prices move
every hour, the ledger is posted late at times. Hourly ceilings are played with the real flows and all faults instead:
`shiplap lab simulate ceilings --seeds 2000`. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from math import pi, sin

import msgspec
from msgspec.structs import replace

from benchmarks.shared.bars import exit_code
from shiplap.instances.offerings.instance_rates import Rate, micros_of
from shiplap.manifests.nodeclaim import ClaimPlan, ClaimState, LaunchedInstance, NodeClaim
from shiplap.policies.ceilings.ceiling_use import cluster_spending, spending_view
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode, WantedLaunch, admit
from shiplap.policies.ceilings.forecast import forecast_micros
from shiplap.spending.account_counters import AccountSpending, CountedSpending
from shiplap.spending.ledger import HOUR_S, MOST_HOURS, SpendingLedger, begin, posted
from shiplap.spending.node_lives import CLASSES, NodeLives

_START = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
_HOURS = 30 * 24
_MICROS = 1_000_000


class Month(msgspec.Struct, frozen=True):
    """A month below a ceiling, in USD. `late` counts launches although spent and reserved were at the ceiling."""

    ceiling: float
    spent: float
    repriced: float
    launched: int
    refused: int
    late: int

    @property
    def over(self) -> float:
        """Return the dollars spent above the ceiling."""
        return max(self.spent - self.ceiling, 0.0)

    @property
    def beyond(self) -> float:
        """Return the dollars above the ceiling that are not what spot got dearer by."""
        return max(self.over - self.repriced, 0.0)


class _PlayedMonth:
    """A cluster of spot nodes for a month. With `learned`, reservations follow the lives that are seen."""

    def __init__(self, seed: int, *, learned: bool) -> None:
        self.chance = random.Random(seed)
        self.learned = learned
        self.ceiling = Ceiling(monthly=self.chance.uniform(300, 2500), mode=CeilingMode.STOP)
        self.ledger = begin(_START)
        self.claims: dict[str, NodeClaim] = {}
        self.ends: dict[str, float] = {}
        self.factor = 1.0
        self.launched = self.refused = self.late = 0
        self.repriced = 0.0

    def play(self) -> Month:
        for hour in range(_HOURS):
            now = _START + hour * HOUR_S + self.chance.randrange(60, 3500)
            self._end_nodes(now)
            if self.chance.random() > 0.1:  # else the sweep is late
                self._post(now)
            wanted = max(round(6 * (1 + sin(2 * pi * (hour % 24) / 24))) - len(self._running()) // 8, 0)
            self._launch(now, self.chance.randrange(wanted + 1), hour)
            self.factor = min(max(self.factor * self.chance.uniform(0.97, 1.035), 0.7), 1.6)
        end = _START + _HOURS * HOUR_S
        self._end_nodes(end)
        self._post(end + 60)
        spent = self.ledger.this_month if self.ledger.this_month.month == "2026-11" else self.ledger.last_month
        limit = self.ceiling.limit_micros / _MICROS
        return Month(limit, spent.spent / _MICROS, self.repriced, self.launched, self.refused, self.late)

    def _running(self) -> list[NodeClaim]:
        return [claim for claim in self.claims.values() if claim.state is ClaimState.INITIALIZED]

    def _end_nodes(self, now: float) -> None:
        for claim in self._running():
            if self.ends[claim.name] <= now:
                ended = replace(claim, state=ClaimState.GONE, changed_at=self.ends[claim.name])
                self.claims[claim.name] = ended

    def _rate(self, claim: NodeClaim) -> Rate:
        return Rate(micros_of(claim.hourly * self.factor))

    def _post(self, now: float) -> None:
        before = self.ledger.posted_until
        self.ledger = posted(self.ledger, self.claims.values(), now, self._rate, lambda _: {})
        hours = self.ledger.posted_until - before
        for claim in self.claims.values():
            since, until = max(claim.created_at, before), min(self.ends[claim.name], before + hours)
            if until > since:
                self.repriced += max(claim.hourly * (self.factor - 1), 0) * (until - since) / HOUR_S
        if not self.learned:
            self.ledger = replace(self.ledger, lives={})
        for name, claim in list(self.claims.items()):
            if claim.state is ClaimState.GONE and claim.changed_at <= self.ledger.posted_until:
                del self.claims[name]

    def _launch(self, now: float, number: int, hour: int) -> None:
        spending = cluster_spending(self.claims.values(), self.ledger, now)
        view = spending_view([self.ceiling], [], "demo", spending, CountedSpending(), AccountSpending())
        prices = {f"{hour}-{place}": self.chance.uniform(0.03, 0.4) * self.factor for place in range(number)}
        wanted = [WantedLaunch(name=name, node_pool="spot", prices={"m": micros_of(prices[name])}) for name in prices]
        verdicts = admit(view, wanted)
        self.refused += len(verdicts.refused)
        for admitted in verdicts.admitted:
            self.launched += 1
            self.late += view.ceilings[0].used >= view.ceilings[0].limit
            life = self.chance.expovariate(1 / (self.chance.choice((2, 8, 30)) * HOUR_S))
            self.ends[admitted.name] = now + max(life, 300)
            self.claims[admitted.name] = NodeClaim(
                cluster="demo",
                name=admitted.name,
                plan=ClaimPlan("spot", "default"),
                state=ClaimState.INITIALIZED,
                instance=LaunchedInstance(f"i-{admitted.name}", "m", "a", "spot"),
                created_at=now,
                changed_at=now,
                hourly=prices[admitted.name],
                most_hourly=prices[admitted.name],
            )


def months(first: int, seeds: int, *, learned: bool) -> list[Month]:
    """Months of fresh seeds."""
    return [_PlayedMonth(seed, learned=learned).play() for seed in range(first, first + seeds)]


def rhythmic_hours(seed: int) -> list[int]:
    """Dollars of each hour of a month: busy days, quiet nights and weekends, growth, noise; in millionths."""
    chance = random.Random(seed)
    low, busy, weekend = chance.uniform(1, 20), chance.uniform(5, 60), chance.uniform(0, 0.8)
    growth, noise, first = chance.uniform(0.94, 1.08), chance.uniform(0.0, 0.08), chance.randrange(7)
    hours = []
    for hour in range(_HOURS):
        day, of_day = divmod(hour, 24)
        rise = max(0.0, sin(pi * (of_day - 7) / 12)) * (weekend if (day + first) % 7 >= 5 else 1.0)
        rate = (low + busy * rise) * growth ** (hour / 168)
        hours.append(round(rate * chance.uniform(1 - noise, 1 + noise) * _MICROS))
    return hours


def forecast_error(seed: int) -> float:
    """The relative error of the forecast of a month after ten days."""
    hours = rhythmic_hours(seed)
    known = hours[:240]
    return abs((sum(known) + forecast_micros(known, _HOURS - 240)) / sum(hours) - 1)


def table_bytes(clusters: int, nodes: int, pools: int, namespaces: int) -> int:
    """Bytes of all items of ceilings in table `state`: ledgers, notes, counters, and what claims grow by."""
    lives = NodeLives((2000,) * len(CLASSES), (999,) * len(CLASSES))
    by_pool = {f"nodepool-number-{number:04}": 10**11 for number in range(pools)}
    by_namespace = {f"namespace-of-a-team-{number:05}": 10**10 for number in range(namespaces)}
    month = replace(begin(_START).this_month, spent=10**12, by_pool=by_pool, by_namespace=by_namespace)
    ledger = SpendingLedger(10**6, _START, month, month, (10**9,) * MOST_HOURS, dict.fromkeys(by_pool, lives))
    note, counters = 200, 200
    return clusters * (len(msgspec.json.encode(ledger)) + note) + counters + nodes * len('"most_hourly":0.123456,')


MOST_ERROR = 0.05
MOST_BYTES = 10_000_000


def missed_bars(played: Sequence[Month], errors: Sequence[float], table_size: int) -> Iterator[str]:
    """Yield the bars that are missed, and by what."""
    if late := sum(item.late for item in played):
        yield f"{late} launches once spent and reserved had reached the ceiling (bar: 0)"
    if (beyond := max(item.beyond for item in played)) >= 0.005:
        yield f"${beyond:.2f} over a ceiling beyond what spot got dearer by (bar: 0)"
    if (error := max(errors)) > MOST_ERROR:
        yield f"a forecast is {error:.1%} off (bar: {MOST_ERROR:.0%})"
    if table_size > MOST_BYTES:
        yield f"table state holds {table_size / 1e6:.2f} MB (bar: {MOST_BYTES / 1e6:.0f} MB)"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args()
    began = time.process_time()
    everything: list[Month] = []
    for learned in (False, True):
        played = months(chosen.first, chosen.seeds, learned=learned)
        everything += played
        print(f"{len(played)} months, lives {'learned' if learned else 'unknown'}:")
        print(f"  launches {sum(item.launched for item in played)}, refused {sum(item.refused for item in played)}")
        print(f"  launches once spent and reserved reach the ceiling: {sum(item.late for item in played)} (bar: 0)")
        print(f"  spent of the ceiling: {max(item.spent / item.ceiling for item in played):.1%} at most")
        over, beyond = max(item.over for item in played), max(item.beyond for item in played)
        print(f"  over by ${over:.2f} at most; beyond what spot got dearer by ${beyond:.2f} (bar: 0)")
    errors = sorted(forecast_error(seed) for seed in range(chosen.first, chosen.first + 50 * chosen.seeds))
    mean = sum(errors) / len(errors)
    print(f"forecast on day 10, {len(errors)} months: error {errors[-1]:.1%} at most, {mean:.1%} on average (bar: 5 %)")
    size = table_bytes(10, 5000, 20, 200)
    print(f"table state, 10 clusters, 5,000 nodes: {size / 1e6:.2f} MB (bar: 10 MB)")
    print(f"{time.process_time() - began:.1f} s of processor time")
    return exit_code(list(missed_bars(everything, errors, size)))


if __name__ == "__main__":
    sys.exit(main())
