"""`shiplap validate` warns of gangs that the limits of NodePools can never hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import Shiplap
from tests.unit.cli.gangs_written import KINDS, gpu_pool, job, template, thing, warned_of_gangs
from tests.unit.manifests.manifest_samples import changed

SAID = "its 4 members request nvidia.com/gpu 32 together, the limit of NodePool train is 16"


@pytest.mark.parametrize("written", KINDS, ids=lambda written: str(written["kind"]))
def test_a_limit_below_what_a_gang_needs_is_said(tmp_path: Path, shiplap: Shiplap, written: dict[str, Any]) -> None:
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), written)
    assert (warning["document"], warning["field"]) == (f"{written['kind']}/train", "spec")
    assert SAID in warning["reason"]
    least = "; whole nodes count, which are no less: `shiplap explain pod ml/train` names what suffices"
    assert warning["reason"].endswith(least)
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="32"), written) == []


def test_only_so_many_members_as_are_needed_count(tmp_path: Path, shiplap: Shiplap) -> None:
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), job(minimum=2)) == []
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), job(minimum=None)) == []
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), job(minimum=3)) != []


def test_a_pod_group_says_how_many_are_needed(tmp_path: Path, shiplap: Shiplap) -> None:
    members = [thing("v1", "Pod", **template()["spec"]) for _ in range(4)]
    for item in members:
        item["metadata"] = {**item["metadata"], "labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    for number, said in ((2, False), (4, True)):
        group = thing("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=number)
        assert bool(warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), group, *members)) == said


def placed(namespace: str, *objects: dict[str, Any]) -> list[dict[str, Any]]:
    given = {"namespace": namespace} if namespace else {}
    return [{**item, "metadata": {**item["metadata"], "namespace": None} | given} for item in objects]


@pytest.mark.parametrize("written", KINDS, ids=lambda written: str(written["kind"]))
def test_what_names_no_namespace_is_in_default(tmp_path: Path, shiplap: Shiplap, written: dict[str, Any]) -> None:
    here, left_out = (
        warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), *placed(name, written)) for name in ("default", "")
    )
    assert left_out == here != []


@pytest.mark.parametrize("of_group", ["", "default"])
@pytest.mark.parametrize("of_pods", ["", "default"])
def test_members_find_a_pod_group_without_a_namespace(
    tmp_path: Path, shiplap: Shiplap, of_group: str, of_pods: str
) -> None:
    labels = {"scheduling.x-k8s.io/pod-group": "train"}
    members = [thing("v1", "Pod", **template(minimum=None)["spec"]) for _ in range(4)]
    pods = [changed(item, "metadata.labels", labels) for item in placed(of_pods, *members)]
    group = placed(of_group, thing("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=4))
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), *group, *pods)
    assert "gang default/train can never start" in warning["reason"]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (gpu_pool("other"), False),
        (gpu_pool("other", "", "m5"), True),
        (gpu_pool("other", "16"), False),
        (gpu_pool("other", "8"), True),
        (gpu_pool("other", taints=[{"key": "for", "value": "web", "effect": "NoSchedule"}]), True),
    ],
)
def test_a_second_pool_counts_where_it_may_have_members(
    tmp_path: Path, shiplap: Shiplap, other: dict[str, Any], said: bool
) -> None:
    assert bool(warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), other, job())) == said


def test_a_pool_that_members_do_not_select_does_not_count(tmp_path: Path, shiplap: Shiplap) -> None:
    apart = job(nodeSelector={"for": "train"})
    mine, other = gpu_pool(gpus="16", labels={"for": "train"}), gpu_pool("other", labels={"for": "web"})
    assert len(warned_of_gangs(shiplap, tmp_path, mine, other, apart)) == 1
    assert warned_of_gangs(shiplap, tmp_path, mine, other, job()) == []


@pytest.mark.parametrize(
    "broken",
    [
        thing("batch/v1", "Job", parallelism="four", template=template()),
        thing("batch/v1", "Job", parallelism=-4, template=template()),
        thing("batch/v1", "Job", parallelism=4, template=template(gpus="eight")),
        thing("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[{"replicas": 10**12, "template": None}]),
        {"apiVersion": 3, "kind": ["Job"], "metadata": {}},
    ],
)
def test_what_cannot_be_read_hides_no_neighbour(tmp_path: Path, shiplap: Shiplap, broken: dict[str, Any]) -> None:
    other = {**broken, "metadata": {"name": "broken"}}
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="16"), other, job())
    assert SAID in warning["reason"]
