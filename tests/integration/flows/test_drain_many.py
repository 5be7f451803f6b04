"""Five hundred nodes leave at once: the API server sees a bounded number of requests, and launches do not wait."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.leaving import ONLY_LARGE, kubelets_end_pods, scheduled_change, warning
from tests.integration.flows.stage import Stage

NODES = 500
PER_NODE_AND_MINUTE = 7
"""Requests to the API server. EKS bears some hundred a second; this is at most 58."""
PER_NODE = 15
"""The same from beginning to end, without haste."""


def full() -> Stage:
    stage = Stage(ONLY_LARGE, spot=True)
    stage.settings = msgspec.structs.replace(stage.settings, unproven_nodes=NODES)
    stage.add_pods(NODES, cpu="1200m", memory="2Gi")
    stage.play_on()
    stage.timers.reminders.clear()
    return stage


def minute(stage: Stage) -> int:
    """A minute of sweeps and timers; how many requests the API server saw."""
    requests = 0
    for second in range(0, 60, 5):
        stage.faults.clear()
        if second == 0:
            stage.sweep()
        stage.attend_timers()
        stage.join()
        requests += sum(point.startswith("before cluster.") for point in stage.faults.points)
        stage.clock.advance(5)
    stage.attend()
    stage.bind()
    kubelets_end_pods(stage)
    return requests


@pytest.mark.parametrize(
    ("event", "minutes"),
    [
        pytest.param(scheduled_change, 6, id="without haste", marks=pytest.mark.thorough),
        pytest.param(warning, 3, id="in two minutes"),
    ],
)
def test_five_hundred_nodes_leave_within_the_budget_of_the_api(
    event: Callable[[Stage, str], str], minutes: int
) -> None:
    stage = full()
    old = {claim.name for claim in stage.claims()}
    for claim in stage.claims():
        stage.interrupt(event(stage, claim.instance_id))
    stage.add_pods(5, cpu="1200m", memory="2Gi", prefix="urgent")
    before = len(stage.compute.launches)
    seen = [minute(stage)]
    assert len(stage.compute.launches) == before + NODES + 5  # replacements, and who waited besides, in the first sweep
    while any(claim.name in old and claim.state is not ClaimState.GONE for claim in stage.claims()):
        seen.append(minute(stage))
        assert len(seen) <= minutes
    assert max(seen) <= PER_NODE_AND_MINUTE * NODES
    assert sum(seen) <= PER_NODE * NODES
    minute(stage)
    assert stage.pending() == 0
