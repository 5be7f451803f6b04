"""Outcomes of Karpenter's tests: verdicts, the lists of those that differ or do not apply, counts and bars."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import NamedTuple

import msgspec
import yaml

from tests.e2e.upstream.binaries import UpstreamModule, module_of

BAR = 0.9
"""The share of the applicable tests that passes, or the exit code is 1."""

PASSED, FAILED, DIFFERENT, NOT_APPLICABLE = "passed", "failed", "deliberate difference", "not applicable"


class UpstreamTest(NamedTuple):
    """A test as Ginkgo names it."""

    suite: str
    name: str

    @property
    def file_name(self) -> str:
        """The name of its log, without a suffix."""
        return f"{self.suite}-{re.sub(r'[^A-Za-z0-9]+', '-', self.name)}"[:150]


class Outcome(NamedTuple):
    """The outcome of a test; `message` is the failed expectation.

    `cpu_s` is the CPU time of all functions while it ran, `peak_mib` the most memory that they held together.
    """

    test: UpstreamTest
    verdict: str
    seconds: float
    message: str = ""
    cpu_s: float = 0.0
    peak_mib: float = 0.0


class KeptOutcomes:
    """Outcomes in a file, a line each, so that a run goes on where it ended. The last of a test counts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[UpstreamTest, Outcome]:
        """Every test that has ended, with its outcome."""
        if not self._path.exists():
            return {}
        read = (msgspec.json.decode(line, type=Outcome) for line in self._path.read_bytes().splitlines())
        return {outcome.test: outcome for outcome in read}

    def add(self, outcome: Outcome) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(outcome) + b"\n")


class Verdicts:
    """The last verdict on each test in a file of the repository, a line each. Runs side by side may note theirs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> dict[UpstreamTest, str]:
        """Every verdict that is noted."""
        return _verdicts(self._path.read_text())

    def note(self, outcome: Outcome) -> None:
        with self._path.open("r+") as file:
            flock(file, LOCK_EX)
            noted = _verdicts(file.read()) | {outcome.test: outcome.verdict}
            file.seek(0)
            file.truncate()
            file.writelines(f"{suite}  {noted[UpstreamTest(suite, name)]}  {name}\n" for suite, name in sorted(noted))


def _verdicts(text: str) -> dict[UpstreamTest, str]:
    read = (line.split("  ", 2) for line in text.splitlines())
    return {UpstreamTest(suite, name): verdict for suite, verdict, name in read}


def not_applicable(module: UpstreamModule) -> dict[str, str]:
    """The reason by the name of the test."""
    return _reasons(module.folder / "not_applicable.yaml")


def differences(module: UpstreamModule) -> dict[str, str]:
    """Return the reasons why Shiplap behaves otherwise on purpose, by the name of the failing test."""
    return _reasons(module.folder / "differences.yaml")


def unknown(module: UpstreamModule, tests: Iterable[UpstreamTest]) -> list[str]:
    """Return the names on the lists of a module that none of its tests has: upstream has renamed or removed them."""
    names = {test.name for test in tests}
    return sorted((not_applicable(module).keys() | differences(module).keys()) - names)


def _reasons(path: Path) -> dict[str, str]:
    groups = yaml.safe_load(path.read_text()) or []
    return {test: group["reason"].strip() for group in groups for test in group["tests"]}


def verdict_of(name: str, state: str, differing: Mapping[str, str]) -> str:
    """Return the verdict on a test that ended in this state of Ginkgo's."""
    if state == "passed":
        return PASSED
    return DIFFERENT if name in differing else FAILED


def line(outcome: Outcome) -> str:
    """An outcome for people."""
    reason = outcome.message.strip().splitlines()[:1] if outcome.verdict != PASSED else []
    return (
        "  ".join(
            [
                f"{outcome.verdict:<21}",
                f"{outcome.seconds:5.0f} s",
                f"{outcome.cpu_s:5.1f} CPU s {outcome.peak_mib:5.0f} MiB",
                outcome.test.suite,
                outcome.test.name,
                *reason,
            ]
        )
        + "\n"
    )


def part_of(tests: Sequence[UpstreamTest], part: str) -> list[UpstreamTest]:
    """Return the tests of a part such as `2/5`: each fifth from the second. Raises ValueError."""
    number, _, parts = part.partition("/")
    if not 1 <= int(number) <= int(parts):
        raise ValueError(f"part {part} is none: 1/{parts} to {parts}/{parts} are")
    return list(tests[int(number) - 1 :: int(parts)])


def summary(outcomes: Sequence[Outcome]) -> tuple[str, bool]:
    """The counts of all verdicts on the tests of a module, and whether the bars are met."""
    counts = {verdict: sum(each.verdict == verdict for each in outcomes) for verdict in
              (PASSED, FAILED, DIFFERENT, NOT_APPLICABLE)}  # fmt: skip
    applicable = len(outcomes) - counts[NOT_APPLICABLE]
    share = counts[PASSED] / applicable if applicable else 0.0
    said = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    if not outcomes:
        return f"nothing ran: {said}\n", False
    module = module_of(outcomes[0].test.suite)
    met = share >= BAR and counts[NOT_APPLICABLE] <= module.largest_share_not_applicable * len(outcomes)
    return f"{module.path} {module.version}: {said}; {share:.1%} of the applicable tests pass\n", met
