"""A pytest plugin that records which lines of the product each test runs, and how long the test takes.

    pytest -p tools.mutation.covered_lines --covered-lines build/mutation/coverage tests/unit

Coverage.py's contexts do the same with a trace function, which makes every line slower. Here the interpreter's own
monitoring reports each line once for each test.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from pathlib import Path
from time import process_time
from types import CodeType
from typing import Any

import msgspec
import pytest

PRODUCT = Path(__file__).parents[2] / "layers/shiplap/python"
SUFFIX = ".msgpack"


class CoveredTest(msgspec.Struct, frozen=True):
    """One test: its node id, its CPU seconds, and the lines that it ran, by file below `PRODUCT`."""

    test: str
    seconds: float
    lines: dict[str, tuple[int, ...]]


class LineRecorder:
    """Reports of the interpreter about lines of the product, since the last test began."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: dict[str, set[int]] = defaultdict(set)
        self._followed: set[CodeType] = set()

    def install(self) -> None:
        """Begin. Functions of others report that they start once for each test, and nothing else."""
        monitoring = sys.monitoring
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "covered lines")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.PY_START, self._starts)
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, self._runs)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.PY_START)

    def remove(self) -> None:
        """End, so that another recorder may begin."""
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
        sys.monitoring.free_tool_id(sys.monitoring.COVERAGE_ID)

    def begin(self) -> None:
        """Forget what has been reported, and have every line reported once more."""
        self._seen.clear()
        sys.monitoring.restart_events()

    def lines(self) -> dict[str, tuple[int, ...]]:
        """Return the lines that have been reported, by file."""
        return {path: tuple(sorted(numbers)) for path, numbers in sorted(self._seen.items())}

    def _starts(self, code: CodeType, _: int) -> Any:
        if code.co_filename.startswith(self._prefix) and code not in self._followed:
            self._followed.add(code)
            sys.monitoring.set_local_events(sys.monitoring.COVERAGE_ID, code, sys.monitoring.events.LINE)
        return sys.monitoring.DISABLE

    def _runs(self, code: CodeType, line: int) -> Any:
        self._seen[code.co_filename[len(self._prefix) :]].add(line)
        return sys.monitoring.DISABLE


class _Plugin:
    def __init__(self, folder: Path) -> None:
        self._file = folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'main')}{SUFFIX}"
        self._recorder = LineRecorder(f"{PRODUCT}/")
        self._tests: list[CoveredTest] = []
        self._has_failed = False
        self._recorder.install()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began_s, self._has_failed = process_time(), False
        self._recorder.begin()
        answer = yield
        if not self._has_failed:  # a test that fails anyway would find every mutant
            self._tests.append(CoveredTest(item.nodeid, round(process_time() - began_s, 4), self._recorder.lines()))
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._has_failed |= report.failed

    def pytest_sessionfinish(self) -> None:
        self._recorder.remove()
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(msgspec.msgpack.encode(self._tests))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The folder is given on the command line: pytest asks for this."""
    parser.addoption("--covered-lines", default="", help="the folder to write covered lines to")


def pytest_configure(config: pytest.Config) -> None:
    """Record in each process that runs tests: pytest calls this."""
    folder = config.getoption("--covered-lines")
    is_controller = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    if folder and not is_controller:
        config.pluginmanager.register(_Plugin(Path(folder)))


SOURCES = "sources.json"


def keep_sources(product: Path, folder: Path) -> None:
    """Keep the files of the product beside what is recorded of them, so that a line is found after a change too."""
    folder.mkdir(parents=True, exist_ok=True)
    sources = {path.relative_to(product).as_posix(): path.read_text() for path in product.rglob("*.py")}
    (folder / SOURCES).write_bytes(msgspec.json.encode(sources))


def read(folder: Path, product: Path) -> list[CoveredTest]:
    """The tests that were recorded in the folders of a folder, by node id; of a file of tests the last folder counts.

    Lines are those of the product as it is now.
    """
    decoder = msgspec.msgpack.Decoder(list[CoveredTest])
    by_file: dict[str, list[CoveredTest]] = {}
    for run in sorted(path for path in folder.glob("*") if path.is_dir()):
        found = [test for path in sorted(run.glob(f"*{SUFFIX}")) for test in decoder.decode(path.read_bytes())]
        moved = _moved_lines(run / SOURCES, product)
        latest: dict[str, list[CoveredTest]] = defaultdict(list)
        for test in found:
            lines = {path: moved[path](ran) if path in moved else ran for path, ran in test.lines.items()}
            latest[test.test.partition("::")[0]].append(msgspec.structs.replace(test, lines=lines))
        by_file.update(latest)
    return sorted((test for tests in by_file.values() for test in tests), key=lambda test: test.test)


def _moved_lines(kept: Path, product: Path) -> Mapping[str, Callable[[tuple[int, ...]], tuple[int, ...]]]:
    """For each file that has changed since: from lines of then to lines of now."""
    sources = msgspec.json.decode(kept.read_bytes(), type=dict[str, str]) if kept.exists() else {}
    moved = {}
    for path, before in sources.items():
        now = (product / path).read_text() if (product / path).exists() else ""
        if now != before:
            moved[path] = partial(_through, _line_map(before.splitlines(), now.splitlines()))
    return moved


def _line_map(before: Sequence[str], now: Sequence[str]) -> dict[int, tuple[int, ...]]:
    """For each line, counted from 1, where it is now; for one that was changed, all lines that replace its block."""
    found: dict[int, tuple[int, ...]] = {}
    for kind, i1, i2, j1, j2 in SequenceMatcher(None, before, now, autojunk=False).get_opcodes():
        for place in range(i1, i2):
            found[place + 1] = (j1 + place - i1 + 1,) if kind == "equal" else tuple(range(j1 + 1, j2 + 1))
    return found


def _through(line_map: Mapping[int, tuple[int, ...]], lines: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted({now for line in lines for now in line_map.get(line, ())}))
