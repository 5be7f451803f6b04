"""Capacity blocks that are about to end: nothing goes in any more, and what is in there leaves in time."""

from __future__ import annotations

import pytest

from shiplap.errors import AwsError
from shiplap.instances.catalog.resolved_nodeclass import BLOCK_TAIL_S, EXPIRING_S
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.capacity_blocks import HOUR_S, staged
from tests.integration.flows.leaving import warning
from tests.integration.flows.stage import CLUSTER, ZONES


@pytest.mark.parametrize(
    ("ends_in_s", "kind", "bought"),
    [
        (EXPIRING_S + 60, "capacity-block", "reserved"),
        (EXPIRING_S - 60, "capacity-block", "on-demand"),
        (EXPIRING_S - 60, "default", "reserved"),
    ],
)
def test_nothing_is_launched_into_a_block_about_to_end(ends_in_s: float, kind: str, bought: str) -> None:
    stage = staged(ends_in_s, kind)
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    assert [claim.known_instance.capacity_type for claim in stage.claims()] == [bought]


def test_nodes_leave_a_block_before_it_ends_and_are_replaced_outside_it() -> None:
    stage = staged(HOUR_S)
    ends_at = stage.clock.now() + HOUR_S
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    (claim,) = stage.claims()
    assert (claim.known_instance.capacity_type, claim.state) == ("reserved", ClaimState.INITIALIZED)
    stage.sweep()
    assert stage.claims()[0].state is ClaimState.INITIALIZED
    stage.clock.advance(ends_at - EXPIRING_S - stage.clock.now())
    stage.sweep()
    left = next(item for item in stage.claims() if item.name == claim.name)
    assert (left.state, left.failure, left.deadline_at) == (
        ClaimState.DRAINING,
        "CapacityBlockEnding",
        ends_at - BLOCK_TAIL_S,
    )
    stage.schedule()  # the draining has said that the pod needs another node
    others = [item for item in stage.claims() if item.name != claim.name]
    assert [item.known_instance.capacity_type for item in others] == ["on-demand"]


def test_an_ordinary_reservation_may_end_without_its_nodes() -> None:
    stage = staged(HOUR_S, "default")
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    stage.clock.advance(HOUR_S - 60)
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]


def test_a_sweep_that_cannot_ask_for_blocks_does_the_rest() -> None:
    stage = staged(HOUR_S)
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    stage.clock.advance(HOUR_S - EXPIRING_S)

    def refuse() -> None:
        raise AwsError("try later", code="InternalError")

    stage.faults.on("before", "compute.resolve", refuse)
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    assert stage.meter.counts["CapacityBlocksNotRead"] == 1
    stage.sweep()
    assert ClaimState.DRAINING in {claim.state for claim in stage.claims()}


def test_a_reservation_that_takes_an_instance_back_is_left_alone_and_no_other() -> None:
    stage = staged(HOUR_S, "default")
    stage.add_pods(1, cpu="1200m")
    stage.play_on()
    (claim,) = stage.claims()
    kind = "EC2 Capacity Reservation Instance Interruption Warning"
    stage.interrupt(warning(stage, claim.instance_id, kind))
    (resting,) = stage.state.read(CLUSTER, stage.clock.now()).unavailable
    assert resting.scope == ("cr-1", ZONES[0], "reserved")
