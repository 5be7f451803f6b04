"""The Promela model within its full bounds, every planted defect, and runs of fresh seeds.

`make model` runs this, `make test` does not."""

from __future__ import annotations

import sys
from random import SystemRandom

import pytest

from tests.model.recorded_run import SIZES, record, replay
from tests.model.spin import Search, need_spin, search

FULL = {"INSTALLS": 2, "MOST": 2, "PODS": 2, "RESTORES": 1}
ONE_INSTALL = {"INSTALLS": 1, "MOST": 2, "PODS": 2, "RESTORES": 0}
RESTORED = {"INSTALLS": 1, "MOST": 1, "PODS": 1, "RESTORES": 1}
TWO_INSTALLS = {"INSTALLS": 2, "MOST": 2, "PODS": 1, "RESTORES": 0}
TWO_CLAIMS_EACH = {"INSTALLS": 2, "MOST": 4, "PODS": 2, "RESTORES": 1}


def test_the_promises_hold_within_the_full_bounds() -> None:
    need_spin()

    found = search(FULL, limit_s=1200, optimised=True)

    _print("complete", found)
    assert found.violation == ""
    assert found.is_complete
    assert found.states > 3_000_000


def test_a_partial_search_with_two_claims_of_each_install_finds_nothing() -> None:
    need_spin()

    found = search(TWO_CLAIMS_EACH, limit_s=3600, optimised=True, hashed_mib=1024)

    _print("partial", found)
    assert found.violation == ""


@pytest.mark.parametrize(
    ("defect", "broken", "bounds"),
    [
        ("NO_CLIENT_TOKEN", "answered", ONE_INSTALL),
        ("LAUNCH_BEFORE_COMMIT", "written", ONE_INSTALL),
        ("COMMIT_WITHOUT_EPOCH", "wanted", ONE_INSTALL),
        ("SETTLING_WITHOUT_CLAIMS", "!(found)", ONE_INSTALL),
        ("RESTORE_WITHOUT_ADOPTION", "adopted", RESTORED),
        ("TOKEN_WITHOUT_INSTALL", "adopted", TWO_INSTALLS),
        ("GARBAGE_OF_ALL_INSTALLS", "tag", TWO_INSTALLS),
    ],
)
def test_each_planted_defect_breaks_its_promise(defect: str, broken: str, bounds: dict[str, int]) -> None:
    need_spin()

    found = search(bounds, [defect], limit_s=120)

    _print(defect, found)
    assert broken in found.violation


FRESH = {"mixed": 120, "unkind": 30, "restored": 30, "two-installs": 20}


@pytest.mark.parametrize("scenario", FRESH)
def test_the_operations_of_fresh_seeds_are_paths_of_the_model(scenario: str) -> None:
    need_spin()
    first, operations = SystemRandom().randrange(2**31), 0

    for seed in range(first, first + FRESH[scenario]):
        run = record(scenario, seed)
        operations += len(run.operations)
        assert run.unknown == [], (scenario, seed)
        assert replay(run.operations, *map(run.size, SIZES)) == "", (scenario, seed)

    sys.stdout.write(f"{scenario}: {FRESH[scenario]} seeds from {first} on, {operations} operations\n")


def _print(what: str, found: Search) -> None:
    sys.stdout.write(f"{what}: {found.states} states, {found.transitions} transitions, {found.memory_mib} MiB\n")
