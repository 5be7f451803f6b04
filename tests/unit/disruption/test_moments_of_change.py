"""The moments at which time alone may change a decision: each is named, and none hides another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from math import inf
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.budgets import window_changes
from shiplap.disruption.decision_clock import LONGEST_S, DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.rescheduling import with_plan_applied
from shiplap.disruption.standstill import plan_moments
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Event, Node, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.planned_pods import STARTING_S
from shiplap.scheduling.model.snapshot import ClusterView, SchedulingSettings, Snapshot
from shiplap.scheduling.supply.reservations import SHOWN_AFTER_S, Reservations, held_by, units_left
from tests.builders.claims import node_claim
from tests.builders.nodes import node as any_node
from tests.builders.pods import pod as any_pod
from tests.builders.pools import pool, rule
from tests.conformance.given import csi_driver

NOON = datetime(2027, 1, 15, 12, 0, tzinfo=UTC).timestamp()


def minutes(*budgets: Mapping[str, Any], at: float = NOON, zone: str = "") -> list[float]:
    """Of the quarter of an hour to come, after how many minutes a budget opens or closes."""
    marks = {"shiplap.dev/disruption-time-zone": zone} if zone else None
    found = window_changes(pool(budgets=budgets, annotations=marks), at)
    return [(moment - NOON) / 60 for moment in found]


OPENS = {"nodes": "0", "schedule": "5 12 * * *", "duration": "5m"}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (NOON, [5, 10, 11, 12, 13, 14, 15]),
        (NOON + 59, [5, 10, 11, 12, 13, 14, 15]),
        (NOON + 4 * 60 + 59, [5, 10]),
        (NOON - LONGEST_S, []),
    ],
)
def test_a_budget_opens_and_closes_at_whole_minutes(at: float, expected: list[float]) -> None:
    found = minutes(OPENS, at=at)
    assert set(found) <= set(range(31))
    assert found[:1] == expected[:1]
    opened = [moment for moment in found if moment in (5, 6, 7, 8, 9)]
    assert bool(opened) is bool(expected)


@pytest.mark.parametrize("before", [{"nodes": "1"}, {"nodes": "0", "schedule": "nonsense", "duration": "5m"}])
def test_a_budget_without_a_window_hides_none_behind_it(before: Mapping[str, Any]) -> None:
    unread = msgspec.convert(pool(budgets=(OPENS,)), type(pool()))
    first = msgspec.structs.replace(unread.spec.disruption.budgets[0], schedule=before.get("schedule"))
    disruption = msgspec.structs.replace(unread.spec.disruption, budgets=(first, *unread.spec.disruption.budgets))
    both = msgspec.structs.replace(unread, spec=msgspec.structs.replace(unread.spec, disruption=disruption))
    assert list(window_changes(both, NOON)) == list(window_changes(unread, NOON))
    assert list(window_changes(unread, NOON)) != []


def snapshot(**fields: Any) -> DisruptionSnapshot:
    known: dict[str, Any] = {
        "cluster": "demo",
        "now": NOON,
        "view": ClusterView(),
        "settings": SchedulingSettings(autoscaler_hold_s=600.0),
    }
    return DisruptionSnapshot(scheduling=Snapshot(**known | fields))


node = partial(any_node, born=rfc3339(NOON - 50))
claim = partial(node_claim, state=ClaimState.INITIALIZED, created_at=NOON - 100, changed_at=NOON - 20)
READY_BY = NOON - 50 + STARTING_S


@pytest.mark.parametrize(
    ("claims", "nodes", "expected"),
    [
        ([], [node()], {READY_BY}),
        ([claim(node_name="node")], [node()], set()),
        ([claim(node_name="other")], [node()], {READY_BY}),
        ([claim(node_name="node", created_at=0.0)], [node()], {READY_BY}),
        ([claim(node_name="node")], [node(ready=False)], {READY_BY}),
        ([claim(node_name="node")], [node(ready=None)], set()),
        ([], [node("a", born=None), node("b")], {READY_BY}),
        ([claim(node_name="a")], [node("a"), node("b")], {READY_BY}),
        ([claim(state=ClaimState.LAUNCHED)], [], {NOON - 20 + SHOWN_AFTER_S}),
        ([claim(state=ClaimState.REGISTERED)], [], {NOON - 20 + SHOWN_AFTER_S}),
        ([claim(state=ClaimState.LAUNCHING)], [], set()),
        ([claim(state=ClaimState.DISRUPTING)], [], set()),
    ],
)
def test_when_nodes_have_had_time_to_start_or_are_counted_by_ec2(
    claims: list[NodeClaim], nodes: list[Node], expected: set[float]
) -> None:
    seen = snapshot(view=ClusterView(nodes=tuple(nodes)), claims=tuple(claims))
    assert set(plan_moments(seen)) == expected


@pytest.mark.parametrize("demanded", [True, False])
def test_when_nodes_have_had_time_to_get_a_driver_that_is_demanded(demanded: bool) -> None:
    view = ClusterView(nodes=(node(),), csi_drivers=(csi_driver(demanded=demanded),))
    seen = snapshot(view=view, claims=(claim(node_name="node"),))
    assert set(plan_moments(seen)) == ({READY_BY} if demanded else set())


pod = partial(any_pod, phase="Running", started_at=NOON - 30)
PROTECTED, LONG, UNREAD = ({labels.DO_NOT_DISRUPT: value} for value in ("true", "10m", "nonsense"))
ENDS = NOON - 30 + 600


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ([pod()], []),
        ([pod(phase="Pending")], []),
        ([pod(phase="Pending", started_at=None)], []),
        ([pod(annotations=LONG)], [ENDS]),
        ([pod(phase="Pending", annotations=LONG)], [ENDS]),
        ([pod(annotations=PROTECTED)], []),
        ([pod(annotations=LONG, started_at=None)], []),
        ([pod(annotations=UNREAD)], []),
        ([pod("a", annotations=PROTECTED), pod("b", annotations=LONG)], [ENDS]),
        ([pod("a", annotations=UNREAD), pod("b", annotations=LONG)], [ENDS]),
        ([pod("a"), pod("b", annotations=LONG)], [ENDS]),
    ],
)
def test_when_pods_lose_their_protection(pods: list[Pod], expected: list[float]) -> None:
    found = plan_moments(snapshot(view=ClusterView(pods=tuple(pods))))
    assert [moment for moment in found if NOON <= moment < inf] == expected


@pytest.mark.parametrize(
    ("asked", "changes_at"),
    [
        (lambda clock: clock.has_reached(NOON - 1), inf),
        (lambda clock: clock.has_reached(NOON), inf),
        (lambda clock: clock.has_reached(NOON + 1), NOON + 1),
        (lambda clock: clock.is_past(NOON - 1), inf),
        (lambda clock: clock.is_past(NOON), NOON),
        (lambda clock: clock.is_past(NOON + 1), NOON + 1),
        (lambda clock: clock.note((NOON + 9, NOON + 2, NOON - 1)), NOON + 2),
        (lambda clock: clock.note(()), inf),
        (lambda clock: (clock.has_reached(NOON + 3), clock.is_past(NOON + 2), clock.note((NOON + 4,))), NOON + 2),
    ],
)
def test_the_clock_keeps_the_earliest_moment_at_which_an_answer_changes(
    asked: Callable[[DecisionClock], object], changes_at: float
) -> None:
    clock = DecisionClock(NOON)
    asked(clock)
    assert clock.changes_at == changes_at
    answers = [
        [DecisionClock(now).has_reached(NOON + 1), DecisionClock(now).is_past(NOON + 1)]
        for now in (NOON, NOON + 1, NOON + 1.5)
    ]
    assert answers == [[False, False], [True, False], [True, True]]


@pytest.mark.parametrize(
    ("times", "said_at"),
    [
        ({"last": 30, "event": 20, "created": 10}, 30),
        ({"event": 20, "created": 10}, 20),
        ({"created": 10}, 10),
        ({}, None),
    ],
)
def test_a_scale_up_of_another_autoscaler_holds_a_pod_from_when_it_was_said(
    times: Mapping[str, int], said_at: int | None
) -> None:
    names = {"last": "lastTimestamp", "event": "eventTime"}
    written: dict[str, Any] = {names[key]: rfc3339(NOON + value) for key, value in times.items() if key in names}
    if "created" in times:
        written["metadata"] = {"name": "e", "creationTimestamp": rfc3339(NOON + times["created"])}
    event = msgspec.convert(written, Event)
    found = list(plan_moments(snapshot(view=ClusterView(events=(event,)))))
    assert found == ([] if said_at is None else [NOON + said_at + 600])


# Where pods are once what waits has been placed


@pytest.mark.parametrize(
    ("fields", "homes", "there"),
    [
        ({"on": "stays"}, {}, "stays"),
        ({"on": "stays"}, {("default", "p"): "other"}, "stays"),
        ({"on": "gone"}, {("default", "p"): "stays"}, "stays"),
        ({"on": "gone"}, {}, None),
        ({}, {("default", "p"): "stays"}, "stays"),
        ({}, {("default", "p"): "planned"}, None),
        ({}, {("other", "p"): "stays"}, None),
        ({"nominated": "stays"}, {}, "stays"),
        ({"nominated": "planned"}, {}, None),
        ({"nominated": "other"}, {("default", "p"): "stays"}, "stays"),
        ({"on": "gone", "nominated": "stays"}, {}, None),
        ({"on": "gone", "owner": "DaemonSet"}, {}, "gone"),
    ],
)
def test_pods_are_where_the_plan_for_those_that_wait_puts_them(
    fields: dict[str, str], homes: dict[tuple[str, str], str], there: str | None
) -> None:
    owner = {"kind": fields.get("owner", "ReplicaSet"), "name": "o", "controller": True, "apiVersion": "v1", "uid": "u"}
    made = any_pod("p", node=fields.get("on", ""), metadata={"ownerReferences": [owner]})
    made = replace(made, status=replace(made.status, nominated_node_name=fields.get("nominated", "")))
    placed = list(with_plan_applied([made], homes, {"stays", "other", "gone"} - {"gone"}, {"gone"}))
    assert [item.spec.node_name for item in placed] == ([] if there is None else [there])


# Instances that reservations have left


class Table:
    def __init__(self, **units: int) -> None:
        self.units = {name.replace("_", "-"): left for name, left in units.items()}


def holds(state: ClaimState, ago_s: float = 0.0, **fields: Any) -> NodeClaim:
    marks = {labels.RESERVATION_ID: "cr-1"}
    return node_claim(**{"name": "c", "state": state, "labels": marks, "changed_at": NOON - ago_s} | fields)


@pytest.mark.parametrize(
    ("claims", "left"),
    [
        ([], {"cr-1": 2, "cr-2": 5}),
        ([holds(ClaimState.PLANNED)], {"cr-1": 1, "cr-2": 5}),
        ([holds(ClaimState.LAUNCHING, 9999.0)], {"cr-1": 1, "cr-2": 5}),
        ([holds(ClaimState.LAUNCHED, SHOWN_AFTER_S - 1)], {"cr-1": 1, "cr-2": 5}),
        ([holds(ClaimState.REGISTERED, SHOWN_AFTER_S - 1)], {"cr-1": 1, "cr-2": 5}),
        ([holds(ClaimState.LAUNCHED, SHOWN_AFTER_S)], {"cr-1": 2, "cr-2": 5}),
        ([holds(ClaimState.INITIALIZED)], {"cr-1": 2, "cr-2": 5}),
        ([holds(ClaimState.PLANNED)] * 3, {"cr-1": 0, "cr-2": 5}),
        ([holds(ClaimState.PLANNED, labels={labels.RESERVATION_ID: "cr-9"})], {"cr-1": 2, "cr-2": 5}),
        ([holds(ClaimState.PLANNED, capacity_type="on-demand", instance_id="i")], {"cr-1": 2, "cr-2": 5}),
    ],
)
def test_what_is_promised_to_claims_that_ec2_does_not_count_yet_is_not_left(
    claims: list[NodeClaim], left: dict[str, int]
) -> None:
    tables: Any = [Table(cr_1=3, cr_2=5), Table(cr_1=2)]
    assert units_left(tables, claims, NOON) == left


@pytest.mark.parametrize(
    ("fields", "held"),
    [
        ({"labels": {labels.RESERVATION_ID: "cr-1"}}, ("cr-1",)),
        ({"labels": {labels.RESERVATION_ID: "cr-1"}, "capacity_type": "reserved", "instance_id": "i"}, ("cr-1",)),
        ({"labels": {labels.RESERVATION_ID: "cr-1"}, "capacity_type": "spot", "instance_id": "i"}, ()),
        ({"rules": [rule(labels.RESERVATION_ID, "In", "cr-2", "cr-3")]}, ("cr-2", "cr-3")),
        ({"rules": [rule(labels.RESERVATION_ID, "NotIn", "cr-2")]}, ()),
        ({"rules": [rule(labels.ZONE, "In", "a"), rule(labels.RESERVATION_ID, "In", "cr-2")]}, ("cr-2",)),
        ({}, ()),
    ],
)
def test_which_reservations_a_claim_may_be_launched_into(fields: dict[str, Any], held: tuple[str, ...]) -> None:
    rules = fields.pop("rules", [])
    claim_type = type(node_claim(name="c").plan)
    requirements = msgspec.convert({"node_pool": "p", "node_class": "d", "requirements": rules}, claim_type)
    assert held_by(node_claim(name="c", requirements=requirements.requirements, **fields)) == held


class Reserving:
    """A NodeClaimTemplate, as far as Reservations reads it."""

    def __init__(self, *, reserved: bool, **units: int) -> None:
        self.reserved = reserved
        self.units = {name.replace("_", "-"): left for name, left in units.items()}


@pytest.mark.parametrize(("before", "left", "taken"), [(2, 0, True), (2, 1, False), (0, 0, False), (1, 0, True)])
def test_a_reservation_is_taken_here_if_claims_of_the_plan_have_all_that_it_had(
    before: int, left: int, taken: bool
) -> None:
    templates: Any = [Reserving(reserved=False, cr_1=9), Reserving(reserved=True, cr_1=before)]
    held = Reservations(templates, None)  # type: ignore[arg-type]
    assert held.left == {"cr-1": before}
    held.left["cr-1"] = left
    assert held.taken_here("cr-1") is taken
    assert not held.taken_here("cr-unknown")
