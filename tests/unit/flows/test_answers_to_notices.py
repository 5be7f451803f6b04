"""Tests the answers to AWS's notices, by kind of notice and state of the claim: writes, events and actions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import ConditionFailed
from shiplap.flows.interrupt.interrupt import URGENT_S, WARNING_S, handle_notice, interrupt
from shiplap.flows.interrupt.notices import Notice, NoticeKind
from shiplap.flows.messages import rfc3339
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.manifests.shiplap_annotations import REBALANCE
from shiplap.settings import Settings
from tests.builders.claims import node_claim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

K, S = NoticeKind, ClaimState
POD = PodReference("default", "web", "uid-web")


def with_pool(*, grace: str | None = None, rebalance: str | None = None) -> Stage:
    plain = msgspec.to_builtins(family_pool("flex", ("m6i",)))
    if grace is not None:
        plain["spec"]["template"]["spec"]["terminationGracePeriod"] = grace
    if rebalance is not None:
        plain["metadata"]["annotations"] = {REBALANCE: rebalance}
    return Stage((msgspec.convert(plain, NodePool),))


def put(stage: Stage, state: ClaimState = S.INITIALIZED, **fields: Any) -> NodeClaim:
    known: dict[str, Any] = {
        "cluster": stage.name,
        "node_pool": "flex",
        "instance_id": "i-1",
        "instance_type": "m6i.large",
        "zone": "eu-west-1a",
        "capacity_type": "spot",
        "node_name": "n",
        "pods": (POD,),
        "changed_at": 1.0,
    }
    stage.state.adopt(node_claim(name="c", state=state, **known | fields))
    return now(stage)


def now(stage: Stage) -> NodeClaim:
    claim = stage.state.claim(stage.name, "c")
    assert claim is not None
    return claim


def give(stage: Stage, kind: NoticeKind, *, at: float = 0.0, due_at: float = 0.0) -> NodeClaim:
    stage.bus.events.clear()
    stage.timers.reminders.clear()
    stage.meter.counts.clear()
    handle_notice("c", Notice(kind, ("i-1",), at, due_at), stage.settings, stage.context)
    return now(stage)


def told(stage: Stage) -> list[str]:
    return [event.detail_type for event in stage.bus.events]


def timers(stage: Stage) -> list[tuple[str, str, int]]:
    return [(item.claim, item.step, item.delay_s) for item in stage.timers.reminders]


LOST = ("m6i.large", "eu-west-1a", "spot")


@pytest.mark.parametrize(
    ("kind", "deadline_s", "resting"),
    [
        (K.SPOT, WARNING_S - 10, True),
        (K.CAPACITY_RESERVATION, WARNING_S - 10, True),
        (K.IMPAIRED, WARNING_S - 10, False),
        (K.UNHEALTHY, WARNING_S - 10, False),
        (K.SCHEDULED_CHANGE, None, False),
        (K.INCOMPLETE, None, False),
        (K.BLOCK_ENDING, -10, False),
        (K.DELETED, -10, False),
    ],
)
def test_a_node_that_must_go_is_drained_from_when_the_notice_was_sent(
    kind: NoticeKind, deadline_s: float | None, resting: bool
) -> None:
    """The notice is ten seconds old; of a block that ends, and of a deletion, it names the end itself."""
    stage = with_pool()
    put(stage)
    at = stage.clock.now()
    claim = give(stage, kind, at=at - 10)
    assert (claim.state, claim.failure, claim.changed_at) == (S.DRAINING, str(kind), at)
    assert claim.deadline_at == (0.0 if deadline_s is None else at + deadline_s)
    assert told(stage) == ["NodeClaimInterrupted", "PodPending"]
    interrupted, hint = (event.detail for event in stage.bus.events)
    assert (interrupted["kind"], interrupted["id"]) == (str(kind), f"{stage.name}/c/{kind}/{rfc3339(at - 10)}")
    assert bool(interrupted["deadline"]) is (deadline_s is not None)
    assert (hint["reason"], hint["id"]) == (str(kind), f"{stage.name}/c/{kind}/pods")
    assert hint["pods"] == [["default", "web", "uid-web"]]
    assert timers(stage) == [("c", "drain", 0)]
    assert stage.meter.counts == {"NodesInterrupted": 1.0}
    unavailable = stage.state.read(stage.name, at).unavailable
    assert [item.scope for item in unavailable] == ([LOST] if resting else [])


def test_a_notice_without_a_time_counts_from_now() -> None:
    stage = with_pool()
    put(stage)
    assert give(stage, K.SPOT).deadline_at == stage.clock.now() + WARNING_S
    other = with_pool()
    put(other)
    assert give(other, K.DELETED).deadline_at == 0.0


@pytest.mark.parametrize(
    ("kind", "grace", "deadline_s"),
    [
        (K.SPOT, "1m", 60.0),
        (K.SPOT, "1h", WARNING_S),
        (K.SCHEDULED_CHANGE, "1h", 3600.0),
        (K.INCOMPLETE, "1h", 3600.0),
    ],
)
def test_the_grace_period_of_its_pool_counts_where_it_is_shorter(
    kind: NoticeKind, grace: str, deadline_s: float
) -> None:
    stage = with_pool(grace=grace)
    put(stage)
    assert give(stage, kind).deadline_at == stage.clock.now() + deadline_s


@pytest.mark.parametrize(
    ("state", "kind", "moves"),
    [(state, K.SPOT, state in (S.LAUNCHED, S.REGISTERED, S.INITIALIZED, S.DISRUPTING)) for state in S],
)
def test_only_claims_with_an_instance_that_is_not_going_are_drained(
    state: ClaimState, kind: NoticeKind, moves: bool
) -> None:
    stage = with_pool()
    before = put(stage, state)
    after = give(stage, kind)
    assert (after.state is S.DRAINING) is (moves or state is S.DRAINING)
    if not moves and state is not S.DRAINING:
        assert after == before
        assert (told(stage), timers(stage)) == ([], [])


@pytest.mark.parametrize(
    ("known_s", "kept"), [(0.0, False), (WARNING_S + 60, False), (WARNING_S, True), (WARNING_S - 60, True)]
)
def test_an_earlier_deadline_replaces_a_later_one(known_s: float, kept: bool) -> None:
    stage = with_pool()
    deadline_at = stage.clock.now() + known_s if known_s else 0.0
    before = put(stage, S.DRAINING, deadline_at=deadline_at, failure="Drifted")
    after = give(stage, K.SPOT)
    assert (after == before) is kept
    if not kept:
        assert (after.deadline_at, after.failure) == (stage.clock.now() + WARNING_S, "SpotInterruption")
        assert after.changed_at == before.changed_at
    assert told(stage) == (["PodPending"] if kept else ["NodeClaimInterrupted", "PodPending"])
    assert timers(stage) == [("c", "drain", 0)]
    assert stage.meter.counts == {}


def test_what_does_not_press_keeps_a_deadline() -> None:
    stage = with_pool()
    before = put(stage, S.DRAINING, deadline_at=stage.clock.now() + 60, failure="SpotInterruption")
    assert give(stage, K.SCHEDULED_CHANGE) == before


@pytest.mark.parametrize("kind", [K.STOPPED, K.TERMINATED])
@pytest.mark.parametrize("state", list(S))
def test_an_instance_that_ended_ends_its_claim(kind: NoticeKind, state: ClaimState) -> None:
    stage = with_pool()
    before = put(stage, state)
    after = give(stage, kind)
    if state in (S.REGISTERED, S.INITIALIZED, S.DISRUPTING, S.DRAINING):
        assert (after.state, after.failure, after.changed_at) == (S.TERMINATING, str(kind), stage.clock.now())
        assert told(stage) == ["NodeClaimInterrupted", "PodPending"]
        assert timers(stage) == [("c", "terminate", 0)]
        assert stage.meter.counts == {"NodesInterrupted": 1.0}
        assert stage.bus.events[0].detail["deadline"] == ""
        return
    assert after == before
    assert told(stage) == []
    step = {S.LAUNCHED: [("c", "ended", 0)], S.TERMINATING: [("c", "terminate", 0)]}
    assert timers(stage) == step.get(state, [])
    assert stage.meter.counts == {}


@pytest.mark.parametrize(
    ("policy", "state", "after", "cordoned"),
    [
        (None, S.INITIALIZED, S.INITIALIZED, ""),
        ("report", S.INITIALIZED, S.INITIALIZED, ""),
        ("replace", S.INITIALIZED, S.DRAINING, ""),
        ("cordon", S.INITIALIZED, S.INITIALIZED, "RebalanceRecommendation"),
        ("cordon", S.DRAINING, S.DRAINING, ""),
        ("replace", S.DRAINING, S.DRAINING, ""),
    ],
)
def test_a_recommendation_is_followed_as_the_pool_says(
    policy: str | None, state: ClaimState, after: ClaimState, cordoned: str
) -> None:
    stage = with_pool(rebalance=policy)
    put(stage, state)
    claim = give(stage, K.REBALANCE)
    assert (claim.state, claim.cordoned) == (after, cordoned)
    assert claim.deadline_at == 0.0
    replaced = policy == "replace"
    assert told(stage) == [
        *(["NodeClaimInterrupted"] if not (replaced and state is S.DRAINING) else []),
        *(["PodPending"] if replaced else []),
    ]
    step = "drain" if replaced else "cordon" if cordoned else None
    assert timers(stage) == ([("c", step, 0)] if step else [])
    assert stage.meter.counts["RebalanceRecommendations"] == 1
    resting = state is S.INITIALIZED and policy in ("replace", "cordon")
    assert bool(stage.state.read(stage.name, stage.clock.now()).unavailable) is resting


def test_a_node_is_cordoned_once_and_its_timer_set_each_time() -> None:
    stage = with_pool(rebalance="cordon")
    put(stage)
    first = give(stage, K.REBALANCE)
    assert give(stage, K.REBALANCE) == first
    assert (told(stage), timers(stage)) == ([], [("c", "cordon", 0)])


def test_a_recommendation_for_a_claim_without_a_pool_is_only_told() -> None:
    stage = with_pool(rebalance="replace")
    before = put(stage, node_pool="removed")
    assert give(stage, K.REBALANCE) == before
    assert told(stage) == ["NodeClaimInterrupted"]


@pytest.mark.parametrize(("in_s", "drains"), [(URGENT_S, True), (URGENT_S + 1, False), (-5.0, True)])
def test_a_change_that_is_days_away_is_written_down_and_one_that_presses_drains(in_s: float, drains: bool) -> None:
    stage = with_pool()
    before = put(stage)
    due_at = stage.clock.now() + in_s
    after = give(stage, K.SCHEDULED_CHANGE, due_at=due_at)
    if drains:
        assert (after.state, after.deadline_at) == (S.DRAINING, 0.0)
        return
    assert after == replace(before, change_at=due_at, version=before.version + 1)
    assert (told(stage), timers(stage)) == (["NodeClaimInterrupted"], [])
    assert stage.meter.counts == {"ScheduledChanges": 1.0}
    assert give(stage, K.SCHEDULED_CHANGE, due_at=due_at) == after
    assert told(stage) == []
    assert give(stage, K.SCHEDULED_CHANGE, due_at=due_at + 60).change_at == due_at + 60


def test_a_change_of_a_node_that_drains_is_not_written_down() -> None:
    stage = with_pool()
    before = put(stage, S.DRAINING)
    assert give(stage, K.SCHEDULED_CHANGE, due_at=stage.clock.now() + URGENT_S + 60) == before
    assert told(stage) == []


@pytest.mark.parametrize(
    ("known_at", "meant_at", "forgotten"),
    [(50.0, 0.0, True), (50.0, 50.0, True), (50.0, 60.0, False), (0.0, 0.0, None)],
)
def test_a_change_that_is_called_off_is_forgotten_if_it_was_meant(
    known_at: float, meant_at: float, forgotten: bool | None
) -> None:
    stage = with_pool()
    before = put(stage, change_at=known_at)
    after = give(stage, K.CHANGE_CALLED_OFF, due_at=meant_at)
    assert (after != before) is bool(forgotten)
    assert after.change_at == (0.0 if forgotten else known_at)
    assert told(stage) == (["NodeClaimInterrupted"] if forgotten else [])
    assert stage.meter.counts == ({"ScheduledChangesCalledOff": 1.0} if forgotten else {})


@pytest.mark.parametrize(
    ("kind", "capacity_type", "scope"),
    [
        (K.SPOT, "spot", LOST),
        (K.SPOT, "on-demand", None),
        (K.CAPACITY_RESERVATION, "reserved", ("cr-1", "eu-west-1a", "reserved")),
        (K.IMPAIRED, "spot", None),
        (K.SCHEDULED_CHANGE, "spot", None),
    ],
)
def test_an_offering_that_aws_takes_back_rests(
    kind: NoticeKind, capacity_type: str, scope: tuple[str, str, str] | None
) -> None:
    stage = with_pool()
    marks = {labels.RESERVATION_ID: "cr-1"} if capacity_type == "reserved" else {}
    put(stage, capacity_type=capacity_type, labels=marks)
    give(stage, kind)
    found = stage.state.read(stage.name, stage.clock.now()).unavailable
    assert [item.scope for item in found] == ([] if scope is None else [scope])
    assert all(item.code == str(kind) for item in found)


def test_a_claim_of_a_newer_release_is_left_alone() -> None:
    stage = with_pool()
    put(stage)
    stage.state._claims[stage.name, "c"] = newer = replace(now(stage), schema=99)
    assert give(stage, K.SPOT) == newer
    assert (told(stage), timers(stage)) == ([], [])


@pytest.mark.parametrize(("failures", "raises"), [(1, False), (2, False), (9, True)])
def test_a_claim_that_others_write_is_read_again_a_few_times(failures: int, raises: bool) -> None:
    stage = with_pool()
    put(stage)
    for number in range(failures):
        stage.faults.on("before", "state.advance", ConditionFailed("moved"), nth=number + 1)
    if raises:
        with pytest.raises(ConditionFailed):
            give(stage, K.SPOT)
        assert stage.faults.points.count("before state.advance") == 5
    else:
        assert give(stage, K.SPOT).state is S.DRAINING


def test_instances_of_nobody_and_of_clusters_that_are_not_configured_are_counted_and_hide_no_other() -> None:
    stage = with_pool()
    put(stage)
    stage.state.adopt(node_claim(cluster="strange", name="s", state=S.INITIALIZED, instance_id="i-2"))
    notice = Notice(K.SPOT, ("i-0", "i-2", "i-1"), stage.clock.now())
    interrupt(notice, Settings((stage.settings,)), stage.state, lambda _: stage.context, stage.meter)
    assert now(stage).state is S.DRAINING
    assert stage.meter.counts == {"InstancesNotOurs": 1.0, "UnknownClusters": 1.0, "NodesInterrupted": 1.0}


def test_a_name_without_a_claim_is_nobodys() -> None:
    stage = with_pool()
    handle_notice("gone", Notice(K.SPOT, ("i-1",)), stage.settings, stage.context)
    assert (told(stage), stage.meter.counts) == ([], {})
