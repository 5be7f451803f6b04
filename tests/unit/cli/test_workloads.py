"""Workloads in files: which pods their controllers have still to make, and what is planned for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap_cli.inputs.cluster_files import read_cluster_state
from shiplap_cli.inputs.workloads import MOST_PODS
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.cli.written_workloads import TEMPLATE, Object, added, owned, workload

OF_SET = ("ReplicaSet", "web-5d9")
MISSING: dict[str, tuple[list[Object], list[str]]] = {
    "no number is one": ([workload("Deployment")], ["web+1"]),
    "none": ([workload("Deployment", replicas=0)], []),
    "no pods yet": ([workload("Deployment", replicas=2)], ["web+1", "web+2"]),
    "some live": (
        [workload("Deployment", replicas=3), owned("web-5d9-a", OF_SET, "Running"), owned("web-5d9-b", OF_SET)],
        ["web+1"],
    ),
    "one lives, whose template's hash only its ReplicaSet's name tells": (
        [workload("Deployment", replicas=2), owned("web-5d9-a", OF_SET, labels={"app": "web"})],
        ["web+1"],
    ),
    "more live than are wanted": (
        [workload("Deployment", replicas=1), owned("web-5d9-a", OF_SET), owned("web-5d9-b", OF_SET)],
        [],
    ),
    "pods that have ended or are leaving do not count": (
        [
            workload("Deployment", replicas=2),
            owned("web-5d9-a", OF_SET, "Failed"),
            owned("web-5d9-b", OF_SET, deletionTimestamp="2026-01-01T00:00:00Z"),
        ],
        ["web+1", "web+2"],
    ),
    "through a ReplicaSet that is there": (
        [
            workload("Deployment", replicas=2),
            workload("ReplicaSet", "odd", owner=("Deployment", "web"), replicas=2),
            owned("odd-a", ("ReplicaSet", "odd")),
        ],
        ["web+1"],
    ),
    "a ReplicaSet of its own": (
        [workload("ReplicaSet", replicas=2), owned("web-a", ("ReplicaSet", "web"))],
        ["web+1"],
    ),
    "a ReplicaSet whose Deployment is not there": (
        [workload("ReplicaSet", "web-5d9", owner=("Deployment", "web"), replicas=1)],
        ["web-5d9+1"],
    ),
    "a ReplicationController": ([workload("ReplicationController", replicas=1)], ["web+1"]),
    "a StatefulSet, the ordinals that are free": (
        [workload("StatefulSet", replicas=3), owned("web-1", ("StatefulSet", "web"))],
        ["web+0", "web+2"],
    ),
    "pods of others": ([workload("Deployment", replicas=1), owned("x-5d9-a", ("ReplicaSet", "x-5d9"))], ["web+1"]),
    "a Job": ([workload("Job")], ["web+1"]),
    "a Job at a time": ([workload("Job", completions=9, parallelism=2)], ["web+1", "web+2"]),
    "the end of a Job": (
        [workload("Job", completions=9, parallelism=2) | {"status": {"succeeded": 8}}],
        ["web+1"],
    ),
    "a work queue": ([workload("Job", parallelism=2)], ["web+1", "web+2"]),
    "a work queue that ends": ([workload("Job", parallelism=2) | {"status": {"succeeded": 1}}], []),
    "a Job with a pod": ([workload("Job", parallelism=2), owned("web-a", ("Job", "web"))], ["web+1"]),
    "a Job that has ended": (
        [workload("Job") | {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}],
        [],
    ),
    "a suspended Job": ([workload("Job", suspend=True)], []),
    "a CronJob": ([{**workload("CronJob"), "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}], []),
}


@pytest.mark.parametrize(("objects", "names"), MISSING.values(), ids=MISSING.keys())
def test_a_workload_adds_the_pods_that_are_missing(objects: list[Object], names: list[str], tmp_path: Path) -> None:
    assert added(tmp_path, *objects) == names


CRON_JOB = {**workload("CronJob"), "spec": {"jobTemplate": {"spec": {"template": TEMPLATE}}}}
SCALED: list[tuple[list[Object], str, list[str]]] = [
    ([workload("Deployment", replicas=1)], "web=2", ["web+1", "web+2"]),
    ([workload("Deployment", replicas=5)], "shop/web=1", ["web+1"]),
    ([CRON_JOB], "web=2", ["web+1", "web+2"]),
    ([workload("Job", suspend=True)], "job/web=1", ["web+1"]),
    ([workload("Job", suspend=True), CRON_JOB], "CronJob/shop/web=1", ["web+1"]),
]


@pytest.mark.parametrize(("objects", "scale", "names"), SCALED)
def test_what_if_a_workload_wants_another_number(
    objects: list[Object], scale: str, names: list[str], tmp_path: Path
) -> None:
    assert added(tmp_path, *objects, scale=(scale,)) == names


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ("web", "is not of the form"),
        ("web=-1", "is not of the form"),
        ("web=x", "is not of the form"),
        ("=3", "is not of the form"),
        ("a/b/web=3", "is not of the form"),
        (f"web={MOST_PODS + 1}", "with at most 100,000"),
        ("other=3", "there is no workload other among the objects"),
        ("cronjob/web=3", "there is no workload web among the objects"),
        ("web=3", "web may be Deployment shop/web or StatefulSet shop/web: name one of them"),
        ("deployment/web=0", "Deployment shop/web has 1 living pods, and none can be taken away"),
    ],
)
def test_scales_that_cannot_be_met(scale: str, words: str, tmp_path: Path) -> None:
    objects = [workload("Deployment"), workload("StatefulSet"), owned("web-5d9-a", OF_SET)]
    with pytest.raises(InvalidInput, match=words):
        added(tmp_path, *objects, scale=(scale,))


def test_more_pods_than_any_cluster_has_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"workloads want 100,001 pods"):
        added(tmp_path, workload("Deployment", replicas=MOST_PODS + 1))


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (workload("Deployment", replicas=-1), "spec.replicas"),
        (workload("Deployment", replicas="many"), "spec.replicas"),
        (workload("Job", template={"spec": {"overhead": {"cpu": "much"}}}), "spec.template.spec.overhead"),
        (
            workload("StatefulSet", template={"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}),
            "spec.template.spec.containers",
        ),
    ],
)
def test_workloads_that_cannot_be_read_are_named(broken: Object, words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=words):
        added(tmp_path, broken)


def test_pods_of_a_workload_are_as_its_controller_would_make_them(tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    high = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}
    template = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "priorityClassName": "high"}}
    deployment = workload("Deployment", replicas=2, template=template)
    file.write_text(listed(deployment, high, owned("web-5d9-a", OF_SET)))
    made = read_cluster_state([file], []).view.pods[1]
    assert made.key == "shop/web+1"
    assert made.metadata.labels == {"app": "web", "pod-template-hash": "5d9"}
    assert made.metadata.owner_references[0].kind == "Deployment"
    assert made.spec.priority == 1000


@pytest.mark.parametrize("classes", [True, False])
def test_claims_of_a_statefulset_are_made_with_its_pods(classes: bool, tmp_path: Path) -> None:
    file = tmp_path / "all.json"
    claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "fast"}}
    there = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-web-0", "namespace": "shop"}, "spec": {}}
    objects = [workload("StatefulSet", replicas=2, volumeClaimTemplates=[claim]), there]
    fast = {"kind": "StorageClass", "metadata": {"name": "fast"}, "volumeBindingMode": "WaitForFirstConsumer"}
    file.write_text(listed(*objects, *([fast] if classes else [])))
    view = read_cluster_state([file], []).view
    names = [item.metadata.name for item in view.persistent_volume_claims]
    volumes = [
        volume.persistent_volume_claim.claim_name
        for pod in view.pods
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim is not None
    ]
    if classes:
        assert names == volumes == ["data-web-0", "data-web-1"]
        assert view.persistent_volume_claims[1].spec.storage_class_name == "fast"
    else:
        assert names == ["data-web-0"]
        assert volumes == []


def planned(folder: Path, shiplap: Shiplap, *objects: Object, scale: str = "") -> Any:
    (folder / "state.json").write_text(listed(*objects, POOL))
    (folder / "catalog.json").write_text(json.dumps(CATALOG))
    asked = ["--cluster-state", folder / "state.json", "--catalog", folder / "catalog.json", "--now"]
    found = shiplap.json("plan", *asked, "2026-01-31T12:00:00Z", *(["--scale", scale] if scale else []))
    del found["stats"]["solveSeconds"]
    return found


def test_all_objects_plan_like_the_pods(tmp_path: Path, shiplap: Shiplap) -> None:
    pods = [owned(f"web-5d9-{letter}", OF_SET) for letter in "abc"]
    sets = [workload("ReplicaSet", "web-5d9", owner=("Deployment", "web"), replicas=3)]
    everything = [workload("Deployment", replicas=3), *sets, *pods, workload("Job", "done", suspend=True), CRON_JOB]
    answer = planned(tmp_path, shiplap, *everything)
    assert answer.pop("notes") == ["pods of suspended workloads are not planned: Job shop/done"]
    assert answer == planned(tmp_path, shiplap, *pods)


def test_pods_that_do_not_exist_yet_are_marked(tmp_path: Path, shiplap: Shiplap) -> None:
    found = planned(tmp_path, shiplap, workload("Deployment", replicas=1), scale="web=2")
    assert "shop/web+1" in json.dumps(found)
    assert "2 pods with + in the name will be made by workloads: 2 of Deployment shop/web" in json.dumps(found)


def test_a_live_cluster_has_no_workloads_to_scale(tmp_path: Path, shiplap: Shiplap) -> None:
    said = shiplap.error("plan", "--kubeconfig", tmp_path / "none", "--scale", "web=3")
    assert "--scale: is about workloads in files" in said
