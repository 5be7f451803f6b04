"""StatefulSets and DaemonSets of a simulated cluster: order, names, claims, and their templates' history."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import ClusterError
from tests.builders.workloads import WorkloadWorld, workload_object

SETS = "statefulsets"


@pytest.fixture
def world() -> WorkloadWorld:
    return WorkloadWorld()


def template(image: str) -> dict[str, Any]:
    made: dict[str, Any] = workload_object("db", image=image)["spec"]["template"]
    return made


def stateful(**spec: Any) -> dict[str, Any]:
    return workload_object("db", plural=SETS, **spec)


def images(world: WorkloadWorld) -> list[str]:
    return [item["spec"]["containers"][0]["image"] for item in world.server.list("pods").items]


def test_pods_come_one_after_the_other_and_go_from_the_end(world: WorkloadWorld) -> None:
    world.create(SETS, stateful(serviceName="db", ordinals={"start": 2}))
    seen = []
    for _ in range(20):
        world.step()
        if world.names() not in seen:
            seen.append(world.names())
        ready = world.status(SETS, "db").get("readyReplicas", 0)
        assert len(world.names()) <= ready + 1
    assert [names for names in seen if names] == [["db-2"], ["db-2", "db-3"], ["db-2", "db-3", "db-4"]]
    pod = world.server.get("pods", "db-3")
    assert pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "3"
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-3", "db")
    world.change(SETS, "db", replicas=1)
    world.settle()
    assert world.names() == ["db-2"]
    world.server.evict("db-2")
    world.settle()
    assert world.names() == ["db-2"]


def test_an_ordered_set_waits_for_a_pod_without_a_node_and_a_parallel_one_does_not() -> None:
    world = WorkloadWorld(nodes=0)
    world.create(SETS, stateful())
    world.create(SETS, workload_object("all", 4, plural=SETS, podManagementPolicy="Parallel"))
    for _ in range(5):
        world.step()
    assert world.names() == ["all-0", "all-1", "all-2", "all-3", "db-0"]
    world.change(SETS, "all", replicas=10**9)
    world.change(SETS, "db", replicas=10**9)
    for _ in range(5):
        world.step()
    assert (len(world.names()), "db-1" in world.names()) == (1000, False)


def test_each_pod_keeps_its_claim(world: WorkloadWorld) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    world.create(SETS, stateful(replicas=1, volumeClaimTemplates=[claim]))
    for _ in range(5):
        world.step()
    assert world.names("persistentvolumeclaims") == ["data-db-0"]
    volumes = world.server.get("pods", "db-0")["spec"]["volumes"]
    assert volumes == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]
    world.server.delete(SETS, "db")
    world.settle()
    assert (world.names(), world.names("persistentvolumeclaims")) == ([], ["data-db-0"])
    world.create(SETS, stateful(replicas=1, volumeClaimTemplates=[claim]))
    for _ in range(5):
        world.step()
    assert world.names() == ["db-0"]


def test_a_new_template_reaches_one_pod_after_the_other_down_to_the_partition(world: WorkloadWorld) -> None:
    world.create(SETS, stateful(updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}))
    world.settle()
    world.change(SETS, "db", template=template("pause:2"))
    while world.status(SETS, "db").get("updatedReplicas") != 2:
        assert world.status(SETS, "db")["readyReplicas"] >= 2
        world.step()
    world.settle()
    assert images(world) == ["pause", "pause:2", "pause:2"]
    world.server.evict("db-0")
    world.settle()
    assert images(world) == ["pause", "pause:2", "pause:2"]  # below the partition the old template stays
    status = world.status(SETS, "db")
    assert status["currentRevision"] != status["updateRevision"]
    world.change(SETS, "db", updateStrategy={"rollingUpdate": {"partition": 0}})
    world.settle()
    assert images(world) == 3 * ["pause:2"]
    status = world.status(SETS, "db")
    assert (status["currentRevision"], status["currentReplicas"]) == (status["updateRevision"], 3)


def test_its_templates_are_kept_and_the_newest_has_the_highest_number(world: WorkloadWorld) -> None:
    world.create(SETS, stateful(revisionHistoryLimit=1))
    for image in ("pause:2", "pause:3", "pause:2"):
        world.settle()
        world.change(SETS, "db", template=template(image))
    world.settle()
    revisions = sorted(world.server.list("controllerrevisions").items, key=lambda item: item["revision"])
    kept = [item["data"]["spec"]["template"]["spec"]["containers"][0]["image"] for item in revisions]
    assert (kept, [item["revision"] for item in revisions]) == (["pause:3", "pause:2"], [3, 4])
    assert all(item["data"]["spec"]["template"]["$patch"] == "replace" for item in revisions)
    world.server.delete(SETS, "db")
    world.settle()
    assert world.names("controllerrevisions") == []


def test_on_delete_leaves_the_pods_alone(world: WorkloadWorld) -> None:
    world.create(SETS, stateful(updateStrategy={"type": "OnDelete"}))
    world.settle()
    world.change(SETS, "db", template=template("pause:2"))
    world.settle()
    assert images(world) == 3 * ["pause"]
    world.server.evict("db-1")
    world.settle()
    assert images(world) == ["pause", "pause:2", "pause"]


def test_only_some_fields_of_a_stateful_set_can_be_changed(world: WorkloadWorld) -> None:
    world.create(SETS, stateful(serviceName="db"))
    with pytest.raises(ClusterError, match="updates to statefulset spec for fields other than"):
        world.change(SETS, "db", serviceName="other")
    with pytest.raises(ClusterError, match=r"spec\.updateStrategy\.type: Unsupported value"):
        world.change(SETS, "db", updateStrategy={"type": "Recreate"})


def test_a_daemon_set_reports_and_rolls_out_node_by_node() -> None:
    world = WorkloadWorld(nodes=3)
    world.create("daemonsets", workload_object("agent", None, plural="daemonsets"))
    world.settle()
    status = world.status("daemonsets", "agent")
    assert [status[name] for name in ("desiredNumberScheduled", "numberReady", "numberAvailable")] == [3, 3, 3]
    world.change("daemonsets", "agent", template=workload_object("agent", image="pause:2")["spec"]["template"])
    while world.status("daemonsets", "agent").get("updatedNumberScheduled") != 3:
        assert world.status("daemonsets", "agent")["numberAvailable"] >= 2
        world.step()
    world.settle()
    assert images(world) == 3 * ["pause:2"]
    assert len(world.names("controllerrevisions")) == 2
    world.change("daemonsets", "agent", template={"spec": {"nodeSelector": {"kubernetes.io/hostname": "ip-10-0-0-1"}}})
    world.settle()
    assert world.names() == ["agent-ip-10-0-0-1"]
    assert world.status("daemonsets", "agent")["desiredNumberScheduled"] == 1
    world.server.delete("daemonsets", "agent")
    world.settle()
    assert (world.names(), world.names("controllerrevisions")) == ([], [])
