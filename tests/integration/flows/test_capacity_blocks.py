"""Capacity blocks that are about to end: nothing goes in any more, and what is in there leaves in time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.errors import AwsError
from shiplap.instances.catalog.drain_times import MOST_DRAIN_S
from shiplap.instances.catalog.resolved_nodeclass import BLOCK_TAIL_S, EXPIRING_S, LEAST_DRAIN_S
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.manifests.times import seconds
from tests.integration.flows.capacity_blocks import HOUR_S, staged
from tests.integration.flows.leaving import warning
from tests.integration.flows.stage import CLUSTER, ZONES, Stage


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


def with_grace(stage: Stage, grace: str, *, of_other: str = "") -> None:
    """Give the pool a terminationGracePeriod, and another pool of another EC2NodeClass one of its own."""
    (pool,) = stage.settings.manifests.node_pools
    template = pool.spec.template

    def made(name: str, node_class: str, period: str) -> NodePool:
        reference = replace(template.spec.node_class_ref, name=node_class)
        spec = replace(template.spec, termination_grace_period=period, node_class_ref=reference)
        metadata = replace(pool.metadata, name=name)
        return replace(pool, metadata=metadata, spec=replace(pool.spec, template=replace(template, spec=spec)))

    pools = [made("any", "default", grace), *([made("other", "gone", of_other)] if of_other else [])]
    stage.settings = replace(stage.settings, manifests=replace(stage.settings.manifests, node_pools=tuple(pools)))


@pytest.mark.parametrize(
    ("grace", "of_other", "drain_s"),
    [
        ("5m", "", LEAST_DRAIN_S),
        ("8m", "", LEAST_DRAIN_S),
        ("9m", "", 11 * 60),
        ("30m", "", 32 * 60),
        ("30m", "1h", 32 * 60),
        ("48h", "", MOST_DRAIN_S),
    ],
)
def test_a_block_is_left_in_time_for_the_termination_grace_period(grace: str, of_other: str, drain_s: int) -> None:
    stage = staged(24 * HOUR_S)
    with_grace(stage, grace, of_other=of_other)
    instances_end_at = stage.clock.now() + 24 * HOUR_S - BLOCK_TAIL_S
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    stage.clock.advance(instances_end_at - drain_s - 1 - stage.clock.now())
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    stage.clock.advance(1)
    stage.sweep()
    left = next(claim for claim in stage.claims() if claim.state is ClaimState.DRAINING)
    assert left.deadline_at == min(stage.clock.now() + seconds(grace), instances_end_at)
    stage.schedule()
    others = [claim for claim in stage.claims() if claim.name != left.name]
    assert [claim.known_instance.capacity_type for claim in others] == ["on-demand"], "nothing goes in any more"


def test_a_block_that_is_extended_keeps_its_nodes_and_one_that_ends_earlier_loses_them_earlier() -> None:
    stage = staged(2 * HOUR_S)
    ends_at = stage.clock.now() + 2 * HOUR_S
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    (held,) = stage.compute.reservations
    stage.compute.reservations = (replace(held, ends_at=ends_at + 24 * HOUR_S),)
    stage.clock.advance(ends_at - EXPIRING_S - stage.clock.now())
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    stage.compute.reservations = (replace(held, ends_at=stage.clock.now() + EXPIRING_S),)
    stage.sweep()
    assert ClaimState.DRAINING in {claim.state for claim in stage.claims()}
