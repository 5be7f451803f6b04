"""Objects that no API server should send: each is set aside by itself, and its neighbours are planned as without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.cluster.client import KubernetesClient
from shiplap.cluster.snapshot_keeper import SnapshotKeeper
from shiplap.cluster.watcher import KindWatch, Tracker, poll_once
from shiplap.flows import cluster_metrics
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.reading import Reader
from shiplap.kubernetes.request_bodies import BOUND_PODS
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.planner import plan
from shiplap.scheduling.supply.daemons import Daemon, daemons_of
from shiplap_cli.inputs.cluster_listing import list_cluster
from shiplap_lab.fakes.signals import FakeClock, FakeMeter
from shiplap_lab.fakes.stores import FakeSnapshots
from tests.builders.pods import WAITING
from tests.conformance.given import NOW
from tests.conformance.given import given as given_of
from tests.odd_input import ODD, fuzzed, kept, spoilt

TIME = "2026-01-31T12:00:00Z"


def raw_pod(name: str, node: str = "", cpu: str = "500m") -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Running", "startTime": TIME} if node else dict(WAITING)
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "labels": {"app": "web"},
            "annotations": {"note": "x"},
            "creationTimestamp": TIME,
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}],
        },
        "spec": {
            "nodeName": node,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoSchedule"}],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "topology.kubernetes.io/zone",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": name}},
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [{"key": "b", "operator": "Exists"}]}}
                    ]
                }
            },
            "priority": 0,
        },
        "status": status,
    }


def raw_node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "2", "memory": "8Gi", "pods": "29", "ephemeral-storage": "20Gi"}
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "8",
            "creationTimestamp": TIME,
            "labels": {"topology.kubernetes.io/zone": "test-zone-1", "kubernetes.io/hostname": name},
        },
        "spec": {"providerID": f"aws:///test-zone-1/i-{name}", "taints": [{"key": "t", "effect": "NoSchedule"}]},
        "status": {
            "capacity": amounts,
            "allocatable": dict(amounts),
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
        },
    }


def raw_daemon_set() -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"name": "agent"}, "spec": {"template": {"spec": {"containers": [container]}}}}


class Canned:
    """A transport that answers with lists and watches made by hand."""

    def __init__(self, **lists: list[Any]) -> None:
        self.lists = lists
        self.changes: list[dict[str, Any]] = []

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        if path == "/version":
            return b'{"major": "1", "minor": "34"}'
        plural = path.rpartition("/")[2]
        selector = str((query or {}).get("fieldSelector", ""))
        items = self.lists.get(plural, [])
        if plural == "pods" and selector:
            bound = selector == BOUND_PODS
            items = [item for item in items if bound == bool(_node_of(item))] if "nodeName" in selector else items
        return json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode()

    def lines(self, path: str, query: Mapping[str, Any], timeout_s: float) -> Any:
        del path, query, timeout_s
        yield from (json.dumps(change).encode() for change in self.changes)


def _node_of(item: Any) -> Any:
    spec = item.get("spec") if isinstance(item, dict) else None
    return spec.get("nodeName") if isinstance(spec, dict) else None


def client(**lists: list[Any]) -> KubernetesClient:
    return KubernetesClient(Canned(**lists))  # type: ignore[arg-type]


def deciding(view: ClusterView) -> Snapshot:
    return msgspec.structs.replace(given_of().snapshot, view=view)


def placed(view: ClusterView) -> set[str]:
    decided = plan(deciding(view))
    homes = [*decided.node_claims, *decided.existing_nodes]
    return {pod.name for home in homes for pod in home.pods}


def fits_any_node(daemon: Daemon) -> bool:
    """One that asks for more, or for another resource, runs nowhere, and nothing is launched that it would not fit."""
    return daemon.requests.keys() <= {"cpu", "pods"} and daemon.requests.get("cpu", 0) <= 1000


GOOD = [raw_pod(f"good-{number}") for number in range(3)]


@fuzzed(0.4, usual=150)
@given(
    spoilt([raw_pod("odd")]), spoilt([raw_pod("odd-bound", "n1")]), spoilt([raw_node("n2")]), spoilt([raw_daemon_set()])
)
def test_neighbours_of_odd_objects_are_seen_and_planned(pending: Any, bound: Any, node: Any, daemons: Any) -> None:
    neighbours_are_planned((pending, bound), node, daemons)


def neighbours_are_planned(pods: tuple[Any, ...], node: Any, daemons: Any) -> None:
    api = client(pods=[*GOOD, *pods], nodes=[raw_node("n1"), node], daemonsets=[daemons])
    view = api.view()
    names = {pod.metadata.name for pod in view.pods}
    assert {"good-0", "good-1", "good-2"} <= names
    assert "n1" in {item.metadata.name for item in view.nodes}
    if all(fits_any_node(daemon) for daemon in daemons_of(view)):
        assert {"good-0", "good-1", "good-2"} <= placed(view)
    cluster_metrics.measure_pods("demo", view, NOW, FakeMeter())
    for pod in pods:
        identity = pod["metadata"].get("name") if isinstance(pod.get("metadata"), dict) else None
        if isinstance(identity, str) and identity:
            told = {item.name for item in view.unreadable} | names
            assert identity in told, "an odd pod is seen, or it is said that it cannot be read"


@fuzzed(0.2, usual=150)
@given(spoilt([raw_pod("odd", "n1")]), spoilt([raw_node("n9")]))
def test_watches_and_snapshots_go_on_behind_odd_objects(pod: Any, node: Any) -> None:
    watches_go_on(pod, node)


def watches_go_on(pod: Any, node: Any) -> None:
    transport = Canned(pods=[raw_pod("a", "n1"), pod], nodes=[raw_node("n1"), node])
    transport.changes = [
        {"type": "MODIFIED", "object": pod},
        {"type": "MODIFIED", "object": raw_pod("b", "n1")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
    ]
    api = KubernetesClient(transport)  # type: ignore[arg-type]
    store = FakeSnapshots()
    keeper = SnapshotKeeper("demo", api, store, clock=FakeClock(NOW), fewest_pods=1)
    keeper.established.set()
    keeper.round(1.0)
    assert "demo" in store.documents
    assert {"a", "b"} <= {event.object.metadata.name for event in api.watch("bound", "9", 1.0)} | {"a"}
    transport.changes = [{"type": "ADDED", "object": node}, {"type": "ADDED", "object": raw_node("n3")}]
    seen = poll_once([KindWatch(api, "nodes")], Tracker())
    assert "n3" in {item.metadata.name for item in seen.joined}


@fuzzed(0.2, usual=150)
@given(spoilt([raw_pod("odd")]), spoilt([raw_node("n2")]), ODD)
def test_a_persons_look_goes_on_too(pod: Any, node: Any, node_pool: Any) -> None:
    look_goes_on(pod, node, node_pool)


def look_goes_on(pod: Any, node: Any, node_pool: Any) -> None:
    transport = Canned(pods=[*GOOD, pod], nodes=[raw_node("n1"), node], nodepools=[node_pool])
    found = list_cluster(transport, namespace="default", manifests=True, workloads=False)  # type: ignore[arg-type]
    assert {"good-0", "good-1", "good-2"} <= {item.metadata.name for item in found.view.pods}


@fuzzed(0.2, usual=150)
@given(st.binary(max_size=40) | st.builds(lambda depth: b'{"a":' * depth, st.just(100_000)))
def test_rubbish_in_the_place_of_an_object_is_set_aside(body: bytes) -> None:
    is_read_or_set_aside(body)


def is_read_or_set_aside(body: bytes) -> None:
    for reader in (Reader(Pod), Reader(Node)):
        read = reader.one(body)  # type: ignore[attr-defined]
        assert read.item is not None or read.unreadable is not None


@kept("objects")
def test_a_kept_object_hides_no_other(kept_input: Path) -> None:
    """One that is JSON says its kind; anything else is rubbish in its place."""
    body = kept_input.read_bytes()
    is_read_or_set_aside(body)
    if kept_input.suffix != ".json":
        return
    odd = json.loads(body)
    kind = odd.pop("kind")
    pod = odd if kind == "Pod" else raw_pod("odd", "n1")
    node = odd if kind == "Node" else raw_node("n2")
    daemons = odd if kind == "DaemonSet" else raw_daemon_set()
    assert any(each is odd for each in (pod, node, daemons)), kind
    neighbours_are_planned((pod,), node, daemons)
    watches_go_on(pod, node)
    look_goes_on(pod, node, odd)


def test_a_null_counts_as_absent() -> None:
    odd = raw_pod("odd")
    odd["metadata"]["annotations"] = None
    odd["spec"]["tolerations"] = None
    view = client(pods=[odd, *GOOD]).view()
    assert view.unreadable == ()
    assert "odd" in placed(view)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("status", "allocatable", "memory"), "banana"),
        (("status", "capacity", "cpu"), "-2"),
        (("metadata", "creationTimestamp"), "yesterday"),
        (("status", "conditions", 0, "lastTransitionTime"), "noon"),
        (("spec", "taints"), "all of them"),
    ],
)
def test_an_odd_node_is_not_gone_and_takes_no_pods(path: tuple[Any, ...], value: Any) -> None:
    """Were it left out, its instance would be ended for being without a Node."""
    odd = raw_node("n2")
    inside: Any = odd
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = value
    view = client(nodes=[raw_node("n1"), odd], pods=GOOD).view()
    (stand_in,) = [node for node in view.nodes if node.metadata.name == "n2"]
    assert stand_in.spec.provider_id == "aws:///test-zone-1/i-n2"
    assert stand_in.spec.unschedulable
    assert stand_in.metadata.annotations[labels.DO_NOT_DISRUPT] == "true"
    (unreadable,) = view.unreadable
    assert (unreadable.kind, unreadable.name) == ("Node", "n2")
    assert repr(value)[1:4] in unreadable.reason or "taints" in unreadable.reason


@pytest.mark.parametrize("cpu", ["", "banana", "-"])
def test_a_node_with_a_pod_whose_requests_cannot_be_read_takes_no_pods(cpu: str) -> None:
    view = client(nodes=[raw_node("n1")], pods=[raw_pod("odd", "n1", cpu), *GOOD]).view()
    decided = plan(deciding(view))
    assert {pod.name for claim in decided.node_claims for pod in claim.pods} == {"good-0", "good-1", "good-2"}
    assert not any(node.pods for node in decided.existing_nodes)


@pytest.mark.parametrize("number", [10**30, 2**63, -(2**63) - 1])
@pytest.mark.parametrize(
    "path",
    [
        ("spec", "priority"),
        ("spec", "containers", 0, "resources", "requests", "cpu"),
        ("spec", "topologySpreadConstraints", 0, "maxSkew"),
    ],
)
def test_a_number_that_no_api_server_stores_makes_one_pod_unreadable(path: tuple[Any, ...], number: int) -> None:
    odd = raw_pod("odd", "n1")
    inside: Any = odd
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = number
    transport = Canned(pods=[*GOOD, odd], nodes=[raw_node("n1")])
    api = KubernetesClient(transport)  # type: ignore[arg-type]
    view = api.view()
    assert [item.name for item in view.unreadable] == ["odd"]
    assert {"good-0", "good-1", "good-2"} <= placed(view)
    keeper = SnapshotKeeper("demo", api, FakeSnapshots(), clock=FakeClock(NOW), fewest_pods=1)
    keeper.established.set()
    keeper.round(1.0)


@pytest.mark.parametrize("amount", ["9223372036854775807", "1000E", "-1000E"])
def test_however_much_pods_of_a_node_ask_for_the_others_are_planned(amount: str) -> None:
    """Whoever may create a pod may name a node in it, and any amount."""
    bound = [raw_pod(f"greedy-{number}", "n1", amount) for number in range(100)]
    pending = [raw_pod(f"waiting-{number}", "", amount) for number in range(100)]
    for many in (bound, pending, [*bound, *pending]):
        view = client(nodes=[raw_node("n1")], pods=[*many, *GOOD]).view()
        assert {"good-0", "good-1", "good-2"} <= placed(view)
        cluster_metrics.measure_pods("demo", view, NOW, FakeMeter())


def test_an_odd_pod_keeps_its_node_from_being_taken_for_empty() -> None:
    odd = raw_pod("odd", "n1")
    odd["spec"]["containers"] = 5
    view = client(nodes=[raw_node("n1")], pods=[odd]).view()
    (stand_in,) = view.by_node["n1"]
    assert (stand_in.metadata.name, stand_in.metadata.uid) == ("odd", "uid-odd")
    assert stand_in.metadata.annotations[labels.DO_NOT_DISRUPT] == "true"
    assert not view.unreadable[0].waits


@pytest.mark.parametrize(
    ("path", "value"),
    [(("spec", "containers"), {"a": 1}), (("metadata", "creationTimestamp"), "now"), (("spec", "priority"), "high")],
)
def test_a_waiting_pod_that_cannot_be_read_is_unschedulable_with_the_reason(path: tuple[str, str], value: Any) -> None:
    odd = raw_pod("odd")
    odd[path[0]][path[1]] = value
    view = client(pods=[*GOOD, odd]).view()
    (told,) = plan(deciding(view)).unschedulable
    assert (told.pod.namespace, told.pod.name, told.pod.uid) == ("default", "odd", "uid-odd")
    assert told.message.startswith("it cannot be read: ")
