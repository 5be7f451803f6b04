"""Runs tests against a mutant: a forked process loads one module of the product from changed source.

No file is changed, so that runs may be side by side, and a run that is killed leaves nothing behind. Everything that
mutants do not change is imported before the fork.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TypeVar

import msgspec
import pytest

from tools.mutation.covered_lines import PRODUCT

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/mutation"
LOGS = BUILD / "logs"
SEARCHED = (PRODUCT, ROOT / "src", ROOT)
_PRELOADED = ("hypothesis", "botocore.session", "boto3", "xdist", "yaml", "rich.console", "typer", "zoneinfo")
OPTIONS = (
    "-q",
    "--tb=short",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
_POLL_S = 0.02


class Outcome(StrEnum):
    """The result of a mutant. Broken: it cannot be imported, so that no test was needed to find it.

    Deferred: it has no verdict yet, because its module has to be imported anew.
    """

    FOUND = "found"
    SURVIVED = "survived"
    TIMEOUT = "timeout"
    BROKEN = "broken"
    DEFERRED = "deferred"


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a run, the test that failed first, and how long it took."""

    outcome: Outcome
    test: str = ""
    seconds: float = 0.0


class ChangedModule(msgspec.Struct, frozen=True):
    """A module of the product with other source; `path` is below `PRODUCT`."""

    path: str
    source: str

    @property
    def name(self) -> str:
        """As it is imported."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Loader(SourceFileLoader):
    def __init__(self, changed: ChangedModule, path: str) -> None:
        super().__init__(changed.name, path)
        self._source = changed.source

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002 - it loads one module
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, changed: ChangedModule) -> None:
        self._changed = changed

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._changed.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin:
            spec.loader = _Loader(self._changed, spec.origin)
        return spec


def plant(changed: ChangedModule) -> None:
    """Have this process import the changed module. Raises what the module raises, and SyntaxError."""
    for folder in reversed(SEARCHED):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    sys.meta_path.insert(0, _Finder(changed))
    importlib.import_module(changed.name)


def preload() -> None:
    """Import what mutants do not change."""
    for name in _PRELOADED:
        importlib.import_module(name)


class _FirstFailure:
    """A pytest plugin that ends the run with the first test that fails.

    Attributes:
        test: its node id.
        broken: files of tests that could not be collected.
    """

    def __init__(self) -> None:
        self.test = ""
        self.broken: set[str] = set()
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid
            if self._session is not None:
                self._session.shouldstop = "a test has failed"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.add(report.nodeid.partition("::")[0])


def run_tests(changed: ChangedModule, tests: Sequence[str], limit_s: float, log: Path) -> Verdict:
    """Run tests, by node id, against a changed module until one fails; for at most `limit_s` seconds."""

    def act() -> Verdict:
        failure, left, known = _FirstFailure(), list(tests), -1
        code: int = pytest.ExitCode.NO_TESTS_COLLECTED
        # Some test modules play a flow when they are imported. If a mutant breaks that, the tests of the others decide.
        while left and not failure.test and len(failure.broken) > known:
            known = len(failure.broken)
            code = pytest.main([*OPTIONS, *left], plugins=[failure])
            left = [test for test in left if test.partition("::")[0] not in failure.broken]
        if failure.test:
            return Verdict(Outcome.FOUND, failure.test)
        return Verdict(Outcome.SURVIVED if left and code == pytest.ExitCode.OK else Outcome.BROKEN)

    return run_forked(changed, act, limit_s, log)


def in_forks(items: Sequence[T], jobs: int, act: Callable[[T], object]) -> None:
    """Act on each item, in so many forked processes side by side."""
    workers = []
    for number in range(jobs):
        process = os.fork()
        if process == 0:
            try:
                for item in items[number::jobs]:
                    act(item)
            finally:
                os._exit(0)
        workers.append(process)
    for process in workers:
        os.waitpid(process, 0)


def run_forked(changed: ChangedModule, act: Callable[[], Verdict], limit_s: float, log: Path) -> Verdict:
    """Plant a changed module in a forked process and have it `act`; for at most `limit_s` seconds.

    The process leads a group of its own, so that whatever it starts ends with it.
    """
    began_at = time.monotonic()
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _act_as_child(changed, act, writing, log)
    os.close(writing)
    status: int | None = None
    while status is None and time.monotonic() - began_at < limit_s:
        ended, code = os.waitpid(process, os.WNOHANG)
        status = code if ended else None
        if status is None:
            time.sleep(_POLL_S)
    end_group(process)
    if status is None:
        os.waitpid(process, 0)
    with os.fdopen(reading, "rb") as stream:
        written = stream.read() if status is not None else b""
    seconds = round(time.monotonic() - began_at, 2)
    if status is None:
        return Verdict(Outcome.TIMEOUT, seconds=seconds)
    if not written:  # no test has failed as far as is known
        return Verdict(Outcome.BROKEN, "the process ended", seconds)
    verdict = msgspec.json.decode(written, type=Verdict)
    return msgspec.structs.replace(verdict, seconds=seconds)


def _act_as_child(changed: ChangedModule, act: Callable[[], Verdict], writing: int, log: Path) -> None:
    """The forked process: never returns."""
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(ROOT)
        log.parent.mkdir(parents=True, exist_ok=True)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.dont_write_bytecode = True
        try:
            plant(changed)
        except Exception as error:  # noqa: BLE001 - a mutant may raise anything
            print(f"cannot be imported: {error!r}")  # noqa: T201 - into the log
            verdict = Verdict(Outcome.BROKEN)
        else:
            verdict = act()
        sys.stdout.flush()
        os.write(writing, msgspec.json.encode(verdict))
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stderr.flush()
        os._exit(0)


def end_group(process: int) -> None:
    """End a process that leads a group, and all that it has started; one that has ended is left alone."""
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError:  # macOS: the group has ended, but nobody has waited for it
        return
