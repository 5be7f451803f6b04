"""One suite for every implementation of ClusterApi: the in-memory fake, and the HTTP client against a server: the local
one, and a real one.

The HTTP client enters with exactly the permissions of docs/rbac.yaml. The real server is there for `make e2e` only.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.cluster.connect import ApiEndpoint, connect
from shiplap.errors import (
    ClusterDenied,
    ClusterError,
    ClusterUnreachable,
    ObjectConflict,
    ObjectNotFound,
    ResourceVersionGone,
    TooManyRequests,
)
from shiplap.kubernetes.objects import CustomObject, Event, ObjectMeta, ObjectReference, Pod, PodSpec, Taint
from shiplap.kubernetes.reading import Reader
from shiplap.kubernetes.related_objects import SCALABLE_PLURALS, ScalableName, attached_volumes
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.manifests.live.nodeclaim_objects import claim_object_changes
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import MANIFEST_KINDS, ClusterApi, CustomKind, NamedObjects, WatchEvent
from shiplap.settings import ClusterSettings
from shiplap_lab.cluster_simulator.access import READ_ONLY
from shiplap_lab.cluster_simulator.http_server import KubeHttpServer
from shiplap_lab.fakes.cluster import ApiServer, FakeCluster
from shiplap_lab.fakes.signals import FakeClock
from tests.builders.claims import node_claim
from tests.builders.pods import pod_object as pod
from tests.e2e import programs
from tests.e2e.api import RealApi
from tests.e2e.client import real_client
from tests.e2e.control_plane import SHIPLAP
from tests.integration.contracts.cluster_objects import node, shiplap_rules

Server = ApiServer | RealApi

_WATCH_S = 10.0
"""A real server sends a bookmark two seconds before a watch ends."""

CLAIMED = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
"""A volume of a pod that stands for the claim `data`."""

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
"""What every claim has to say."""


def no_sleep(seconds: float) -> None:
    assert seconds > 0


def client_of(endpoint: str, token: str = "shiplap") -> ClusterApi:  # noqa: S107 - no secret
    def unused(*_: object) -> ApiEndpoint:
        raise AssertionError("endpoint and token are given")

    settings = ClusterSettings(name="test", region="eu-west-1", endpoint=endpoint, token=token)
    return connect(
        settings, describe_cluster=unused, credentials=unused, clock=FakeClock(), sleep=no_sleep, back_off_s=(0.1, 0.2)
    )


def _watch_from_now(api: ClusterApi, kind: str) -> list[WatchEvent]:
    return list(api.watch(kind, api.list_for_watch(kind)[1], 0.1))


@pytest.fixture(params=["fake", "http", pytest.param("kubernetes", marks=pytest.mark.e2e)])
def implementation(request: pytest.FixtureRequest) -> str:
    """Return the implementation under test."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def server(implementation: str, request: pytest.FixtureRequest) -> Server:
    """Return the server that holds the objects, as a test arranges them."""
    if implementation == "kubernetes":
        real: RealApi = request.getfixturevalue("real_api")
        return real
    return ApiServer(FakeClock())


@pytest.fixture
def http(server: ApiServer) -> Iterator[KubeHttpServer]:
    with KubeHttpServer(server, access={"shiplap": shiplap_rules(), "reader": READ_ONLY}, bookmark_s=0.05) as running:
        yield running


@pytest.fixture
def api(implementation: str, request: pytest.FixtureRequest, server: Server) -> ClusterApi:
    if isinstance(server, RealApi):
        return real_client(request.getfixturevalue("plane"), SHIPLAP)
    if implementation == "fake":
        return FakeCluster(server)
    return client_of(request.getfixturevalue("http").endpoint)


def item(kind: str, name: str) -> dict:
    return pod(name) if kind == "pods" else node(name)


def template(name: str, **labels: str) -> dict:
    """Return the template from which a workload makes pods."""
    return {"metadata": {"labels": labels}, "spec": {"containers": [{"name": name, "image": name}]}}


def scale_up(name: str, reason: str = "TriggeredScaleUp") -> dict:
    return {
        "metadata": {"name": name},
        "involvedObject": {"kind": "Pod", "name": "pending", "namespace": "default"},
        "reason": reason,
        "source": {"component": "cluster-autoscaler"},
        "lastTimestamp": None,
    }


def watched(api: ClusterApi, server: Server, kind: str, version: str) -> list[WatchEvent]:
    """Return the events of a watch for everything that was written so far; the last thing written is a mark."""
    server.create(kind, item(kind, "mark"))
    events = []
    for event in api.watch(kind, version, 10.0):
        if event.type != "BOOKMARK":
            if event.object.metadata.name == "mark":
                server.delete(kind, "mark")
                return events
            events.append(event)
    raise AssertionError(f"the watch ended after {events}")


def test_view_holds_pending_and_bound_pods_nodes_daemon_sets_and_scale_ups(api: ClusterApi, server: Server) -> None:
    for name in ("bound", "pending", "finished", "finished-early"):
        server.create("pods", pod(name))
    for name in ("bound", "finished"):
        server.bind(name, "n1")
    for name in ("finished", "finished-early"):
        server.patch("pods", name, {"status": {"phase": "Failed"}}, subresource="status")
    server.create("nodes", node("n1"))
    agent = {"selector": {"matchLabels": {"app": "agent"}}, "template": template("agent", app="agent")}
    server.create("daemonsets", {"metadata": {"name": "agent"}, "spec": agent})
    server.create("events", scale_up("a"))
    server.create("events", scale_up("b", "NotTriggerScaleUp"))
    view = api.view()
    assert [(p.key, p.spec.node_name) for p in view.pods] == [("default/pending", ""), ("default/bound", "n1")]
    assert [n.metadata.name for n in view.nodes] == ["n1"]
    assert [d.spec.template.spec.containers[0].name for d in view.daemon_sets] == ["agent"]
    assert [(e.reason, e.involved_object.name) for e in view.events] == [("TriggeredScaleUp", "pending")]
    assert [p.key for p in api.pending_pods()] == ["default/pending"]
    waiting = api.pending_pod("default", "pending")
    assert waiting is not None
    assert waiting.key == "default/pending"
    assert [api.pending_pod("default", name) for name in ("bound", "finished-early", "nobody")] == [None] * 3
    assert api.pending_pod("kube-system", "pending") is None
    assert int(view.version) <= int(server.resource_version)


def with_storage(server: Server) -> None:
    bound = {"storageClassName": "fast", "volumeName": "v", **CLAIM}
    server.create("persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": bound, "status": {"phase": "Bound"}})
    term = {"matchExpressions": [{"key": "topology.ebs.csi.aws.com/zone", "operator": "In", "values": ["a"]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    server.create("persistentvolumes", {"metadata": {"name": "v"}, "spec": spec})
    server.create("storageclasses", {"metadata": {"name": "fast"}, "provisioner": "ebs.csi.aws.com"})
    drivers = [{"name": "ebs.csi.aws.com", "nodeID": "i-1", "allocatable": {"count": 25}}]
    server.create("csinodes", {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
    server.create("csinodes", {"metadata": {"name": "n2"}, "spec": {"drivers": None}})
    driver = {"metadata": {"name": "ebs.csi.aws.com"}, "spec": {"preventPodSchedulingIfMissing": True}}
    server.create("csidrivers", driver)


def test_storage_is_listed_for_a_pending_pod_with_claims(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("p", volumes=[CLAIMED]))
    with_storage(server)
    view = api.view()
    (claim,) = view.persistent_volume_claims
    assert (claim.metadata.namespace, claim.spec.volume_name, claim.status.phase) == ("default", "v", "Bound")
    (volume,) = view.persistent_volumes
    assert volume.spec.csi is not None
    assert volume.spec.csi.driver == "ebs.csi.aws.com"
    assert volume.spec.node_affinity is not None
    assert volume.spec.node_affinity.required is not None
    assert volume.spec.node_affinity.required.node_selector_terms[0].match_expressions[0].values == ("a",)
    assert [(c.metadata.name, c.volume_binding_mode) for c in view.storage_classes] == [("fast", "Immediate")]
    first, second = view.csi_nodes
    assert [(d.name, d.allocatable and d.allocatable.count) for d in first.spec.drivers or ()] == [
        ("ebs.csi.aws.com", 25)
    ]
    assert second.spec.drivers is None
    (driver,) = view.csi_drivers
    assert driver.metadata.name == "ebs.csi.aws.com"


@pytest.mark.parametrize(
    ("leaving", "volumes", "listed"),
    [
        ((), [CLAIMED], False),
        (("n2", "other-claim"), [CLAIMED], False),
        (("n1",), [CLAIMED], True),
        (("its-claim",), [CLAIMED], True),
        (("n1",), [{"name": "scratch", "emptyDir": {}}], False),
        (("n1",), [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}], True),
    ],
)
def test_storage_of_bound_pods_is_listed_when_their_node_is_on_its_way_out(
    api: ClusterApi, server: Server, leaving: tuple[str, ...], volumes: list, listed: bool
) -> None:
    server.create("nodes", {"metadata": {"name": "n1", "labels": {"karpenter.sh/nodeclaim": "its-claim"}}})
    server.create("nodes", node("n2"))
    server.create("pods", pod("bound", volumes=volumes))
    server.bind("bound", "n1")
    server.create("pods", pod("pending", volumes=[{"name": "settings", "configMap": {"name": "c"}}]))
    with_storage(server)
    view = api.view(leaving)
    storage = (view.persistent_volume_claims, view.persistent_volumes, view.storage_classes, view.csi_nodes)
    assert [len(kind) for kind in storage] == ([1, 1, 1, 2] if listed else [0, 0, 0, 0])


def test_storage_of_bound_pods_is_listed_when_their_node_is_being_deleted(api: ClusterApi, server: Server) -> None:
    server.create("nodes", {"metadata": {"name": "n1", "finalizers": ["karpenter.sh/termination"]}})
    server.create("pods", pod("bound", volumes=[CLAIMED]))
    server.bind("bound", "n1")
    with_storage(server)
    assert api.view().persistent_volumes == ()
    server.delete("nodes", "n1")
    assert [item.metadata.name for item in api.view().persistent_volumes] == ["v"]


def selecting(selector: dict) -> dict:
    """A pod that stays away from others in the namespaces a selector names."""
    term = {"topologyKey": "zone", "namespaceSelector": selector}
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return pod("picky", affinity={"podAntiAffinity": terms})


@pytest.mark.parametrize(
    ("selector", "listed"),
    [
        ({"matchLabels": {"team": "a"}}, ["other"]),
        ({"matchLabels": {"kubernetes.io/metadata.name": "other"}}, []),
        ({}, []),
    ],
)
def test_namespaces_are_listed_when_a_pod_selects_them_by_labels(
    api: ClusterApi, server: Server, selector: dict, listed: list[str]
) -> None:
    server.create("namespaces", {"metadata": {"name": "other", "labels": {"team": "a"}}})
    server.create("pods", selecting(selector))
    found = {item.metadata.name: item.metadata.labels.get("team") for item in api.view().namespaces}
    assert {name: team for name, team in found.items() if team} == dict.fromkeys(listed, "a")
    assert bool(found) == bool(listed)


def test_services_and_controllers_are_listed_on_request(api: ClusterApi, server: Server) -> None:
    server.create(
        "services", {"metadata": {"name": "s"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}}
    )
    elsewhere = {"type": "ExternalName", "externalName": "elsewhere.example.com"}
    server.create("services", {"metadata": {"name": "t"}, "spec": elsewhere})
    labels = {"selector": {"matchLabels": {"app": "web"}}, "template": template("web", app="web")}
    for plural in ("replicasets", "statefulsets"):
        server.create(plural, {"metadata": {"name": "w"}, "spec": labels})
    controller = {"selector": {"app": "web"}, "template": template("web", app="web")}
    server.create("replicationcontrollers", {"metadata": {"name": "w"}, "spec": controller})
    assert api.view().services == ()
    view = api.view(workloads=True)
    services = {item.metadata.name: item.spec.selector for item in view.services}
    assert (services["s"], services["t"]) == ({"app": "web"}, None)
    selectors = [item.spec.selector for item in (*view.replica_sets, *view.stateful_sets)]
    assert [selector and selector.match_labels for selector in selectors] == [{"app": "web"}] * 2
    assert [item.spec.selector for item in view.replication_controllers] == [{"app": "web"}]


def test_lists_longer_than_a_page_are_complete_and_sorted(api: ClusterApi, server: Server) -> None:
    names = [f"p{number:04d}" for number in range(1203)]
    for name in reversed(names):
        server.create("pods", pod(name))
    assert [p.metadata.name for p in api.pending_pods()] == names
    assert [p.metadata.name for p in api.pending_pods(most=700)] == names[:700]


def test_an_empty_cluster_is_an_empty_view(api: ClusterApi) -> None:
    view = api.view()
    assert (view.pods, view.nodes, view.daemon_sets, view.events) == ((), (), (), ())
    assert api.nodes() == ()


def test_node_is_found_by_name_or_not_at_all(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1", providerID="aws:///eu-west-1a/i-1"))
    assert api.node("n1").spec.provider_id == "aws:///eu-west-1a/i-1"
    with pytest.raises(ObjectNotFound, match="n2") as caught:
        api.node("n2")
    assert caught.value.status == 404


def test_registration_merges_labels_and_annotations_and_replaces_taints(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1", taints=[{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]))
    before = api.node("n1")
    told = api.patch_node(
        "n1",
        labels={"changed": "yes", "added": "yes"},
        annotations={"note": "1"},
        taints=(Taint("dedicated", "NoSchedule", "web"),),
        resource_version=before.metadata.resource_version,
    )
    after = api.node("n1")
    assert (told.metadata, told.spec) == (after.metadata, after.spec)
    assert after.metadata.labels == {"kept": "yes", "changed": "yes", "added": "yes"}
    assert after.metadata.annotations == {"note": "1"}
    assert after.spec.taints == (Taint("dedicated", "NoSchedule", "web"),)


def test_registration_takes_a_label_away(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    version = api.node("n1").metadata.resource_version
    api.patch_node("n1", labels={"kept": None, "never": None}, annotations={}, taints=(), resource_version=version)
    assert "kept" not in api.node("n1").metadata.labels


def test_registration_of_a_node_that_changed_is_refused(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    stale = api.node("n1").metadata.resource_version
    server.patch("nodes", "n1", {"spec": {"taints": [{"key": "pressure", "effect": "NoSchedule"}]}})
    with pytest.raises(ObjectConflict) as caught:
        api.patch_node("n1", labels={}, annotations={}, taints=(), resource_version=stale)
    assert caught.value.status == 409
    assert [taint.key for taint in api.node("n1").spec.taints] == ["pressure"]
    with pytest.raises(ObjectNotFound):
        api.patch_node("gone", labels={}, annotations={}, taints=(), resource_version=stale)


def test_nomination_sets_the_status_and_nothing_else(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("p"))
    (pending,) = api.pending_pods()
    api.nominate(pending, "n1")
    (nominated,) = api.pending_pods()
    assert nominated.status.nominated_node_name == "n1"
    assert (nominated.spec, nominated.status.phase) == (pending.spec, "Pending")


def test_nomination_of_a_recreated_pod_is_refused(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("p"))
    (first,) = api.pending_pods()
    server.delete("pods", "p")
    with pytest.raises(ObjectNotFound):
        api.nominate(first, "n1")
    server.create("pods", pod("p"))
    with pytest.raises(ObjectConflict):
        api.nominate(first, "n1")
    assert api.pending_pods()[0].status.nominated_node_name == ""


def test_nomination_of_a_pod_that_has_a_node_by_now_is_refused(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    server.create("pods", pod("p"))
    (pending,) = api.pending_pods()
    api.nominate(pending, "n1")
    server.bind("p", "n2")
    if isinstance(server, RealApi) and programs.minor() in ("1.33", "1.34"):
        api.nominate(pending, "n1")  # accepted, and without effect: kube-scheduler is done with the pod
        assert [bound.key for bound in api.pods_on("n2")] == [pending.key]
        return
    with pytest.raises(ObjectConflict):
        api.nominate(pending, "n1")
    (bound,) = api.pods_on("n2")
    assert bound.status.nominated_node_name == ""


def test_pods_of_a_node_are_its_unfinished_ones(api: ClusterApi, server: Server) -> None:
    for name, on in (("b", "n1"), ("a", "n1"), ("finished", "n1"), ("elsewhere", "n2"), ("pending", "")):
        server.create("pods", pod(name))
        if on:
            server.bind(name, on)
    server.patch("pods", "finished", {"status": {"phase": "Succeeded"}}, subresource="status")
    assert [p.key for p in api.pods_on("n1")] == ["default/a", "default/b"]
    assert api.pods_on("n3") == ()


def running(server: Server, name: str) -> None:
    server.create("pods", {**pod(name), "metadata": {"name": name, "labels": {"app": "web"}}})
    server.bind(name, "n1")
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    server.patch("pods", name, {"status": status}, subresource="status")


def settled(server: Server, **budgets: int) -> None:
    """A real server knows what a budget allows when its controller has counted; the fake counts when it is asked."""
    if isinstance(server, RealApi):
        server.settle(budgets)


@pytest.mark.parametrize(("grace_s", "granted"), [(None, 30), (5, 5)], ids=["its own grace period", "a shorter one"])
def test_an_evicted_pod_is_given_time(api: ClusterApi, server: Server, grace_s: int | None, granted: int) -> None:
    running(server, "web")
    api.evict(api.pods_on("n1")[0], grace_s)
    assert server.get("pods", "web")["metadata"]["deletionGracePeriodSeconds"] == granted


def test_an_eviction_that_a_budget_forbids_is_refused_until_it_allows_it(api: ClusterApi, server: Server) -> None:
    running(server, "web")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    server.create("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": budget})
    settled(server, web=0)
    (evicted,) = api.pods_on("n1")
    with pytest.raises(TooManyRequests):
        api.evict(evicted)
    assert "deletionTimestamp" not in server.get("pods", "web")["metadata"]
    running(server, "other")
    settled(server, web=1)
    api.evict(evicted)
    assert server.get("pods", "web")["metadata"]["deletionTimestamp"]


def test_only_the_pod_that_was_meant_is_evicted(api: ClusterApi, server: Server) -> None:
    running(server, "web")
    (evicted,) = api.pods_on("n1")
    server.delete("pods", "web", grace_s=0)
    with pytest.raises(ObjectNotFound):
        api.evict(evicted)
    running(server, "web")
    with pytest.raises(ObjectConflict):
        api.evict(evicted)
    assert "deletionTimestamp" not in server.get("pods", "web")["metadata"]


def test_a_pod_is_bound_to_a_node_once(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("web"))
    (waiting,) = api.pending_pods()
    api.bind(waiting, "n1")
    assert server.get("pods", "web")["spec"]["nodeName"] == "n1"
    with pytest.raises(ObjectConflict):
        api.bind(waiting, "n2")


def test_only_the_pod_that_was_meant_is_bound_or_deleted(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("web"))
    (known,) = api.pending_pods()
    server.delete("pods", "web", grace_s=0)
    for act in (lambda: api.bind(known, "n1"), lambda: api.delete_pod(known, 0)):
        with pytest.raises(ObjectNotFound):
            act()
    server.create("pods", pod("web"))
    for act in (lambda: api.bind(known, "n1"), lambda: api.delete_pod(known, 0)):
        with pytest.raises(ObjectConflict):
            act()
    assert api.pending_pods()[0].metadata.uid != known.metadata.uid


def test_a_deleted_pod_needs_no_budget_and_its_time_can_be_cut(api: ClusterApi, server: Server) -> None:
    running(server, "web")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    server.create("poddisruptionbudgets", {"metadata": {"name": "web"}, "spec": budget})
    (known,) = api.pods_on("n1")
    api.delete_pod(known, 20)
    assert server.get("pods", "web")["metadata"]["deletionGracePeriodSeconds"] == 20
    api.delete_pod(known, 5)
    assert server.get("pods", "web")["metadata"]["deletionGracePeriodSeconds"] == 5


def test_a_node_is_removed_unless_it_is_another_of_its_name(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    old = api.node("n1")
    api.delete_node(old)
    with pytest.raises(ObjectNotFound):
        api.delete_node(old)
    server.create("nodes", node("n1"))
    with pytest.raises(ObjectConflict):
        api.delete_node(old)
    assert api.node("n1").metadata.uid != old.metadata.uid


def test_what_is_attached_where_and_what_pods_claim(api: ClusterApi, server: Server) -> None:
    for name, on in (("pv-b", "n1"), ("pv-a", "n1"), ("pv-kept", "n1"), ("pv-else", "n2")):
        spec = {"attacher": "ebs.csi.aws.com", "nodeName": on, "source": {"persistentVolumeName": name}}
        server.create("volumeattachments", {"metadata": {"name": f"csi-{name}"}, "spec": spec})
    server.create(
        "persistentvolumeclaims",
        {"metadata": {"name": "agent-data"}, "spec": {"volumeName": "pv-kept", **CLAIM}},
        "default",
    )
    ephemeral = {"name": "data", "ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
    server.create("pods", pod("agent", volumes=[ephemeral]))
    attachments, claims = api.volume_attachments(), api.volume_claims()
    assert attached_volumes(attachments, "n1", api.pending_pods(), claims) == ("pv-a", "pv-b")
    assert attached_volumes(attachments, "n1", (), claims) == ("pv-a", "pv-b", "pv-kept")
    assert attached_volumes(attachments, "n3", (), claims) == ()


def test_disruption_budgets_come_with_what_they_allow(api: ClusterApi, server: Server) -> None:
    spec = {"minAvailable": "50%", "selector": {"matchLabels": {"app": "db"}}}
    body = {"metadata": {"name": "db"}, "spec": spec, "status": {"disruptionsAllowed": 2}}
    server.create("poddisruptionbudgets", body, "shop")
    server.create("poddisruptionbudgets", {"metadata": {"name": "all"}, "spec": {"maxUnavailable": 1}}, "data")
    first, second = api.disruption_budgets()
    assert (first.key, second.key) == ("data/all", "shop/db")
    assert second.spec.min_available == "50%"
    assert first.spec.max_unavailable == 1


def test_scalables_are_read_by_name_as_far_as_they_exist(api: ClusterApi, server: Server) -> None:
    selector = {"matchLabels": {"app": "web"}}
    for plural in ("deployments", "replicasets", "statefulsets"):
        spec = {"replicas": 3, "selector": selector, "template": template("main", app="web")}
        server.create(plural, {"metadata": {"name": "web"}, "spec": spec}, "shop")
    kinds = ("Deployment", "ReplicaSet", "StatefulSet")
    found = api.scalables([ScalableName("shop", kind, name) for kind in kinds for name in ("gone", "web")])
    assert [(item.kind, item.metadata.namespace, item.metadata.name, item.spec.replicas) for item in found] == [
        (kind, "shop", "web", 3) for kind in kinds
    ]
    assert found[0].spec.template.metadata.labels == {"app": "web"}


def test_a_workload_tells_how_far_its_rollout_is(api: ClusterApi, server: Server) -> None:
    spec = {
        "replicas": 3,
        "paused": True,
        "selector": {"matchLabels": {"app": "web"}},
        "template": template("main", app="web"),
    }
    made = {"metadata": {"name": "web"}, "spec": {**spec, "strategy": {"rollingUpdate": {"maxSurge": 2}}}}
    counts = {"replicas": 3, "readyReplicas": 2, "availableReplicas": 2, "observedGeneration": 1}
    server.create("deployments", {**made, "status": counts}, "shop")
    name = ScalableName("shop", "Deployment", "web")
    found = api.workload(name)
    assert found is not None
    assert (found.metadata.namespace, found.metadata.name, bool(found.metadata.uid)) == ("shop", "web", True)
    assert (found.spec.replicas, found.spec.paused, found.spec.strategy.rolling.max_surge) == (3, True, 2)
    assert (found.status.available_replicas, found.status.observed_generation) == (2, 1)
    assert api.workload(ScalableName("shop", "Deployment", "gone")) is None
    assert api.workload(ScalableName("other", "Deployment", "web")) is None


def test_annotations_of_a_template_are_merged_into_what_was_read_only(api: ClusterApi, server: Server) -> None:
    pods = {**template("main", app="web")}
    pods["metadata"] = {**pods["metadata"], "annotations": {"mine": "kept"}}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pods}
    server.create("deployments", {"metadata": {"name": "web"}, "spec": spec}, "shop")
    name = ScalableName("shop", "Deployment", "web")
    read = api.workload(name)
    assert read is not None
    version, uid = read.metadata.resource_version, read.metadata.uid
    after = api.annotate_template(name, {"x": "1"}, uid=uid, resource_version=version)
    assert after.spec.template.metadata.annotations == {"mine": "kept", "x": "1"}
    assert after.metadata.generation == read.metadata.generation + 1
    with pytest.raises(ObjectConflict):
        api.annotate_template(name, {"x": "2"}, uid=uid, resource_version=version)
    with pytest.raises(ObjectConflict):
        api.annotate_template(name, {"x": "2"}, uid="other", resource_version=after.metadata.resource_version)
    with pytest.raises(ObjectNotFound):
        api.annotate_template(ScalableName("shop", "Deployment", "gone"), {}, uid=uid, resource_version="1")


def test_annotations_of_a_pod_are_merged_into_what_was_read_only(api: ClusterApi, server: Server) -> None:
    for name in ("other", "web"):
        server.create("pods", {**pod(name), "metadata": {"name": name, "annotations": {"mine": "kept", "old": "1"}}})
        server.bind(name, "n1")
    (other, read) = api.pods_on("n1")
    api.annotate_pod(read, {"x": "1", "old": None, "never": None})
    assert server.get("pods", "web")["metadata"]["annotations"] == {"mine": "kept", "x": "1"}
    with pytest.raises(ObjectConflict):
        api.annotate_pod(read, {"x": "2"})
    for changed, error in (("uid", ObjectConflict), ("name", ObjectNotFound)):
        with pytest.raises(error):
            api.annotate_pod(replace(other, metadata=replace(other.metadata, **{changed: "none"})), {"x": "2"})
    assert server.get("pods", "other")["metadata"]["annotations"] == {"mine": "kept", "old": "1"}


class Counted(msgspec.Struct, frozen=True):
    """A CapacityBuffer, as a feature may read it."""

    metadata: ObjectMeta
    spec: dict[str, int]


BUFFERS = CustomKind("autoscaling.x-k8s.io", ("v9", "v1beta1"), "capacitybuffers", Reader(Counted, "CapacityBuffer"))
"""A kind of which the cluster serves the older version."""


POD_GROUPS = {
    ("scheduling.k8s.io", "v1beta1"),
    ("scheduling.run.ai", "v2alpha2"),
    ("scheduling.volcano.sh", "v1beta1"),
    ("scheduling.x-k8s.io", "v1alpha1"),
}
"""The APIs of PodGroups: of each the role permits lists."""


def test_objects_are_found_by_their_names_alone(api: ClusterApi, server: Server) -> None:
    for namespace, name, replicas in (("a", "one", 1), ("b", "one", 2), ("b", "two", 3)):
        spec = {"podTemplateRef": {"name": "t"}, "replicas": replicas}
        server.create("capacitybuffers", {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    found = api.named_objects(BUFFERS, {("a", "one"), ("b", "two"), ("b", "none"), ("none", "one")})
    assert found.items == ()  # a template's name is no number
    assert [(each.kind, each.namespace, each.name) for each in found.unreadable] == [
        ("CapacityBuffer", "a", "one"),
        ("CapacityBuffer", "b", "two"),
    ]
    readable = msgspec.structs.replace(BUFFERS, reader=Reader(CustomObject, "CapacityBuffer"))
    found = api.named_objects(readable, {("a", "one"), ("b", "two"), ("b", "none"), ("none", "one")})
    assert [item.metadata.namespace for item in found.items] == ["a", "b"]
    assert (found.unreadable, found.unlisted) == ((), ())


UNDEFINED = CustomKind("scheduling.volcano.sh", ("v9",), "podgroups", Reader(Counted, "PodGroup"))
"""A kind that the role permits and no cluster here defines."""

REQUESTS = CustomKind("autoscaling.x-k8s.io", ("v1",), "provisioningrequests", Reader(CustomObject, "Request"))


def test_all_objects_of_a_kind_are_found_without_their_names(api: ClusterApi, server: Server) -> None:
    assert api.named_objects(REQUESTS, None) == NamedObjects()
    for namespace, name in (("b", "one"), ("a", "two"), ("a", "one")):
        server.create("provisioningrequests", {"metadata": {"name": name, "namespace": namespace}, "spec": {}})
    found = api.named_objects(REQUESTS, None)
    names = [(item.metadata.namespace, item.metadata.name) for item in found.items]
    assert names == [("a", "one"), ("a", "two"), ("b", "one")]
    assert (found.unreadable, found.unlisted, found.more) == ((), (), False)
    assert api.named_objects(UNDEFINED, None) == NamedObjects()


def test_objects_of_the_core_group_are_found_by_their_names(api: ClusterApi, server: Server) -> None:
    templates = CustomKind("", ("v1",), "podtemplates", Reader(CustomObject, "PodTemplate"))
    server.create("podtemplates", {"metadata": {"name": "one", "namespace": "a"}, "template": template("main")})
    found = api.named_objects(templates, {("a", "one"), ("b", "one")})
    assert [(item.metadata.namespace, item.metadata.name) for item in found.items] == [("a", "one")]


def test_the_status_of_a_request_is_written_to_the_version_that_was_read(api: ClusterApi, server: Server) -> None:
    server.create("provisioningrequests", {"metadata": {"name": "one", "namespace": "a"}, "spec": {}})
    (item,) = api.named_objects(REQUESTS, None).items
    version = item.metadata.resource_version
    accepted = {"type": "Accepted", "status": "True"}
    api.write_status("ProvisioningRequest", "a", "one", {"conditions": [accepted]}, version)
    assert server.get("provisioningrequests", "one", "a")["status"] == {"conditions": [accepted]}
    with pytest.raises(ObjectConflict):
        api.write_status("ProvisioningRequest", "a", "one", {"conditions": []}, version)
    with pytest.raises(ObjectNotFound):
        api.write_status("ProvisioningRequest", "a", "gone", {"conditions": []}, version)


def test_of_a_kind_without_definition_there_is_no_object(api: ClusterApi) -> None:
    for _ in range(3):
        assert api.named_objects(UNDEFINED, {("a", "one")}) == NamedObjects()


def test_an_event_is_written_once(api: ClusterApi, server: Server) -> None:
    event = Event(
        involved_object=ObjectReference(kind="Pod", namespace="shop", name="web-1", uid="u"),
        reason="FailedScheduling",
        message="no pool fits",
        type="Warning",
        reporting_component="shiplap",
        last_timestamp="2026-01-01T00:00:00Z",
    )
    server.create("namespaces", {"metadata": {"name": "shop"}})
    api.publish(event)
    api.publish(msgspec.structs.replace(event, last_timestamp="2026-01-01T00:05:00Z"))
    api.publish(msgspec.structs.replace(event, metadata=ObjectMeta(name="named")))
    written = server.list("events").items
    assert len(written) == 2
    assert {item["metadata"]["namespace"] for item in written} == {"shop"}
    assert written[0]["metadata"]["name"] == "named"
    assert written[1]["metadata"]["name"].startswith("web-1.")
    assert written[1]["involvedObject"] == {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "u"}
    assert written[1]["message"] == "no pool fits"
    assert (written[1]["firstTimestamp"], written[1]["count"]) == ("2026-01-01T00:00:00Z", 1)


def test_a_watch_continues_where_its_list_ended(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    listed, version = api.list_for_watch("nodes")
    assert [item.metadata.name for item in listed] == ["n1"]
    server.create("nodes", node("n2"))
    server.patch("nodes", "n1", {"metadata": {"labels": {"changed": "yes"}}})
    server.delete("nodes", "n2")
    server.create("pods", pod("not-a-node"))
    changes = watched(api, server, "nodes", version)
    assert [(event.type, event.object.metadata.name) for event in changes] == [
        ("ADDED", "n2"),
        ("MODIFIED", "n1"),
        ("DELETED", "n2"),
    ]
    assert changes[1].object.metadata.labels["changed"] == "yes"
    versions = [int(version), *(int(event.resource_version) for event in changes)]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_a_bookmark_tells_how_far_a_watch_has_come(api: ClusterApi, server: Server, kind: str) -> None:
    _, version = api.list_for_watch(kind)
    assert list(api.watch(kind, version, 1.0)) == []
    server.create(kind, item(kind, "new"))
    if isinstance(api, FakeCluster):
        server.create("configmaps", {"metadata": {"name": "unrelated"}})
    events = api.watch(kind, version, _WATCH_S)
    assert next(events).object.metadata.name == "new"
    if not isinstance(api, FakeCluster):  # whose watch is over by now
        server.create(kind, item(kind, "newer"))
        assert next(event for event in events if event.type != "BOOKMARK").object.metadata.name == "newer"
        server.create("configmaps", {"metadata": {"name": "unrelated"}})
    bookmark = next(events)
    assert bookmark.type == "BOOKMARK"
    assert int(version) < int(bookmark.resource_version) <= int(server.resource_version)
    assert bookmark.object.metadata.resource_version == bookmark.resource_version
    events.close()
    server.create(kind, item(kind, "late"))
    (late,) = watched(api, server, kind, bookmark.resource_version)
    assert (late.type, late.object.metadata.name) == ("ADDED", "late")


def test_a_pod_leaves_the_watch_of_pending_pods_when_it_is_bound(api: ClusterApi, server: Server) -> None:
    server.create("pods", pod("p"))
    listed, version = api.list_for_watch("pods")
    assert [item.metadata.name for item in listed] == ["p"]
    server.create("pods", pod("late"))
    server.bind("p", "n1")
    server.patch("pods", "p", {"status": {"phase": "Running"}}, subresource="status")
    changes = watched(api, server, "pods", version)
    assert [(event.type, event.object.metadata.name) for event in changes] == [("ADDED", "late"), ("DELETED", "p")]
    assert changes[1].object.spec.node_name == ""
    assert changes[1].object.metadata.resource_version == changes[1].resource_version


def test_bound_pods_are_listed_in_pages_and_watched_from_there(api: ClusterApi, server: Server) -> None:
    assert [pods for pods, _ in api.bound_pages()] == [()]
    for number in range(501):
        server.create("pods", pod(f"p{number:03d}"))
        server.bind(f"p{number:03d}", "n1")
    server.create("pods", pod("waits"))
    pages = list(api.bound_pages())
    assert [len(pods) for pods, _ in pages] == [500, 1]
    (version,) = {version for _, version in pages}
    server.bind("waits", "n2")
    server.patch("pods", "p000", {"status": {"phase": "Succeeded"}}, subresource="status")
    server.delete("pods", "p001", grace_s=0)
    server.create("pods", pod("last"))
    server.bind("last", "n1")
    changes: list[WatchEvent] = []
    for event in api.watch("bound", version, 10.0):
        changes += [event] if event.type in ("ADDED", "DELETED") else []
        if event.object.metadata.name == "last":
            break
    found = [(event.type, event.object.metadata.name) for event in changes]
    assert found == [("ADDED", "waits"), ("DELETED", "p000"), ("DELETED", "p001"), ("ADDED", "last")]
    assert isinstance(changes[0].object, Pod)
    assert changes[0].object.spec.node_name == "n2"


def test_bound_pods_that_are_known_are_not_listed(api: ClusterApi, server: Server) -> None:
    server.create("nodes", node("n1"))
    for name in ("bound", "fresh"):
        server.create("pods", pod(name))
    server.bind("bound", "n1")
    ghost = Pod(ObjectMeta(name="fresh", namespace="default", uid="old"), PodSpec(node_name="n1"))
    asked = []

    def known(nodes: int, version: str) -> tuple[Pod, ...]:
        asked.append((nodes, version))
        return (ghost, Pod(ObjectMeta(name="kept", namespace="default", uid="kept"), PodSpec(node_name="n1")))

    view = api.view(known=known)
    assert asked == [(1, server.resource_version)]
    assert sorted(item.metadata.name for item in view.pods) == ["fresh", "kept"]
    assert [item.spec.node_name for item in view.pods if item.metadata.name == "fresh"] == [""]
    assert {item.metadata.name for item in api.view(known=lambda _nodes, _version: None).pods} == {"bound", "fresh"}


def test_a_watch_from_a_forgotten_version_must_list_again(api: ClusterApi, server: Server) -> None:
    _, version = api.list_for_watch("nodes")
    server.create("nodes", node("n1"))
    server.compact()
    with pytest.raises(ResourceVersionGone) as caught:
        list(api.watch("nodes", version, 1.0))
    assert caught.value.status == 410
    _, fresh = api.list_for_watch("nodes")
    assert watched(api, server, "nodes", fresh) == []


class TestHttp:
    """Tests the behaviour that only a connection has."""

    @pytest.fixture
    def implementation(self) -> str:
        return "http"

    def test_a_watch_delivers_while_it_is_open_and_may_be_left_early(
        self, http: KubeHttpServer, server: ApiServer
    ) -> None:
        api = client_of(http.endpoint)
        _, version = api.list_for_watch("nodes")
        server.create("nodes", node("early"))
        watch = api.watch("nodes", version, 60.0)
        assert next(watch).object.metadata.name == "early"
        server.create("nodes", node("late"))
        assert next(event for event in watch if event.type == "ADDED").object.metadata.name == "late"
        watch.close()
        assert [n.metadata.name for n in api.nodes()] == ["early", "late"]

    def test_compaction_ends_an_open_watch_that_fell_behind(self, http: KubeHttpServer, server: ApiServer) -> None:
        server.create("nodes", node("n1"))
        server.compact()
        with pytest.raises(ResourceVersionGone):
            list(client_of(http.endpoint).watch("nodes", "1", 5.0))

    def test_a_watch_whose_connection_breaks_is_an_error(self, http: KubeHttpServer, server: ApiServer) -> None:
        version = server.resource_version
        server.create("nodes", node("n1"))
        watch = client_of(http.endpoint).watch("nodes", version, 60.0)
        next(watch)
        http.drop_connections()
        with pytest.raises(ClusterUnreachable):
            list(watch)

    def test_stopping_the_server_ends_a_watch(self, server: ApiServer) -> None:
        with KubeHttpServer(server, bookmark_s=0.01) as running:
            version = server.resource_version
            server.create("nodes", node("n1"))
            watch = client_of(running.endpoint).watch("nodes", version, 60.0)
            next(watch)
        rest = []
        with suppress(ClusterUnreachable):  # cut off, unless the server noticed first and ended it
            rest += watch
        assert all(event.type == "BOOKMARK" for event in rest)

    def test_a_list_whose_pages_expire_is_begun_anew(self, http: KubeHttpServer, server: ApiServer) -> None:
        for number in range(600):
            server.create("pods", pod(f"p{number:03d}"))
        api = client_of(http.endpoint)
        listing = server.list

        def forgetful(plural: str, *args: object, continue_token: str = "", **rest: object) -> object:
            if continue_token and server.list is forgetful:
                del server.list  # type: ignore[attr-defined]
                server.compact()
            return listing(plural, *args, continue_token=continue_token, **rest)

        server.list = forgetful  # type: ignore[method-assign, assignment]
        assert len(api.pending_pods()) == 600

    def test_writes_without_permission_are_denied(self, http: KubeHttpServer, server: ApiServer) -> None:
        server.create("nodes", node("n1"))
        api = client_of(http.endpoint, token="reader")
        found = api.node("n1")
        with pytest.raises(ClusterDenied, match="cannot patch resource") as caught:
            api.patch_node("n1", labels={}, annotations={}, taints=(), resource_version=found.metadata.resource_version)
        assert caught.value.status == 403

    def test_a_role_without_csi_drivers_reads_the_other_storage(self, server: ApiServer) -> None:
        """That of an earlier release."""
        rules = tuple(
            msgspec.structs.replace(rule, resources=tuple(name for name in rule.resources if name != "csidrivers"))
            for rule in shiplap_rules()
        )
        server.create("pods", pod("p", volumes=[CLAIMED]))
        with_storage(server)
        with KubeHttpServer(server, access={"shiplap": rules}) as running:
            view = client_of(running.endpoint).view()
        assert (len(view.csi_nodes), view.csi_drivers) == (2, ())

    def test_an_unknown_token_is_denied(self, http: KubeHttpServer) -> None:
        with pytest.raises(ClusterDenied) as caught:
            client_of(http.endpoint, token="stranger").nodes()
        assert caught.value.status == 401

    def test_a_server_that_is_not_there_is_unreachable(self, server: ApiServer) -> None:
        with KubeHttpServer(server) as running:
            endpoint = running.endpoint
        with pytest.raises(ClusterUnreachable):
            client_of(endpoint).view()
        with pytest.raises(ClusterUnreachable):
            list(client_of(endpoint).watch("nodes", "1", 1.0))

    def test_reads_are_repeated_and_writes_are_not(self, http: KubeHttpServer, server: ApiServer) -> None:
        server.create("nodes", node("n1"))
        api = client_of(http.endpoint)
        http.refusals.extend([ClusterUnreachable("starting", status=503), TooManyRequests("slow down", status=429)])
        found = api.node("n1")
        http.refusals.extend([ClusterUnreachable("starting", status=500)])
        with pytest.raises(ClusterUnreachable, match="starting"):
            api.patch_node(
                "n1", labels={"a": "b"}, annotations={}, taints=(), resource_version=found.metadata.resource_version
            )
        assert "a" not in api.node("n1").metadata.labels
        http.refusals.extend([TooManyRequests("slow down", status=429)] * 3)
        with pytest.raises(TooManyRequests):
            api.node("n1")

    def test_any_other_refusal_keeps_its_status(self, http: KubeHttpServer) -> None:
        http.refusals.append(ClusterError("a teapot", status=418))
        with pytest.raises(ClusterError, match="a teapot") as caught:
            client_of(http.endpoint).nodes()
        assert caught.value.status == 418

    def test_the_role_permits_exactly_what_the_client_asks_for(self, http: KubeHttpServer, server: ApiServer) -> None:
        server.create("nodes", node("n1"))
        affinity = selecting({"matchLabels": {"team": "a"}})["spec"]["affinity"]
        server.create("pods", pod("p", volumes=[CLAIMED], affinity=affinity))
        api = client_of(http.endpoint)
        view = api.view(workloads=True)
        api.pending_pods()
        api.nodes()
        found = api.node("n1")
        for kind in ("pods", "nodes"):
            next(api.watch(kind, "1", 1.0))
            api.list_for_watch(kind)
        with ThreadPoolExecutor() as side_by_side:  # a watch lasts a second
            list(side_by_side.map(partial(_watch_from_now, api), MANIFEST_KINDS))
        server.create("capacitybuffers", {"metadata": {"name": "b"}, "spec": {"podTemplateRef": {"name": "t"}}})
        api.manifest_objects()
        for kind in ("NodePool", "EC2NodeClass", "NodeOverlay", "CapacityBuffer"):
            with suppress(ObjectNotFound):
                api.write_status(kind, "", "x", {}, "")
        api.create_node_claim({"metadata": {"name": "x"}, "spec": {}, "status": {}})
        (made,) = api.node_claim_objects()
        api.node_claim_object("x")
        version = made["metadata"]["resourceVersion"]
        api.set_finalizers("NodeClaim", "x", (), resource_version=version)
        api.delete_node_claim(made)
        api.lease("kube-system", "karpenter-leader-election")
        for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
            server.create("customresourcedefinitions", {"metadata": {"name": name}})
        api.ending_definitions()
        api.patch_node("n1", labels={}, annotations={}, taints=(), resource_version=found.metadata.resource_version)
        api.nominate(view.pods[0], "n1")
        api.pods_on("n1")
        api.volume_attachments()
        api.volume_claims()
        api.disruption_budgets()
        api.scalables([ScalableName("default", kind, "w") for kind in SCALABLE_PLURALS])
        with suppress(ObjectNotFound):
            api.annotate_template(ScalableName("default", "Deployment", "w"), {}, uid="u", resource_version="1")
        for group, version in POD_GROUPS:
            api.named_objects(CustomKind(group, (version,), "podgroups", BUFFERS.reader), {("default", "g")})
        api.named_objects(REQUESTS, None)
        api.named_objects(CustomKind("", ("v1",), "podtemplates", BUFFERS.reader), {("default", "t")})
        with suppress(ObjectNotFound):
            api.write_status("ProvisioningRequest", "default", "x", {}, "")
        api.bind(view.pods[0], "n1")
        api.annotate_pod(api.pods_on("n1")[0], {})
        api.evict(view.pods[0])
        api.delete_pod(view.pods[0], 0)
        api.delete_node(api.node("n1"))
        api.publish(Event(involved_object=ObjectReference(kind="Pod", name="p", namespace="default")))
        granted = {
            (verb, group, resource)
            for rule in shiplap_rules()
            for verb in rule.verbs
            for group in rule.api_groups
            for resource in rule.resources
        }
        assert set(http.seen) == granted


NODE_POOL_SPEC = {
    "template": {
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        }
    }
}
NODE_CLASS_SPEC = {
    "role": "node",
    "amiSelectorTerms": [{"alias": "al2023@latest"}],
    "subnetSelectorTerms": [{"id": "subnet-0123abcd"}],
    "securityGroupSelectorTerms": [{"id": "sg-0123abcd"}],
}


OWNER = {"metadata": {"name": "general", "uid": "00000000-0000-0000-0000-000000000001"}, "spec": NODE_POOL_SPEC}
CLAIMED_NODE: dict[str, Any] = {
    "cluster": "test",
    "name": "general-1",
    "state": ClaimState.LAUNCHED,
    "node_pool": "general",
    "node_class": "default",
    "requirements": (RequirementSpec("karpenter.sh/capacity-type", "In", ("spot",)),),
    "instance_id": "i-0abc",
    "zone": "eu-west-1a",
}


class TestManifests:
    def test_objects_are_told_with_their_kinds(self, api: ClusterApi, server: Server) -> None:
        server.create("nodepools", {"metadata": {"name": "general"}, "spec": NODE_POOL_SPEC})
        server.create("ec2nodeclasses", {"metadata": {"name": "default"}, "spec": NODE_CLASS_SPEC})
        objects = api.manifest_objects()
        assert [(each["apiVersion"], each["kind"], each["metadata"]["name"]) for each in objects.all()] == [
            ("karpenter.sh/v1", "NodePool", "general"),
            ("karpenter.k8s.aws/v1", "EC2NodeClass", "default"),
        ]
        assert objects.node_pools[0]["spec"]["template"]["spec"]["nodeClassRef"]["name"] == "default"

    def test_pod_templates_are_read_for_buffers_that_name_them(self, api: ClusterApi, server: Server) -> None:
        server.create("podtemplates", {"metadata": {"name": "small"}, "template": template("small")})
        assert api.manifest_objects().pod_templates == ()
        named = {"podTemplateRef": {"name": "small"}, "replicas": 2}
        server.create("capacitybuffers", {"metadata": {"name": "warm"}, "spec": named})
        objects = api.manifest_objects()
        assert [each["metadata"]["name"] for each in objects.capacity_buffers] == ["warm"]
        assert [(each["kind"], each["metadata"]["name"]) for each in objects.pod_templates] == [
            ("PodTemplate", "small")
        ]

    def test_an_edit_is_watched_and_raises_the_generation(self, api: ClusterApi, server: Server) -> None:
        server.create("nodepools", {"metadata": {"name": "general"}, "spec": NODE_POOL_SPEC})
        listed, version = api.list_for_watch("nodepools")
        assert [item.metadata.name for item in listed] == ["general"]
        server.patch("nodepools", "general", {"spec": {"weight": 7}})
        server.patch("nodepools", "general", {"status": {"nodes": 3}}, subresource="status")
        server.delete("nodepools", "general")
        events = [each for each in api.watch("nodepools", version, 2.0) if each.type != "BOOKMARK"]
        first = listed[0].metadata.generation
        assert [(each.type, each.object.metadata.generation - first) for each in events][:2] == [
            ("MODIFIED", 1),
            ("MODIFIED", 1),
        ]
        assert events[-1].type == "DELETED"

    def test_a_status_is_merged_and_changes_no_spec(self, api: ClusterApi, server: Server) -> None:
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        made = server.create("nodepools", {"metadata": {"name": "general"}, "spec": NODE_POOL_SPEC})
        version = made["metadata"]["resourceVersion"]
        api.write_status("NodePool", "", "general", {"nodes": 3, "conditions": [condition]}, version)
        stored = server.get("nodepools", "general")
        assert (stored["status"]["nodes"], stored["metadata"]["generation"]) == (3, made["metadata"]["generation"])
        with pytest.raises(ObjectConflict):
            api.write_status("NodePool", "", "general", {"nodes": 4}, version)
        with pytest.raises(ObjectNotFound):
            api.write_status("NodePool", "", "another", {"nodes": 4}, "")

    def test_a_status_in_a_namespace(self, api: ClusterApi, server: Server) -> None:
        named = {"podTemplateRef": {"name": "small"}, "replicas": 2}
        made = server.create("capacitybuffers", {"metadata": {"name": "warm", "namespace": "default"}, "spec": named})
        api.write_status("CapacityBuffer", "default", "warm", {"replicas": 2}, made["metadata"]["resourceVersion"])
        assert server.get("capacitybuffers", "warm", "default")["status"]["replicas"] == 2

    def test_node_claims_are_made_with_their_status_and_deleted(self, api: ClusterApi, server: Server) -> None:
        assert api.node_claim_objects() == ()
        (body,) = claim_object_changes(
            [node_claim(**CLAIMED_NODE)], (), [msgspec.convert(OWNER, NodePool)], (), "one", 1_800_000_000.0
        ).created
        api.create_node_claim(body)
        with pytest.raises(ObjectConflict):
            api.create_node_claim(body)
        (item,) = api.node_claim_objects()
        assert item["kind"] == "NodeClaim"
        assert api.node_claim_object(item["metadata"]["name"]) == item
        assert api.node_claim_object("another") is None
        assert item["status"]["providerID"] == "aws:///eu-west-1a/i-0abc"
        assert {each["type"]: each["status"] for each in item["status"]["conditions"]}["Launched"] == "True"
        api.delete_node_claim(item)
        (item,) = api.node_claim_objects()  # its finalizer keeps it
        assert item["metadata"]["deletionTimestamp"]
        with pytest.raises(ObjectConflict):
            api.set_finalizers("NodeClaim", item["metadata"]["name"], (), resource_version="1")
        version = item["metadata"]["resourceVersion"]
        api.set_finalizers("NodeClaim", item["metadata"]["name"], (), resource_version=version)
        assert api.node_claim_objects() == ()
        with pytest.raises(ObjectNotFound):
            api.delete_node_claim(item)

    def test_a_node_that_has_a_finalizer_stays_until_it_is_removed(self, api: ClusterApi, server: Server) -> None:
        made = server.create("nodes", {"metadata": {"name": "n1", "labels": {"a": "b"}}})
        api.set_finalizers(
            "Node",
            "n1",
            ["karpenter.sh/termination"],
            resource_version=made["metadata"]["resourceVersion"],
            labels={"shiplap.dev/install": "one"},
            annotations={"c": "d"},
        )
        server.delete("nodes", "n1")
        kept = api.node("n1")
        assert kept.metadata.labels == {"a": "b", "shiplap.dev/install": "one"}
        assert kept.metadata.annotations == {"c": "d"}
        assert kept.metadata.deletion_timestamp
        api.set_finalizers("Node", "n1", (), resource_version=kept.metadata.resource_version)
        with pytest.raises(ObjectNotFound):
            api.node("n1")

    def test_a_lease(self, api: ClusterApi, server: Server) -> None:
        name = "karpenter-leader-election"
        assert api.lease("kube-system", name) is None
        spec = {"holderIdentity": "one", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
        server.create("leases", {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec})
        lease = api.lease("kube-system", name)
        assert lease is not None
        assert (lease.spec.holder_identity, lease.spec.lease_duration_seconds) == ("one", 15)

    def test_definitions_that_end(self, api: ClusterApi, server: Server) -> None:
        if isinstance(server, ApiServer):
            for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"):
                metadata = {"name": name, "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}
                server.create("customresourcedefinitions", {"metadata": metadata})
        assert api.ending_definitions() == ()
        if isinstance(server, ApiServer):  # the definitions of a real server are shared by all tests
            server.delete("customresourcedefinitions", "nodepools.karpenter.sh")
            assert api.ending_definitions() == ("nodepools.karpenter.sh",)
