"""No decision reads the parts that the compact form of pods leaves out: requests and every plan stay the same."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.compact_pods import (
    FORMAT,
    PodTable,
    SnapshotHeader,
    decode_pods,
    encode_pods,
    lean_pod,
    merged_pods,
)
from shiplap.kubernetes.objects import ObjectMeta, Pod, is_ready
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.scheduling.model.planned_pods import do_not_disrupt, owner_kind
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan
from tests.property.drawn_snapshots import snapshots
from tests.property.drawn_topologies import clusters
from tests.strategies import sampled_from
from tests.thoroughness import draws

STANDING = SnapshotHeader(cluster="c", version="7", taken_at=1.5, listed_at=1.0, kept_since=0.5)
FEW = settings(derandomize=True, deadline=None, max_examples=draws(60))
TEXT = sampled_from(["", "a", "web-0", "web-10", "x-1-y", "ü"])
AMOUNTS = st.dictionaries(sampled_from(["cpu", "memory"]), sampled_from(["100m", "1", "2", "64Mi"]), max_size=2)
TIMES = sampled_from(["", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z"])
UIDS = st.one_of(
    st.uuids().map(str),
    sampled_from(["", "u", "pods-000000000012", "fifteen-letters", "0123456789abcde", "A" * 32]),
    st.text(max_size=20),
)


@st.composite
def any_pods(draw: st.DrawFn) -> Pod:
    """Pods as API servers write them, resizes, StatefulSets, protections and all that nobody reads included."""

    def containers() -> list[dict[str, Any]]:
        return [
            {
                "name": f"c{place}",
                "resources": {"requests": draw(AMOUNTS), "limits": draw(AMOUNTS)},
                "ports": draw(sampled_from([[], [{"containerPort": 80}], [{"containerPort": 80, "hostPort": 80}]])),
                "restartPolicy": draw(sampled_from(["", "Always"])),
            }
            for place in range(draw(st.integers(0, 2)))
        ]

    def statuses(of: list[dict[str, Any]]) -> list[dict[str, Any]]:
        held = [item["resources"]["requests"] for item in of] + [{}, {"cpu": "3"}]
        return [
            {
                "name": item["name"],
                "allocatedResources": draw(sampled_from(held)),
                **({"resources": {"requests": draw(sampled_from(held))}} if draw(st.booleans()) else {}),
            }
            for item in of
            if draw(st.booleans())
        ]

    name = draw(TEXT)
    running, starting = containers(), containers()
    noted = sampled_from(["true", "10m", "-5", "checksum"])
    document = {
        "metadata": {
            "name": name,
            "namespace": draw(sampled_from(["", "default", "shop"])),
            "uid": draw(UIDS),
            "resourceVersion": draw(sampled_from(["1", "22"])),
            "labels": draw(
                st.dictionaries(
                    sampled_from(["app", "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"]),
                    sampled_from([name, name.rpartition("-")[2], "web"]),
                )
            ),
            "annotations": draw(
                st.dictionaries(
                    sampled_from([labels.DO_NOT_DISRUPT, labels.DELETION_COST, labels.DISRUPTION_COST, "note"]), noted
                )
            ),
            "creationTimestamp": draw(st.one_of(st.none(), TIMES)),
            "deletionTimestamp": draw(TIMES),
            "finalizers": draw(sampled_from([[], ["f"]])),
            "ownerReferences": draw(
                sampled_from([[], [{"kind": "ReplicaSet", "name": "rs", "uid": "r", "controller": True}]])
            ),
        },
        "spec": {
            "nodeName": draw(sampled_from(["n1", "n2"])),
            "containers": running,
            "initContainers": starting,
            "overhead": draw(AMOUNTS),
            "volumes": [{"name": "token-x1"}, {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
            **({"resources": {"requests": draw(AMOUNTS)}} if draw(st.booleans()) else {}),
        },
        "status": {
            "phase": draw(sampled_from(["Pending", "Running"])),
            "startTime": draw(TIMES),
            "conditions": draw(
                sampled_from(
                    [
                        [],
                        [{"type": "Ready", "status": "True", "lastTransitionTime": None}],
                        [{"type": "PodResizePending", "status": "True", "reason": "Infeasible", "message": "large"}],
                    ]
                )
            ),
            "containerStatuses": statuses(running),
            "initContainerStatuses": statuses(starting),
            "allocatedResources": draw(AMOUNTS),
        },
    }
    return msgspec.convert(document, Pod)


def of(key: Any) -> Any:
    return lambda pod: key(pod.metadata)


@settings(derandomize=True, deadline=None, max_examples=draws(300))
@given(any_pods())
def test_a_lean_pod_takes_and_shows_the_same(pod: Pod) -> None:
    slim = lean_pod(pod)
    assert lean_pod(slim) == slim
    assert pod_requests(slim) == pod_requests(pod)
    assert (is_ready(slim.status), owner_kind(slim), slim.key) == (is_ready(pod.status), owner_kind(pod), pod.key)
    for now in (0.0, 1.8e9):
        assert do_not_disrupt(slim, now) == do_not_disrupt(pod, now)
    assert list(slim.spec.volumes) == [item for item in pod.spec.volumes if item.name == "data"]


@settings(derandomize=True, deadline=None, max_examples=draws(200))
@given(st.lists(any_pods(), max_size=6, unique_by=lambda pod: pod.metadata.uid))
def test_a_document_holds_exactly_the_lean_pods(pods: list[Pod]) -> None:
    document = encode_pods(pods, STANDING)
    standing, found = decode_pods(document)
    assert standing == STANDING
    key = of(lambda meta: meta.uid)
    assert sorted(found, key=key) == sorted(map(lean_pod, pods), key=key)
    table, again = PodTable.of(document)
    assert (again, len(table), table.changes) == (STANDING, len(pods), 0)
    assert sorted(decode_pods(table.document(STANDING))[1], key=key) == sorted(found, key=key)


@settings(derandomize=True, deadline=None, max_examples=draws(200))
@given(st.lists(st.tuples(sampled_from("abcd"), any_pods(), st.booleans()), max_size=30))
def test_a_table_that_changes_is_one_made_anew(steps: list[tuple[str, Pod, bool]]) -> None:
    table, known = PodTable(), {}
    for uid, shape, stays in steps:
        pod = msgspec.structs.replace(shape, metadata=msgspec.structs.replace(shape.metadata, uid=uid))
        before = table.changes
        if stays:
            changed = known.get(uid) != lean_pod(pod)
            known[uid] = lean_pod(pod)
            table.put(pod)
        else:
            changed = known.pop(uid, None) is not None
            table.drop(uid)
        assert (table.changes > before) == changed
    assert len(table) == len(known)
    found = {pod.metadata.uid: pod for pod in decode_pods(table.document(STANDING))[1]}
    assert found == known
    assert table.size_bytes == PodTable.of(table.document(STANDING))[0].size_bytes
    if not known:
        assert table.size_bytes == 0
        assert len(table.document(STANDING)) < 300


@FEW
@given(st.one_of(snapshots(), clusters()))
def test_plans_of_lean_pods_are_the_same_plans(snapshot: Snapshot) -> None:
    bound = [pod for pod in snapshot.view.pods if pod.spec.node_name]
    standing = decode_pods(encode_pods(bound, STANDING))[1]
    pods = merged_pods([pod for pod in snapshot.view.pods if not pod.spec.node_name], standing)
    replace = msgspec.structs.replace
    assert plan(replace(snapshot, view=replace(snapshot.view, pods=pods))) == plan(snapshot)


def test_pods_of_one_name_are_told_apart_by_their_age() -> None:
    def pod(uid: str, node: str, born: str, name: str = "db-0") -> Pod:
        found = Pod(ObjectMeta(name=name, namespace="d", uid=uid, creation_timestamp=f"2026-01-01T00:00:0{born}Z"))
        return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, node_name=node))

    old, young = pod("old", "n1", "1"), pod("young", "", "2")
    bound_young = pod("young", "n2", "2")
    older_waits, other = pod("old", "", "1"), pod("other", "n1", "1", "db-1")
    assert merged_pods([young], [old, other]) == (young, other)
    assert merged_pods([older_waits], [bound_young, other]) == (bound_young, other)
    assert merged_pods([young], [bound_young]) == (bound_young,)
    assert merged_pods([], [old]) == (old,)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"no zlib",
        zlib.compress(b""),
        zlib.compress(msgspec.msgpack.encode([{"format": FORMAT}])),
        zlib.compress(msgspec.msgpack.encode([{"format": FORMAT + 1}, [], [], [], []])),
        zlib.compress(msgspec.msgpack.encode([{}])),
        zlib.compress(msgspec.msgpack.encode([msgspec.to_builtins(STANDING), [], [], [], [[0, 0, 0, "n", b"u"]]])),
        zlib.compress(
            msgspec.msgpack.encode([msgspec.to_builtins(STANDING), [None], [None], [None], [[0, 0, 0, "n", b"u"]]])
        ),
        zlib.compress(
            msgspec.msgpack.encode(
                [msgspec.to_builtins(STANDING), [[{}, {}, {}]], [["", {}, []]], ["n"], [[0, 0, 0, "n", b"\xfe"]]]
            )
        ),
        encode_pods([], STANDING)[:-5],
    ],
)
def test_what_is_no_document_is_invalid(document: bytes) -> None:
    with pytest.raises(InvalidInput, match="cluster snapshot: cannot be read"):
        decode_pods(document)
