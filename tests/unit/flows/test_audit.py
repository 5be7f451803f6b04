"""Tests the audit log's reports of pods that wait: real, cut and repeated records, and garbage."""

from __future__ import annotations

import base64
import gzip
import logging
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw, json

from shiplap.errors import InvalidMessage, StoreError
from shiplap.flows.audit.audit import RecentPods, UnscheduledPod, audit, read_delivery, unscheduled_pod_in
from shiplap.flows.messages import PodsPending
from shiplap.manifests.claim_rules import ClaimRule
from shiplap.manifests.nodeclaim import PodReference
from tests import audit_log
from tests.audit_log import delivery, left_out, of_kubelet, pending_pod, record, text
from tests.integration.flows.stage import CLUSTER, Stage

AT = audit_log.AT_MS / 1000


def read(line: str) -> UnscheduledPod | None:
    (event,) = audit_log.events([line])
    return unscheduled_pod_in(Raw(json.encode(event)))


def test_a_pod_that_kube_scheduler_found_no_node_for_waits() -> None:
    pod = PodReference("shop", "web-7f9c-x2x", "uid-of-shop-web-7f9c-x2x")
    assert read(text(record())) == UnscheduledPod(pod, AT, "audit-of-web-7f9c-x2x")


def test_any_scheduler_may_say_so_and_by_any_write() -> None:
    user = {"username": "system:serviceaccount:batch:my-scheduler"}
    assert read(text(record(user=user, verb="update"))) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"stage": "RequestReceived"},
        {"stage": "Panic"},
        {"verb": "get"},
        {"responseStatus": {"metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404}},
        {"responseStatus": {"metadata": {}, "code": 300}},
        {"objectRef": {"resource": "pods", "namespace": "shop", "name": "web", "subresource": "binding"}},
        {"objectRef": {"resource": "nodes", "name": "ip-1", "subresource": "status"}},
        {"objectRef": None},
        {"kind": "EventList"},
        {"user": {"username": "system:node:ip-10-0-1-2"}},
    ],
    ids=["begun", "panicked", "read", "refused", "redirected", "bound", "node", "nothing", "list", "kubelet"],
)
def test_other_records_say_nothing(changed: dict[str, Any]) -> None:
    assert read(text(record(**changed))) is None


def test_a_kubelets_write_says_nothing_even_without_the_pod() -> None:
    assert read(text(of_kubelet())) is None


def scheduled() -> dict[str, Any]:
    pod = pending_pod(nodeName="ip-10-0-1-2")
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True"}]
    return pod


def preempting() -> dict[str, Any]:
    pod = pending_pod()
    pod["status"]["nominatedNodeName"] = "ip-10-0-1-2"
    return pod


def gated() -> dict[str, Any]:
    pod = pending_pod()
    pod["status"]["conditions"][0]["reason"] = "SchedulingGated"
    return pod


def of_a_daemon_set() -> dict[str, Any]:
    pod = pending_pod()
    pod["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    return pod


def leaving() -> dict[str, Any]:
    pod = pending_pod()
    pod["metadata"]["deletionTimestamp"] = "2026-01-31T12:00:00Z"
    return pod


@pytest.mark.parametrize("pod", [scheduled(), preempting(), gated(), of_a_daemon_set(), leaving()])
def test_the_pod_in_the_answer_decides(pod: dict[str, Any]) -> None:
    assert read(text(record(pod))) is None


def test_a_pod_that_no_claim_rule_claims_is_left_alone() -> None:
    (event,) = audit_log.events([text(record())])
    line = Raw(json.encode(event))
    assert unscheduled_pod_in(line, (ClaimRule(namespaces=("shop",)),)) is not None
    assert unscheduled_pod_in(line, (ClaimRule(namespaces=("other",)),)) is None


def test_a_record_without_its_time_is_of_the_moment_at_which_it_was_logged() -> None:
    found = read(text(record(stageTimestamp=None)))
    assert found is not None
    assert found.at == audit_log.AT_MS / 1000


def test_a_record_that_lost_its_objects_names_the_pod() -> None:
    assert read(text(left_out())) == UnscheduledPod(PodReference("shop", "web-7f9c-x2x"), AT, "audit-of-web-7f9c-x2x")


def test_a_record_that_lost_its_objects_counts_for_kube_scheduler_alone() -> None:
    assert read(text(left_out() | {"user": {"username": "system:serviceaccount:kube-system:pod-gc"}})) is None


@pytest.mark.parametrize("kept", [600, 900, 1500])
def test_a_line_that_was_cut_names_the_pod(kept: int) -> None:
    line = text(record())
    assert kept < len(line)
    waiting = read(line[:kept])
    assert waiting == UnscheduledPod(PodReference("shop", "web-7f9c-x2x"), AT, "audit-of-web-7f9c-x2x")


def test_a_cut_line_counts_for_kube_scheduler_alone() -> None:
    with pytest.raises(InvalidMessage):
        read(text(of_kubelet())[:900])


def test_what_a_pod_holds_cannot_pass_for_a_cut_record() -> None:
    """Text inside of a string is escaped, and too far from the beginning anyway."""
    pod = pending_pod()
    pod["metadata"]["annotations"] = {"note": text(record())}
    line = text(record(pod, user={"username": "mallory"}, responseObject=pod, verb="create"))
    with pytest.raises(InvalidMessage):
        read(line[:-100])


@pytest.mark.parametrize(("before", "names"), [(0, True), (3000, True), (4200, False)])
def test_the_beginning_of_a_record_is_at_the_beginning_of_its_line(before: int, names: bool) -> None:
    """Text further behind in the line may be text of users."""
    line = "x" * before + text(record())[:700]
    if names:
        assert read(line) is not None
    else:
        with pytest.raises(InvalidMessage):
            read(line)


@pytest.mark.parametrize(
    "line", ["", "{", "null", "[]", "7", "E0131 12:00:00 apiserver.go:1] text", '{"kind": 7}', "\x00"]
)
def test_garbage_is_refused_with_a_reason(line: str) -> None:
    with pytest.raises(InvalidMessage, match="audit log: "):
        read(line)


@pytest.mark.parametrize("around", ["{}", '{{"kind":"Event","verb":{}}}', '{{"kind":"Event","responseObject":{}}}'])
def test_a_line_nested_ten_thousand_levels_deep_is_refused(around: str) -> None:
    with pytest.raises(InvalidMessage, match="audit log: "):
        read(around.format("[" * 10_000 + "]" * 10_000))


def test_a_record_whose_pod_is_nested_ten_thousand_levels_deep_is_read_as_one_that_was_cut() -> None:
    line = text(record(responseObject="DEEP")).replace('"DEEP"', "[" * 10_000 + "]" * 10_000)
    waiting = read(line)
    assert waiting is not None
    assert waiting.pod == PodReference("shop", "web-7f9c-x2x", "")


@pytest.mark.parametrize(
    "changed",
    [{"responseObject": {"metadata": 7}}, {"stageTimestamp": "yesterday"}, {"stageTimestamp": "2026-01-31T12:00:00"}],
    ids=["pod", "time", "zone"],
)
def test_a_record_that_is_wrong_inside_is_refused_by_its_id(changed: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="audit-of-web"):
        read(text(record(**changed)))


def test_a_log_event_without_a_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="not a log event"):
        unscheduled_pod_in(Raw(b'{"id": "1"}'))


@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_no_line_does_anything_but_be_read_or_be_refused(line: str) -> None:
    try:
        assert read(line) is None
    except InvalidMessage:
        pass


@given(st.integers(0, len(text(record()))))
def test_wherever_a_record_is_cut_it_names_its_pod_or_is_refused(kept: int) -> None:
    try:
        waiting = read(text(record())[:kept])
    except InvalidMessage:
        return
    assert waiting is not None
    assert waiting.pod.name == "web-7f9c-x2x"


# Deliveries


def test_a_delivery_names_its_cluster_by_its_log_group() -> None:
    unpacked = read_delivery(delivery(text(record()), cluster="prod_1-a"))
    assert (unpacked.cluster, len(unpacked.lines)) == ("prod_1-a", 1)


def test_a_control_message_holds_nothing() -> None:
    probe = "CWL CONTROL MESSAGE: Checking health of destination Lambda function"
    assert read_delivery(delivery(probe, kind="CONTROL_MESSAGE", group="")).lines == ()


@pytest.mark.parametrize("group", ["/aws/eks/demo/other", "/aws/lambda/f", "", "/aws/eks//cluster"])
def test_other_log_groups_are_refused(group: str) -> None:
    with pytest.raises(InvalidMessage, match="log group"):
        read_delivery(delivery(text(record()), group=group))


def gzipped(data: bytes) -> dict[str, Any]:
    return {"awslogs": {"data": base64.b64encode(data).decode()}}


CONTROL = gzipped(gzip.compress(b'{"messageType": "CONTROL_MESSAGE"}'))


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"awslogs": None},
        {"awslogs": {"data": 7}},
        {"awslogs": {"data": "***"}},
        {"awslogs": {"data": "ä"}},
        gzipped(b"not gzip"),
        gzipped(gzip.compress(b"not json")),
        gzipped(gzip.compress(b"[]")),
        gzipped(gzip.compress(b'{"logEvents": 7}')),
        gzipped(gzip.compress(b"{}" * 100)[:-9]),
        gzipped(gzip.compress(b" " * (65 * 2**20))),
        gzipped(gzip.compress(b'{"logEvents": ' + b"[" * 100_000)),
        gzipped(zlib.compress(b'{"messageType": "CONTROL_MESSAGE"}')),
        {"awslogs": {"data": f"*{CONTROL['awslogs']['data']}"}},
    ],
    ids=[
        *("empty", "null", "number", "no base64", "no ascii", "no gzip", "no json", "list", "shape", "short", "bomb"),
        *("too deep", "without a header", "with an odd letter"),
    ],
)
def test_what_is_no_delivery_is_refused(event: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage, match="audit log: "):
        read_delivery(event)


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(InvalidMessage, match="holds more than 67108864 bytes"):
        read_delivery(gzipped(gzip.compress(b" " * (65 * 2**20))))


# The flow


def heard(stage: Stage, recent: RecentPods, *lines: str) -> int:
    return audit(read_delivery(delivery(*lines, cluster=CLUSTER)), stage.settings.claim_rules, stage.context, recent)


def test_pods_of_a_delivery_are_told_in_one_event_each_once() -> None:
    stage = Stage()
    lines = [text(record(pending_pod(name))) for name in ("b", "a", "b")]
    assert heard(stage, RecentPods(), *lines, text(of_kubelet())) == 2
    (told,) = stage.told()
    assert isinstance(told, PodsPending)
    assert told.cluster == CLUSTER
    assert [pod.name for pod in told.pods] == ["b", "a"]
    assert told.id == f"{CLUSTER}/audit/audit-of-a"
    assert (told.time, told.reason) == (pytest.approx(stage.clock.now()), "Unschedulable")
    assert stage.bus.events[0].source == "shiplap.audit"


def test_the_event_is_named_after_the_first_record_and_what_has_no_time_counts_as_of_now() -> None:
    stage = Stage()
    early = record(pending_pod("b"), auditID="b", stageTimestamp="2026-01-31T11:00:00Z")
    late = record(pending_pod("a"), auditID="a", stageTimestamp="2026-01-31T12:00:00Z")
    heard(stage, RecentPods(), text(late), text(early))
    assert stage.bus.events[0].detail["id"] == f"{CLUSTER}/audit/b"


def test_the_same_delivery_again_tells_the_same_event_id() -> None:
    stage = Stage()
    for _ in range(2):
        heard(stage, RecentPods(), text(record()))
    first, second = (event.detail["id"] for event in stage.bus.events)
    assert first == second


def test_a_malformed_line_costs_one_log_line_and_not_the_delivery(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    with caplog.at_level(logging.WARNING):
        assert heard(stage, RecentPods(), "garbage", text(record()), "{") == 1
    assert [entry.levelname for entry in caplog.records] == ["WARNING", "WARNING"]
    assert stage.meter.counts["AuditRecordsUnreadable"] == 2


def test_kube_schedulers_further_tries_are_told_no_sooner_than_a_minute_later() -> None:
    stage, recent = Stage(), RecentPods()
    line = text(record())
    assert [heard(stage, recent, line) for _ in range(3)] == [1, 0, 0]
    stage.clock.advance(59)
    assert heard(stage, recent, line) == 0
    stage.clock.advance(1)
    assert heard(stage, recent, line) == 1


def test_what_the_bus_refused_is_told_when_it_comes_again() -> None:
    stage, recent = Stage(), RecentPods()
    stage.faults.on("before", "bus.publish", StoreError("no"))
    with pytest.raises(StoreError):
        heard(stage, recent, text(record()))
    assert heard(stage, recent, text(record())) == 1


def test_a_delivery_without_pods_that_wait_publishes_nothing() -> None:
    stage = Stage()
    assert heard(stage, RecentPods(), text(of_kubelet())) == 0
    assert stage.bus.events == []


def test_what_is_remembered_is_bounded() -> None:
    recent = RecentPods(lasts_s=60, most=10)
    recent.add([(str(number),) for number in range(30)], 0.0)
    recent.forget(1.0)
    assert ("19",) not in recent
    assert ("20",) in recent


def test_pods_of_records_that_lost_their_objects_are_told_apart_by_name() -> None:
    stage, recent = Stage(), RecentPods()
    one, other = text(left_out()), text(left_out(pending_pod("api-5d8b-k9k")))
    assert heard(stage, recent, one) == 1
    assert heard(stage, recent, other) == 1
    assert heard(stage, recent, one, other) == 0


def test_a_log_event_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(InvalidMessage, match="not a log event"):
        unscheduled_pod_in(Raw(b'{"id": "1", "timestamp": 1, "message": "\xff"}'))
