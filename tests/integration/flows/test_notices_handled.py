"""One notice of AWS about a node in service: what is written, told, set and left alone, and what a repetition adds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from shiplap.flows.interrupt.interrupt import handle_notice
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.messages import rfc3339
from shiplap.kubernetes import labels
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.integration.flows.leaving import ONLY_LARGE, claim_now, first, serving
from tests.integration.flows.stage import Stage

TOLD = "NodeClaimInterrupted"


def told(stage: Stage, claim: NodeClaim) -> list[tuple[str, str, str]]:
    """Kind, deadline and id of each interruption that was published."""
    found = []
    for event in stage.bus.of_type(TOLD):
        assert event.detail["claim"] == claim.name
        found.append((event.detail["kind"], event.detail["deadline"], event.detail["id"]))
    return found


def timers(stage: Stage, claim: NodeClaim) -> list[tuple[str, int]]:
    assert {item.claim for item in stage.timers.reminders} <= {claim.name}
    return [(item.step, item.delay_s) for item in stage.timers.reminders]


def resting(stage: Stage) -> list[tuple[str, str, str]]:
    known = stage.state.read(stage.name, stage.clock.now()).unavailable
    return [(item.instance_type, item.zone, item.capacity_type) for item in known]


def handle(stage: Stage, claim: NodeClaim, kind: NoticeKind, times: int = 1, **fields: float) -> NodeClaim:
    for _ in range(times):
        handle_notice(claim.name, Notice(kind, (claim.instance_id,), **fields), stage.settings, stage.context)
    return claim_now(stage, claim)


def with_policy(stage: Stage, policy: str, grace: str | None = None) -> None:
    (pool,) = stage.settings.manifests.node_pools
    meta = structs.replace(pool.metadata, annotations={shiplap_annotations.REBALANCE: policy} if policy else {})
    pools = (with_grace(structs.replace(pool, metadata=meta), grace),)
    stage.settings = structs.replace(
        stage.settings, manifests=structs.replace(stage.settings.manifests, node_pools=pools)
    )


def with_grace(pool: NodePool, grace: str | None) -> NodePool:
    inner = structs.replace(pool.spec.template.spec, termination_grace_period=grace)
    spec = structs.replace(pool.spec, template=structs.replace(pool.spec.template, spec=inner))
    return structs.replace(pool, spec=spec)


@pytest.mark.parametrize("kind", sorted({*NoticeKind} - {NoticeKind.RESERVATION_STARTED}))
def test_a_node_that_is_taken_away_drains_and_its_pods_are_planned_at_once(kind: NoticeKind) -> None:
    stage = serving()
    claim, instance = first(stage)
    before = stage.clock.now()
    after = handle(stage, claim, kind)
    pressing = {
        NoticeKind.SPOT: 120.0,
        NoticeKind.CAPACITY_RESERVATION: 120.0,
        NoticeKind.IMPAIRED: 120.0,
        NoticeKind.UNHEALTHY: 120.0,
    }
    drains = {
        *pressing,
        NoticeKind.BLOCK_ENDING,
        NoticeKind.SCHEDULED_CHANGE,
        NoticeKind.INCOMPLETE,
        NoticeKind.DELETED,
    }
    ends = {NoticeKind.STOPPED, NoticeKind.TERMINATED}
    offering = (instance.instance_type, instance.zone, "spot")
    id_ = f"demo/{claim.name}/{kind}"
    if kind in drains | {NoticeKind.OTHER}:
        deadline = before + pressing[kind] if kind in pressing else 0.0
        assert (after.state, after.failure, after.deadline_at) == (ClaimState.DRAINING, kind, deadline)
        assert told(stage, claim) == [(kind, rfc3339(deadline) if deadline else "", id_)]
        assert timers(stage, claim) == [("drain", 0)]
        assert stage.meter.counts["NodesInterrupted"] == 1
    elif kind in ends:
        assert (after.state, after.failure) == (ClaimState.TERMINATING, kind)
        assert told(stage, claim) == [(kind, "", id_)]
        assert timers(stage, claim) == [("terminate", 0)]
        assert stage.meter.counts["NodesInterrupted"] == 1
    else:
        assert after == claim
        assert [seen for seen, *_ in told(stage, claim)] == ([kind] if kind is NoticeKind.REBALANCE else [])
        assert timers(stage, claim) == []
        assert "NodesInterrupted" not in stage.meter.counts
    hints = stage.bus.of_type("PodPending")
    assert len(hints) == (after.state is not ClaimState.INITIALIZED)
    for hint in hints:
        assert hint.detail["pods"] == [[pod.namespace, pod.name, pod.uid] for pod in claim.plan.pods]
        assert (hint.detail["reason"], hint.detail["id"]) == (kind, f"{id_}/pods")
    reclaimed = {NoticeKind.SPOT, NoticeKind.CAPACITY_RESERVATION}
    assert resting(stage) == ([offering] if kind in reclaimed else [])
    assert after.changed_at == (before if after.state is not ClaimState.INITIALIZED else claim.changed_at)


def test_the_same_notice_again_tells_nothing_new_and_asks_for_the_replacement_once_more() -> None:
    """Whoever wrote the claim may have died before it asked."""
    stage = serving()
    claim, _ = first(stage)
    sent = stage.clock.now() - 20
    once = handle(stage, claim, NoticeKind.SPOT, time=sent)
    assert once.deadline_at == sent + 120
    again = handle(stage, claim, NoticeKind.SPOT, time=sent)
    assert again == once
    assert len(told(stage, claim)) == 1
    assert len(stage.bus.of_type("PodPending")) == 2
    assert timers(stage, claim) == [("drain", 0)] * 2
    assert stage.meter.counts["NodesInterrupted"] == 1


@pytest.mark.parametrize(
    ("policy", "state", "cordoned"),
    [
        ("", ClaimState.INITIALIZED, ""),
        ("Ignore", ClaimState.INITIALIZED, ""),
        (shiplap_annotations.CORDON, ClaimState.INITIALIZED, "RebalanceRecommendation"),
        (shiplap_annotations.REPLACE, ClaimState.DRAINING, ""),
    ],
)
def test_a_recommendation_is_followed_as_the_pool_says(policy: str, state: ClaimState, cordoned: str) -> None:
    stage = serving()
    claim, instance = first(stage)
    with_policy(stage, policy)
    after = handle(stage, claim, NoticeKind.REBALANCE, times=2)
    assert (after.state, after.cordoned, after.deadline_at) == (state, cordoned, 0.0)
    step = {ClaimState.DRAINING: ["drain"] * 2}.get(state, ["cordon"] * 2 if cordoned else [])
    assert [name for name, _ in timers(stage, claim)] == step
    assert stage.meter.counts["RebalanceRecommendations"] == 2
    assert len(told(stage, claim)) == (1 if step else 2), "what is only reported is reported each time"
    offering = (instance.instance_type, instance.zone, "spot")
    assert resting(stage) == ([offering] if step else [])


def test_a_node_that_drains_already_is_not_cordoned_for_a_recommendation() -> None:
    stage = serving()
    claim, _ = first(stage)
    with_policy(stage, shiplap_annotations.CORDON)
    draining = handle(stage, claim, NoticeKind.SPOT)
    assert handle(stage, claim, NoticeKind.REBALANCE) == draining


@pytest.mark.parametrize(
    ("kind", "fields", "deadline_s"),
    [
        (NoticeKind.SPOT, {}, 60.0),
        (NoticeKind.SPOT, {"time": -70.0}, 50.0),
        (NoticeKind.SCHEDULED_CHANGE, {}, 60.0),
        (NoticeKind.DELETED, {}, 60.0),
        (NoticeKind.DELETED, {"time": 30.0}, 30.0),
        (NoticeKind.DELETED, {"time": 90.0}, 60.0),
        (NoticeKind.BLOCK_ENDING, {"time": 45.0}, 45.0),
        (NoticeKind.REBALANCE, {}, 60.0),
    ],
)
def test_the_earlier_of_the_notice_and_the_grace_of_the_launch_bounds_a_drain(
    kind: NoticeKind, fields: Mapping[str, float], deadline_s: float
) -> None:
    stage = serving(pools=[with_grace(pool, "60s") for pool in ONLY_LARGE])
    claim, _ = first(stage)
    with_policy(stage, shiplap_annotations.REPLACE, grace="1h")
    now = stage.clock.now()
    after = handle(stage, claim, kind, **{name: now + value for name, value in fields.items()})
    assert after.deadline_at == now + deadline_s


@pytest.mark.parametrize(("in_s", "drains"), [(12 * 3600.0, True), (12 * 3600.0 + 1, False)])
def test_a_change_within_twelve_hours_drains_and_a_later_one_is_remembered(in_s: float, *, drains: bool) -> None:
    stage = serving()
    claim, _ = first(stage)
    due_at = stage.clock.now() + in_s
    after = handle(stage, claim, NoticeKind.SCHEDULED_CHANGE, times=2, due_at=due_at)
    assert after.state is (ClaimState.DRAINING if drains else ClaimState.INITIALIZED)
    assert after.change_at == (0.0 if drains else due_at)
    assert len(told(stage, claim)) == 1
    assert stage.meter.counts.get("ScheduledChanges", 0) == (0 if drains else 1)


@pytest.mark.parametrize(("shift_s", "forgotten"), [(0.0, True), (1.0, False), (None, True)])
def test_a_change_is_forgotten_when_it_is_called_off_and_another_one_is_not(
    shift_s: float | None, *, forgotten: bool
) -> None:
    stage = serving()
    claim, _ = first(stage)
    due_at = stage.clock.now() + 48 * 3600
    handle(stage, claim, NoticeKind.SCHEDULED_CHANGE, due_at=due_at)
    off = handle(stage, claim, NoticeKind.CHANGE_CALLED_OFF, due_at=0.0 if shift_s is None else due_at + shift_s)
    assert off.change_at == (0.0 if forgotten else due_at)
    assert stage.meter.counts.get("ScheduledChangesCalledOff", 0) == forgotten
    assert len(told(stage, claim)) == 1 + forgotten


@pytest.mark.parametrize("kind", [NoticeKind.STOPPED, NoticeKind.TERMINATED])
def test_an_instance_that_ends_before_it_joins_is_looked_into_first(kind: NoticeKind) -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    stage.timers.reminders.clear()
    stage.bus.events.clear()
    (claim,) = stage.claims()
    assert handle(stage, claim, kind) == claim
    assert timers(stage, claim) == [("ended", 0)]
    assert stage.bus.events == []


@pytest.mark.parametrize("kind", [NoticeKind.SPOT, NoticeKind.STOPPED, NoticeKind.TERMINATED])
def test_a_node_that_is_being_ended_is_only_ended_sooner(kind: NoticeKind) -> None:
    stage = serving()
    claim, _ = first(stage)
    ending = stage.state.advance(claim, ClaimState.TERMINATING)
    assert handle(stage, claim, kind) == ending
    assert timers(stage, claim) == ([] if kind is NoticeKind.SPOT else [("terminate", 0)])
    assert (told(stage, claim), resting(stage)) == ([], [])


def test_what_was_bought_on_demand_or_has_its_type_to_blame_stays_on_the_market() -> None:
    stage = serving()
    claim, _ = first(stage)
    bought = structs.replace(claim.known_instance, capacity_type="on-demand")
    claim = stage.state.advance(claim, claim.state, instance=bought)
    handle(stage, claim, NoticeKind.SPOT)
    assert resting(stage) == []


def test_the_reservation_that_is_taken_back_rests_by_its_id() -> None:
    stage = serving()
    claim, _ = first(stage)
    bought = structs.replace(claim.known_instance, capacity_type="reserved")
    plan = structs.replace(claim.plan, labels={**claim.plan.labels, labels.RESERVATION_ID: "cr-1"})
    claim = stage.state.advance(claim, claim.state, instance=bought, plan=plan)
    handle(stage, claim, NoticeKind.CAPACITY_RESERVATION)
    (known,) = stage.state.read(stage.name, stage.clock.now()).unavailable
    assert known.capacity_type == "reserved"
    assert "cr-1" in repr(known)


def test_a_claim_of_a_newer_release_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    stage = serving()
    claim, _ = first(stage)
    newer: Any = structs.replace(claim, schema=claim.schema + 1)
    stage.state._claims[stage.name, claim.name] = newer
    handle_notice(claim.name, Notice(NoticeKind.SPOT, (claim.instance_id,)), stage.settings, stage.context)
    assert claim_now(stage, claim) == newer
    assert stage.timers.reminders == []
    assert "newer release" in caplog.text


def test_a_claim_that_is_gone_is_no_error() -> None:
    stage = serving()
    handle_notice("nobody", Notice(NoticeKind.SPOT, ("i-1",)), stage.settings, stage.context)
    assert stage.bus.events == []
