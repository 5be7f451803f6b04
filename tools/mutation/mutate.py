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
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from tools.mutation.code_mutants import Mutant, mutants_of
from tools.mutation.covered_lines import PRODUCT, SOURCES, keep_sources, read
from tools.mutation.covering_tests import (
    CoveringTests,
    class_changed,
    lines_of,
    lines_that_use,
    names_changed,
    runs_when_imported,
    within_s,
)
from tools.mutation.forked_judges import Trial, broken_promise, judge_by_simulation, judge_by_tests
from tools.mutation.mutant_runs import (
    BUILD,
    LOGS,
    ROOT,
    ChangedModule,
    Outcome,
    Verdict,
    in_forks,
    preload,
    run_forked,
    run_tests,
)
from tools.mutation.mutant_verdicts import (
    STRATA,
    Share,
    VerdictStore,
    missed_bars,
    read_equivalents,
    sample,
    share_of,
    shares_of_parts,
    stratum_of,
)
from tools.mutation.simulated_seeds import NOT_PLAYED, record_seeds, recorded_seeds

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
    "tests/integration/test_kubeconfig_secret.py",
    "tests/integration/test_odd_answers_of_ec2.py",
    "tests/integration/test_otlp_push.py",
    "tests/integration/test_explain_decision.py",
    "tests/integration/test_request_pace.py",
    "tests/integration/test_uninstall_steps.py",
)
"""Tests that are run against mutants: all that test the library in the process of the test."""

_MOST_TESTS, _MOST_TESTS_S = 1500, 15.0
_PATIENCE, _START_S = 6.0, 60.0
"""A run may take so many times as long as its tests took when they were recorded, and so long to start, in seconds."""

_MANY_FILES = 20

_STARTS_A_SERVER = "dynamodb-local"
"""Tests with this in their names start DynamoDB Local in every fork, for seconds; each has a twin on moto."""


def record(*, anew: bool) -> None:
    """Record which lines the tests run: those of test files that have changed since, or of all.

    Raises subprocess.CalledProcessError only if the run itself breaks: a test that fails is not recorded.
    """
    if anew:
        shutil.rmtree(COVERAGE, ignore_errors=True)
    # When recording began: a file that is changed meanwhile is recorded next time.
    recorded = max((path.stat().st_mtime for path in COVERAGE.glob(f"*/{SOURCES}")), default=0.0)
    files = sorted({path for name in RECORDED for path in _test_files(ROOT / name)})
    changed = [str(path.relative_to(ROOT)) for path in files if path.stat().st_mtime > recorded]
    if not changed:
        return
    folder = COVERAGE / f"{len(list(COVERAGE.glob('*'))):04}"
    keep_sources(PRODUCT, folder)
    plugin = ["-p", "tools.mutation.covered_lines", "--covered-lines", str(folder)]
    jobs = ["-n", "auto"] if len(changed) > _MANY_FILES else ["-n", "0"]
    command = [sys.executable, "-m", "pytest", "-q", *jobs, *plugin, *changed]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own command
    if code not in (0, 1, 5):
        shutil.rmtree(folder)
        raise subprocess.CalledProcessError(code, command)


def _test_files(path: Path) -> Iterable[Path]:
    return [path] if path.is_file() else path.rglob("test_*.py")


def all_mutants() -> list[Mutant]:
    """Return the mutants of all parts of the product that are drawn from."""
    files = sorted(path.relative_to(PRODUCT).as_posix() for path in PRODUCT.rglob("*.py"))
    return [mutant for path in files if stratum_of(path) for mutant in mutants_of(path, (PRODUCT / path).read_text())]


def trial_of(mutant: Mutant, covering: CoveringTests) -> Trial:
    """A mutant with the tests that run its statement, as many as fit."""
    source = (PRODUCT / mutant.path).read_text()
    lines, is_imported = lines_of(mutant, source), runs_when_imported(mutant, source)
    found = covering.of(mutant.path, lines, function=mutant.function, is_imported=is_imported)
    changed = class_changed(mutant, source)
    for name in sorted({changed} if changed else names_changed(mutant, source)):
        found = [*covering.naming(mutant.path, name), *found]
        for path, used in _users_of(name, mutant.path).items():
            found = [*found, *covering.of(path, used)]
    found = list({test.test: test for test in found}.values())
    return Trial(mutant, tuple(within_s(found, _MOST_TESTS_S, _MOST_TESTS)))


@cache
def _users_of(name: str, path: str) -> Mapping[str, frozenset[int]]:
    """Other files of the product that import a name of a module's, and the lines that use it."""
    package, _, module = path.removesuffix(".py").replace("/", ".").rpartition(".")
    imports = re.compile(rf"^from {re.escape(package)}\.{module} import (\([^)]*\b{name}\b|.*\b{name}\b)", re.MULTILINE)
    sources = {item.relative_to(PRODUCT).as_posix(): item.read_text() for item in sorted(PRODUCT.rglob("*.py"))}
    return {
        other: frozenset(lines_that_use({name}, source)) for other, source in sources.items() if imports.search(source)
    }


def verdict_of_import(trial: Trial) -> Verdict:
    """Run the tests of a trial in a process that imports the mutant; without any test it survives."""
    if not trial.tests:
        return Verdict(Outcome.SURVIVED, "no test runs the line")
    names, log = [test.test for test in trial.tests], LOGS / f"{trial.mutant.key}.log"
    return run_tests(_changed(trial.mutant), names, _limit_s(trial), log)


def verdict_of_seeds(trial: Trial) -> Verdict:
    """Run the seeds of a trial in a process that imports the mutant."""

    def act() -> Verdict:
        found_by = broken_promise(trial)
        return Verdict(Outcome.FOUND, found_by) if found_by else Verdict(Outcome.SURVIVED)

    return run_forked(_changed(trial.mutant), act, _limit_s(trial), LOGS / f"{trial.mutant.key}-simulation.log")


def _changed(mutant: Mutant) -> ChangedModule:
    return ChangedModule(mutant.path, mutant.applied_to((PRODUCT / mutant.path).read_text()))


def _limit_s(trial: Trial) -> float:
    """Seconds that a process may take which imports the mutant first."""
    return _START_S + _PATIENCE * sum(test.seconds for test in trial.tests)


def in_fork(act: Callable[[], object]) -> None:
    """Act in a process of its own. What it imports stays there. Raises SystemExit if it ends with an error."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    if os.waitpid(process, 0)[1]:
        raise SystemExit("a process that judges mutants has ended; run the same again to go on")


def judge(trials: Sequence[Trial], store: VerdictStore, *, jobs: int) -> None:
    """Store a verdict for each mutant. What is interrupted has stored what it had judged."""
    in_fork(lambda: judge_by_tests([trial for trial in trials if trial.tests], store, jobs, _say))
    known = store.read()
    left = [trial for trial in trials if trial.mutant.key not in known]
    if not left:
        return
    keys = {trial.mutant.key: trial.mutant.key for trial in left}
    in_fork(lambda: _judge_anew(left, keys, verdict_of_import, store, jobs))


def _judge_anew(
    trials: Sequence[Trial],
    keys: Mapping[str, str],
    verdict_of: Callable[[Trial], Verdict],
    store: VerdictStore,
    jobs: int,
) -> None:
    """Store verdicts of processes that import the mutant; `keys` names them by the mutant's."""

    def judge(trial: Trial) -> None:
        verdict = verdict_of(trial)
        store.add(keys[trial.mutant.key], verdict)
        _say(f"{verdict.outcome:9} {verdict.seconds:6.1f} s  {trial.mutant}")

    preload()
    in_forks(trials, jobs, judge)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_shares(shares: Mapping[str, Share]) -> None:
    """A row for each part of the product, and for all of it. "of all" leaves out no equivalent mutant."""
    titles = f"{'found':>6} {'survived':>9} {'equivalent':>11} {'timeout':>8} {'broken':>7} {'share':>8} {'of all':>8}"
    _say(f"\n{'':20} {titles}")
    for name, share in shares.items():
        figures = f"{share.found:6} {share.survived:9} {share.equivalent:11} {share.timeout:8} {share.broken:7}"
        _say(f"{name:20} {figures} {share.fraction:8.1%} {share.fraction_of_all:8.1%}")


def print_simulations_share(drawn: Sequence[Mutant], store: VerdictStore, seeds: int, jobs: int) -> None:
    """Print the share of the flow mutants that so many seeds of each scenario find, without any test."""
    flows = [item for item in drawn if stratum_of(item.path) == "flows"]
    simulated = _simulated(flows, store, seeds, jobs)
    share = share_of(flows, simulated)
    not_played = sum(verdict.test == NOT_PLAYED for verdict in simulated.values())
    for item in flows:
        _say(f"  {simulated[item.key].outcome:9} {item}  {simulated[item.key].test}".rstrip())
    _say(
        f"\nthe simulation alone, {seeds} seeds each: "
        f"{share.found} of {share.counted} flow mutants, {share.fraction:.1%}; {not_played} in lines that no seed "
        f"runs, {share.timeout} timeouts"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code is 1 if too few mutants of a sample were found; a survivor by itself is work, not an error."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    for name, (size, _) in STRATA.items():
        parser.add_argument(f"--{name.split()[0]}", type=int, default=size, help=f"mutants of {name} [{size}]")
    parser.add_argument("--only", default="", help="all mutants of files whose path contains this, instead of a sample")
    parser.add_argument("--again", action="store_true", help="judge survivors, timeouts and broken ones again")
    parser.add_argument("--record", action="store_true", help="record anew which lines all tests run")
    parser.add_argument("--keep", action="store_true", help="record nothing, even if tests have changed since")
    parser.add_argument("--simulation", type=int, default=0, help="seeds of each scenario for flow mutants")
    parser.add_argument("--then-simulation", type=int, default=0, help="seeds of each scenario for what survives")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = parser.parse_args(arguments)

    if not chosen.keep:
        record(anew=chosen.record)
    if (seeds := max(chosen.simulation, chosen.then_simulation)) and not chosen.keep:
        in_fork(lambda: record_seeds(seeds, chosen.jobs, _say, anew=chosen.record))
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
    store.forget(item.key for item in due)
    recorded = [test for test in read(COVERAGE, PRODUCT) if _STARTS_A_SERVER not in test.test]
    covering = CoveringTests(recorded, ROOT)
    judge([trial_of(item, covering) for item in due], store, jobs=chosen.jobs)
    verdicts = store.read()
    equivalents = read_equivalents(EQUIVALENTS)
    survivors = [
        item for item in drawn if verdicts[item.key].outcome is Outcome.SURVIVED and item.key not in equivalents
    ]
    _say("\nsurvivors:" if survivors else "\nnone survived")
    for item in sorted(survivors, key=lambda item: (item.path, item.line)):
        _say(f"  {item.key}  {item}  {verdicts[item.key].test}".rstrip())
    shares = shares_of_parts(drawn, verdicts, equivalents)
    print_shares(shares)
    if chosen.then_simulation:
        simulated = _simulated(survivors, store, chosen.then_simulation, chosen.jobs)
        found = {item.key: simulated[item.key] for item in survivors if simulated[item.key].outcome is Outcome.FOUND}
        for item in survivors:
            if item.key in found:
                _say(f"  {item.key}  {item}  {found[item.key].test}")
        _say(f"\nwith {chosen.then_simulation} seeds of each scenario for those that survived the tests:")
        print_shares(shares_of_parts(drawn, {**verdicts, **found}, equivalents))
    if chosen.simulation:
        print_simulations_share(drawn, store, chosen.simulation, chosen.jobs)
    missed = [] if chosen.only else missed_bars(shares)
    for line in missed:
        _say(f"missed: {line}")
    return 1 if missed else 0


def _simulated(mutants: Sequence[Mutant], store: VerdictStore, seeds: int, jobs: int) -> dict[str, Verdict]:
    """The verdicts of so many seeds of each scenario, by the key of the mutant."""
    keys = {item.key: f"{item.key}/simulation/{seeds}" for item in mutants}
    recorded, known = recorded_seeds(), store.read()
    due = [Trial(item, tuple(recorded.of(item, seeds))) for item in mutants if keys[item.key] not in known]
    for trial in due:
        if not trial.tests:
            store.add(keys[trial.mutant.key], Verdict(Outcome.SURVIVED, NOT_PLAYED))
    played = [trial for trial in due if trial.tests]
    in_fork(lambda: judge_by_simulation(played, keys, store, jobs, _say))
    known = store.read()
    anew = [trial for trial in played if keys[trial.mutant.key] not in known]
    in_fork(lambda: _judge_anew(anew, keys, verdict_of_seeds, store, jobs))
    known = store.read()
    return {item.key: known.get(keys[item.key], Verdict(Outcome.BROKEN)) for item in mutants}


if __name__ == "__main__":
    raise SystemExit(main())
