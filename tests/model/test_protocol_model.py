"""The Promela model: the promises hold within the bounds, and each planted defect breaks one."""

from __future__ import annotations

import sys

import pytest

from tests.model.spin import need_spin, search

BOUNDS = {"CRASHES": 1, "DECIDERS": 1, "DOUBLED": 1, "INTERRUPTIONS": 0, "LOST": 0, "PODS": 1, "RESTORES": 0}
FEWER = {**BOUNDS, "CRASHES": 0, "DOUBLED": 0}


def test_the_promises_hold_within_the_bounds() -> None:
    need_spin()

    found = search(BOUNDS, limit_s=120)

    sys.stdout.write(f"{found.states} states, {found.transitions} transitions, {found.memory_mib} MiB\n")
    assert found.violation == ""
    assert found.is_complete
    assert found.states > 1000


@pytest.mark.parametrize(
    ("defect", "bounds"),
    [
        ("NO_CLIENT_TOKEN", FEWER),
        ("LAUNCH_BEFORE_COMMIT", FEWER),
        ("COMMIT_WITHOUT_EPOCH", {**FEWER, "DECIDERS": 2, "DOUBLED": 1}),
        ("RESTORE_WITHOUT_ADOPTION", {**FEWER, "RESTORES": 1}),
    ],
)
def test_a_planted_defect_breaks_a_promise(defect: str, bounds: dict[str, int]) -> None:
    need_spin()

    found = search(bounds, [defect], limit_s=120)

    assert found.violation != ""
