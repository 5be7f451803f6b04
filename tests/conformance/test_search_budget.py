"""Plans with a budget for the cost search: valid, never dearer, the same whatever the order of the pods."""

from __future__ import annotations

import random

import msgspec
import pytest

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.builders.pods import pods
from tests.checker import violations
from tests.conformance.catalogues import incrementing_types
from tests.conformance.given import given


def batch(improve_s: float) -> Snapshot:
    return given(
        *pods(80, "a", cpu="700m", memory="1Gi"),
        *pods(60, "b", cpu="300m", memory="3Gi"),
        *pods(50, "c", cpu="1500m", memory="512Mi"),
        types=incrementing_types(8),
        improve_s=improve_s,
    ).snapshot


def test_a_budget_makes_a_plan_cheaper_and_keeps_it_valid() -> None:
    plain, improved = plan(batch(0.0)), plan(batch(0.5))
    assert not improved.unschedulable
    assert improved.hourly < plain.hourly
    assert not violations(batch(0.5), improved)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_pods_does_not_matter(seed: int) -> None:
    snapshot = batch(0.1)
    shuffled = list(snapshot.view.pods)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - a shuffle for a test
    replace = msgspec.structs.replace
    other = replace(snapshot, view=replace(snapshot.view, pods=tuple(shuffled)))
    assert msgspec.json.encode(plan(other)) == msgspec.json.encode(plan(snapshot))
