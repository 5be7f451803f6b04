"""Pods made from templates have what the controllers and the admission of Kubernetes add to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap_cli.inputs.cluster_files import read_cluster_state
from shiplap_cli.inputs.workloads import read_scale
from tests.commands import listed
from tests.unit.cli.written_workloads import TEMPLATE, Object, added, owned, workload

JOB_NAME, JOB_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
INDEX = "batch.kubernetes.io/job-completion-index"


def made(folder: Path, *objects: Object, scale: str = "") -> dict[str, Pod]:
    """All pods by name, those of workloads included."""
    file = folder / "all.json"
    file.write_text(listed(*objects))
    view = read_cluster_state([file], [read_scale(scale)] if scale else []).view
    return {pod.metadata.name: pod for pod in view.pods}


def with_uid(body: Object, uid: str, **metadata: Any) -> Object:
    return {**body, "metadata": {**body["metadata"], "uid": uid, **metadata}}


def template(spec: Object | None = None, **labels: str) -> Object:
    return {"metadata": {"labels": {"app": "web", **labels}}, "spec": {**TEMPLATE["spec"], **(spec or {})}}


# Jobs


def test_the_pods_of_jobs_are_told_apart_by_name_and_uid(tmp_path: Path) -> None:
    jobs = [with_uid(workload("Job", name, parallelism=2), f"uid-{name}") for name in ("a", "b")]
    pods = made(tmp_path, *jobs)
    assert sorted(pods) == ["a+1", "a+2", "b+1", "b+2"]
    for name, pod in pods.items():
        labels = pod.metadata.labels
        assert labels["job-name"] == labels[JOB_NAME] == name[0]
        assert labels["controller-uid"] == labels[JOB_UID] == f"uid-{name[0]}"
        assert (labels["app"], INDEX in labels) == ("web", False)
        assert pod.metadata.owner_references[0].uid == f"uid-{name[0]}"


def test_a_job_that_is_not_created_yet_has_a_uid_of_its_own(tmp_path: Path) -> None:
    pods = made(tmp_path, *(workload("Job", name) for name in ("a", "b")))
    uids = {name: pod.metadata.labels[JOB_UID] for name, pod in pods.items()}
    assert len(set(uids.values())) == 2
    assert all(uids.values())


def test_labels_that_a_template_has_itself_stay(tmp_path: Path) -> None:
    exported = workload("Job", template=template(**{JOB_NAME: "web", JOB_UID: "from-the-cluster"}))
    by_hand = workload("Job", "hand", manualSelector=True)
    pods = made(tmp_path, exported, by_hand)
    assert pods["web+1"].metadata.labels[JOB_UID] == "from-the-cluster"
    assert pods["hand+1"].metadata.labels == {"app": "web"}


@pytest.mark.parametrize(
    ("spec", "status", "names"),
    [
        ({"completions": 3, "parallelism": 9}, {}, ["web+0", "web+1", "web+2"]),
        ({"completions": 9, "parallelism": 2}, {"completedIndexes": "0,2-3", "succeeded": 4}, ["web+1", "web+4"]),
        ({"completions": 4, "parallelism": 4}, {"completedIndexes": "0", "failedIndexes": "1,3"}, ["web+2"]),
        ({"completions": 4, "parallelism": 4}, {"completedIndexes": "0-1", "failedIndexes": "2-3"}, []),
        ({"completions": 4, "parallelism": 0}, {}, []),
        ({"completions": 4, "parallelism": 4, "suspend": True}, {}, []),
        ({"completions": 4, "parallelism": 4, "managedBy": "example.com/queue"}, {}, []),
    ],
)
def test_an_indexed_job_makes_the_indexes_that_are_left(
    spec: Object, status: Object, names: list[str], tmp_path: Path
) -> None:
    job = {**workload("Job", completionMode="Indexed", **spec), "status": status}
    pods = made(tmp_path, job)
    assert sorted(pods) == names
    assert [pods[name].metadata.labels[INDEX] for name in names] == [name.removeprefix("web+") for name in names]


def test_an_index_that_runs_is_not_made_again(tmp_path: Path) -> None:
    job = workload("Job", completionMode="Indexed", completions=5, parallelism=3)
    running = owned("web-0-x7k2p", ("Job", "web"), "Running", annotations={INDEX: "0"})
    assert added(tmp_path, job, running) == ["web+1", "web+2"]


@pytest.mark.parametrize("indexes", ["a", "1-", "-3", "1-2-3", "9" * 5000])
def test_indexes_that_are_none_are_named(indexes: str, tmp_path: Path) -> None:
    job = {**workload("Job", completionMode="Indexed", completions=2), "status": {"failedIndexes": indexes}}
    with pytest.raises(InvalidInput, match="failedIndexes"):
        made(tmp_path, job)


def test_indexes_are_counted_and_not_listed(tmp_path: Path) -> None:
    job = workload("Job", completionMode="Indexed", completions=2_000_000_000, parallelism=1)
    assert list(made(tmp_path, {**job, "status": {"completedIndexes": "0-1999999998"}})) == ["web+1999999999"]


def test_what_a_cron_job_would_run_has_the_labels_of_a_job(tmp_path: Path) -> None:
    spec = {"jobTemplate": {"spec": {"template": TEMPLATE, "completionMode": "Indexed", "completions": 2}}}
    crons = [{**workload("CronJob", name), "spec": spec} for name in ("a", "b")]
    pods = made(tmp_path, *crons, scale="a=2")
    assert sorted(pods) == ["a+0", "a+1"]
    names = {pod.metadata.labels[JOB_NAME] for pod in pods.values()}
    assert len(names) == 1
    assert names.pop().startswith("a-")
    assert pods["a+1"].metadata.labels[INDEX] == "1"


# StatefulSets


def test_ordinals_start_where_the_set_says(tmp_path: Path) -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    fast = {"kind": "StorageClass", "metadata": {"name": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"}
    sets = workload("StatefulSet", replicas=3, ordinals={"start": 5}, volumeClaimTemplates=claims)
    lives = owned("web-6", ("StatefulSet", "web"), "Running")
    beyond = owned("web-0", ("StatefulSet", "web"), "Running")
    pods = made(tmp_path, {**sets, "status": {"updateRevision": "web-77f"}}, fast, lives, beyond)
    assert sorted(pods) == ["web+5", "web+7", "web-0", "web-6"]
    labels = pods["web+7"].metadata.labels
    assert labels["statefulset.kubernetes.io/pod-name"] == "web-7"
    assert (labels["apps.kubernetes.io/pod-index"], labels["controller-revision-hash"]) == ("7", "web-77f")
    (volume,) = pods["web+7"].spec.volumes
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "data-web-7"


def test_a_claim_takes_the_place_of_a_volume_of_its_name(tmp_path: Path) -> None:
    claims = [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}]
    fast = {"kind": "StorageClass", "metadata": {"name": "fast"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "other"}}, {"name": "tmp"}]
    sets = workload("StatefulSet", template=template({"volumes": volumes}), volumeClaimTemplates=claims)
    found = made(tmp_path, sets, fast)["web+0"].spec.volumes
    assert [
        (item.name, item.persistent_volume_claim and item.persistent_volume_claim.claim_name) for item in found
    ] == [
        ("tmp", None),
        ("data", "data-web-0"),
    ]


def test_a_negative_first_ordinal_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"ordinals\.start"):
        made(tmp_path, workload("StatefulSet", ordinals={"start": -1}))


# Deployments


def replica_set(suffix: str, revision: str) -> Object:
    body = workload(
        "ReplicaSet", f"web-{suffix}", owner=("Deployment", "web"), template=template(**{"pod-template-hash": suffix})
    )
    return with_uid(body, suffix, annotations={"deployment.kubernetes.io/revision": revision})


def test_the_newest_replica_set_says_the_hash(tmp_path: Path) -> None:
    objects = [replica_set("aaa", "10"), replica_set("zzz", "9"), owned("web-zzz-1", ("ReplicaSet", "web-zzz"))]
    pods = made(tmp_path, workload("Deployment", replicas=2), *objects)
    assert pods["web+1"].metadata.labels["pod-template-hash"] == "aaa"


def test_deployments_without_pods_have_hashes_that_differ(tmp_path: Path) -> None:
    pods = made(tmp_path, workload("Deployment", "a", replicas=2), workload("Deployment", "b"))
    hashes = {name: pod.metadata.labels["pod-template-hash"] for name, pod in pods.items()}
    assert hashes["a+1"] == hashes["a+2"] != hashes["b+1"]


# Admission


def limit_range(namespace: str = "shop", name: str = "limits", **item: Any) -> Object:
    body = {"limits": [{"type": "Container", **item}]}
    return {"kind": "LimitRange", "metadata": {"name": name, "namespace": namespace}, "spec": body}


@pytest.mark.parametrize(
    ("item", "own", "cpu_m", "memory_mib"),
    [
        ({"defaultRequest": {"cpu": "2", "memory": "1Gi"}}, {"requests": {"cpu": "1"}}, 1000, 1024),
        ({"default": {"cpu": "3"}}, {}, 3000, 0),
        ({"max": {"memory": "2Gi"}, "min": {"cpu": "100m"}}, {}, 100, 2048),
        ({"min": {"cpu": "100m"}, "max": {"cpu": "4"}, "defaultRequest": {"cpu": "200m"}}, {}, 200, 0),
        ({"defaultRequest": {"cpu": "2"}}, {"limits": {"cpu": "500m"}}, 500, 0),
        ({"type": "Pod", "max": {"cpu": "4"}}, {}, 0, 0),
    ],
)
def test_a_limit_range_gives_requests(item: Object, own: Object, cpu_m: int, memory_mib: int, tmp_path: Path) -> None:
    bare = template({"containers": [{"name": "c", "resources": own}]})
    objects = [workload("Deployment", template=bare), limit_range(**item), limit_range("other", cpu="9")]
    found = pod_requests(made(tmp_path, *objects)["web+1"])
    assert (found.get("cpu", 0), found.get("memory", 0) >> 20) == (cpu_m, memory_mib)


def test_pods_of_other_namespaces_and_pods_that_exist_are_left_as_they_are(tmp_path: Path) -> None:
    bare: Object = {"containers": [{"name": "c"}]}
    new = {"kind": "Pod", "metadata": {"name": "new", "namespace": "shop"}, "spec": bare}
    old = {"kind": "Pod", "metadata": {"name": "old", "namespace": "shop", "uid": "u"}, "spec": bare}
    elsewhere = {"kind": "Pod", "metadata": {"name": "elsewhere", "namespace": "b"}, "spec": bare}
    pods = made(tmp_path, new, old, elsewhere, limit_range(defaultRequest={"cpu": "2"}))
    assert {name: pod_requests(pod).get("cpu", 0) for name, pod in pods.items()} == {
        "new": 2000,
        "old": 0,
        "elsewhere": 0,
    }


def test_an_amount_of_a_limit_range_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"limits\[0\]\.defaultRequest"):
        made(tmp_path, limit_range(defaultRequest={"cpu": "much"}))


def test_pods_on_the_network_of_their_host_take_the_ports_they_name(tmp_path: Path) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 443, "hostPort": 443}]
    spec = {"containers": [{"name": "c", "ports": ports}], "initContainers": [{"name": "i", "ports": ports[:1]}]}
    objects = [
        workload("Deployment", "host", template=template({**spec, "hostNetwork": True})),
        workload("Deployment", "own", template=template(spec)),
    ]
    pods = made(tmp_path, *objects)
    host, own = pods["host+1"].spec, pods["own+1"].spec
    assert [port.host_port for port in host.containers[0].ports] == [80, 443]
    assert [port.host_port for port in host.init_containers[0].ports] == [80]
    assert [port.host_port for port in own.containers[0].ports] == [0, 443]


def test_priorities_come_from_classes_of_the_cluster_and_of_kubernetes(tmp_path: Path) -> None:
    def of_class(name: str, class_name: str) -> Object:
        return workload("Deployment", name, template=template({"priorityClassName": class_name} if class_name else {}))

    classes = [
        {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, "globalDefault": default}
        for name, value, default in (("high", 1000, False), ("usual", 7, True), ("usual-2", 9, True))
    ]
    names = {"a": "high", "b": "", "c": "system-cluster-critical", "d": "system-node-critical"}
    pods = made(tmp_path, *(of_class(name, class_name) for name, class_name in names.items()), *classes)
    found = {name[0]: (pod.spec.priority, pod.spec.priority_class_name) for name, pod in pods.items()}
    assert found == {
        "a": (1000, "high"),
        "b": (7, "usual"),
        "c": (2_000_000_000, "system-cluster-critical"),
        "d": (2_000_001_000, "system-node-critical"),
    }
