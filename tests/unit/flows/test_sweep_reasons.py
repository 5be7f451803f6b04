"""Tests why the sweep has a claim looked at, the instances and Nodes that it reports, and the nodes it finds sick."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.disruption.repair.repair_policies import SickCondition, sick_condition
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.interrupt.interrupt import WARNING_S
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.flows.schedule.entry import SweepTimes
from shiplap.flows.sweep.repair import (
    IMPAIRED_S,
    SickNode,
    choose_repairs,
    room_for_repairs,
    sick_among,
)
from shiplap.flows.sweep.sweep import MOST_REMINDERS, in_turn, is_silent, reason_to_visit, without_instance
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, NodeCondition, ObjectMeta
from shiplap.kubernetes.taints import DISRUPTED
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import InstanceProblem
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node as any_node
from tests.builders.pools import pool

NOW = 1_700_000_000.0
STATES = ClaimState
node = partial(any_node, since=NOW)


CLAIM = node_claim(name="c", instance_id="i-n", changed_at=NOW, created_at=NOW - 900)


def why(item: NodeClaim, there: Node | None = None, *, alive: bool = True) -> str:
    joined: Mapping[str, Node] = {} if there is None else {"i-n": there}
    return reason_to_visit(item, joined, {"i-n"} if alive else set(), NOW)


@pytest.mark.parametrize(
    ("state", "there", "fields", "reason"),
    [
        (STATES.DRAINING, True, {}, "drain"),
        (STATES.DRAINING, False, {}, "drain"),
        (STATES.TERMINATING, False, {}, "terminate"),
        (STATES.LAUNCHED, True, {"deadline_at": NOW + 1}, "register"),
        (STATES.LAUNCHED, False, {"deadline_at": NOW + 1}, ""),
        (STATES.LAUNCHED, False, {"deadline_at": NOW}, "join"),
        (STATES.REGISTERED, True, {}, "initialize"),
        (STATES.REGISTERED, False, {}, "node gone"),
        (STATES.INITIALIZED, True, {}, ""),
        (STATES.INITIALIZED, False, {}, "node gone"),
        (STATES.INITIALIZED, True, {"deadline_at": NOW + 1}, "returned"),
        (STATES.INITIALIZED, False, {"deadline_at": NOW + 1}, ""),
        (STATES.INITIALIZED, False, {"deadline_at": NOW}, "node gone"),
        (STATES.INITIALIZED, True, {"cordoned": "RebalanceRecommendation"}, "cordon"),
        (STATES.DISRUPTING, True, {}, ""),
        (STATES.DISRUPTING, False, {}, ""),
        (STATES.PLANNED, False, {"deadline_at": NOW - 1}, ""),
        (STATES.LAUNCHING, False, {"deadline_at": NOW - 1}, ""),
        (STATES.FAILED, False, {}, ""),
    ],
)
def test_why_a_claim_is_looked_at(state: ClaimState, there: bool, fields: dict[str, Any], reason: str) -> None:
    assert why(with_fields(CLAIM, state=state, **fields), node() if there else None) == reason


def test_a_node_that_is_closed_already_is_not_cordoned_again() -> None:
    known = with_fields(CLAIM, state=STATES.INITIALIZED, cordoned="x")
    assert why(known, node(taints=(DISRUPTED,))) == ""


@pytest.mark.parametrize(
    ("state", "vanishes"),
    [(STATES.LAUNCHED, True), (STATES.INITIALIZED, True), (STATES.DISRUPTING, True), (STATES.PLANNED, False)],
)
def test_an_instance_that_is_not_described_has_vanished_after_a_while(state: ClaimState, vanishes: bool) -> None:
    there = None if state is STATES.LAUNCHED else node()
    for ago_s, late in ((GRACE_S, False), (GRACE_S + 1, True)):
        known = with_fields(
            CLAIM, state=state, changed_at=NOW - ago_s, deadline_at=NOW + 1 if state is STATES.LAUNCHED else 0.0
        )
        assert why(known, there, alive=False) == ("vanished" if late and vanishes else "")


@pytest.mark.parametrize(
    ("there", "silent"),
    [
        (node(since=NOW - GRACE_S - 1), False),
        (node(ready="Unknown", since=NOW - GRACE_S - 1), True),
        (node(ready="False", since=NOW - GRACE_S - 1), True),
        (node(ready="Unknown", since=NOW - GRACE_S), False),
        (node(ready="Unknown", since=None), True),
        (Node(metadata=ObjectMeta(name="n")), True),
    ],
)
def test_a_node_is_silent_when_its_kubelet_has_not_been_heard_of_for_a_while(there: Node, silent: bool) -> None:
    assert is_silent(there, NOW) is silent


def test_silent_nodes_without_an_instance_are_told_by_their_claims() -> None:
    gone = {"ready": "Unknown", "since": NOW - 1000}
    nodes = {
        "i-a": node("a", **gone, labels={labels.NODE_CLAIM: "ca"}),
        "i-b": node("b", **gone, labels={labels.NODE_CLAIM: "cb"}),
        "i-c": node("c", **gone),
        "i-d": node("d", labels={labels.NODE_CLAIM: "cd"}),
    }
    assert without_instance(nodes, {"i-b"}, NOW) == {"ca"}


def test_more_than_a_sweep_can_do_takes_turns_by_the_minute() -> None:
    assert in_turn([1, 2, 3], 0.0, 3) == [1, 2, 3]
    assert in_turn([1, 2, 3], 60.0 * 7, 3) == [1, 2, 3]
    firsts = [in_turn([1, 2, 3, 4, 5], minute * 60.0, 2)[0] for minute in range(6)]
    assert firsts == [1, 3, 5, 2, 4, 1]
    assert in_turn([1, 2, 3, 4, 5], 59.9, 2) == [1, 2, 3, 4, 5]
    assert list(in_turn([1, 2, 3], 60.0, 2)) == [3, 1, 2]
    assert MOST_REMINDERS == 500


# Sick nodes


def problem(kind: str = "instance", ago_s: float = IMPAIRED_S, instance: str = "i-n") -> InstanceProblem:
    return InstanceProblem(instance, kind, NOW - ago_s)


@pytest.mark.parametrize(
    ("state", "deadline_at", "found"),
    [
        (STATES.LAUNCHED, 0.0, False),
        (STATES.REGISTERED, 0.0, True),
        (STATES.INITIALIZED, 0.0, True),
        (STATES.DISRUPTING, 0.0, True),
        (STATES.DRAINING, 0.0, True),
        (STATES.DRAINING, NOW + WARNING_S + 1, True),
        (STATES.DRAINING, NOW + WARNING_S, False),
        (STATES.TERMINATING, 0.0, False),
    ],
)
def test_nodes_in_service_and_those_that_leave_at_leisure_may_be_sick(
    state: ClaimState, deadline_at: float, found: bool
) -> None:
    sick = sick_among([with_fields(CLAIM, state=state, deadline_at=deadline_at)], {}, [problem()], NOW)
    assert bool(sick) is found


def test_an_instance_is_sick_when_its_check_has_failed_long_enough_and_says_which() -> None:
    known = with_fields(CLAIM, state=STATES.INITIALIZED)
    (sick,) = sick_among([known], {}, [problem("system", 300), problem("instance", 240)], NOW)
    assert sick == SickNode(known, NoticeKind.IMPAIRED, "its system status check has failed for 300 s")
    assert sick_among([known], {}, [problem(ago_s=IMPAIRED_S - 1), problem("event", 9000)], NOW) == []
    assert sick_among([known], {}, [problem(instance="i-other")], NOW) == []


def test_sick_nodes_come_by_name_each_once() -> None:
    bad = node(ready="Unknown", since=NOW - 1800)
    claims = [with_fields(CLAIM, state=STATES.INITIALIZED, name=name) for name in ("b", "a", "c")]
    found = sick_among(claims, {"i-n": bad}, [], NOW)
    assert [(item.claim.name, item.kind) for item in found] == [(name, NoticeKind.UNHEALTHY) for name in "abc"]
    assert found[0].reason == "its condition Ready has been Unknown for 1800 s"
    both = sick_among(claims[:1], {"i-n": bad}, [problem()], NOW)
    assert [item.kind for item in both] == [NoticeKind.IMPAIRED]


def in_pool(name: str, state: ClaimState = STATES.INITIALIZED, **fields: Any) -> NodeClaim:
    return with_fields(CLAIM, state=state, name=name, node_pool="default", **fields)


def test_a_node_that_drains_for_another_reason_is_one_of_the_pool_and_not_sick() -> None:
    leaving = [in_pool(f"l{number}", STATES.DRAINING, failure="Drifted") for number in range(5)]
    ill = [SickNode(in_pool(name), NoticeKind.UNHEALTHY, "bad") for name in "ab"]
    claims = [*leaving, *(item.claim for item in ill)]
    assert len(choose_repairs(claims, ill).repaired) == 2, "two of seven, of which a fifth rounded up is two"
    assert choose_repairs([item.claim for item in ill], ill).repaired == ()
    ended = [in_pool(f"t{number}", STATES.TERMINATING, failure="Drifted") for number in range(5)]
    assert choose_repairs([*ended, *(item.claim for item in ill)], ill).repaired == (), "those are gone"


@pytest.mark.parametrize("kind", [NoticeKind.IMPAIRED, NoticeKind.UNHEALTHY])
def test_nodes_in_repair_are_sick_ones_of_their_pool(kind: NoticeKind) -> None:
    """Of six nodes a fifth, rounded up, may be sick: two, and one is in repair already."""
    repaired = in_pool("r", STATES.DRAINING, failure=str(kind))
    well = [in_pool(f"w{number}") for number in range(4)]
    ill = SickNode(in_pool("a"), NoticeKind.UNHEALTHY, "bad")
    assert choose_repairs([repaired, *well, ill.claim], [ill]).repaired == (ill,)
    assert choose_repairs([repaired, *well[:3], ill.claim], [ill]).blocked == (ill,)


def test_a_condition_that_is_good_or_not_known_hides_no_bad_one() -> None:
    bad = node(ready="False", since=NOW - 1800)
    fine = NodeCondition(type="MemoryPressure", status="False", last_transition_time=rfc3339(NOW - 9000))
    found = replace(bad, status=replace(bad.status, conditions=(fine, *bad.status.conditions)))
    assert sick_condition(found, (), NOW) == SickCondition("its condition Ready has been False for 1800 s")


def test_claims_that_nothing_can_repair_hide_no_sick_one() -> None:
    claims = [
        with_fields(CLAIM, state=STATES.LAUNCHED, name="a"),
        with_fields(CLAIM, state=STATES.INITIALIZED, name="b"),
    ]
    assert [item.claim.name for item in sick_among(claims, {}, [problem()], NOW)] == ["b"]


@pytest.mark.parametrize(
    ("states", "room"),
    [
        ([STATES.INITIALIZED] * 4, 2),
        ([STATES.INITIALIZED] * 3 + [STATES.DRAINING], 1),
        ([STATES.INITIALIZED] * 2 + [STATES.DRAINING, STATES.TERMINATING], 0),
        ([STATES.INITIALIZED] * 2 + [STATES.LAUNCHED] * 2, 1),
    ],
)
def test_sick_nodes_and_scheduled_changes_wait_for_the_room_that_budgets_leave(
    states: list[ClaimState], room: int
) -> None:
    wanted = pool("default", budgets=[{"nodes": "50%"}, {"nodes": "0", "reasons": ["Empty"]}])
    claims = [in_pool(f"c{place}", state) for place, state in enumerate(states)]
    others = [with_fields(CLAIM, state=STATES.DRAINING, name=f"o{place}", node_pool="other") for place in range(9)]
    assert room_for_repairs(wanted, [*claims, *others], Reason.UNHEALTHY, NOW) == room
    assert room_for_repairs(wanted, [*claims, *others], Reason.DRIFTED, NOW) == room
    assert room_for_repairs(wanted, [*claims, *others], Reason.EMPTY, NOW) == 0


def test_a_cluster_is_swept_at_least_every_five_minutes_by_each_process() -> None:
    times = SweepTimes()
    assert times.is_overdue("demo", 300.0)
    times.note("demo", NOW)
    assert [times.is_overdue("demo", NOW + ago_s) for ago_s in (0.0, 299.0, 300.0)] == [False, False, True]
    assert times.is_overdue("other", NOW)
