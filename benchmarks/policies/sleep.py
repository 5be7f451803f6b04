"""Measures what sleep saves: a week in which a NodePool is awake 50 of 168 hours, beside the same week without sleep.

    python -m benchmarks.policies.sleep [--pods 24] [--budget 100%]

Both weeks are played in virtual time, without faults. Dollars are those that EC2 charges, by the second, and those that
the functions post to the ledger, by the hour: a ceiling that only warns makes them post. At each opening, the time from
the end of the window until each pod is Ready is told, negative where it is before.

Bars, exit code 1 where one is missed: 50/168 of the nodes' dollars, 2 % more or less, by EC2 and by the ledger; the
ledger of each week within 2 % of EC2 in the hours that it has posted; 95 % of the pods Ready before the window ends.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from benchmarks.shared.bars import exit_code
from shiplap.manifests.custom_resources import Budget
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.sleep.sleep_settings import WindowSettings
from shiplap.policies.sleep.sleep_windows import parse_window, spans_of
from shiplap.spending.ledger import HOUR_S
from shiplap_lab.policies.sleep_scenario import ScenarioSleep
from shiplap_lab.scenarios.scenario import Play, PodGroup, Wave, load
from shiplap_lab.simulation.run import Simulation

WEEK_H = 168.0
AWAKE_H = 50.0
BAR = 0.02
WINDOWS = ("Mon-Thu 18:00-08:00 UTC", "Fri 18:00 - Mon 08:00 UTC")
_POOL = {"nodeSelector": {"karpenter.sh/nodepool": "dev"}}


class Week:
    """A week of one NodePool: what it cost in USD, and when pods were Ready after each opening, in seconds.

    `posted` is what the ledger has of `posted_h` hours of it, and `dollars_then` what EC2 charges for them.
    """

    def __init__(self, play: Play, seed: int) -> None:
        self._run = Simulation(play, seed, (), WEEK_H)
        start = self._run.loop.now()
        ends = (span.end for text in WINDOWS for span in spans_of(parse_window(text), start, start + WEEK_H * 3600))
        self._openings = sorted(end for end in ends if end < start + WEEK_H * 3600 - 3600)
        self._ready: dict[tuple[int, str], float] = {}
        self._run.observers.append(self._look)
        began = time.process_time()
        self._outcome = self._run.play()
        self.cpu_s = time.process_time() - began
        assert not self._outcome.violations, self._outcome.violations
        until = start + WEEK_H * HOUR_S
        self.dollars = self._charged(until)
        ledger = self._run.installs["shiplap"].state.read("demo", self._run.loop.now()).ledger
        assert ledger is not None
        oldest = ledger.posted_until - len(ledger.hours) * HOUR_S
        hours = {oldest + (number + 1) * HOUR_S: micros for number, micros in enumerate(ledger.hours)}
        last = max(end for end in hours if end <= until)
        self.posted = sum(micros for end, micros in hours.items() if end <= last) / MICROS
        self.dollars_then, self.posted_h = self._charged(last), (last - start) / HOUR_S

    def _charged(self, until: float) -> float:
        """USD that EC2 charges until a moment."""
        accounts = self._run.judge.dollars.accounts
        return sum(
            self._run.price(item) * max(0.0, min(accounts[item.id].ended_at, until) - item.launched_at) / HOUR_S
            for item in self._run.instances.values()
        )

    def _look(self) -> None:
        now = self._run.loop.now()
        for opening in self._openings:
            if opening - 1200 <= now <= opening + 1800:
                for pod in self._run.clusters["demo"].server.list("pods").items:
                    key = (opening, pod["metadata"]["uid"])
                    if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running":
                        self._ready.setdefault(key, now - opening)

    @property
    def ready_s(self) -> list[float]:
        """Of every pod at every opening, sorted."""
        return sorted(self._ready.values())


def week_of(pods: int, budget: str, *, sleep: bool) -> Play:
    """The scenario."""
    play = load("sleep")
    asleep = ScenarioSleep(("dev",), 1000, tuple(map(WindowSettings, WINDOWS)), rehearsed=1.0)
    groups = (PodGroup("dev", cpu="900m", memory="1Gi", spec=_POOL),)
    scenario = replace(
        play.scenario,
        sleep=msgspec.to_builtins(asleep) if sleep else None,
        ceilings=({"monthly": 1_000_000.0},),
        groups=groups,
        waves=(Wave("dev", pods),),
        faults=(),
        chaos=0,
        settle_minutes=600.0,
        placement="nominate",
    )
    manifests = play.manifests["demo"]
    pools = tuple(
        replace(pool, spec=replace(pool.spec, disruption=replace(pool.spec.disruption, budgets=(Budget(budget),))))
        for pool in manifests.node_pools
        if pool.metadata.name == "dev"
    )
    return replace(play, scenario=scenario, manifests={"demo": replace(manifests, node_pools=pools)})


def percentile(values: Sequence[float], share: float) -> float:
    """The value that so many of these sorted values do not exceed."""
    return values[ceil(share * len(values)) - 1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=24)
    parser.add_argument("--budget", default="100%")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    awake, asleep = (Week(week_of(given.pods, given.budget, sleep=sleep), given.seed) for sleep in (False, True))
    print(f"{given.pods} pods, budget {given.budget}, seed {given.seed}; {awake.cpu_s + asleep.cpu_s:.0f} CPU s")
    print(f"always awake   {awake.dollars:8.2f} USD in 168 hours")
    print(f"with sleep     {asleep.dollars:8.2f} USD")
    missed = [name for name, off in _offsets(awake, asleep) if abs(off) > BAR]
    missed += ["pods Ready"] if _tells_late(asleep.ready_s) else []
    return exit_code(missed)


def _offsets(awake: Week, asleep: Week) -> Iterator[tuple[str, float]]:
    """Print each figure in dollars, and yield how far it is from what it should be, as a part of that."""
    by_ledger = f"by the ledger, in {asleep.posted_h:.1f} hours"
    for name, found, should_be in (
        ("share of EC2's dollars", asleep.dollars / awake.dollars, AWAKE_H / WEEK_H),
        (f"share {by_ledger}", asleep.posted / awake.posted, AWAKE_H / asleep.posted_h),
        ("ledger of the week awake", awake.posted, awake.dollars_then),
        ("ledger of the week with sleep", asleep.posted, asleep.dollars_then),
    ):
        off = found / should_be - 1
        print(f"{name:36} {found:.4f}, should be {should_be:.4f}: {off:+.2%}")
        yield name, off


def _tells_late(ready_s: Sequence[float]) -> bool:
    """Print when pods were Ready, and say whether more than 5 % of them were late."""
    late = sum(item > 0 for item in ready_s)
    some = ", ".join(f"{name} {percentile(ready_s, part):.0f}" for name, part in (("median", 0.5), ("p95", 0.95)))
    print(f"pods Ready after an opening, s: {some}, last {ready_s[-1]:.0f}; {late} of {len(ready_s)} late")
    return percentile(ready_s, 0.95) > 0


if __name__ == "__main__":
    sys.exit(main())
