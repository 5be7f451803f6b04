"""What sleep saves: a week in which a NodePool is awake 50 of 168 hours, beside the same week without sleep.

    python benchmarks/sleep.py [--pods 24] [--budget 100%]

Both weeks are played in virtual time, without faults. Dollars are those that EC2 charges, by the second; the claims
account for the same, or the run fails. The bar is 50/168 of the nodes' dollars, 2 % more or less. At each opening, the
time from the end of the window until each pod is Ready is told, negative where it is before.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from shiplap.manifests.custom_resources import Budget
from shiplap.sleep.sleep_settings import WindowSettings
from shiplap.sleep.sleep_windows import parse_window, spans_of
from shiplap_lab.scenarios.scenario import Play, PodGroup, ScenarioSleep, Wave, load
from shiplap_lab.simulation.run import Simulation

WEEK_H = 168.0
AWAKE_H = 50.0
WINDOWS = ("Mon-Thu 18:00-08:00 UTC", "Fri 18:00 - Mon 08:00 UTC")
_POOL = {"nodeSelector": {"karpenter.sh/nodepool": "dev"}}


class Week:
    """A week of one NodePool: what it cost, and when pods were Ready after each opening, in seconds."""

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
        until = start + WEEK_H * 3600
        self.dollars = sum(
            self._run.price(item)
            * max(0.0, min(self._run.judge.dollars.accounts[item.id].ended_at, until) - item.launched_at)
            / 3600
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
    play = load("nights")
    asleep = ScenarioSleep(("dev",), 1000, tuple(map(WindowSettings, WINDOWS)), rehearsed=True)
    groups = (PodGroup("dev", cpu="900m", memory="1Gi", spec=_POOL),)
    scenario = replace(
        play.scenario,
        sleep=asleep if sleep else None,
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=24)
    parser.add_argument("--budget", default="100%")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    awake = Week(week_of(given.pods, given.budget, sleep=False), given.seed)
    asleep = Week(week_of(given.pods, given.budget, sleep=True), given.seed)
    share, bar = asleep.dollars / awake.dollars, AWAKE_H / WEEK_H
    cpu_s = awake.cpu_s + asleep.cpu_s
    print(f"{given.pods} pods, budget {given.budget}, seed {given.seed}; {cpu_s:.0f} CPU s")
    print(f"always awake   {awake.dollars:8.2f} USD in 168 hours")
    print(f"with sleep     {asleep.dollars:8.2f} USD")
    print(f"share          {share:.4f}; 50/168 is {bar:.4f}: {share / bar - 1:+.2%} (bar: 2 %)")
    ready = asleep.ready_s
    late = sum(item > 0 for item in ready)
    some = ", ".join(f"{name} {percentile(ready, part):.0f}" for name, part in (("median", 0.5), ("p95", 0.95)))
    print(f"pods Ready after an opening, s: {some}, last {ready[-1]:.0f}; {late} of {len(ready)} late")


if __name__ == "__main__":
    main()
