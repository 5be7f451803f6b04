"""Tests the counts of outcomes of Karpenter's own suites, and the preparation of their sources."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.e2e.programs import BuildFailed
from tests.e2e.upstream import binaries, suites
from tests.e2e.upstream.binaries import Replacement
from tests.e2e.upstream.suites import DIFFERENT, FAILED, NOT_APPLICABLE, PASSED, FunctionUsage, Outcome, UpstreamTest


def outcomes(**numbers: int) -> list[Outcome]:
    verdicts = {"passed": PASSED, "failed": FAILED, "different": DIFFERENT, "excluded": NOT_APPLICABLE}
    return [
        Outcome(UpstreamTest("regression", f"{verdict} {index}"), verdicts[verdict], 1.0)
        for verdict, number in numbers.items()
        for index in range(number)
    ]


def test_tests_that_do_not_apply_are_no_part_of_the_share() -> None:
    said, met = suites.summary(outcomes(passed=9, failed=1, excluded=2))
    assert "9 passed, 1 failed, 0 deliberate difference, 2 not applicable; 90.0%" in said
    assert met


def test_a_deliberate_difference_does_not_pass() -> None:
    _, met = suites.summary(outcomes(passed=8, different=2))
    assert not met


def test_at_most_a_fifth_may_not_apply() -> None:
    _, met = suites.summary(outcomes(passed=7, excluded=3))
    assert not met


def test_nothing_that_ran_meets_no_bar() -> None:
    _, met = suites.summary([])
    assert not met


@pytest.mark.parametrize(
    ("state", "verdict"), [("passed", PASSED), ("failed", DIFFERENT), ("timedout", DIFFERENT), ("", DIFFERENT)]
)
def test_a_listed_test_is_a_difference_only_where_it_fails(state: str, verdict: str) -> None:
    assert suites.verdict_of("listed", state, {"listed": "why"}) == verdict


def test_any_other_end_is_a_failure() -> None:
    assert suites.verdict_of("other", "interrupted", {"listed": "why"}) == FAILED


def test_what_the_functions_use_is_read_off_their_processes(tmp_path: Path) -> None:
    world: Any = SimpleNamespace(aws=SimpleNamespace(state=tmp_path))
    program = "import sys; sys.stdin.readline(); sum(range(30_000_000)); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(tmp_path / "tmp" / "ministack-lambda-shiplap-watch")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:  # noqa: S603 - our own
        with FunctionUsage(world) as usage:
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write(b"\n")
            worker.stdin.flush()
            worker.stdout.readline()
        worker.communicate()
    assert usage.cpu_s > 0
    assert usage.peak_mib > 1


def test_each_listed_test_has_one_reason() -> None:
    assert suites.not_applicable()
    assert all(suites.not_applicable().values())
    assert all(suites.differences().values())
    assert not suites.not_applicable().keys() & suites.differences().keys()


def test_a_source_that_is_not_as_expected_is_not_built(tmp_path: Path) -> None:
    source = tmp_path / "report.go"
    source.write_text("one one")
    with pytest.raises(BuildFailed, match="`one` 2 times"):
        binaries.replace(source, Replacement("report.go", "one", "two", 1))
    binaries.replace(source, Replacement("report.go", "one", "two", 2))
    assert source.read_text() == "two two"


def test_the_pinned_release_is_stated() -> None:
    assert binaries.version().startswith("v1.")


def test_what_is_not_built_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "CACHE", tmp_path)
    with pytest.raises(binaries.ProgramsMissing, match="make e2e-upstream"):
        binaries.find()
