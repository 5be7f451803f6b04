"""Tests the counts of the flows while they do their work: docs/observability.md promises each of these figures."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shiplap.errors import AwsThrottled, AwsUnavailable, ClusterError, EpochMoved
from shiplap.flows.messages import Timer
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.crowds import crowd
from tests.integration.flows.disrupted import oversized
from tests.integration.flows.stage import CLUSTER, Stage


def of(stage: Stage, *names: str) -> Mapping[str, float]:
    """Return the counts under these names, and no other counts."""
    return {name: stage.meter.counts[name] for name in names if name in stage.meter.counts}


def test_each_step_of_three_nodes_is_counted_once() -> None:
    stage = crowd(3)
    stage.schedule()
    stage.join()
    stage.attend()
    stage.attend()
    steps = ("NodesLaunched", "NodesRegistered", "NodesInitialized", "NodesTerminated", "ClaimsFailed")
    assert of(stage, *steps) == {"NodesLaunched": 3, "NodesRegistered": 3, "NodesInitialized": 3}


def test_a_resumed_launch_counts_its_claims() -> None:
    stage = crowd(3)
    stage.faults.on("after", "compute.launch", AwsUnavailable("connection reset"))
    stage.schedule()
    assert of(stage, "ClaimsResumed", "LaunchOutcomesUnknown", "LaunchesThrottled") == {"LaunchOutcomesUnknown": 1}
    stage.schedule()
    assert of(stage, "ClaimsResumed", "NodesLaunched") == {"ClaimsResumed": 3, "NodesLaunched": 3}


def test_a_launch_that_ec2_puts_off_is_counted_as_that() -> None:
    stage = crowd(2)
    stage.faults.on("before", "compute.launch", AwsThrottled("slow down", code="RequestLimitExceeded"))
    stage.schedule()
    assert of(stage, "LaunchesThrottled", "LaunchOutcomesUnknown") == {"LaunchesThrottled": 1}


def test_claims_that_get_no_instance_are_counted_each() -> None:
    stage = crowd(2)
    stage.compute.quotas["on-demand"] = 0
    stage.schedule()
    failed = [claim for claim in stage.claims() if claim.state is ClaimState.FAILED]
    assert of(stage, "ClaimsFailed", "NodesLaunched") == {"ClaimsFailed": len(failed)}
    assert len(failed) >= 2


def test_an_instance_that_vanishes_before_it_joins_is_a_failed_claim() -> None:
    stage = crowd(1)
    stage.schedule()
    (instance,) = stage.compute.alive()
    stage.compute.hide(instance.id, 10_000)
    stage.clock.advance(1000)
    (claim,) = stage.claims()
    stage.bus.events.clear()
    stage.attend(Timer(CLUSTER, claim.name, "join"))
    failed, pending = stage.bus.of_type("NodeClaimFailed"), stage.bus.of_type("PodPending")
    assert [event.detail["reason"] for event in failed] == [f"instance {instance.id} is gone"]
    assert [event.detail["id"] for event in pending] == [f"{CLUSTER}/{claim.name}/ended"]
    assert stage.claims()[0].changed_at == stage.clock.now()
    assert of(stage, "InstancesVanished", "ClaimsFailed") == {"InstancesVanished": 1, "ClaimsFailed": 1}


def test_a_decision_that_somebody_else_made_first_is_counted() -> None:
    stage = oversized()
    stage.disrupt()
    stage.around()
    stage.faults.on("before", "state.commit", EpochMoved(CLUSTER, 1))
    stage.disrupt()
    assert of(stage, "EpochsMoved", "CommandsBegun") == {"EpochsMoved": 1}


def test_a_command_counts_its_begin_its_end_and_what_it_saves() -> None:
    stage = oversized()
    before = sum(claim.hourly for claim in stage.claims())
    stage.minutes(15)
    after = sum(claim.hourly for claim in stage.claims())
    assert of(stage, "CommandsBegun", "CommandsDone", "CommandsUndone", "NodesTerminated") == {
        "CommandsBegun": 1,
        "CommandsDone": 1,
        "NodesTerminated": 1,
    }
    assert stage.meter.counts["SavingsHourly"] == pytest.approx(before - after)


def test_a_cluster_that_is_not_reachable_counts_no_decision() -> None:
    stage = crowd(1)
    stage.faults.on("before", "cluster.view", ClusterError("refused"))
    with pytest.raises(ClusterError):
        stage.schedule()
    assert of(stage, "NodesLaunched", "Decisions") == {}
