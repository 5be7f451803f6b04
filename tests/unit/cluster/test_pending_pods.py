"""A watch keeps enough of pods without a node to show which pods need one, however large they are."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.cluster.pending_pods import PendingPodReader
from shiplap.cluster.watcher import is_unschedulable
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.reading import Reader
from tests.builders.pods import pod_object

LARGE = {f"label-{place}": "x" * 60 for place in range(20_000)}


def body_of(*pods: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": pods})


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"spec": {"nodeName": "n1"}},
        {"status": {"phase": "Failed"}},
        {"status": {"nominatedNodeName": "n1"}},
        {"status": {"conditions": []}},
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"metadata": {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d"}]}},
        {"metadata": {"ownerReferences": [{"kind": "Node", "name": "n", "uid": "n"}]}},
        {"metadata": {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r"}]}},
    ],
)
def test_a_watch_judges_pods_like_those_who_read_all_of_them(change: dict[str, dict[str, Any]]) -> None:
    written = pod_object("odd", "1", waits=True, metadata={"uid": "u", "resourceVersion": "9"})
    for part, fields in change.items():
        written[part] |= fields
    (lean,) = PendingPodReader().page(body_of(written)).items
    (whole,) = Reader(Pod).page(body_of(written)).items
    assert is_unschedulable(lean) == is_unschedulable(whole)
    for field in ("name", "namespace", "uid", "resource_version"):
        assert getattr(lean.metadata, field) == getattr(whole.metadata, field)


def test_a_pod_that_is_too_large_to_be_planned_is_told_of_and_held_small() -> None:
    written = pod_object("large", waits=True, metadata={"uid": "u", "labels": LARGE, "annotations": LARGE})
    page = PendingPodReader().page(body_of(written))
    (pod,) = page.items
    assert is_unschedulable(pod)
    assert len(msgspec.json.encode(pod)) < 1_000
    assert (page.version, page.token, page.unreadable) == ("7", "next", ())
    read = PendingPodReader().one(msgspec.json.encode(written)).item
    assert read == pod


def test_an_unreadable_pod_is_set_aside_and_named() -> None:
    odd = pod_object("odd", waits=True)
    odd["status"]["phase"] = 5
    page = PendingPodReader().page(body_of(odd, pod_object("good", waits=True)))
    assert [pod.metadata.name for pod in page.items] == ["good"]
    assert [(each.kind, each.name) for each in page.unreadable] == [("Pod", "odd")]
