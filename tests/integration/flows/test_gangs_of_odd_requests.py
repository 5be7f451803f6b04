"""ProvisioningRequests that end otherwise: malformed, foreign, deleted, late, unread or without their nodes."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied
from shiplap.flows.turns import IdleClusters, needs_sweep
from shiplap.records.scheduling_record import decode
from shiplap.scheduling.planner import plan
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.gangs_request_stage import (
    ATOMIC,
    CHECK,
    add_consumers,
    add_request,
    add_template,
    conditions,
    limit_pool,
    message,
    stage_of_requests,
    status_of,
)

FOREIGN = "queued-provisioning.gke.io"


def told(stage: Disrupted) -> list[str]:
    return sorted({event["message"] for event in stage.objects("events").values()})


def writes(stage: Disrupted) -> int:
    return Counter(stage.faults.points)["before cluster.write_status"]


def lists(stage: Disrupted) -> int:
    return Counter(stage.faults.points)["before cluster.named_objects"]


def failed(stage: Disrupted, name: str = "train") -> str:
    """The message of its failure; nothing is launched for such a request, nor anything else said of it."""
    assert stage.sweep().launched == ()
    assert conditions(stage, name).keys() == {"Failed"}
    return message(stage, "Failed", name)


def test_a_request_of_a_foreign_class_is_left_alone_and_so_are_its_consumers() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2, of=FOREIGN)
    add_consumers(stage)
    assert stage.sweep().launched == ()
    assert (writes(stage), status_of(stage)) == (0, {})


def test_consumers_wait_for_their_request_and_nothing_is_launched_for_them_anew() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_consumers(stage)
    add_request(stage, 2)
    assert len(stage.sweep().launched) == 2
    assert stage.sweep().launched == ()
    stage.minutes(4)
    assert (stage.pending(), len(stage.compute.alive())) == (0, 2)


@pytest.mark.parametrize("key", ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"])
def test_consumers_of_a_request_that_does_not_exist_wait_and_are_told(key: str) -> None:
    stage = stage_of_requests()
    add_consumers(stage, 1, **{f"{key}/consume-provisioning-request": "gone"})
    assert stage.sweep().launched == ()
    assert told(stage) == ["it consumes ProvisioningRequest default/gone, which does not exist"]


def test_where_requests_are_off_consumers_are_pods_like_any_others_and_nothing_is_read() -> None:
    stage = stage_of_requests(serves=False)
    add_template(stage)
    add_request(stage, 2)
    add_consumers(stage)
    assert len(stage.sweep().launched) == 2
    assert (lists(stage), status_of(stage)) == (0, {})


def test_without_the_definition_pods_are_planned_as_ever() -> None:
    stage = stage_of_requests()
    stage.server.undefined.add("provisioningrequests")
    stage.add_pods(1)
    report = stage.sweep()
    assert len(report.launched) == 1
    assert (writes(stage), lists(stage)) == (0, report.rounds)


@pytest.mark.parametrize("minute", range(4))
def test_a_request_that_is_deleted_in_mid_launch_leaves_nothing_running(minute: int) -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 3)
    stage.sweep()
    stage.minutes(minute)
    stage.server.delete("provisioningrequests", "train")
    stage.minutes(15)
    assert stage.compute.alive() == ()


def test_a_request_beyond_the_limits_of_its_pool_launches_nothing() -> None:
    stage = stage_of_requests()
    limit_pool(stage, "16")
    add_template(stage)
    add_request(stage, 3)
    assert stage.sweep().launched == ()
    assert conditions(stage)["Provisioned"] == ("False", "CapacityIsNotFound")
    assert message(stage, "Provisioned").startswith("2 of 3 members would have a place: ")
    before = writes(stage)
    stage.minutes(3)
    assert writes(stage) == before  # it has said so


def test_a_request_of_many_nodes_needs_no_pilot_of_its_kind_of_pods() -> None:
    stage = stage_of_requests()
    stage.settings = replace(stage.settings, unproven_pod_nodes=1)
    add_template(stage)
    add_request(stage, 4)
    assert len(stage.sweep().launched) == 4
    stage.minutes(5)
    assert conditions(stage)["Provisioned"][0] == "True"
    assert "PodsNominated" not in stage.meter.counts
    assert told(stage) == []


def test_each_set_of_a_request_has_its_room() -> None:
    stage = stage_of_requests()
    add_template(stage, "worker")
    add_template(stage, "driver", cpu="1")
    add_request(stage, 2, 1, templates=("worker", "driver"))
    stage.minutes(4)
    assert conditions(stage)["Provisioned"] == ("True", "CapacityIsProvisioned")
    booked = status_of(stage)["provisioningClassDetails"]["BookedNodes"].split(",")
    assert sorted(part.partition(":")[0] for part in booked) == ["0", "0", "1"]


def test_a_request_of_one_pod_is_served() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1)
    stage.minutes(4)
    assert message(stage, "Provisioned").startswith("1 pod has room on 1 node, kept until ")


def test_booked_room_is_not_planned_for_other_pods() -> None:
    stage = stage_of_requests()
    add_template(stage, cpu="3")
    add_request(stage, 2)
    stage.minutes(3)
    assert conditions(stage)["Provisioned"][0] == "True"
    stage.add_pods(1, cpu="3", memory="2Gi")
    assert len(stage.sweep().launched) == 1


def test_booked_capacity_that_is_lost_is_revoked() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.minutes(4)
    name = min(stage.objects("nodes"))
    stage.server.delete("nodes", name)
    assert stage.sweep().launched == ()
    assert conditions(stage)["CapacityRevoked"] == ("True", "NodesLost")
    assert message(stage, "CapacityRevoked") == (
        f"1 of 2 pods have lost their room: node {name} is no longer in the cluster"
    )


def test_consumers_after_the_booking_are_launched_for() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.minutes(20)
    assert "BookingExpired" in conditions(stage)
    assert stage.compute.alive() == ()
    add_consumers(stage)
    assert len(stage.sweep().launched) == 2


def test_nothing_is_ever_launched_for_consumers_of_a_check() -> None:
    stage = stage_of_requests()
    add_template(stage)
    stage.add_pods(1, cpu="7", memory="2Gi")
    stage.minutes(4)
    stage.server.delete("pods", "web-000", grace_s=0)
    add_request(stage, 1, of=CHECK)
    stage.sweep()
    stage.minutes(8)
    assert len(stage.compute.alive()) == 1
    stage.minutes(12)
    assert "BookingExpired" in conditions(stage)
    assert stage.compute.alive() == ()
    add_consumers(stage, 1)
    assert stage.sweep().launched == ()
    assert any("for which nothing is launched: BookingExpired" in text for text in told(stage))


def test_a_check_that_is_not_retried_fails_at_once() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1, of=CHECK, parameters={"noRetry": "true"})
    stage.sweep()
    assert conditions(stage)["Failed"] == ("True", "CapacityIsNotFound")


def test_a_template_that_comes_later_is_waited_for() -> None:
    stage = stage_of_requests()
    add_request(stage, 2)
    assert stage.sweep().launched == ()
    assert status_of(stage) == {}
    add_template(stage)
    assert len(stage.sweep().launched) == 2


def test_a_template_that_never_comes_fails_the_request() -> None:
    stage = stage_of_requests()
    add_request(stage, 2)
    stage.clock.advance(301)
    assert failed(stage) == "PodTemplate worker does not exist in namespace default"


@pytest.mark.parametrize("of", [ATOMIC, CHECK])
@pytest.mark.parametrize(
    ("counts", "why"),
    [
        ((0,), "spec.podSets[0].count is 0: at least 1 is possible"),
        ((-5,), "spec.podSets[0].count is -5: at least 1 is possible"),
        ((2**31 - 1,), "its podSets have 2147483647 pods together: at most 10000 are possible"),
    ],
)
def test_counts_that_nobody_can_have_fail(counts: tuple[int, ...], why: str, of: str) -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, *counts, of=of)
    assert failed(stage) == why


def test_too_many_sets_and_none_fail() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, *[1] * 33, templates=["worker"] * 33)
    assert failed(stage) == "it has 33 podSets: 1 to 32 are possible"
    meta = {"name": "none", "namespace": "default", "uid": "uid-of-none"}
    spec = {"provisioningClassName": ATOMIC, "podSets": []}
    stage.server.create("provisioningrequests", {"metadata": meta, "spec": spec})
    assert failed(stage, "none") == "it has 0 podSets: 1 to 32 are possible"


@pytest.mark.parametrize("text", ["", "soon", "-1", "1e3", "9999999999", "٣"])
def test_a_deadline_that_is_no_number_of_seconds_fails(text: str) -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1, parameters={"ValidUntilSeconds": text})
    assert failed(stage).startswith("parameter ValidUntilSeconds is ")


def test_a_deadline_in_the_past_fails() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1, parameters={"ValidUntilSeconds": "60"})
    stage.clock.advance(60)
    assert failed(stage).startswith("it was not provisioned until ")


def test_a_request_that_is_not_met_in_time_fails_with_the_last_answer_and_its_nodes_go() -> None:
    stage = stage_of_requests()
    stage.broken.add("i-00000000000000001")
    add_template(stage)
    add_request(stage, 2, parameters={"ValidUntilSeconds": "120"})
    stage.minutes(4)
    assert conditions(stage)["Failed"] == ("True", "Expired")
    assert "; the last answer: 1 of 2 pods have room on nodes that are ready, 1 on nodes" in message(stage, "Failed")
    stage.minutes(25)
    assert stage.compute.alive() == ()


def test_a_request_that_cannot_be_read_keeps_no_other_waiting() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1)
    meta = {"name": "odd", "namespace": "default", "uid": "uid-of-odd"}
    stage.server.create("provisioningrequests", {"metadata": meta, "spec": {"podSets": "many"}})
    add_consumers(stage, 1, "odd")
    assert len(stage.sweep().launched) == 1
    assert any("default/odd, which cannot be read: " in text for text in told(stage))


def test_without_the_right_to_list_requests_pods_are_launched_and_nodes_stay() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.minutes(3)
    stage.faults.always("cluster.named_objects", ClusterDenied("provisioningrequests is forbidden", status=403))
    stage.add_pods(3, cpu="7", memory="2Gi")
    assert len(stage.sweep().launched) == 1
    stage.minutes(3)
    for number in range(3):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    stage.minutes(6)
    assert len(stage.compute.alive()) == 3
    assert stage.meter.counts["ProvisioningRequestsNotRead"] >= 1


def test_an_answer_that_is_refused_is_written_later() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 1)
    stage.faults.always("cluster.write_status", ClusterDenied("forbidden", status=403))
    stage.minutes(3)
    assert status_of(stage) == {}
    assert stage.meter.counts["ProvisioningRequestsNotAnswered"] >= 1
    stage.faults.clear()
    stage.minutes(2)
    assert conditions(stage)["Provisioned"] == ("True", "CapacityIsProvisioned")
    assert len(stage.compute.alive()) == 1


def test_a_cluster_that_serves_requests_is_never_idle() -> None:
    for serves in (True, False):
        stage = stage_of_requests(serves=serves)
        assert needs_sweep(stage.settings, stage.context, IdleClusters()) is serves


def test_decisions_with_requests_are_replayed() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    add_request(stage, 1, name="check", of=CHECK)
    add_consumers(stage)
    stage.schedule()
    for recorded in stage.recorder.records.values():
        record = decode(recorded)
        assert plan(record.snapshot) == record.plan
