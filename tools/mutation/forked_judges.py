"""Judges mutants in forks of one process that has imported the product and collected the tests.

A mutant whose module has to be imported anew gets no verdict here; see `mutant_runs`.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec
import pytest

from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import PRODUCT, CoveredTest, LineRecorder
from tools.mutation.exchanged_code import LiveFunctions, NotExchangeableError
from tools.mutation.mutant_runs import LOGS, OPTIONS, Outcome, Verdict, end_group
from tools.mutation.mutant_verdicts import VerdictStore
from tools.mutation.simulated_seeds import forget_answers, load_product, play

_PATIENCE, _LEAST_S = 3.0, 5.0
"""A run may take so many times as long as its tests took when they were recorded, and so long at least."""

_WAITING = 4.0
"""How many times as long as its CPU time a run may take: the machine may be busy."""

_MEMORY_BYTES = 8 * 2**30
_POLL_S = 0.01


class Trial(msgspec.Struct, frozen=True):
    """A mutant, and its tests, or the seeds of scenarios that are played, in their order."""

    mutant: Mutant
    tests: tuple[CoveredTest, ...] = ()

    @property
    def limit_s(self) -> float:
        """CPU seconds."""
        return _LEAST_S + _PATIENCE * sum(test.seconds for test in self.tests)


class Judgement(msgspec.Struct, frozen=True):
    """Holds what a fork needs to judge a mutant.

    Attributes:
        mutant: what is planted.
        key: of its verdict.
        act: returns what has found the mutant, and nothing if it survives.
        limit_s: CPU seconds.
        is_shared: what has been imported may have run the line without the mistake.
    """

    mutant: Mutant
    key: str
    act: Callable[[], str]
    limit_s: float
    is_shared: bool = False


def judge_by_tests(trials: Sequence[Trial], store: VerdictStore, jobs: int, say: Callable[[str], None]) -> int:
    """Collect the tests of all trials and store a verdict for each mutant whose code can be exchanged.

    Call it in a process of its own: it imports the product. Returns pytest's exit code.
    """
    files = sorted({test.test.partition("::")[0] for trial in trials for test in trial.tests})
    recorder = LineRecorder(f"{PRODUCT}/")
    recorder.install()
    recorder.begin()
    plugin = _Judges(trials, store, jobs, say, recorder)
    return int(pytest.main([*OPTIONS, "-s", *files], plugins=[plugin])) if files else 0


def judge_by_simulation(
    trials: Sequence[Trial], keys: Mapping[str, str], store: VerdictStore, jobs: int, say: Callable[[str], None]
) -> None:
    """Store what the seeds of each trial say about its mutant, if its code can be exchanged; `keys` names the verdicts.

    Call it in a process of its own: it imports the product.
    """
    load_product()
    due = [
        Judgement(trial.mutant, keys[trial.mutant.key], partial(broken_promise, trial), trial.limit_s)
        for trial in trials
    ]
    judge_in_forks(due, store, jobs, say)


def broken_promise(trial: Trial) -> str:
    """The first seed of a trial in which a promise is broken, and the promise; empty if there is none."""
    forget_answers()
    for seed in trial.tests:
        if broken := play(seed.test).violations:
            return f"{seed.test}: {broken[0].promise}"
    return ""


class _Judges:
    """A pytest plugin: in place of one run of all tests, a run of some for each mutant."""

    def __init__(
        self,
        trials: Sequence[Trial],
        store: VerdictStore,
        jobs: int,
        say: Callable[[str], None],
        recorder: LineRecorder,
    ) -> None:
        self._trials, self._store, self._jobs, self._say = trials, store, jobs, say
        self._recorder = recorder

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Instead of pytest's own loop."""
        imported = {path: set(lines) for path, lines in self._recorder.lines().items()}
        self._recorder.remove()
        items = {item.nodeid: item for item in session.items}
        due: list[Judgement] = []
        for trial in self._trials:
            mutant, chosen = trial.mutant, [items[test.test] for test in trial.tests if test.test in items]
            if chosen:
                is_shared = bool(mutant.function) and mutant.line in imported.get(mutant.path, ())
                act = partial(_first_failure, session, chosen)
                due.append(Judgement(mutant, mutant.key, act, trial.limit_s, is_shared))
        judge_in_forks(due, self._store, self._jobs, self._say)
        return True


def judge_in_forks(due: Sequence[Judgement], store: VerdictStore, jobs: int, say: Callable[[str], None]) -> None:
    """Store the verdicts. What is interrupted has stored those that it had."""
    live = LiveFunctions(PRODUCT)
    running: list[_Run] = []
    waiting = list(reversed(due))
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(_Run(waiting.pop(), live))
        for run in list(running):
            verdict = run.verdict()
            if verdict is None:
                continue
            running.remove(run)
            if verdict.outcome is not Outcome.DEFERRED:
                store.add(run.judgement.key, verdict)
            say(f"{verdict.outcome:9} {verdict.seconds:6.1f} s  {run.judgement.mutant}")
        time.sleep(_POLL_S)


def _first_failure(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    """Run tests until one fails: its node id; empty if none does."""
    failed: list[str] = []

    class _Reports:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            if report.failed:
                failed.append(report.nodeid)

    session.config.pluginmanager.register(_Reports())
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            return failed[0]
    return ""


class _Run:
    """A forked process with one mutant."""

    def __init__(self, judgement: Judgement, live: LiveFunctions) -> None:
        self.judgement = judgement
        self._began_at = time.monotonic()
        self._reading, writing = os.pipe()
        self._process = os.fork()
        if self._process == 0:
            os.close(self._reading)
            _act_in_child(judgement, live, writing)
        os.close(writing)

    def verdict(self) -> Verdict | None:
        """None while it runs."""
        ended, status = os.waitpid(self._process, os.WNOHANG)
        took_s = round(time.monotonic() - self._began_at, 2)
        if not ended and took_s < _WAITING * self.judgement.limit_s:
            return None
        end_group(self._process)
        if not ended:
            os.waitpid(self._process, 0)
        with os.fdopen(self._reading, "rb") as stream:
            written = stream.read() if ended else b""
        if not ended or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
            return Verdict(Outcome.TIMEOUT, seconds=took_s)
        if not written:
            return Verdict(Outcome.BROKEN, "the process ended", took_s)
        return msgspec.structs.replace(msgspec.json.decode(written, type=Verdict), seconds=took_s)


def _act_in_child(judgement: Judgement, live: LiveFunctions, writing: int) -> None:
    """The forked process: never returns."""
    try:
        os.setsid()
        log = LOGS / f"{judgement.key.replace('/', '-')}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        limit = int(judgement.limit_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        verdict = _verdict(judgement, live)
        sys.stdout.flush()
        os.write(writing, msgspec.json.encode(verdict))
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(0)


def _verdict(judgement: Judgement, live: LiveFunctions) -> Verdict:
    mutant = judgement.mutant
    try:
        live.exchange(mutant, (PRODUCT / mutant.path).read_text())
    except NotExchangeableError:
        return Verdict(Outcome.DEFERRED)
    except Exception:  # noqa: BLE001 - a constant may raise anything
        traceback.print_exc()
        return Verdict(Outcome.BROKEN)
    if found_by := judgement.act():
        return Verdict(Outcome.FOUND, found_by)
    return Verdict(Outcome.DEFERRED if judgement.is_shared else Outcome.SURVIVED)
