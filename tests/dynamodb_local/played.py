"""Seeds of a scenario on DynamoDB Local, with faults below botocore or without.

`python -m tests.dynamodb_local.played mixed --seeds 50` compares traces with those of the fake;
`--share 0.04` injects faults into this share of calls instead, and asks only whether all invariants held.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import botocore.endpoint

from shiplap.aws.dynamodb import state_table, tables
from shiplap.ports import Clock
from shiplap_lab.scenarios.scenario import Play, load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.chaos import draw_faults
from shiplap_lab.simulation.run import RunOutcome, Simulation
from shiplap_lab.virtual_time.fault_injector import FaultInjector
from tests.dynamodb_local.checked_table import TABLE, CheckedTable
from tests.dynamodb_local.server import DynamoDbLocal
from tests.integration.contracts.in_process_aws import create_table

_SHARDS = 2
"""Partitions of a cluster's claims. Each read of the claims asks all of them: with as many as in production, five of
six requests of a run are such questions, and nearly all answers are empty."""


class PlayedSeed(NamedTuple):
    """A run, and how often each fault below botocore took effect in it."""

    outcome: RunOutcome
    effects: Counter[str]


def play_on_table(local: DynamoDbLocal, play: Play, seed: int, *, share: float = 0.0) -> PlayedSeed:
    """One run of a scenario with one install; a `share` of calls meet a fault."""
    with local.client() as client, unpaused(), patch.object(state_table, "SHARDS", _SHARDS):
        create_table(client, TABLE, tables.STATE)
        made: list[CheckedTable] = []

        def make_state(faults: FaultInjector, clock: Clock) -> CheckedTable:
            made.append(CheckedTable(faults, clock, client, seed=seed, share=share))
            return made[-1]

        simulation = Simulation(
            play, seed, draw_faults(play.scenario, seed), play.scenario.hours, make_state=make_state
        )
        try:
            outcome = simulation.play()
        finally:
            made[0].transport.detach(client)
    return PlayedSeed(outcome, made[0].transport.effects)


@contextmanager
def unpaused() -> Iterator[None]:
    """botocore repeats calls at once: its pauses are real time, of which a run has none."""
    with patch.object(botocore.endpoint, "time", SimpleNamespace(sleep=lambda seconds: None)):
        yield


def main(arguments: Sequence[str]) -> int:
    """Print a line for each seed; exit code 1 when a trace differs or an invariant was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--share", type=float, default=0.0)
    given = parser.parse_args(arguments)
    play, failed = load(given.scenario), 0
    effects: Counter[str] = Counter()
    with TemporaryDirectory() as folder, DynamoDbLocal(Path(folder)) as local:
        for seed in range(given.first, given.first + given.seeds):
            played = play_on_table(local, play, seed, share=given.share)
            effects += played.effects
            said = _judged(play, seed, played, disturbed=given.share > 0)
            failed += said != "ok"
            sys.stdout.write(f"seed {seed}: {said}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{given.seeds - failed} of {given.seeds} seeds ok; faults that took effect: {dict(effects)}\n")
    return 1 if failed else 0


def _judged(play: Play, seed: int, played: PlayedSeed, *, disturbed: bool) -> str:
    if played.outcome.violations:
        return str(played.outcome.violations[0])
    if disturbed or played.outcome.lines == run_seed(play, seed).lines:
        return "ok"
    return "another trace than on the fake"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
