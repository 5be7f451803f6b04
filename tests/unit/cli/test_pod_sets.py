"""Custom resources in files whose controllers make pods: JobSets, LeaderWorkerSets, RayClusters and MPIJobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap_cli.inputs.cluster_files import read_cluster_state
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import plan_of
from tests.unit.cli.written_workloads import TEMPLATE, Object, added, owned, workload

META = {"name": "train", "namespace": "shop"}
JOB_SET: Object = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": META,
    "spec": {
        "replicatedJobs": [
            {"name": "driver", "template": {"spec": {"template": TEMPLATE}}},
            {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
        ]
    },
}
LEADER_WORKERS: Object = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": META,
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}},
}
RAY: Object = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": META,
    "spec": {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "template": TEMPLATE}],
    },
}
MPI: Object = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": META,
    "spec": {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}},
}


WORKERS = ["train-workers-0+1", "train-workers-0+2", "train-workers-1+1", "train-workers-1+2"]
JOB = {**workload("Job", "train-workers-0", parallelism=2), "status": {"succeeded": 2}}


@pytest.mark.parametrize(
    ("objects", "names"),
    [
        ([JOB_SET], ["train-driver-0+1", *WORKERS]),
        ([{**JOB_SET, "spec": {**JOB_SET["spec"], "suspend": True}}], []),
        ([{**JOB_SET, "status": {"terminalState": "Completed"}}], []),
        ([JOB_SET, owned("a", ("Job", "train-workers-1"))], ["train-driver-0+1", *WORKERS[:2], "train-workers-1+1"]),
        ([JOB_SET, JOB], ["train-driver-0+1", *WORKERS[2:]]),
        (
            [LEADER_WORKERS],
            [f"train-{group}{name}" for group in (0, 1) for name in ("-workers+0", "-workers+1", "+0")],
        ),
        ([RAY], ["train-head+1", "train-small+1", "train-small+2"]),
        ([MPI], ["train-launcher+1", "train-worker+1", "train-worker+2"]),
        ([{**MPI, "apiVersion": "example.com/v1"}], []),
    ],
)
def test_the_pods_that_are_missing(objects: list[Object], names: list[str], tmp_path: Path) -> None:
    assert sorted(added(tmp_path, *objects)) == sorted(names)


def test_pods_have_the_labels_by_which_gangs_know_them(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(listed(JOB_SET, LEADER_WORKERS))
    pods = read_cluster_state([tmp_path / "all.json"], []).view.pods
    assert {pod.metadata.labels.get("jobset.sigs.k8s.io/jobset-name") for pod in pods} == {"train", None}
    groups = [pod.metadata.labels.get("leaderworkerset.sigs.k8s.io/group-index") for pod in pods]
    assert [groups.count(group) for group in ("0", "1", None)] == [3, 3, 5]


def test_an_error_names_the_path_in_the_object(tmp_path: Path) -> None:
    odd = {**TEMPLATE, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}]}}
    jobs = [{"name": "a", "template": {"spec": {"template": odd}}}]
    (tmp_path / "all.json").write_text(listed({**JOB_SET, "spec": {"replicatedJobs": jobs}}))
    with pytest.raises(InvalidInput, match=r"JobSet/train: spec.replicatedJobs\[0\].template.spec.template.spec"):
        read_cluster_state([tmp_path / "all.json"], [])


@pytest.mark.parametrize(
    ("of", "spec"),
    [
        (JOB_SET, {"replicatedJobs": [{**JOB_SET["spec"]["replicatedJobs"][1], "replicas": 10**12}]}),
        (LEADER_WORKERS, {**LEADER_WORKERS["spec"], "replicas": 10**12}),
    ],
)
def test_a_number_beyond_reason_is_refused(of: Object, spec: Object, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(listed({**of, "spec": spec}))
    with pytest.raises(InvalidInput, match="makes more than 10,000 Jobs or groups of pods"):
        read_cluster_state([tmp_path / "all.json"], [])


def test_plan_says_which_kinds_it_does_not_read(tmp_path: Path, shiplap: Shiplap) -> None:
    rollout = {**workload("Rollout", "a"), "apiVersion": "argoproj.io/v1alpha1"}
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"spec": "containers"}}
    page = shiplap.page(*plan_of(tmp_path, rollout, {**rollout, "metadata": {"name": "b"}}, MPI, other))
    assert "pods of 2 Rollouts are not planned: their kind is not read" in page
    assert "ConfigMap" not in page


def test_plan_counts_them(tmp_path: Path, shiplap: Shiplap) -> None:
    page = shiplap.page(*plan_of(tmp_path, JOB_SET))
    assert "5 pods with + in the name will be made by workloads" in page
    assert "Job shop/train-workers-1" in page


SUSPENDED: list[Object] = [
    {**JOB_SET, "spec": {**JOB_SET["spec"], "suspend": True}},
    {**RAY, "spec": {**RAY["spec"], "suspend": True}},
    {**MPI, "spec": {**MPI["spec"], "runPolicy": {"suspend": True}}},
    {**workload("Job", "train", parallelism=2, suspend=True), "apiVersion": "batch/v1"},
]


@pytest.mark.parametrize("written", SUSPENDED, ids=lambda written: str(written["kind"]))
def test_plan_says_that_a_suspended_object_was_seen(written: Object, tmp_path: Path, shiplap: Shiplap) -> None:
    assert added(tmp_path, written) == []
    said = f"pods of suspended workloads are not planned: {written['kind']} shop/train"
    assert said in shiplap.page(*plan_of(tmp_path, written))
    running = {**written, "spec": {**written["spec"], "suspend": False, "runPolicy": {}}}
    assert "suspended" not in shiplap.page(*plan_of(tmp_path, running), code=None)


def test_a_suspended_job_that_is_scaled_is_planned(tmp_path: Path, shiplap: Shiplap) -> None:
    page = shiplap.page(*plan_of(tmp_path, SUSPENDED[-1]), "--scale", "train=2", code=None)
    assert "2 pods with + in the name will be made by workloads" in page
    assert "suspended" not in page


@pytest.mark.parametrize("written", [JOB_SET, LEADER_WORKERS, RAY, MPI], ids=lambda written: str(written["kind"]))
def test_explain_takes_the_name_of_the_object_that_makes_the_sets(
    written: Object, tmp_path: Path, shiplap: Shiplap
) -> None:
    given = plan_of(tmp_path, written)[1:]
    assert shiplap.json("explain", "pod", "shop/train", *given)["pod"].startswith("shop/train-")
    arm = shiplap.json("plan", *given, "--arm", "shop/train", code=None)
    assert arm["pods"] == len(added(tmp_path, written))
    assert "there is no pod shop/other" in shiplap.error("explain", "pod", "shop/other", *given)
