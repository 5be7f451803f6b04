"""The situations of Kueue's provisioning admission check, seen from our side: which conditions follow which request.

Kueue makes one request for each attempt of a workload, waits for its conditions, and deletes it. Its pods name the
request in an annotation. Each test is one of the situations that Kueue's own tests play with conditions made by hand.
"""

from __future__ import annotations

import pytest

from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.gangs_request_stage import (
    CHECK,
    CONSUMES,
    add_consumers,
    add_request,
    add_template,
    conditions,
    limit_pool,
    message,
    stage_of_requests,
    status_of,
)

CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
PROVISIONED = {"Accepted": ("True", "Accepted"), "Provisioned": ("True", "CapacityIsProvisioned")}


@pytest.fixture
def stage() -> Disrupted:
    made = stage_of_requests()
    add_template(made)
    return made


def test_nothing_is_launched_while_a_workload_has_no_quota_and_so_no_request(stage: Disrupted) -> None:
    assert stage.sweep().launched == ()


def test_admitted_counts_are_asked_for_not_those_of_the_workload(stage: Disrupted) -> None:
    """A workload of 3 and 6 pods is admitted with 3 and 4."""
    add_template(stage, "driver", cpu="1")
    add_request(stage, 2, 3, templates=("worker", "driver"))
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED
    assert message(stage, "Provisioned").startswith("5 pods have room on ")


def test_parameters_that_are_not_ours_change_nothing(stage: Disrupted) -> None:
    add_request(stage, 2, parameters={"p1": "v1", "p2": "v2", "ValidUntilSeconds": "600"})
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED


def test_a_validity_of_nothing_is_no_deadline(stage: Disrupted) -> None:
    add_request(stage, 2, parameters={"ValidUntilSeconds": "0"})
    add_request(stage, 2, name="soon-over", parameters={"ValidUntilSeconds": "1"})
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED
    assert conditions(stage, "soon-over")["Failed"] == ("True", "Expired")


def test_a_request_goes_on_while_its_workload_loses_its_quota(stage: Disrupted) -> None:
    """Kueue preserves the request; nothing of it changes until it is deleted."""
    add_request(stage, 2)
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED
    before = status_of(stage)
    stage.minutes(2)
    assert status_of(stage) == before
    assert len(stage.compute.alive()) == 2


def test_the_nodes_of_an_evicted_workload_end_with_its_request(stage: Disrupted) -> None:
    add_request(stage, 2)
    stage.minutes(4)
    stage.server.delete("provisioningrequests", "train")
    stage.minutes(10)
    assert stage.compute.alive() == ()


def test_a_workload_is_ready_once_its_request_is_provisioned(stage: Disrupted) -> None:
    add_request(stage, 2)
    stage.sweep()
    assert conditions(stage)["Provisioned"] == ("False", "NodesAreLaunched")  # Kueue waits, with this message
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED
    add_consumers(stage, 2, **{CONSUMES: "train", CLASS: "best-effort-atomic-scale-up.autoscaling.x-k8s.io"})
    stage.minutes(3)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 2)


def test_a_check_that_fails_rejects_its_workload(stage: Disrupted) -> None:
    add_request(stage, 2, of=CHECK, parameters={"noRetry": "true"})
    stage.sweep()
    assert conditions(stage)["Failed"] == ("True", "CapacityIsNotFound")
    assert message(stage, "Failed").startswith("0 of 2 pods have room on nodes that exist")


@pytest.mark.parametrize("runs", [True, False])
def test_lost_capacity_is_revoked_while_it_is_booked_and_not_once_pods_have_it(stage: Disrupted, runs: bool) -> None:
    """Kueue deactivates a workload, admitted or not, whose capacity is revoked; pods that run are its own affair."""
    add_request(stage, 2)
    stage.minutes(4)
    if runs:
        add_consumers(stage)
        stage.minutes(2)
        assert stage.pending() == 0
    else:
        stage.server.delete("nodes", min(stage.objects("nodes")))
    stage.minutes(1)
    assert ("CapacityRevoked" in conditions(stage)) == (not runs)


def test_the_nodes_of_a_finished_workload_end_with_its_pods(stage: Disrupted) -> None:
    add_request(stage, 2)
    stage.minutes(4)
    add_consumers(stage)
    stage.minutes(2)
    for number in range(2):
        stage.server.delete("pods", f"train-{number}", "default", grace_s=0)
    stage.server.delete("provisioningrequests", "train")
    stage.minutes(12)
    assert stage.compute.alive() == ()


def test_an_expired_booking_leaves_an_admitted_workload_alone(stage: Disrupted) -> None:
    add_request(stage, 2)
    stage.minutes(4)
    add_consumers(stage)
    stage.minutes(15)
    assert conditions(stage)["BookingExpired"][0] == "True"
    assert "CapacityRevoked" not in conditions(stage)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 2)


def test_a_request_that_is_made_anew_with_other_parameters_is_served_anew(stage: Disrupted) -> None:
    """Kueue deletes and makes a request under the same name when its configuration changes."""
    add_request(stage, 2, parameters={"p1": "v1"})
    stage.sweep()
    stage.server.delete("provisioningrequests", "train")
    add_request(stage, 2, of=CHECK, parameters={"p1": "v1.2"}, uid="another")
    stage.minutes(4)
    assert conditions(stage)["Provisioned"] == ("True", "CapacityIsFound")
    assert len(stage.compute.alive()) == 2


def test_a_running_workload_goes_on_once_its_request_is_deleted(stage: Disrupted) -> None:
    add_request(stage, 2)
    stage.minutes(4)
    add_consumers(stage)
    stage.minutes(2)
    stage.server.delete("provisioningrequests", "train")
    stage.minutes(15)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 2)


def test_the_next_attempt_after_a_failure_has_an_answer_of_its_own(stage: Disrupted) -> None:
    limit_pool(stage, "8")
    add_request(stage, 2, name="wl-check-1", parameters={"ValidUntilSeconds": "60"})
    stage.minutes(2)
    assert conditions(stage, "wl-check-1")["Failed"] == ("True", "Expired")
    assert stage.compute.alive() == ()
    stage.server.delete("provisioningrequests", "wl-check-1")
    add_request(stage, 2, name="wl-check-2", parameters={"ValidUntilSeconds": "120"})
    limit_pool(stage, "64")
    stage.minutes(4)
    assert conditions(stage, "wl-check-2") == PROVISIONED


@pytest.mark.parametrize("attempts", [2, 3])
def test_each_attempt_that_cannot_be_had_fails_in_its_time(stage: Disrupted, attempts: int) -> None:
    limit_pool(stage, "8")
    for attempt in range(1, attempts + 1):
        name = f"wl-check-{attempt}"
        add_request(stage, 2, name=name, parameters={"ValidUntilSeconds": "60"})
        stage.minutes(2)
        assert conditions(stage, name)["Failed"] == ("True", "Expired")
        assert "the last answer: " in message(stage, "Failed", name)
        stage.server.delete("provisioningrequests", name)
    assert stage.compute.alive() == ()


def test_the_next_attempt_after_an_expired_booking_books_anew(stage: Disrupted) -> None:
    add_request(stage, 2, name="wl-check-1")
    stage.minutes(16)
    assert "BookingExpired" in conditions(stage, "wl-check-1")
    stage.server.delete("provisioningrequests", "wl-check-1")
    add_request(stage, 2, name="wl-check-2")
    stage.minutes(4)
    assert conditions(stage, "wl-check-2") == PROVISIONED


def test_one_set_for_similar_pods_serves_pods_of_all_of_them(stage: Disrupted) -> None:
    """Kueue may merge a master and two workers that request the same into one set of three."""
    add_request(stage, 3)
    stage.minutes(4)
    add_consumers(stage, 3)
    stage.minutes(3)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 3)


def test_pods_go_where_another_flavour_is_once_the_request_of_the_first_is_deleted(stage: Disrupted) -> None:
    """A workload that is preempted loses its request; on a flavour without a check its pods name none."""
    limit_pool(stage, "16")
    add_request(stage, 2)
    stage.sweep()
    stage.server.delete("provisioningrequests", "train")
    stage.add_pods(2, cpu="7", memory="2Gi")
    stage.minutes(3)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 2)


def test_a_second_request_for_another_flavour_is_served_beside_the_first(stage: Disrupted) -> None:
    add_template(stage, "elsewhere", nodeSelector={"topology.kubernetes.io/zone": "eu-west-1b"})
    add_request(stage, 1, name="wl-check1-1")
    add_request(stage, 1, name="wl-check2-1", templates=("elsewhere",))
    stage.minutes(4)
    assert conditions(stage, "wl-check1-1") == conditions(stage, "wl-check2-1") == PROVISIONED


def test_decimal_requests_are_read(stage: Disrupted) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": "500m", "memory": "220M"}}}
    template = {"metadata": {}, "spec": {"containers": [container]}}
    meta = {"name": "decimal", "namespace": "default"}
    stage.server.create("podtemplates", {"metadata": meta, "template": template})
    add_request(stage, 2, templates=("decimal",))
    stage.minutes(4)
    assert conditions(stage) == PROVISIONED
