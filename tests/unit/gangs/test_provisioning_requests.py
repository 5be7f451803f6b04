"""ProvisioningRequests as pure functions: the pods that stand for them, and what their conditions say next."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.names import has_no_object, stands_for, subdomain_problem
from shiplap.kubernetes.objects import Node, Pod, PodTemplateSpec
from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.gangs.provisioning_requests import (
    ATOMIC_SCALE_UP,
    BOOKED_S,
    CHECK_CAPACITY,
    CapacityRequest,
    KnownTemplates,
    ProvisioningRequest,
    capacity_request,
    consumed_by,
    state_of,
)
from shiplap.policies.gangs.request_conditions import RequestOutcome, next_status, outcomes
from shiplap.policies.gangs.requested_pods import (
    booked_pods,
    booking_details,
    booking_of,
    taken_places,
    unconsumed,
    waiting_pods,
)
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, Unschedulable
from tests.builders.pods import pod

BORN = 1_700_000_000.0
BORN_AT = "2023-11-14T22:13:20Z"
TEMPLATE = msgspec.convert(
    {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}, PodTemplateSpec
)
SMALL = msgspec.convert(
    {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}}, PodTemplateSpec
)
TEMPLATES = KnownTemplates({("ml", "worker"): TEMPLATE, ("ml", "driver"): SMALL})


def request(
    *counts: int,
    of: str = ATOMIC_SCALE_UP,
    conditions: Mapping[str, tuple[str, str]] | None = None,
    booked: str = "",
    parameters: Mapping[str, str] | None = None,
    now: float = BORN,
) -> CapacityRequest:
    """A request for workers and drivers; conditions are status and time by type."""
    sets = [{"podTemplateRef": {"name": n}, "count": c} for n, c in zip(("worker", "driver"), counts, strict=False)]
    written = [
        {"type": kind, "status": status, "reason": "Known", "lastTransitionTime": since}
        for kind, (status, since) in (conditions or {}).items()
    ]
    data = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u1", "generation": 3, "creationTimestamp": BORN_AT},
        "spec": {"provisioningClassName": of, "podSets": sets, "parameters": dict(parameters or {})},
        "status": {"conditions": written, "provisioningClassDetails": {"BookedNodes": booked} if booked else {}},
    }
    return capacity_request(msgspec.convert(data, ProvisioningRequest), TEMPLATES, now, 300.0)


def node_seen(name: str, *, ready: str = "True", ours: bool = True, initialized: bool = True) -> Node:
    labels = {"karpenter.sh/nodepool": "p"} if ours else {}
    if initialized:
        labels["karpenter.sh/initialized"] = "true"
    data = {
        "metadata": {"name": name, "labels": labels},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(data, Node)


def consumer(name: str, on: str, cpu: str = "1") -> Pod:
    annotations = {"autoscaling.x-k8s.io/consume-provisioning-request": "train"}
    return pod(name, cpu, node=on, namespace="ml", annotations=annotations)


def after(item: CapacityRequest, status: Mapping[str, Any] | None) -> CapacityRequest:
    """The request as it is read once a status was written."""
    data = msgspec.to_builtins(item.item)
    data["status"] = {**data.get("status", {}), **(status or {})}
    return msgspec.structs.replace(item, item=msgspec.convert(data, ProvisioningRequest))


def kinds(status: Mapping[str, Any] | None) -> dict[str, str]:
    return {each["type"]: each["status"] for each in (status or {"conditions": []})["conditions"]}


PROVISIONED = {"Accepted": ("True", BORN_AT), "Provisioned": ("True", BORN_AT)}
TWO = (node_seen("a"), node_seen("b"))


def test_pods_without_objects_have_names_that_no_object_can_have() -> None:
    names = [(each.metadata.namespace, each.metadata.name) for each in waiting_pods(request(2, 1), ())]
    assert len(set(names)) == 3
    assert all(has_no_object(name) and subdomain_problem(name) for _, name in names)
    assert {stands_for(*name) for name in names} == {"ProvisioningRequest ml/train"}
    assert not has_no_object("train-0")


def test_a_look_names_the_same_pods_as_the_one_before() -> None:
    first, second = (list(waiting_pods(request(3, 2), ())) for _ in range(2))
    assert first == second


def test_consumers_take_the_set_that_requests_as_much() -> None:
    item = request(2, 2)
    pods = [consumer("a", "a"), consumer("b", "b", "100m"), consumer("c", "b", "7")]
    assert taken_places(item, pods) == {(0, "a"): 1, (1, "b"): 1, (0, "b"): 1}
    assert len(list(waiting_pods(item, pods))) == 1


def test_no_more_consumers_count_than_a_request_has_pods() -> None:
    pods = [consumer(f"p{number}", "a") for number in range(5)]
    assert taken_places(request(2), pods) == {(0, "a"): 2}
    assert list(waiting_pods(request(2), pods)) == []


def test_a_booking_survives_its_details() -> None:
    booking = {(place, f"ip-10-0-{number}.ec2.internal"): 1 for place in (0, 1) for number in range(2_000)}
    details = booking_details(booking)
    assert len(details) > 1
    assert max(map(len, details.values())) <= 32_768
    item = after(request(2_000, 2_000, conditions=PROVISIONED), {"provisioningClassDetails": details})
    assert booking_of(item) == booking


@pytest.mark.parametrize(
    "text", ["", "0", "0:a", "0:=1", "x:a=1", "0:a=x", "7:a=1", "0:a=-1", "0:a=99999999", "0:a=3", "0:a=1,0:b=2,0:c=9"]
)
def test_a_malformed_booking_books_nothing(text: str) -> None:
    assert booking_of(request(2, conditions=PROVISIONED, booked=text)) == {}


def test_consumers_free_the_room_of_their_own_node_first() -> None:
    item = request(2, conditions=PROVISIONED, booked="0:a=1,0:b=1")
    assert unconsumed(item, [consumer("p", "b")]) == {(0, "a"): 1}
    assert unconsumed(item, [consumer("p", "elsewhere")]) == {(0, "b"): 1}
    assert [each.spec.node_name for each in booked_pods(item, [consumer("p", "b")])] == ["a"]
    assert unconsumed(item, [consumer("p", "b"), consumer("q", "b")]) == {}


def test_outcomes_tell_ready_nodes_from_those_on_their_way() -> None:
    nodes = (
        node_seen("a"),
        node_seen("b", ready="False"),
        node_seen("c", ours=False, initialized=False),
        node_seen("d", initialized=False),
    )
    pods = list(waiting_pods(request(5), ()))
    where = [PodReference("ml", each.metadata.name, each.metadata.uid) for each in pods]
    plan = Plan(
        existing_nodes=tuple(Placement(name, (where[place],)) for place, name in enumerate("abcd")),
        unschedulable=(Unschedulable(where[4], "no room"),),
    )
    assert outcomes(plan, nodes) == {"u1": RequestOutcome({(0, "a"): 1, (0, "c"): 1}, 2, "no room")}


def test_conditions_name_generation_and_time_and_keep_the_time_while_the_status_stays() -> None:
    item = request(2, now=BORN)
    first = next_status(item, RequestOutcome(why="short"), (), TWO, BORN)
    assert kinds(first) == {"Accepted": "True", "Provisioned": "False"}
    assert first is not None
    assert {each["observedGeneration"] for each in first["conditions"]} == {3}
    second = next_status(after(item, first), RequestOutcome(why="shorter"), (), TWO, BORN + 60)
    assert second is not None
    (before, now) = (next(c for c in each["conditions"] if c["type"] == "Provisioned") for each in (first, second))
    assert before["lastTransitionTime"] == now["lastTransitionTime"] == BORN_AT
    assert "shorter" in now["message"]
    ready = RequestOutcome({(0, "a"): 1, (0, "b"): 1})
    third = next_status(after(item, second), ready, (), TWO, BORN + 120)
    assert third is not None
    assert third["conditions"][1]["lastTransitionTime"] == "2023-11-14T22:15:20Z"
    assert third["provisioningClassDetails"] == {"BookedNodes": "0:a=1,0:b=1"}


STEPS: tuple[tuple[RequestOutcome | None, float], ...] = (
    (None, 0.0),
    (RequestOutcome(why="short"), 60.0),
    (RequestOutcome(coming=2), 120.0),
    (RequestOutcome({(0, "a"): 1}, 1), 180.0),
    (RequestOutcome({(0, "a"): 1, (0, "b"): 1}), 240.0),
    (None, 300.0),
    (None, 240.0 + BOOKED_S),
    (RequestOutcome(why="late"), 240.0 + BOOKED_S + 60.0),
)


def test_each_step_written_twice_changes_nothing() -> None:
    item = request(2)
    for outcome, later in STEPS:
        status = next_status(item, outcome, (), TWO, BORN + later)
        item = after(item, status)
        assert next_status(item, outcome, (), TWO, BORN + later) is None
    assert item.item.is_over


def test_whichever_steps_are_lost_the_end_is_the_same() -> None:
    """Writes are lost when a function dies before one: later looks make up for them."""
    for lost in itertools.chain.from_iterable(itertools.combinations(range(4), number) for number in range(5)):
        item = request(2)
        for place, (outcome, later) in enumerate(STEPS):
            if place not in lost:
                item = after(item, next_status(item, outcome, (), TWO, BORN + later))
        held = {each.type: each.status for each in item.item.status.conditions}
        assert held == {"Accepted": "True", "Provisioned": "True", "BookingExpired": "True"}, lost


def test_what_is_over_is_never_written_again() -> None:
    for kind in ("Failed", "BookingExpired", "CapacityRevoked"):
        item = request(2, conditions={kind: ("True", BORN_AT)})
        assert next_status(item, RequestOutcome({(0, "a"): 2}), (), (), BORN + 9e6) is None


def test_conditions_of_others_stay() -> None:
    item = request(2, conditions={"Their": ("Unknown", BORN_AT)})
    assert kinds(next_status(item, None, (), TWO, BORN)) == {"Their": "Unknown", "Accepted": "True"}


def test_consumers_that_came_early_count_for_what_is_provisioned() -> None:
    both = [consumer("p", "a"), consumer("q", "b")]
    status = next_status(request(2), None, both, TWO, BORN)
    assert kinds(status) == {"Accepted": "True", "Provisioned": "True"}
    assert status is not None
    booked = after(request(2), status)
    assert unconsumed(booked, both) == {}
    assert next_status(booked, None, both, (), BORN + 60) is None  # their nodes are their own affair


def test_a_booking_ends_on_time_and_is_revoked_before_only_where_room_is_lost() -> None:
    item = request(2, conditions=PROVISIONED, booked="0:a=1,0:b=1")
    assert next_status(item, None, (), TWO, BORN + BOOKED_S - 1) is None
    assert kinds(next_status(item, None, (), TWO, BORN + BOOKED_S))["BookingExpired"] == "True"
    assert kinds(next_status(item, None, (), TWO[:1], BORN))["CapacityRevoked"] == "True"
    assert next_status(item, None, [consumer("p", "b")], TWO[:1], BORN) is None


@pytest.mark.parametrize(
    ("conditions", "of", "holds"),
    [
        ({}, ATOMIC_SCALE_UP, "which is not provisioned yet"),
        (PROVISIONED, ATOMIC_SCALE_UP, "whose capacity is booked"),
        ({**PROVISIONED, "BookingExpired": ("True", BORN_AT)}, ATOMIC_SCALE_UP, ""),
        (
            {**PROVISIONED, "BookingExpired": ("True", BORN_AT)},
            CHECK_CAPACITY,
            "for which nothing is launched: BookingExpired Known",
        ),
        ({"Failed": ("True", BORN_AT)}, ATOMIC_SCALE_UP, "for which nothing is launched: Failed Known"),
        ({"Failed": ("False", BORN_AT)}, ATOMIC_SCALE_UP, "which is not provisioned yet"),
    ],
)
def test_consumers_meet_what_conditions_say(conditions: Mapping[str, tuple[str, str]], of: str, holds: str) -> None:
    assert state_of(request(2, of=of, conditions=conditions).item).holds == holds


def test_a_pod_names_its_request_by_either_annotation_and_none_by_an_empty_one() -> None:
    key = "autoscaling.x-k8s.io/consume-provisioning-request"
    old = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
    assert consumed_by(pod("p", annotations={old: "b"})) == "b"
    assert consumed_by(pod("p", annotations={old: "b", key: "a"})) == "a"
    assert consumed_by(pod("p", annotations={key: ""})) == ""
    assert all(consumed_by(each) == "" for each in waiting_pods(request(1), ()))


@pytest.mark.parametrize(("text", "lasts_s"), [(None, 7 * 86_400), ("0", 7 * 86_400), ("00", 7 * 86_400), ("1", 1)])
def test_a_deadline_of_nothing_is_none(text: str | None, lasts_s: float) -> None:
    made = request(2, parameters={} if text is None else {"ValidUntilSeconds": text})
    assert (made.problem, made.valid_until) == (None, BORN + lasts_s)


@pytest.mark.parametrize(
    ("of", "conditions", "until"),
    [
        (ATOMIC_SCALE_UP, {"Provisioned": ("True", BORN_AT)}, BORN + BOOKED_S),
        (ATOMIC_SCALE_UP, {"Provisioned": ("False", BORN_AT)}, 0.0),
        (ATOMIC_SCALE_UP, {"Provisioned": ("True", BORN_AT), "BookingExpired": ("True", BORN_AT)}, 0.0),
        ("queued-provisioning.gke.io", {"Provisioned": ("True", BORN_AT)}, 0.0),
    ],
)
def test_the_end_of_a_booking_of_ours_is_known(of: str, conditions: dict[str, tuple[str, str]], until: float) -> None:
    assert state_of(request(2, of=of, conditions=conditions).item).booked_until == until
