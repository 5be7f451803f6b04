"""Draws mutants of the product, runs the tests that cover them, and prints the share that was found.

    python -m tools.mutation.mutate --seed 7 --flows 40 --adapters 20 --disruption 20 --learning 20
    python -m tools.mutation.mutate --only flows/schedule/resume.py
    python -m tools.mutation.mutate --seed 7 --again             # those that survived, after tests were added
    python -m tools.mutation.mutate --seed 7 --simulation 20     # which flow mutants the simulation finds by itself

mutmut and cosmic-ray are not used: both write mutants into the source tree and start a test run for each. Here a mutant
is planted in a forked process that has imported everything else, only tests that run its line are run, and a verdict is
kept for as long as the function around the mutant stays the same.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tools.mutation.code_mutants import Mutant, mutants_of
from tools.mutation.covered_lines import PRODUCT, SUFFIX, read
from tools.mutation.covering_tests import CoveringTests, within_s
from tools.mutation.mutant_runs import ROOT, ChangedModule, Outcome, Verdict, preload, run_forked, run_tests
from tools.mutation.mutant_verdicts import (
    STRATA,
    Share,
    VerdictStore,
    read_equivalents,
    sample,
    share_of,
    stratum_of,
)

BUILD = ROOT / "build/mutation"
COVERAGE = BUILD / "coverage"
EQUIVALENTS = Path(__file__).with_name("equivalents.toml")
RECORDED = (
    "tests/unit",
    "tests/conformance",
    "tests/property",
    "tests/integration/flows",
    "tests/integration/contracts",
    "tests/integration/test_catalog_source.py",
    "tests/integration/test_claims_read_once.py",
    "tests/integration/test_dynamodb_adapters.py",
    "tests/integration/test_ec2_compute.py",
    "tests/integration/test_ec2_faults.py",
    "tests/integration/test_eventbridge_adapter.py",
    "tests/integration/test_request_pace.py",
)
"""Tests that are run against mutants: all that test the library in the process of the test."""

_MOST_TESTS, _MOST_TESTS_S = 300, 30.0
_PATIENCE, _START_S = 6.0, 60.0
"""A run may take so many times as long as its tests took when they were recorded, and so long to start, in seconds."""

_SCENARIOS = ("mixed", "races")
_SEED_S = 60.0


def record(*, anew: bool) -> None:
    """Run the tests once and record which lines each runs, unless that is newer than the product and the tests.

    Raises subprocess.CalledProcessError only if the run itself breaks: a test that fails is not recorded.
    """
    recorded = min((path.stat().st_mtime for path in COVERAGE.glob(f"*{SUFFIX}")), default=0.0)
    files = (path for folder in (PRODUCT, ROOT / "tests") for path in folder.rglob("*.py"))
    if not anew and all(path.stat().st_mtime <= recorded for path in files):
        return
    for path in COVERAGE.glob(f"*{SUFFIX}"):
        path.unlink()
    plugin = ["-p", "tools.mutation.covered_lines", "--covered-lines", str(COVERAGE)]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *plugin, *RECORDED]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own command
    if code not in (0, 1):
        raise subprocess.CalledProcessError(code, command)


def all_mutants() -> list[Mutant]:
    """Those of all parts of the product that are drawn from."""
    files = sorted(path.relative_to(PRODUCT).as_posix() for path in PRODUCT.rglob("*.py"))
    return [mutant for path in files if stratum_of(path) for mutant in mutants_of(path, (PRODUCT / path).read_text())]


def verdict_of_tests(mutant: Mutant, covering: CoveringTests) -> Verdict:
    """What the covering tests say about a mutant; without any it survives."""
    source = (PRODUCT / mutant.path).read_text()
    last = mutant.line + source.count("\n", mutant.start, mutant.end)
    found = covering.of(mutant.path, range(mutant.line, last + 1))
    if not found:
        return Verdict(Outcome.SURVIVED, "no test runs the line")
    chosen = within_s(found, _MOST_TESTS_S, _MOST_TESTS)
    limit_s = _START_S + _PATIENCE * sum(test.seconds for test in chosen)
    changed = ChangedModule(mutant.path, mutant.applied_to(source))
    return run_tests(changed, [test.test for test in chosen], limit_s, BUILD / "logs" / f"{mutant.key}.log")


def verdict_of_simulation(mutant: Mutant, seeds: int) -> Verdict:
    """Whether an invariant breaks within so many seeds of each scenario."""

    def act() -> Verdict:
        # Imported here: it imports the module that is changed.
        from shiplap_lab.scenarios.scenario import load  # noqa: PLC0415
        from shiplap_lab.simulation.campaign import run_seed  # noqa: PLC0415

        for seed in range(seeds):
            for name in _SCENARIOS:
                if broken := run_seed(load(name), seed).violations:
                    return Verdict(Outcome.FOUND, f"{name}, seed {seed}: {broken[0].promise}")
        return Verdict(Outcome.SURVIVED)

    changed = ChangedModule(mutant.path, mutant.applied_to((PRODUCT / mutant.path).read_text()))
    log = BUILD / "logs" / f"{mutant.key}-simulation.log"
    return run_forked(changed, act, _START_S + _SEED_S * seeds * len(_SCENARIOS), log)


def judge(
    mutants: Sequence[Mutant],
    store: VerdictStore,
    verdict_of: Callable[[Mutant], Verdict],
    *,
    jobs: int,
    key_of: Callable[[Mutant], str],
) -> None:
    """Store a verdict for each mutant, in so many processes. Whatever is interrupted has stored what it had judged."""
    workers = []
    for number in range(jobs):
        process = os.fork()
        if process == 0:
            code = 1
            try:
                for mutant in mutants[number::jobs]:
                    verdict = verdict_of(mutant)
                    store.add(key_of(mutant), verdict)
                    _say(f"{verdict.outcome:9} {verdict.seconds:6.1f} s  {mutant}")
                code = 0
            finally:
                os._exit(code)
        workers.append(process)
    codes = [os.waitpid(process, 0)[1] for process in workers]
    if any(codes):
        raise SystemExit("a process that judges mutants has ended; run the same again to go on")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_shares(drawn: Sequence[Mutant], verdicts: Mapping[str, Verdict], equivalents: Sequence[str]) -> None:
    """A row for each part of the product, and for all of it."""
    _say(f"\n{'':20} {'found':>6} {'survived':>9} {'equivalent':>11} {'timeout':>8} {'broken':>7} {'share':>8}")
    rows = [(name, [item for item in drawn if stratum_of(item.path) == name]) for name in STRATA]
    for name, mutants in (*rows, ("all", drawn)):
        share: Share = share_of(mutants, verdicts, equivalents)
        figures = f"{share.found:6} {share.survived:9} {share.equivalent:11} {share.timeout:8} {share.broken:7}"
        _say(f"{name:20} {figures} {share.fraction:8.1%}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 0 whatever was found: survivors are work, not an error."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    for name, (size, _) in STRATA.items():
        parser.add_argument(f"--{name.split()[0]}", type=int, default=size, help=f"mutants of {name} [{size}]")
    parser.add_argument("--only", default="", help="all mutants of files whose path contains this, instead of a sample")
    parser.add_argument("--again", action="store_true", help="judge survivors, timeouts and broken ones again")
    parser.add_argument("--record", action="store_true", help="record anew which lines the tests run")
    parser.add_argument("--keep", action="store_true", help="use what was recorded, even if files have changed since")
    parser.add_argument("--simulation", type=int, default=0, help="seeds of each scenario for flow mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)

    if not chosen.keep:
        record(anew=chosen.record)
    sizes = {name: getattr(chosen, name.split()[0]) for name in STRATA}
    mutants = all_mutants()
    drawn = (
        [item for item in mutants if chosen.only in item.path] if chosen.only else sample(mutants, chosen.seed, sizes)
    )
    store = VerdictStore(BUILD / "verdicts.jsonl")
    known = store.read()
    kept = (Outcome.FOUND,) if chosen.again else tuple(Outcome)
    due = [item for item in drawn if item.key not in known or known[item.key].outcome not in kept]
    _say(f"{len(drawn)} mutants of {len(mutants)}, {len(due)} to judge")
    covering = CoveringTests(read(COVERAGE))
    preload()
    judge(due, store, lambda item: verdict_of_tests(item, covering), jobs=chosen.jobs, key_of=lambda item: item.key)
    verdicts = store.read()
    equivalents = read_equivalents(EQUIVALENTS)
    survivors = [
        item for item in drawn if verdicts[item.key].outcome is Outcome.SURVIVED and item.key not in equivalents
    ]
    _say("\nsurvivors:" if survivors else "\nnone survived")
    for item in sorted(survivors, key=lambda item: (item.path, item.line)):
        _say(f"  {item.key}  {item}  {verdicts[item.key].test}".rstrip())
    print_shares(drawn, verdicts, list(equivalents))
    if chosen.simulation:
        _simulate(drawn, store, chosen.simulation, chosen.jobs)
    return 0


def _simulate(drawn: Sequence[Mutant], store: VerdictStore, seeds: int, jobs: int) -> None:
    """The simulation's own share of the flow mutants."""

    def key_of(mutant: Mutant) -> str:
        return f"{mutant.key}/simulation/{seeds}"

    known = store.read()
    flows = [item for item in drawn if stratum_of(item.path) == "flows"]
    due = [item for item in flows if key_of(item) not in known]
    judge(due, store, lambda item: verdict_of_simulation(item, seeds), jobs=jobs, key_of=key_of)
    verdicts = store.read()
    share = share_of(flows, {item.key: verdicts[key_of(item)] for item in flows})
    _say(
        f"\nthe simulation alone, {seeds} seeds each: "
        f"{share.found} of {share.counted} flow mutants, {share.fraction:.1%}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
