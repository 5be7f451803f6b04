"""Gangs in flows: launches give all instances or none, and where launches are bounded a gang waits as a whole."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.gangs_stage import ONLY_LARGE, add_gang, only, stage_of_gangs
from tests.integration.flows.reservation_starts import block as upcoming_block
from tests.integration.flows.reservation_starts import reserved_only
from tests.integration.flows.stage import Stage


def alive(stage: Stage) -> int:
    return len(stage.compute.alive())


def test_a_gang_is_one_request_for_all_or_nothing() -> None:
    stage = stage_of_gangs()
    add_gang(stage)
    assert len(stage.schedule().launched) == 3
    (request,) = stage.compute.requests
    assert (request.wanted, request.at_least) == (3, 3)
    assert {claim.launch.atomic for claim in stage.claims()} == {"default/train"}
    stage.play_on()
    assert stage.pending() == 0


def test_two_of_three_instances_are_not_bought() -> None:
    whole, single = stage_of_gangs(), stage_of_gangs("off")
    for stage in (whole, single):
        only(stage, 1, 1, 0)
        add_gang(stage)
        stage.schedule()
    assert (alive(whole), alive(single)) == (0, 2)
    assert {claim.state for claim in whole.claims()} <= {ClaimState.FAILED}


def test_a_zone_with_room_for_all_is_taken() -> None:
    stage = stage_of_gangs()
    only(stage, 2, 2, 3)
    add_gang(stage)
    stage.schedule()
    assert {instance.zone for instance in stage.compute.alive()} == {"eu-west-1c"}
    assert alive(stage) == 3


def test_other_pods_are_launched_one_by_one() -> None:
    stage = stage_of_gangs()
    add_gang(stage)
    stage.add_pods(2, cpu="1200m", memory="2Gi")
    stage.schedule()
    assert sorted((request.wanted, request.at_least) for request in stage.compute.requests) == [(2, 0), (3, 3)]


def test_members_above_the_minimum_are_launched_by_themselves() -> None:
    stage = stage_of_gangs()
    only(stage, 3, 0, 0)
    add_gang(stage, 5, total=3)
    stage.schedule()
    assert alive(stage) == 3
    assert (3, 3) in {(request.wanted, request.at_least) for request in stage.compute.requests}


def test_missing_members_are_waited_for() -> None:
    stage = stage_of_gangs()
    add_gang(stage, 2, total=3)
    report = stage.schedule()
    assert (report.launched, report.unschedulable) == ((), 2)
    said = [event["message"] for event in stage.objects("events").values()]
    assert any("gang default/train: 2 of 3 members exist" in message for message in said)


def test_a_gang_beyond_the_bound_of_unproven_pods_sends_a_pilot() -> None:
    stage = stage_of_gangs()
    stage.settings = replace(stage.settings, unproven_pod_nodes=2)
    add_gang(stage)
    assert len(stage.schedule().launched) == 1
    stage.sweep()
    assert alive(stage) == 1
    stage.prove_pending_kinds()
    stage.sweep()
    assert alive(stage) == 3


def test_a_gang_beyond_the_bound_of_unproven_amis_sends_a_pilot() -> None:
    stage = stage_of_gangs()
    stage.settings = replace(stage.settings, unproven_nodes=2)
    add_gang(stage)
    stage.schedule()
    assert alive(stage) == 1
    stage.play_on()
    assert alive(stage) == 3


def test_two_clusters_share_no_half() -> None:
    one = stage_of_gangs()
    two = stage_of_gangs(beside=one)
    for stage in (one, two):
        add_gang(stage)
    two.compute.capacity = one.compute.capacity
    only(one, 4, 0, 0)
    one.schedule()
    two.schedule()
    assert (alive(one), alive(two)) == (3, 0)


def test_nodes_of_a_gang_that_cannot_be_completed_serve_others() -> None:
    stage = stage_of_gangs()
    add_gang(stage)
    stage.schedule()
    stage.compute.lose(stage.compute.alive()[0].id)
    only(stage, 0, 0, 0)
    stage.clock.advance(60)
    stage.sweep()
    assert alive(stage) == 2
    stage.add_pods(2, cpu="1200m", memory="2Gi")
    for _ in range(3):
        stage.clock.advance(60)
        report = stage.sweep()
    assert report.launched == ()
    assert len(stage.compute.requests) <= 3


@pytest.mark.parametrize(("waits_s", "launched"), [(60, 2), (1800, 0)])
def test_a_gang_that_has_waited_is_not_overtaken(waits_s: float, launched: int) -> None:
    (only_large,) = ONLY_LARGE
    stage = stage_of_gangs(pools=[replace(only_large, spec=replace(only_large.spec, limits={"nodes": 4}))])
    add_gang(stage, 2, "first")
    stage.schedule()
    stage.play_on()
    add_gang(stage, 3, "large")
    stage.sweep()
    stage.clock.advance(waits_s)
    add_gang(stage, 2, "small")
    stage.sweep()
    assert alive(stage) == 2 + launched


def test_a_gang_that_ec2_refused_often_is_asked_for_whole_once_its_offerings_have_rested() -> None:
    stage = stage_of_gangs()
    only(stage, 0, 0, 0)
    add_gang(stage)
    for rest_s in (180, 360, 720, 1440, 2880, 3600):
        stage.sweep()
        stage.clock.advance(rest_s)
    assert alive(stage) == 0
    only(stage, 0, 3, 0)
    stage.sweep()
    assert alive(stage) == 3


def begin() -> Stage:
    """A gang of three, and two instances too few in every zone but one."""
    stage = stage_of_gangs()
    only(stage, 1, 3, 0)
    add_gang(stage)
    return stage


def points() -> list[str]:
    stage = begin()
    stage.faults.clear()
    stage.schedule()
    return list(stage.faults.points)


@pytest.mark.parametrize("point", range(len(points())))
def test_a_death_leaves_all_or_nothing(point: int) -> None:
    stage = begin()
    stage.faults.clear()
    stage.faults.crash_at(point)
    stage.dies(stage.schedule)
    stage.faults.clear()
    assert alive(stage) in (0, 3)
    for _ in range(8):
        stage.clock.advance(60)
        stage.sweep()
        assert alive(stage) in (0, 3)
    stage.play_on()
    assert alive(stage) == 3
    assert stage.pending() == 0


def test_a_gang_waits_for_a_reservation_that_starts_with_room_for_all_of_it() -> None:
    stage = stage_of_gangs(pools=(reserved_only(),))
    add_gang(stage, 2)
    held = upcoming_block(stage.clock.now() + 60)
    stage.compute.reservations = (held,)
    stage.sweep()
    for available in (0, 1):
        stage.compute.reservations = (replace(held, state="active", available=available),)
        stage.sweep()
        assert not stage.compute.requests, "a part of a gang is of no use"
    stage.compute.reservations = (replace(held, state="active", available=2),)
    stage.sweep()
    assert [instance.reservation for instance in stage.compute.alive()] == ["cr-1", "cr-1"]
