"""Deployments and ReplicaSets of a simulated cluster make, replace and remove pods; what belongs to them goes along."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import ClusterError
from shiplap_lab.api_server.stored_workloads import admitted
from shiplap_lab.cluster_simulator.workloads.controller_client import MOST_PODS
from shiplap_lab.cluster_simulator.workloads.garbage_collector import FOREGROUND, ORPHAN, delete
from shiplap_lab.cluster_simulator.workloads.templated_pods import template_hash
from tests.builders.pods import pod_object
from tests.builders.workloads import WorkloadWorld, workload_object


@pytest.fixture
def world() -> WorkloadWorld:
    return WorkloadWorld()


def template(image: str, **spec: Any) -> dict[str, Any]:
    made: dict[str, Any] = workload_object(image=image)["spec"]["template"]
    made["spec"].update(spec)
    return made


def test_a_deployment_makes_a_replica_set_and_pods_that_name_it(world: WorkloadWorld) -> None:
    stored = world.create("deployments", workload_object())
    world.settle()
    (replica_set,) = world.server.list("replicasets").items
    hashed = template_hash(stored["spec"]["template"])
    assert replica_set["metadata"]["name"] == f"web-{hashed}"
    assert replica_set["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    pods = world.server.list("pods").items
    assert [pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods] == 3 * [replica_set["metadata"]["uid"]]
    assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in pods} == {hashed}
    assert {pod["status"]["phase"] for pod in pods} == {"Running"}
    status = world.status("deployments", "web")
    assert [status[f"{name}Replicas"] for name in ("updated", "ready", "available")] == [3, 3, 3]
    assert (status["replicas"], status["observedGeneration"]) == (3, 1)
    assert world.condition("deployments", "web", "Available") == ("True", "MinimumReplicasAvailable")
    assert world.condition("deployments", "web", "Progressing") == ("True", "NewReplicaSetAvailable")
    assert world.status("replicasets", f"web-{hashed}")["readyReplicas"] == 3


def test_it_is_scaled_and_what_is_lost_comes_back(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object())
    world.settle()
    world.change("deployments", "web", replicas=10)
    world.settle()
    first = world.names()
    assert len(first) == 10
    world.server.evict(first[0])
    world.settle()
    assert (len(world.names()), first[0] in world.names()) == (10, False)
    world.change("deployments", "web", replicas=2)
    world.settle()
    assert set(world.names()) < set(first)  # the youngest go
    world.change("deployments", "web", replicas=0)
    world.settle()
    assert world.names() == []
    assert world.condition("deployments", "web", "Available")[0] == "True"


def test_pods_without_a_node_and_cheap_ones_go_first() -> None:
    world = WorkloadWorld(nodes=1)
    world.create("deployments", workload_object(replicas=12))
    world.settle()
    waiting = {item["metadata"]["name"] for item in world.server.list("pods").items if "nodeName" not in item["spec"]}
    assert len(waiting) == 4
    cheap = sorted(set(world.names()) - waiting)[0]
    cost = {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}
    world.server.patch("pods", cheap, {"metadata": cost})
    world.change("deployments", "web", replicas=7)
    world.settle()
    assert not (waiting | {cheap}) & set(world.names())
    assert len(world.names()) == 7


def test_a_new_template_rolls_out_within_its_bounds_and_back_again(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object(replicas=8))
    world.settle()
    world.change("deployments", "web", template=template("pause:2"))
    seen = set()
    while world.condition("deployments", "web", "Progressing")[1] != "NewReplicaSetAvailable" or not seen:
        status = world.status("deployments", "web")
        seen.add((status["replicas"], status["availableReplicas"]))
        world.step()
    assert all(replicas <= 10 and available >= 6 for replicas, available in seen)
    old, new = sorted(world.server.list("replicasets").items, key=lambda item: item["spec"]["replicas"])
    assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 8)
    assert new["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "2"
    world.change("deployments", "web", template=template("pause"))  # another name for `kubectl rollout undo`
    world.settle()
    again = world.server.get("replicasets", old["metadata"]["name"])
    assert (again["spec"]["replicas"], len(world.names("replicasets"))) == (8, 2)
    assert again["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "3"
    revision = world.server.get("deployments", "web")["metadata"]["annotations"]
    assert revision["deployment.kubernetes.io/revision"] == "3"


def test_recreate_waits_until_every_old_pod_has_gone(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object(strategy={"type": "Recreate"}))
    world.settle()
    world.change("deployments", "web", template=template("pause:2"))
    while world.condition("deployments", "web", "Progressing")[1] != "NewReplicaSetAvailable" or len(world.names()) < 3:
        images = {item["spec"]["containers"][0]["image"] for item in world.server.list("pods").items}
        assert len(images) <= 1
        world.step()


def test_a_paused_deployment_scales_and_keeps_its_template(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object())
    world.settle()
    world.change("deployments", "web", paused=True, template=template("pause:2"))
    world.settle()
    assert len(world.names("replicasets")) == 1
    assert world.condition("deployments", "web", "Progressing")[1] == "DeploymentPaused"
    world.change("deployments", "web", paused=None)
    world.settle()
    assert {item["spec"]["containers"][0]["image"] for item in world.server.list("pods").items} == {"pause:2"}


def test_a_rollout_that_stands_still_is_late_and_may_still_succeed() -> None:
    world = WorkloadWorld(nodes=0)
    world.create("deployments", workload_object(progressDeadlineSeconds=60))
    for _ in range(5):
        world.step()
    assert world.condition("deployments", "web", "Progressing") == ("True", "ReplicaSetUpdated")
    assert world.condition("deployments", "web", "Available") == ("False", "MinimumReplicasUnavailable")
    world.step(61.0)
    assert world.condition("deployments", "web", "Progressing") == ("False", "ProgressDeadlineExceeded")
    world.machines = [world.machine(1)]
    world.settle()
    assert world.condition("deployments", "web", "Progressing") == ("True", "NewReplicaSetAvailable")


def test_pods_count_when_they_have_been_ready_long_enough(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object(minReadySeconds=30))
    for _ in range(6):
        world.step()
    assert world.status("deployments", "web").get("readyReplicas") == 3
    assert "availableReplicas" not in world.status("deployments", "web")
    world.step(31.0)
    assert world.status("deployments", "web")["availableReplicas"] == 3


def test_old_replica_sets_beyond_the_history_go(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object(revisionHistoryLimit=1))
    for image in ("pause:2", "pause:3", "pause:4"):
        world.settle()
        world.change("deployments", "web", template=template(image))
    world.settle()
    assert len(world.names("replicasets")) == 2


def test_what_belongs_to_a_deployment_goes_with_it_in_the_midst_of_a_rollout(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object(replicas=8))
    world.create("deployments", workload_object("other", 2))
    world.settle()
    world.change("deployments", "web", template=template("pause:2"))
    world.step()
    world.step()
    assert len(world.names("replicasets")) == 3
    world.server.delete("deployments", "web")
    world.settle()
    assert [name.partition("-")[0] for name in (*world.names(), *world.names("replicasets"))] == 3 * ["other"]


def test_a_foreground_deletion_waits_for_dependents_and_an_orphaning_one_frees_them(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object())
    world.settle()
    delete(world.server, "deployments", "web", "default", FOREGROUND)
    assert world.server.get("deployments", "web")["metadata"]["deletionTimestamp"]
    world.settle()
    assert (world.names(), world.names("replicasets"), world.names("deployments")) == ([], [], [])
    world.create("deployments", workload_object())
    world.settle()
    pods = world.names()
    delete(world.server, "deployments", "web", "default", ORPHAN)
    world.settle()
    (orphan,) = world.server.list("replicasets").items
    assert (world.names(), world.names("deployments")) == (pods, [])
    assert "ownerReferences" not in orphan["metadata"]
    adopter = world.create("deployments", workload_object())
    world.settle()
    (adopted,) = world.server.list("replicasets").items
    assert adopted["metadata"]["ownerReferences"][0]["uid"] == adopter["metadata"]["uid"]
    assert world.names() == pods


def test_a_pod_that_leaves_its_selector_is_released_and_a_stray_one_adopted(world: WorkloadWorld) -> None:
    world.create("replicasets", workload_object(plural="replicasets"))
    world.server.create("pods", pod_object("stray", labels={"app": "web"}))
    world.settle()
    assert len(world.names()) == 3
    world.server.patch("pods", "stray", {"metadata": {"labels": {"app": "debug"}}})
    world.settle()
    assert len(world.names()) == 4
    assert "ownerReferences" not in world.server.get("pods", "stray")["metadata"]


def test_a_replication_controller_makes_pods_and_takes_them_along(world: WorkloadWorld) -> None:
    plural = "replicationcontrollers"
    world.create(plural, workload_object(plural=plural))
    world.create(plural, workload_object("old", 1, plural=plural, selector=None))
    world.create(plural, workload_object("other", 2, plural=plural))
    world.settle()
    assert [name.partition("-")[0] for name in world.names()] == ["old", "other", "other", "web", "web", "web"]
    assert world.status(plural, "web")["readyReplicas"] == 3
    assert world.server.get(plural, "old")["spec"]["selector"] == {"app": "old"}
    world.change(plural, "web", replicas=1)
    world.server.delete(plural, "other")
    world.settle()
    assert [name.partition("-")[0] for name in world.names()] == ["old", "web"]
    with pytest.raises(ClusterError, match=r'^ReplicationController "bad" is invalid: .* does not match template'):
        world.create(plural, workload_object("bad", plural=plural, selector={"app": "good"}))


def test_texts_of_a_secret_are_encoded(world: WorkloadWorld) -> None:
    body = {"metadata": {"name": "s"}, "data": {"a": "eA==", "b": "eA=="}, "stringData": {"b": "y", "c": "ü"}}
    stored = world.create("secrets", body)
    assert stored["data"] == {"a": "eA==", "b": "eQ==", "c": "w7w="}
    assert "stringData" not in stored
    patched = world.server.patch("secrets", "s", {"stringData": {"a": "z"}}, admit=admitted)
    assert patched["data"] == {"a": "eg==", "b": "eQ==", "c": "w7w="}
    with pytest.raises(ClusterError, match=r"stringData\[d\]: must be text"):
        world.server.patch("secrets", "s", {"stringData": {"d": 1}}, admit=admitted)


def test_two_deployments_with_one_selector_keep_their_own_pods(world: WorkloadWorld) -> None:
    for name in ("a", "b"):
        world.create("deployments", workload_object(name, 2, labels={"app": "same"}))
    world.settle()
    assert [name.partition("-")[0] for name in world.names()] == ["a", "a", "b", "b"]
    world.server.delete("deployments", "a")
    world.settle()
    assert [name.partition("-")[0] for name in world.names()] == ["b", "b"]


def test_a_billion_replicas_end_at_the_quota_and_say_so() -> None:
    world = WorkloadWorld(nodes=0)
    world.create("deployments", workload_object(replicas=1_000_000_000))
    for _ in range(8):
        world.step()
    assert len(world.names()) == MOST_PODS
    version = world.server.resource_version
    for _ in range(3):
        world.step()
    assert world.server.resource_version == version  # nobody tries again and again
    assert world.condition("deployments", "web", "ReplicaFailure") == ("True", "FailedCreate")
    events = [event for event in world.server.list("events").items if event["reason"] == "FailedCreate"]
    assert [("exceeded quota" in event["message"]) for event in events] == [True]
    world.change("deployments", "web", replicas=5)
    for _ in range(8):
        world.step()
    assert len(world.names()) == 5
    assert world.condition("deployments", "web", "ReplicaFailure") == ("", "")


def test_pods_whose_owner_was_never_stored_are_left_alone(world: WorkloadWorld) -> None:
    owner = {"kind": "ReplicaSet", "name": "played", "uid": "played", "controller": True}
    world.server.create("pods", pod_object("played-0", metadata={"ownerReferences": [owner]}))
    world.create("deployments", workload_object())
    world.settle()
    world.server.delete("deployments", "web")
    world.settle()
    assert world.names() == ["played-0"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"replicas": -1}, "spec.replicas: Invalid value: -1"),
        ({"replicas": 2**31}, "spec.replicas: Invalid value"),
        ({"replicas": True}, "spec.replicas: Invalid value"),
        ({"selector": None}, "spec.selector: Required value"),
        ({"selector": {}}, "spec.selector: Required value"),
        ({"selector": {"matchLabels": {"app": "db"}}}, "`selector` does not match template `labels`"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, "spec.selector: Invalid value"),
        ({"selector": {"matchLabels": 3}}, "spec.selector: Invalid value"),
        ({"template": None}, "spec.template: Required value"),
        ({"template": template("a", containers=[])}, "spec.template.spec.containers: Required value"),
        ({"template": template("a", restartPolicy="Never")}, 'Unsupported value: "Never"'),
        ({"template": template("a", overhead={"cpu": "much"})}, "spec.template.spec: Invalid value"),
        ({"strategy": {"type": "Blue"}}, 'spec.strategy.type: Unsupported value: "Blue"'),
        ({"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}}, "may not be specified"),
        ({"strategy": {"rollingUpdate": {"maxSurge": "many"}}}, "rollingUpdate.maxSurge: Invalid value"),
        ({"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}}}, "may not be 0"),
        ({"strategy": {"rollingUpdate": {"partition": -1}}}, "partition: Invalid value"),
    ],
)
def test_a_deployment_that_could_never_work_is_refused(spec: dict[str, Any], words: str) -> None:
    world = WorkloadWorld(nodes=0)
    with pytest.raises(ClusterError) as caught:
        world.create("deployments", workload_object(**({"replicas": None} | spec)))
    assert (caught.value.status, words in str(caught.value)) == (422, True), str(caught.value)
    assert str(caught.value).startswith('Deployment.apps "web" is invalid: ')
    assert world.names("deployments") == []


def test_a_selector_cannot_be_changed(world: WorkloadWorld) -> None:
    world.create("deployments", workload_object())
    labels = {"app": "web", "tier": "a"}
    changed = {"metadata": {"labels": labels}}
    with pytest.raises(ClusterError, match="field is immutable"):
        world.change("deployments", "web", selector={"matchLabels": labels}, template=changed)


def test_two_templates_that_differ_in_empty_fields_have_one_hash() -> None:
    sent = {
        "metadata": {"creationTimestamp": None, "generation": 0, "labels": {"a": "b"}},
        "spec": {"containers": [], "volumes": None},
    }
    assert template_hash(sent) == template_hash({"metadata": {"labels": {"a": "b"}}})
    assert template_hash(template("a")) != template_hash(template("b"))


def test_a_template_keeps_its_hash_in_the_spelling_of_gos_types() -> None:
    """Which `kubectl rollout undo` sends: the ReplicaSet of the template is taken up again, and none is made."""

    def spelled(requests: dict[str, Any], **fields: Any) -> str:
        return template_hash(
            {"spec": {"containers": [{"name": "main", "resources": {"requests": requests}, **fields}]}}
        )

    written = spelled({"cpu": 0.5, "memory": "1024Mi"}, env=[{"name": "A", "value": ""}], stdin=False)
    assert spelled({"cpu": "500m", "memory": "1Gi"}, env=[{"name": "A"}]) == written
    others = [
        spelled({"cpu": "501m", "memory": "1Gi"}, env=[{"name": "A"}]),
        spelled({"cpu": "500m", "memory": "1Gi"}, env=[{"name": "A"}], securityContext={"runAsUser": 0}),
        spelled({"cpu": "500m", "memory": "1Gi"}, env=[{"name": "A"}], securityContext={"privileged": False}),
        spelled({"cpu": "half"}, env=[{"name": "A"}]),
    ]
    assert len({written, *others}) == 5
    labelled = [{"metadata": {"labels": labels}} for labels in ({"a": ""}, {})]
    assert template_hash(labelled[0]) != template_hash(labelled[1])


def test_other_kinds_are_admitted_as_they_are() -> None:
    pod = pod_object("first")
    assert admitted("pods", pod, None) is pod
