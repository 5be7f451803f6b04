"""Measures the simulation: a seed of the campaign, and an hour of clusters up to a thousand nodes, in processor time.

`--full` adds the hour of 1,000 nodes and 20,000 pods; without it the benchmark takes about a minute.
"""

from __future__ import annotations

import argparse
import time

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.run import RunOutcome

_SEEDS = 8


def _sized(play: Play, share: float) -> Play:
    """The play with a share of its pods."""
    waves = tuple(replace(wave, replicas=round(wave.replicas * share)) for wave in play.scenario.waves)
    return replace(play, scenario=replace(play.scenario, waves=waves))


def _timed(play: Play, seed: int, hours: float | None = None) -> tuple[RunOutcome, float]:
    start = time.process_time()
    outcome = run_seed(play, seed, hours=hours)
    return outcome, time.process_time() - start


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="also 1,000 nodes and 20,000 pods")
    full = parser.parse_args().full
    table = Table("play", "pods", "nodes at most", "virtual minutes", "processor s", "promises")
    mixed = load("mixed")
    _timed(mixed, 0)  # imports and first calls are nobody's seed
    best = sorted(_timed(mixed, seed)[1] for seed in range(_SEEDS))
    table.add_row("mixed, a seed (median)", "26", "6", "40", f"{best[_SEEDS // 2]:.2f}", "")
    for share in (0.025, 0.1, 1.0) if full else (0.025, 0.1):
        outcome, seconds = _timed(_sized(load("thousand-nodes"), share), 1, 1.0)
        kept = "kept" if not outcome.violations else outcome.violations[0].promise
        minutes = f"{outcome.ended_at / 60:.0f}"
        table.add_row(
            "thousand-nodes", f"{20000 * share:.0f}", str(outcome.most_nodes), minutes, f"{seconds:.1f}", kept
        )
    Console().print(table)


if __name__ == "__main__":
    main()
