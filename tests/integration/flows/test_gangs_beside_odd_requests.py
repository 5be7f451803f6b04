"""A request that is wrong in any way has its reason, launches nothing, and keeps no other gang or request waiting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.gangs_request_stage import (
    ATOMIC,
    CHECK,
    add_consumers,
    add_request,
    add_template,
    conditions,
    limit_pool,
    stage_of_requests,
)

KUEUE = "kueue.x-k8s.io/pod-group"


def add_gang(stage: Disrupted) -> None:
    """Add two pods that start together."""
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "main", "resources": {"requests": {"cpu": "7", "memory": "2Gi"}}}
    for number in range(2):
        meta = {
            "name": f"tune-{number}",
            "namespace": "default",
            "uid": f"uid-tune-{number}",
            "labels": {f"{KUEUE}-name": "tune"},
            "annotations": {f"{KUEUE}-total-count": "2"},
        }
        status = {"phase": "Pending", "conditions": [pending]}
        stage.server.create("pods", {"metadata": meta, "spec": {"containers": [container]}, "status": status})


def without_sets(stage: Disrupted, of: str) -> None:
    meta = {"name": "odd", "namespace": "default", "uid": "uid-of-odd"}
    spec = {"provisioningClassName": of, "podSets": []}
    stage.server.create("provisioningrequests", {"metadata": meta, "spec": spec})


def of_another_namespace(stage: Disrupted, of: str) -> None:
    """Its template is in another namespace, where it is not looked for."""
    container = {"name": "main", "resources": {"requests": {"cpu": "7"}}}
    template = {"metadata": {"name": "elsewhere", "namespace": "ml"}, "template": {"spec": {"containers": [container]}}}
    stage.server.create("podtemplates", template)
    add_request(stage, 2, name="odd", of=of, templates=("elsewhere",))


def unreadable(stage: Disrupted, of: str) -> None:
    meta = {"name": "odd", "namespace": "default", "uid": "uid-of-odd"}
    spec = {"provisioningClassName": of, "podSets": "three"}
    stage.server.create("provisioningrequests", {"metadata": meta, "spec": spec})


def malformed_template(stage: Disrupted, of: str) -> None:
    add_template(stage, "broken", cpu="seven")
    add_request(stage, 2, name="odd", of=of, templates=("broken",))


def add_odd(count: int = 2, **fields: Any) -> Callable[[Disrupted, str], None]:
    return lambda stage, of: add_request(stage, count, name="odd", **{"of": of, **fields})


FAILED = {"Failed": ("True", "FailedToCreatePods")}
ODD: dict[str, tuple[Callable[[Disrupted, str], None], dict[str, tuple[str, str]]]] = {
    "larger than any limit": (
        add_odd(40),
        {"Accepted": ("True", "Accepted"), "Provisioned": ("False", "CapacityIsNotFound")},
    ),
    "larger than any plan": (add_odd(20_000), FAILED),
    "without members": (add_odd(0), FAILED),
    "without sets": (without_sets, FAILED),
    "a template in another namespace": (of_another_namespace, FAILED),
    "a malformed template": (malformed_template, FAILED),
    "a deadline in the past": (add_odd(parameters={"ValidUntilSeconds": "1"}), {"Failed": ("True", "Expired")}),
    "no deadline": (add_odd(parameters={"ValidUntilSeconds": "soon"}), {"Failed": ("True", "InvalidParameter")}),
    "an unknown class": (add_odd(of="queued-provisioning.gke.io"), {}),
    "unreadable": (unreadable, {}),
}


@pytest.mark.parametrize("of", [ATOMIC, CHECK])
@pytest.mark.parametrize("what", ODD)
def test_what_is_wrong_with_one_request_is_said_and_others_go_on(what: str, of: str) -> None:
    make, expected = ODD[what]
    stage = stage_of_requests()
    limit_pool(stage, "64")
    add_template(stage)
    make(stage, of)
    stage.clock.advance(310)  # templates are no longer waited for
    add_request(stage, 2)
    add_gang(stage)
    stage.minutes(4)
    assert conditions(stage, "odd") == expected
    assert conditions(stage)["Provisioned"] == ("True", "CapacityIsProvisioned")
    assert (stage.pending(), len(stage.compute.alive())) == (0, 4)


@pytest.mark.parametrize("minute", range(3))
def test_a_request_that_is_deleted_in_mid_launch_keeps_no_other_waiting(minute: int) -> None:
    stage = stage_of_requests()
    limit_pool(stage, "32")
    add_template(stage)
    add_request(stage, 3, name="odd")
    stage.sweep()
    stage.minutes(minute)
    stage.server.delete("provisioningrequests", "odd")
    add_request(stage, 2)
    add_gang(stage)
    stage.minutes(8)
    assert conditions(stage)["Provisioned"][0] == "True"
    assert stage.pending() == 0
    assert len(stage.compute.alive()) <= 4  # kube-scheduler, which knows no bookings, may have put the gang there


def test_pods_of_two_owners_wait_for_their_request_and_are_one_gang_after_it() -> None:
    """They consume a request and belong to a pod group: the request comes first."""
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    add_consumers(stage, 2)
    for number in range(2):
        marks = {"labels": {f"{KUEUE}-name": "train"}, "annotations": {f"{KUEUE}-total-count": "3"}}
        stage.server.patch("pods", f"train-{number}", {"metadata": marks}, "default")
    add_gang(stage)
    stage.minutes(5)
    assert conditions(stage)["Provisioned"][0] == "True"
    assert (stage.pending(), len(stage.compute.alive())) == (0, 4)


def test_consumers_in_another_namespace_have_no_part_in_a_request() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.minutes(4)
    pending = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    container = {"name": "main", "resources": {"requests": {"cpu": "7"}}}
    meta = {
        "name": "stray",
        "namespace": "ml",
        "uid": "uid-stray",
        "annotations": {"autoscaling.x-k8s.io/consume-provisioning-request": "train"},
    }
    status = {"phase": "Pending", "conditions": [pending]}
    stage.server.create("pods", {"metadata": meta, "spec": {"containers": [container]}, "status": status})
    assert stage.sweep().launched == ()
    told = {event["message"] for event in stage.objects("events").values()}
    assert "it consumes ProvisioningRequest ml/train, which does not exist" in told
    assert status_is_booked(stage)


def status_is_booked(stage: Disrupted) -> bool:
    return "CapacityRevoked" not in conditions(stage) and conditions(stage)["Provisioned"][0] == "True"
