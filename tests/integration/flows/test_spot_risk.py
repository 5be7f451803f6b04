"""Evidence about spot is noted where it arises, and launches ask for what is interrupted less."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from shiplap.errors import StoreThrottled
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.policies.spot_risk.risk_evidence import OfferingEvidence
from shiplap.ports import FleetRequest
from shiplap.records import scheduling_record as records
from shiplap.scheduling.planner import plan
from tests.integration.flows.leaving import REBALANCE, claim_now, first, play_out, warning
from tests.integration.flows.spot_risk_stage import (
    ZONE_OF,
    evidence_of,
    feared,
    stage_with,
)
from tests.integration.flows.stage import Stage


def asked(stage: Stage) -> list[FleetRequest]:
    return list(stage.compute.requests)


def offered(request: FleetRequest) -> set[str]:
    return {f"{override.instance_type}/{override.zone}" for override in request.overrides}


def evidence(stage: Stage) -> tuple[OfferingEvidence, ...]:
    return evidence_of(stage).read(stage.clock.now())


def test_off_neither_reads_nor_writes_nor_changes_anything() -> None:
    plain, off = stage_with("off"), stage_with("off")
    plain.settings = replace(plain.settings, policies=())
    for stage in (plain, off):
        stage.add_pods(3)
        stage.play_on()
        _, instance = first(stage)
        stage.interrupt(warning(stage, instance.id))
        play_out(stage)

    assert off.faults.points == plain.faults.points
    assert off.recorder.records == plain.recorder.records
    assert off.claims() == plain.claims()
    assert not any("spot_evidence" in point for point in off.faults.points)


def test_observing_asks_for_the_same_and_records_what_would_have_been_asked_for() -> None:
    off, observing = stage_with("off", 2), stage_with("observe", 2)
    feared(observing, ("c7i-flex.large", "euw1-az1"))
    for stage in (off, observing):
        stage.schedule()

    assert [offered(request) for request in asked(observing)] == [offered(request) for request in asked(off)]
    assert all(claim.plan.preferred_spot is None for claim in observing.claims())
    (document,) = observing.recorder.records.values()
    record = records.decode(document)
    risk = record.plan.node_claims[0].spot_risk
    assert risk
    assert risk.observed
    assert risk.left_out >= 1
    assert "c7i-flex.large/eu-west-1a" not in risk.offerings


def test_preferring_asks_for_less_of_what_is_interrupted_often() -> None:
    stage = stage_with("prefer", 2)
    feared(stage, ("c7i-flex.large", "euw1-az1"))

    stage.schedule()

    (request,) = asked(stage)
    assert "c7i-flex.large/eu-west-1a" not in offered(request)
    assert "c7i-flex.large/eu-west-1b" in offered(request)
    assert len(offered(request)) >= 15
    assert len({override.zone for override in request.overrides}) >= 2


def test_a_recorded_decision_replays_exactly() -> None:
    stage = stage_with("prefer", 2)
    feared(stage, ("c7i-flex.large", "euw1-az1"))
    stage.schedule()

    (document,) = stage.recorder.records.values()
    record = records.decode(document)

    assert plan(record.snapshot) == record.plan
    assert record.plan.node_claims[0].preferred_spot


def test_no_offering_gets_more_than_its_share_of_a_pool_because_of_the_risk() -> None:
    stage = stage_with("prefer", 24, cpu="1600m", memory="2Gi")
    stage.settings = replace(stage.settings, unproven_pod_nodes=0)
    feared(
        stage, *(("c7i-flex.large", zone_id) for zone_id in ZONE_OF), *(("c7i.large", zone_id) for zone_id in ZONE_OF)
    )
    stage.schedule()

    had = Counter((item.instance_type, item.zone) for item in stage.compute.alive())

    assert had.total() >= 20
    assert not {name for name, _ in had} & {"c7i-flex.large", "c7i.large"}
    assert max(had.values()) <= had.total() * 30 // 100


def serving_spot(mode: str = "observe") -> tuple[Stage, NodeClaim, str]:
    stage = stage_with(mode, 1)
    stage.play_on()
    claim, instance = first(stage)
    stage.timers.reminders.clear()
    return stage, claim, instance.id


def test_an_interruption_counts_once_however_often_it_is_told() -> None:
    stage, claim, instance_id = serving_spot()
    for _ in range(3):
        stage.interrupt(warning(stage, instance_id))

    (known,) = [item for item in evidence(stage) if item.total_interruptions]
    assert known.total_interruptions == pytest.approx(1.0, rel=1e-3)
    assert (ZONE_OF[known.zone_id], known.instance_type) == (claim.known_instance.zone, claim.known_instance.type)


def test_a_recommendation_counts() -> None:
    stage, _, instance_id = serving_spot()
    stage.interrupt(warning(stage, instance_id, REBALANCE))

    assert sum(item.rebalances for item in evidence(stage)) == pytest.approx(1.0, rel=1e-3)


def test_a_refused_offering_counts_and_a_refused_on_demand_one_does_not() -> None:
    stage = stage_with("observe", 1)
    for capacity_type in ("spot", "on-demand"):
        stage.compute.capacity["c7i-flex.large", "eu-west-1a", capacity_type] = 0
    stage.schedule()

    assert {(item.instance_type, item.zone_id): item.refusals for item in evidence(stage)} == {
        ("c7i-flex.large", "euw1-az1"): pytest.approx(1.0, rel=1e-3)
    }


def test_a_node_that_ends_counts_the_hours_of_its_last_day_once() -> None:
    stage, claim, instance_id = serving_spot()
    stage.clock.advance(2 * 3600.0)
    born = claim.created_at
    stage.interrupt(warning(stage, instance_id))
    play_out(stage)

    known = next(item for item in evidence(stage) if item.total_interruptions)
    lived = (stage.clock.now() - born) / 3600.0
    assert 1.9 < known.total_node_hours < lived + 0.1
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_a_running_node_counts_each_day_once() -> None:
    stage, _, _ = serving_spot()
    stage.clock.advance(86_400.0 - stage.clock.now() % 86_400.0 + 30.0)
    for _ in range(3):
        stage.sweep()
    counted = sum(item.total_node_hours for item in evidence(stage))
    stage.clock.advance(86_400.0)
    stage.sweep()

    now = sum(item.total_node_hours for item in evidence(stage))
    assert counted > 0
    assert now == pytest.approx(counted + 24.0, abs=0.7)  # the first day counts a little less by now


@pytest.mark.parametrize("effect", ["spot_evidence.read", "spot_evidence.add", "spot_evidence.counted_days"])
def test_a_table_that_refuses_stops_nothing(effect: str) -> None:
    stage = stage_with("prefer", 1)
    for number in range(1, 30):
        stage.faults.on("before", effect, StoreThrottled("busy"), nth=number)
    stage.play_on()
    claim = next(iter(stage.claims()))
    stage.clock.advance(86_400.0 - stage.clock.now() % 86_400.0 + 30.0)
    stage.sweep()
    stage.interrupt(warning(stage, claim.instance_id))
    play_out(stage)

    refused = stage.meter.counts.get("SpotEvidenceNotRead", 0) + stage.meter.counts.get("SpotEvidenceNotWritten", 0)
    assert stage.claims()
    assert refused > 0


def test_a_death_anywhere_in_an_interruption_never_counts_it_twice() -> None:
    stage, _, instance_id = serving_spot()
    stage.faults.clear()
    stage.interrupt(warning(stage, instance_id))
    points = len(stage.faults.points)

    for point in range(points):
        again, _, lost_id = serving_spot()
        again.faults.clear()
        again.faults.crash_at(point)
        again.dies(lambda again=again, lost_id=lost_id: again.interrupt(warning(again, lost_id)))
        again.faults.clear()
        again.interrupt(warning(again, lost_id))

        assert sum(item.total_interruptions for item in evidence(again)) < 1.01
        assert next(iter(again.claims())).state is ClaimState.DRAINING
