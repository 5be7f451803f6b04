"""The requests of `kubectl get`, `scale` and `logs` to the local API, and the answers that they print."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import urllib3

from shiplap_lab.api_server.api_resources import RESOURCES
from shiplap_lab.api_server.printed_tables import duration, wants_table
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_object

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
MERGE = "application/merge-patch+json"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(FakeClock())


class Kubectl:
    """Requests with the headers that kubectl sends."""

    def __init__(self, endpoint: str) -> None:
        self.pool = urllib3.connection_from_url(endpoint)

    def ask(self, path: str, method: str = "GET", body: Any = None, kind: str = "application/json") -> tuple[int, Any]:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": TABLE, "Content-Type": kind}
        response = self.pool.request(method, path, body=data, headers=headers, retries=False)
        lines = [msgspec.json.decode(line) for line in response.data.splitlines()]
        return response.status, lines if "watch=1" in path else lines[0]


@pytest.fixture
def kubectl(server: ApiServer) -> Iterator[Kubectl]:
    with KubeHttpServer(server) as running:
        asking = Kubectl(running.endpoint)
        yield asking
        asking.pool.close()


def printed(answer: Any) -> list[dict[str, Any]]:
    names = [column["name"] for column in answer["columnDefinitions"]]
    return [dict(zip(names, row["cells"], strict=True)) for row in answer["rows"]]


def test_pods_are_listed_with_their_columns(server: ApiServer, kubectl: Kubectl) -> None:
    server.create("pods", pod_object("waits"))
    server.create("pods", pod_object("runs"))
    server.bind("runs", "n1")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.patch("pods", "runs", {"status": ready}, subresource="status")
    status, answer = kubectl.ask(f"{PODS}?limit=500")
    assert (status, answer["kind"], answer["apiVersion"]) == (200, "Table", "meta.k8s.io/v1")
    shown = [(row["Name"], row["Ready"], row["Status"], row["Node"]) for row in printed(answer)]
    assert shown == [("runs", "1/1", "Running", "n1"), ("waits", "0/1", "Pending", "<none>")]
    assert [row["object"]["metadata"]["namespace"] for row in answer["rows"]] == ["default", "default"]
    assert [column["name"] for column in answer["columnDefinitions"] if column["priority"] == 0] == [
        "Name",
        "Ready",
        "Status",
        "Restarts",
        "Age",
    ]
    status, one = kubectl.ask(f"{PODS}/waits?includeObject=Object")
    assert (printed(one)[0]["Name"], one["rows"][0]["object"]["kind"]) == ("waits", "Pod")
    assert kubectl.ask(f"{PODS}?includeObject=None")[1]["rows"][0]["object"] is None
    status, missing = kubectl.ask(f"{PODS}/missing")
    assert (status, missing["kind"], missing["reason"]) == (404, "Status", "NotFound")


def test_pages_of_a_table_continue(server: ApiServer, kubectl: Kubectl) -> None:
    for name in ("a", "b", "c"):
        server.create("pods", pod_object(name))
    _, first = kubectl.ask(f"{PODS}?limit=2")
    _, second = kubectl.ask(f"{PODS}?limit=2&continue={first['metadata']['continue']}")
    assert [row["Name"] for row in printed(first) + printed(second)] == ["a", "b", "c"]


def test_a_watch_heads_its_first_row_alone(server: ApiServer, kubectl: Kubectl) -> None:
    server.create("pods", pod_object("a"))
    server.create("pods", pod_object("b"))
    _, events = kubectl.ask(f"{PODS}?watch=1&resourceVersion=0&timeoutSeconds=1")
    assert [event["object"]["rows"][0]["cells"][0] for event in events] == ["a", "b"]
    assert [bool(event["object"]["columnDefinitions"]) for event in events] == [True, False]


@pytest.mark.parametrize("plural", sorted(RESOURCES))
def test_each_resource_prints_its_objects_whatever_they_hold(plural: str, server: ApiServer, kubectl: Kubectl) -> None:
    resource = RESOURCES[plural]
    odd = {"replicas": "many", "containers": [7], "conditions": "none", "ports": [None], "template": []}
    bodies = [{"spec": {}, "status": {}}, {"spec": odd, "status": odd}] if plural not in ("pods", "nodes") else [{}]
    for number, body in enumerate(bodies):
        extra = {} if plural != "pods" else pod_object("o")
        server.create(plural, {**extra, **body, "metadata": {"name": f"o{number}"}})
    prefix = f"/apis/{resource.api_version}" if resource.group else "/api/v1"
    status, answer = kubectl.ask(f"{prefix}/{resource.plural}")
    assert (status, answer["kind"]) == (200, "Table")
    assert [row["object"]["metadata"]["name"] for row in answer["rows"]] == [f"o{n}" for n in range(len(bodies))]
    assert all(len(row["cells"]) == len(answer["columnDefinitions"]) for row in answer["rows"])


def test_nodes_claims_and_workloads_have_kubernetes_and_karpenters_columns(server: ApiServer, kubectl: Kubectl) -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    node = {"metadata": {"name": "n1"}, "spec": {"unschedulable": True}}
    server.create("nodes", {**node, "status": {**ready, "nodeInfo": {"kubeletVersion": "v1.34.0"}}})
    labels = {"node.kubernetes.io/instance-type": "m7g.large", "karpenter.sh/capacity-type": "spot"}
    server.create("nodeclaims", {"metadata": {"name": "c1", "labels": labels}, "status": {**ready, "nodeName": "n1"}})
    server.create("deployments", {"metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"readyReplicas": 2}})
    (row,) = printed(kubectl.ask("/api/v1/nodes")[1])
    assert (row["Status"], row["Roles"], row["Version"]) == ("Ready,SchedulingDisabled", "<none>", "v1.34.0")
    (row,) = printed(kubectl.ask("/apis/karpenter.sh/v1/nodeclaims")[1])
    assert (row["Type"], row["Capacity"], row["Node"], row["Ready"]) == ("m7g.large", "spot", "n1", "True")
    (row,) = printed(kubectl.ask("/apis/apps/v1/deployments")[1])
    assert (row["Ready"], row["Up-to-date"], row["Age"]) == ("2/3", 0, "0s")


def test_scale_is_read_and_written(server: ApiServer, kubectl: Kubectl) -> None:
    server.create("deployments", {"metadata": {"name": "web"}, "spec": {"replicas": 3}})
    status, scale = kubectl.ask(f"{DEPLOYMENT}/scale")
    assert (status, scale["kind"], scale["spec"]) == (200, "Scale", {"replicas": 3})
    assert kubectl.ask(f"{DEPLOYMENT}/scale", "PATCH", {"spec": {"replicas": 5}}, MERGE)[1]["spec"] == {"replicas": 5}
    assert server.get("deployments", "web")["spec"]["replicas"] == 5
    stale = {**scale, "spec": {"replicas": 1}}
    assert kubectl.ask(f"{DEPLOYMENT}/scale", "PUT", stale)[0] == 409
    fresh = kubectl.ask(f"{DEPLOYMENT}/scale")[1]
    assert kubectl.ask(f"{DEPLOYMENT}/scale", "PUT", {**fresh, "spec": {"replicas": 0}})[1]["spec"] == {"replicas": 0}
    assert kubectl.ask(f"{DEPLOYMENT}/scale", "DELETE")[0] == 405


@pytest.mark.parametrize("body", [{}, {"spec": []}, {"spec": {"replicas": -1}}, {"spec": {"replicas": "two"}}])
def test_a_scale_without_a_number_is_invalid(body: Any, server: ApiServer, kubectl: Kubectl) -> None:
    server.create("deployments", {"metadata": {"name": "web"}, "spec": {"replicas": 3}})
    status, answer = kubectl.ask(f"{DEPLOYMENT}/scale", "PATCH", body, MERGE)
    assert (status, answer["kind"], answer["reason"]) == (422, "Status", "Invalid")
    assert kubectl.ask(f"{DEPLOYMENT}/scale", "PATCH", body, "text/plain")[0] == 415
    assert server.get("deployments", "web")["spec"]["replicas"] == 3


def test_logs_are_refused_with_the_reason(server: ApiServer, kubectl: Kubectl) -> None:
    server.create("pods", pod_object("p"))
    status, answer = kubectl.ask(f"{PODS}/p/log?container=main")
    assert (status, answer["kind"]) == (405, "Status")
    assert "run no containers" in answer["message"]


def test_lists_name_their_kind_and_short_names_name_no_subresource(kubectl: Kubectl) -> None:
    response = kubectl.pool.request("GET", PODS)
    assert (response.json()["kind"], response.json()["apiVersion"]) == ("PodList", "v1")
    listed = kubectl.ask("/apis/apps/v1")[1]["resources"]
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["deployments"]["shortNames"] == ["deploy"]
    assert by_name["deployments/scale"]["kind"] == "Scale"
    assert [name for name, entry in by_name.items() if "/" in name and "shortNames" in entry] == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0s"),
        (119, "119s"),
        (120, "2m"),
        (320, "5m20s"),
        (700, "11m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (30_000, "8h"),
        (172_800, "2d"),
        (180_000, "2d2h"),
        (800_000, "9d"),
        (70_000_000, "2y"),
    ],
)
def test_ages_read_as_kubectls(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", False),
        ("application/json", False),
        (TABLE, True),
        (f"application/json,{TABLE}", False),
        ("application/vnd.kubernetes.protobuf,application/json;as=Table;v=v1;g=meta.k8s.io", True),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", False),
    ],
)
def test_the_first_type_that_is_written_decides(accept: str, expected: bool) -> None:
    assert wants_table(accept) is expected
