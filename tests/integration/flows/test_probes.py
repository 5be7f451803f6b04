"""Probes of idle clusters: what they find, what they cost, and that nothing new escapes them."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterUnreachable
from shiplap.flows.turns import FULL_SWEEP_S, IdleClusters, needs_disruption, needs_sweep
from tests.integration.flows.stage import Stage


def asked(stage: Stage) -> Counter[str]:
    """Return the number of calls of each effect since the last time."""
    found = Counter(point.removeprefix("after ") for point in stage.faults.points if point.startswith("after "))
    stage.faults.points.clear()
    return found


def test_a_cluster_at_rest_costs_two_requests_and_its_claims_are_read_seldom() -> None:
    stage, idle = Stage(), IdleClusters()
    for expected in ({"state.claims": 1, "state.commands": 1}, {}, {}):
        asked(stage)
        assert not needs_sweep(stage.settings, stage.context, idle)
        assert asked(stage) == {"cluster.pending_pods": 1, "state.epoch": 1, **expected}
    stage.clock.advance(FULL_SWEEP_S)
    needs_sweep(stage.settings, stage.context, idle)
    assert asked(stage)["state.claims"] == 1


def test_whatever_is_launched_ends_the_rest_at_once() -> None:
    stage, idle = Stage(), IdleClusters()
    assert not needs_disruption(stage.settings, stage.context, idle)
    stage.add_pods(1)
    assert needs_sweep(stage.settings, stage.context, idle)  # for the pod
    stage.schedule()
    assert needs_disruption(stage.settings, stage.context, idle)
    stage.join()
    stage.attend()
    stage.bind()
    assert stage.cluster.pending_pods() == ()
    assert needs_sweep(stage.settings, stage.context, idle)  # for the claim


def test_a_cluster_at_rest_is_not_asked_about_disruption_and_one_with_nodes_must_answer() -> None:
    stage, idle = Stage(), IdleClusters()
    stage.faults.on("before", "cluster.pending_pods", ClusterUnreachable("timed out"))
    assert not needs_disruption(stage.settings, stage.context, idle)
    stage.add_pods(1)
    stage.schedule()
    with pytest.raises(ClusterUnreachable):
        needs_disruption(stage.settings, stage.context, idle)


def test_a_paused_cluster_is_swept_so_that_its_pause_is_counted() -> None:
    stage = Stage()
    assert needs_sweep(replace(stage.settings, paused=True), stage.context, IdleClusters())
