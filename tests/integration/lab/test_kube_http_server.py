"""The local Kubernetes API as any client sees it: paths, methods, status codes and bodies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import msgspec
import pytest

from shiplap.cluster.connect import ApiEndpoint, connect
from shiplap.cluster.watcher import change_batches
from shiplap.settings import ClusterSettings
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.pods import pod_object
from tests.integration.lab.http_requests import HttpRequests

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(FakeClock())


@pytest.fixture
def http(server: ApiServer) -> Iterator[KubeHttpServer]:
    with KubeHttpServer(server) as running:
        yield running


pod = partial(pod_object, labels={"app": "web"})


@pytest.fixture
def raw(http: KubeHttpServer) -> Iterator[HttpRequests]:
    asking = HttpRequests(http.endpoint)
    yield asking
    asking.pool.close()


def test_an_objects_life(raw: HttpRequests) -> None:
    status, created = raw.ask("POST", PODS, pod("p"))
    assert (status, created["metadata"]["namespace"], created["status"]["phase"]) == (201, "default", "Pending")
    status, listed = raw.ask("GET", f"{PODS}?labelSelector=app%3Dweb&fieldSelector=spec.nodeName%3D")
    assert (status, [item["metadata"]["name"] for item in listed["items"]]) == (200, ["p"])
    created["metadata"]["labels"]["changed"] = "yes"
    assert raw.ask("PUT", f"{PODS}/p", created)[0] == 200
    assert raw.ask("PUT", f"{PODS}/p", created)[0] == 409
    strategic = "application/strategic-merge-patch+json"
    condition = {"type": "Ready", "status": "True"}
    status, patched = raw.ask("PATCH", f"{PODS}/p/status", {"status": {"conditions": [condition]}}, strategic)
    assert (status, patched["status"]["conditions"]) == (200, [condition])
    assert raw.ask("GET", f"{PODS}/p/status")[1]["metadata"]["labels"]["changed"] == "yes"
    assert raw.ask("DELETE", f"{PODS}/p", {"preconditions": {"uid": "another"}})[0] == 409
    assert raw.ask("DELETE", f"{PODS}/p")[0] == 200
    status, answer = raw.ask("GET", f"{PODS}/p")
    assert (status, answer["kind"], answer["reason"], answer["code"]) == (404, "Status", "NotFound", 404)


def test_a_new_object_has_no_status_of_its_creators_unless_it_is_a_node(raw: HttpRequests) -> None:
    status, created = raw.ask("POST", PODS, {**pod("p"), "status": {"phase": "Running"}})
    assert (status, created["status"]["phase"]) == (201, "Pending")
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "1"}}}
    assert raw.ask("POST", "/api/v1/nodes", body)[1]["status"] == {"allocatable": {"cpu": "1"}}


def test_binding_and_eviction(raw: HttpRequests, server: ApiServer) -> None:
    server.create("pods", pod("p"))
    target = {"target": {"kind": "Node", "name": "n1"}}
    assert raw.ask("POST", f"{PODS}/p/binding", target)[0] == 201
    assert raw.ask("POST", f"{PODS}/p/binding", target)[0] == 409
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    server.patch("pods", "p", running, subresource="status")
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "web"}}
    raw.ask("POST", budgets, {"metadata": {"name": "web"}, "spec": {"selector": selector, "maxUnavailable": 0}})
    eviction = {"metadata": {"name": "p"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    status, answer = raw.ask("POST", f"{PODS}/p/eviction", eviction)
    assert (status, answer["reason"]) == (429, "TooManyRequests")
    assert raw.ask("DELETE", f"{budgets}/web")[0] == 200
    assert raw.ask("POST", f"{PODS}/p/eviction", eviction)[0] == 201
    assert raw.ask("GET", f"{PODS}/p")[0] == 404


def test_pods_that_a_client_deletes_are_reported_as_they_were(server: ApiServer) -> None:
    deleted = []
    with KubeHttpServer(server, on_pod_deleted=lambda *pod: deleted.append(pod)) as running:
        asking = HttpRequests(running.endpoint)
        for name in ("a", "b"):
            server.create("pods", pod(name))
            server.bind(name, "n1", "default")
        assert asking.ask("POST", f"{PODS}/a/eviction", {"metadata": {"name": "a"}})[0] == 201
        assert asking.ask("DELETE", f"{PODS}/b")[0] == 200
        assert asking.ask("DELETE", f"{PODS}/c")[0] == 404
        asking.pool.close()
    told = [(item["metadata"]["name"], "deletionTimestamp" in item["metadata"], forced) for item, forced in deleted]
    assert told == [("a", False, False), ("b", False, True)]


@pytest.mark.parametrize(
    ("method", "path", "body", "kind", "status"),
    [
        ("GET", "/nowhere", None, "", 404),
        ("GET", "/api/v1/widgets", None, "", 404),
        ("GET", "/apis/apps/v1/pods", None, "", 404),
        ("GET", "/api/v1/nodes/n/status/more", None, "", 404),
        ("DELETE", "/api/v1/nodes", None, "", 405),
        ("POST", "/api/v1/nodes/n", {}, "application/json", 405),
        ("POST", f"{PODS}/p/exec", {}, "application/json", 405),
        ("GET", f"{PODS}/p/log", None, "", 405),
        ("PATCH", f"{PODS}/p", {}, "application/json-patch+json", 422),
        ("PATCH", f"{PODS}/p", {}, "application/json", 415),
        ("POST", PODS, b"{", "application/json", 400),
        ("POST", PODS, b"[]", "application/json", 400),
        ("GET", "/api/v1/pods?limit=many", None, "", 400),
        ("GET", "/api/v1/pods?fieldSelector=spec.secret%3Dx", None, "", 400),
        ("GET", "/api/v1/pods?watch=1&labelSelector=a+b", None, "", 400),
    ],
)
def test_what_is_not_served_is_refused(
    raw: HttpRequests, server: ApiServer, method: str, path: str, body: object, kind: str, status: int
) -> None:
    server.create("pods", pod("p"))
    found, answer = raw.ask(method, path, body, kind)
    assert (found, answer["code"], answer["status"]) == (status, status, "Failure")


def test_a_watch_without_a_version_begins_with_what_exists_and_ends_in_time(
    raw: HttpRequests, server: ApiServer
) -> None:
    server.create("nodes", {"metadata": {"name": "n1"}})
    response = raw.pool.request("GET", "/api/v1/nodes?watch=true&timeoutSeconds=1", retries=False)
    (line,) = response.data.splitlines()
    event = msgspec.json.decode(line)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "n1")


def test_pending_pods_and_new_nodes_are_seen_over_the_wire(http: KubeHttpServer, server: ApiServer) -> None:
    class Clock:
        def now(self) -> float:
            return time.monotonic()

    def unused(*_: object) -> ApiEndpoint:
        raise AssertionError("endpoint and token are given")

    settings = ClusterSettings(name="c", region="r", endpoint=http.endpoint, token="t")
    api = connect(settings, describe_cluster=unused, credentials=unused, clock=Clock(), sleep=time.sleep)
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    server.create("pods", {**pod("first"), "status": {"conditions": [unschedulable]}})
    server.create("nodes", {"metadata": {"name": "n1", "labels": {"karpenter.sh/nodepool": "default"}}})
    found = change_batches(api, clock=Clock(), deadline_at=time.monotonic() + 60, pause=time.sleep, gather_s=0.0)

    def seen_until(name: str) -> set[str]:
        seen: set[str] = set()
        while name not in seen:
            batch = next(found)
            seen |= {item.metadata.name for item in (*batch.pods, *batch.joined)}
        return seen

    listed = seen_until("first")
    if "n1" not in listed:  # the watches of pods and of nodes start one beside the other
        seen_until("n1")
    server.create("pods", {**pod("second"), "status": {"conditions": [unschedulable]}})
    assert seen_until("second") == {"second"}
    http.drop_connections()
    server.create("nodes", {"metadata": {"name": "n2"}})
    assert seen_until("n2") == {"n2"}
    found.close()
