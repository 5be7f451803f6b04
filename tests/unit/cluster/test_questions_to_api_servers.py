"""Tests the paths and selectors of each question of a decision, page by page, and the reading of watches."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from shiplap.cluster.client import KubernetesClient
from shiplap.errors import ClusterError, ClusterUnreachable, ObjectNotFound, ResourceVersionGone
from shiplap.kubernetes.objects import CustomObject, Node, Pod
from shiplap.kubernetes.related_objects import ScalableName
from tests.builders.nodes import node_object
from tests.builders.pods import pod, pod_object


class Talk:
    """A Transport that answers by path; without an answer there is no such object."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, list[Any]] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.sent: list[tuple[str, str, Any, str]] = []
        self.watched: list[bytes] = []

    def on(self, path: str, *answers: Any) -> None:
        self.answers[path] = list(answers)

    most_bytes = 2**20

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        self.asked.append((path, dict(query or {})))
        if path not in self.answers:
            raise ObjectNotFound(path, status=404)
        known = self.answers[path]
        answer = known.pop(0) if len(known) > 1 else known[0]
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    def send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> bytes:
        self.sent.append((method, path, body, content_type))
        return json.dumps(node_object("n")).encode()

    def lines(self, path: str, query: Mapping[str, Any], timeout_s: float) -> Iterator[bytes]:
        self.asked.append((path, dict(query)))
        yield from self.watched


def listed(*items: Any, version: str = "7", token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": version, "continue": token}, "items": list(items)}


@pytest.fixture
def talk() -> Talk:
    return Talk()


@pytest.fixture
def client(talk: Talk) -> KubernetesClient:
    return KubernetesClient(talk)  # type: ignore[arg-type]


UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize(
    ("ask", "path", "query"),
    [
        (lambda c: c.nodes(), "/api/v1/nodes", {}),
        (lambda c: c.pods_on("n"), "/api/v1/pods", {"fieldSelector": f"spec.nodeName=n,{UNFINISHED}"}),
        (lambda c: c.pending_pods(), "/api/v1/pods", {"fieldSelector": f"spec.nodeName=,{UNFINISHED}"}),
        (lambda c: c.volume_attachments(), "/apis/storage.k8s.io/v1/volumeattachments", {}),
        (lambda c: c.volume_claims(), "/api/v1/persistentvolumeclaims", {}),
        (lambda c: c.disruption_budgets(), "/apis/policy/v1/poddisruptionbudgets", {}),
    ],
)
def test_a_list_is_asked_for_page_by_page(
    client: KubernetesClient, talk: Talk, ask: Callable[[KubernetesClient], Any], path: str, query: dict[str, str]
) -> None:
    talk.on(path, listed({"metadata": {"name": "b"}}, token="next"), listed({"metadata": {"name": "a"}}))
    assert [item.metadata.name for item in ask(client)] == ["b", "a"]
    (first, one), (second, two) = talk.asked
    assert first == second == path
    limit = one.pop("limit")
    assert limit >= 100
    assert sorted(one.pop("fieldSelector", "").split(",")) == sorted(query.get("fieldSelector", "").split(","))
    assert one == {}
    assert (two["limit"], two["continue"]) == (limit, "next")


def test_what_comes_behind_a_page_with_an_odd_object_is_asked_for(client: KubernetesClient, talk: Talk) -> None:
    odd = node_object("odd") | {"spec": {"taints": "all of them"}}
    talk.on("/api/v1/nodes", listed(odd, token="next"), listed(node_object("a")))
    assert [node.metadata.name for node in client.nodes()] == ["odd", "a"]
    assert talk.asked[1][1]["continue"] == "next"


def test_the_first_pending_pods_are_one_request(client: KubernetesClient, talk: Talk) -> None:
    talk.on("/api/v1/pods", listed(pod_object("p"), token="more"))
    assert [pod.metadata.name for pod in client.pending_pods(most=1)] == ["p"]
    ((_, query),) = talk.asked
    assert query["limit"] == 1
    assert "spec.nodeName=" in query["fieldSelector"]


@pytest.mark.parametrize(("found", "name"), [([pod_object("p")], "p"), ([], None)])
def test_one_pending_pod_is_asked_for_by_a_list(
    client: KubernetesClient, talk: Talk, found: list[Any], name: str | None
) -> None:
    talk.on("/api/v1/namespaces/web/pods", listed(*found))
    pod = client.pending_pod("web", "p")
    assert (pod.metadata.name if pod is not None else None) == name
    assert "metadata.name=p" in talk.asked[0][1]["fieldSelector"]


def test_a_list_that_is_forgotten_half_way_is_begun_again_once(client: KubernetesClient, talk: Talk) -> None:
    gone = ResourceVersionGone("too old", status=410)
    talk.on("/api/v1/nodes", listed(node_object("a"), token="t"), gone, listed(node_object("b")))
    assert [node.metadata.name for node in client.nodes()] == ["b"]
    talk.on("/api/v1/nodes", gone)
    with pytest.raises(ResourceVersionGone):
        client.nodes()


@pytest.mark.parametrize(
    ("kind", "path", "typed"),
    [
        ("pods", "/api/v1/pods", Pod),
        ("nodes", "/api/v1/nodes", Node),
        ("nodepools", "/apis/karpenter.sh/v1/nodepools", CustomObject),
        ("nodeclaims", "/apis/karpenter.sh/v1/nodeclaims", CustomObject),
    ],
)
def test_what_is_watched_is_listed_with_its_version(
    client: KubernetesClient, talk: Talk, kind: str, path: str, typed: type
) -> None:
    talk.on(path, listed({"metadata": {"name": "a"}, "kind": "X"}, version="42"))
    items, version = client.list_for_watch(kind)
    assert ([type(item) for item in items], version) == ([typed], "42")
    assert ("fieldSelector" in talk.asked[0][1]) is (kind == "pods")


def line(change: str, item: Any) -> bytes:
    return json.dumps({"type": change, "object": item}).encode()


@pytest.mark.parametrize(("timeout_s", "seconds"), [(0.2, 1), (30.9, 30)])
def test_a_watch_goes_on_from_a_version_with_bookmarks(
    client: KubernetesClient, talk: Talk, timeout_s: float, seconds: int
) -> None:
    talk.watched = [
        line("ADDED", {"metadata": {"name": "a", "resourceVersion": "8"}}),
        line("BOOKMARK", {"metadata": {"resourceVersion": "9"}}),
        line("DELETED", {"metadata": {"name": "a"}}),
    ]
    events = list(client.watch("pods", "7", timeout_s))
    assert [(event.type, event.resource_version) for event in events] == [
        ("ADDED", "8"),
        ("BOOKMARK", "9"),
        ("DELETED", "9"),
    ]
    assert all(isinstance(event.object, Pod) for event in events)
    ((path, query),) = talk.asked
    assert path == "/api/v1/pods"
    assert query.pop("fieldSelector").startswith("spec.nodeName=")
    assert query == {
        "watch": 1,
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": seconds,
    }


def test_a_watch_of_nodes_selects_none(client: KubernetesClient, talk: Talk) -> None:
    assert list(client.watch("nodes", "7", 5.0)) == []
    assert "fieldSelector" not in talk.asked[0][1]


@pytest.mark.parametrize(("code", "kind"), [(410, ResourceVersionGone), (500, ClusterUnreachable), (400, ClusterError)])
def test_an_error_in_a_watch_ends_it(client: KubernetesClient, talk: Talk, code: int, kind: type[ClusterError]) -> None:
    talk.watched = [line("ERROR", {"code": code, "message": "why"})]
    with pytest.raises(kind, match="watch of pods: why"):
        list(client.watch("pods", "7", 5.0))


@pytest.mark.parametrize(
    ("kind", "typed"), [("pods", Pod), ("bound", Pod), ("nodes", Node), ("nodepools", CustomObject)]
)
def test_what_a_watch_shows_has_the_type_of_its_kind_bookmarks_as_servers_send_them_too(
    client: KubernetesClient, talk: Talk, kind: str, typed: type
) -> None:
    bookmark = {"metadata": {"resourceVersion": "9", "creationTimestamp": None}, "spec": {"containers": None}}
    talk.watched = [
        line("ADDED", {"kind": "X", "metadata": {"name": "a", "resourceVersion": "8"}}),
        line("BOOKMARK", bookmark | {"status": {"conditions": "odd"}}),
        line("DELETED", {"metadata": {"name": "b", "labels": 3, "resourceVersion": "10"}}),
    ]
    events = list(client.watch(kind, "7", 5.0))
    assert [(event.type, event.resource_version) for event in events] == [
        ("ADDED", "8"),
        ("BOOKMARK", "9"),
        ("DELETED", "10"),
    ]
    assert {type(event.object) for event in events} == {typed}


@pytest.mark.parametrize(
    "odd", [b"<html>", b"{}", b'{"type": "\xff", "object": {}}', b'{"type": "ADDED", "object": ' + b"[" * 100_000]
)
def test_a_line_that_no_api_server_sends_ends_a_watch(client: KubernetesClient, talk: Talk, odd: bytes) -> None:
    talk.watched = [odd]
    with pytest.raises(ClusterError, match="watch of pods: the answer is not what an API server sends"):
        list(client.watch("pods", "7", 5.0))


def test_an_unreadable_pod_of_a_watch_counts_as_gone(client: KubernetesClient, talk: Talk) -> None:
    odd = {"metadata": {"name": "a", "namespace": "d", "uid": "u", "resourceVersion": "9"}, "spec": 3}
    talk.watched = [line("MODIFIED", odd)]
    (event,) = client.watch("pods", "7", 5.0)
    metadata = event.object.metadata
    assert (event.type, event.resource_version) == ("DELETED", "9")
    assert (metadata.name, metadata.namespace, metadata.uid) == ("a", "d", "u")
    assert event.unreadable != ""


def test_manifests_have_their_kind_and_version_where_the_list_leaves_them_out(
    client: KubernetesClient, talk: Talk
) -> None:
    named = {"metadata": {"name": "b"}, "spec": {"podTemplateRef": {"name": "t"}}}
    talk.on("/apis/karpenter.sh/v1/nodepools", listed({"metadata": {"name": "p"}}))
    talk.on("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", listed({"metadata": {"name": "c"}, "kind": "Own"}))
    talk.on("/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers", listed(named))
    talk.on("/api/v1/podtemplates", listed({"metadata": {"name": "t"}}))
    found = client.manifest_objects()
    assert [(item["kind"], item["apiVersion"]) for item in found.node_pools] == [("NodePool", "karpenter.sh/v1")]
    assert [(item["kind"], item["apiVersion"]) for item in found.node_classes] == [("Own", "karpenter.k8s.aws/v1")]
    assert found.node_overlays == ()
    if found.capacity_buffers:
        assert [item["kind"] for item in found.capacity_buffers] == ["CapacityBuffer"]
        assert [(item["kind"], item["apiVersion"]) for item in found.pod_templates] == [("PodTemplate", "v1")]


@pytest.mark.parametrize("spec", [None, 3, {}, {"podTemplateRef": None}])
def test_pod_templates_are_read_only_if_a_buffer_names_one(client: KubernetesClient, talk: Talk, spec: object) -> None:
    talk.on("/apis/karpenter.sh/v1/nodepools", listed())
    talk.on("/apis/karpenter.k8s.aws/v1/ec2nodeclasses", listed())
    talk.on("/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers", listed({"metadata": {"name": "b"}, "spec": spec}))
    assert client.manifest_objects().pod_templates == ()
    assert not any("podtemplates" in path for path, _ in talk.asked)
    with pytest.raises(ObjectNotFound):
        KubernetesClient(Talk()).manifest_objects()  # type: ignore[arg-type]


CRDS = ["ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"]


@pytest.mark.parametrize("ending", [[], *([name] for name in CRDS), CRDS])
def test_each_crd_is_looked_at_for_its_deletion(client: KubernetesClient, talk: Talk, ending: list[str]) -> None:
    for name in CRDS:
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if name in ending else {}
        talk.on(
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", {"metadata": {"name": name, **deleted}}
        )
    assert client.ending_definitions() == tuple(ending)


@pytest.mark.parametrize(
    ("kind", "namespace", "path"),
    [
        ("NodePool", "", "/apis/karpenter.sh/v1/nodepools/p/status"),
        ("CapacityBuffer", "web", "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/web/capacitybuffers/p/status"),
    ],
)
def test_a_status_is_written_where_its_object_is(
    client: KubernetesClient, talk: Talk, kind: str, namespace: str, path: str
) -> None:
    client.write_status(kind, namespace, "p", {"x": 1}, "7")
    assert talk.sent == [("PATCH", path, {"metadata": {"resourceVersion": "7"}, "status": {"x": 1}}, MERGE)]


def test_what_does_not_exist_is_none(client: KubernetesClient, talk: Talk) -> None:
    assert client.lease("kube-system", "leader") is None
    assert client.node_claim_object("c") is None
    assert client.scalables([ScalableName("web", "Deployment", "app")]) == ()
    with pytest.raises(ObjectNotFound):
        client.node("n")


def test_each_scalable_is_read_for_itself(client: KubernetesClient, talk: Talk) -> None:
    path = "/apis/apps/v1/namespaces/web/deployments/app"
    talk.on(path, {"metadata": {"name": "app", "namespace": "web"}, "spec": {"replicas": 3}})
    names = [ScalableName("web", "Deployment", "gone"), ScalableName("web", "Deployment", "app")]
    assert [item.metadata.name for item in client.scalables(names)] == ["app"]


POD = pod("p", namespace="web", metadata={"uid": "u"})
MERGE = "application/merge-patch+json"


@pytest.mark.parametrize(
    ("act", "method", "path", "content_type"),
    [
        (lambda c: c.nominate(POD, "n"), "PATCH", "/api/v1/namespaces/web/pods/p/status", MERGE),
        (lambda c: c.evict(POD), "POST", "/api/v1/namespaces/web/pods/p/eviction", "application/json"),
        (lambda c: c.bind(POD, "n"), "POST", "/api/v1/namespaces/web/pods/p/binding", "application/json"),
        (lambda c: c.delete_pod(POD, 5), "DELETE", "/api/v1/namespaces/web/pods/p", "application/json"),
        (lambda c: c.delete_node(Node(POD.metadata)), "DELETE", "/api/v1/nodes/p", "application/json"),
        (
            lambda c: c.delete_node_claim({"metadata": {"name": "c", "uid": "u"}}),
            "DELETE",
            "/apis/karpenter.sh/v1/nodeclaims/c",
            "application/json",
        ),
        (
            lambda c: c.set_finalizers("Node", "n", ["f"], resource_version="7"),
            "PATCH",
            "/api/v1/nodes/n",
            MERGE,
        ),
        (
            lambda c: c.set_finalizers("NodeClaim", "c", [], resource_version="7"),
            "PATCH",
            "/apis/karpenter.sh/v1/nodeclaims/c",
            MERGE,
        ),
        (
            lambda c: c.patch_node("n", labels={}, annotations={}, taints=(), resource_version="7"),
            "PATCH",
            "/api/v1/nodes/n",
            MERGE,
        ),
    ],
)
def test_each_write_goes_to_its_place(
    client: KubernetesClient,
    talk: Talk,
    act: Callable[[KubernetesClient], object],
    method: str,
    path: str,
    content_type: str,
) -> None:
    act(client)
    ((said, where, _, kind),) = talk.sent
    assert (said, where, kind) == (method, path, content_type)


def test_finalizers_are_replaced_at_one_version_and_the_rest_merged(client: KubernetesClient, talk: Talk) -> None:
    client.set_finalizers("Node", "n", ("f",), resource_version="7", labels={"a": "b"}, annotations={"c": "d"})
    assert talk.sent[0][2] == {
        "metadata": {
            "resourceVersion": "7",
            "finalizers": ["f"],
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
        }
    }


def test_a_claim_is_created_and_then_given_its_status(client: KubernetesClient, talk: Talk) -> None:
    body = {"metadata": {"name": "c"}, "spec": {"x": 1}, "status": {"y": 2}}
    client.create_node_claim(body)
    (first, second) = talk.sent
    assert first[:3] == ("POST", "/apis/karpenter.sh/v1/nodeclaims", {"metadata": {"name": "c"}, "spec": {"x": 1}})
    assert second == ("PATCH", "/apis/karpenter.sh/v1/nodeclaims/c/status", {"status": {"y": 2}}, MERGE)


@pytest.mark.parametrize("answer", [{"items": 3}, [], {"metadata": 5}])
def test_an_answer_that_is_none_of_an_api_server_is_an_error(client: KubernetesClient, talk: Talk, answer: Any) -> None:
    talk.on("/api/v1/nodes", answer)
    with pytest.raises(ClusterError, match="not what an API server sends"):
        client.nodes()


def test_a_name_is_one_segment_of_a_path(client: KubernetesClient, talk: Talk) -> None:
    """Names come from messages and objects; none leads to another resource, such as a node's proxy."""
    with pytest.raises(ObjectNotFound):
        client.node("x/proxy?a=b")
    assert talk.asked == [("/api/v1/nodes/x%2Fproxy%3Fa%3Db", {})]
    client.evict(pod("a/../b"))
    assert talk.sent[-1][1] == "/api/v1/namespaces/default/pods/a%2F..%2Fb/eviction"
