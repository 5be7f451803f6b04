"""Annotations of gangs in places where no pod gets them: `shiplap validate` warns, and `shiplap plan` notes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import Shiplap
from tests.unit.cli.gangs_written import KINDS, MINIMUM, gpu_pool, template, thing, warned_of_gangs
from tests.unit.cli.planned_files import plan_of

DEADLINE = "shiplap.dev/gang-deadline"


def moved(part: Any) -> Any:
    """Return an object without annotations in its templates."""
    if isinstance(part, dict):
        return {key: {} if key == "annotations" else moved(each) for key, each in part.items()}
    return [moved(each) for each in part] if isinstance(part, list) else part


def above(written: dict[str, Any], key: str = MINIMUM, value: str = "4", at: str = "annotations") -> dict[str, Any]:
    return {**moved(written), "metadata": {"name": "train", "namespace": "ml", at: {key: value}}}


@pytest.mark.parametrize("written", KINDS, ids=lambda written: str(written["kind"]))
@pytest.mark.parametrize(("key", "value"), [(MINIMUM, "4"), (DEADLINE, "2h")])
def test_an_annotation_of_the_object_is_warned_of(
    tmp_path: Path, shiplap: Shiplap, written: dict[str, Any], key: str, value: str
) -> None:
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="64"), above(written, key, value))
    assert warning["file"] == str(tmp_path / "all.json")
    assert (warning["document"], warning["field"]) == (f"{written['kind']}/train", f"metadata.annotations[{key}]")
    assert warning["reason"].startswith("has no effect here, since pods do not get it: write it at spec.")
    assert "emplate.metadata.annotations" in warning["reason"]
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="64"), written) == []


def test_the_line_and_the_right_place_are_named(tmp_path: Path, shiplap: Shiplap) -> None:
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump(gpu_pool(gpus="64")))
    text = yaml.safe_dump(above(KINDS[2]))
    (tmp_path / "jobs.yaml").write_text(text)
    line = next(number for number, each in enumerate(text.splitlines(), 1) if MINIMUM in each)
    (warning,) = shiplap.json("validate", tmp_path)["warnings"]
    assert (Path(warning["file"]).name, warning["line"]) == ("jobs.yaml", line)
    places = [f"spec.replicatedJobs[{job}].template.spec.template.metadata.annotations" for job in (0, 1)]
    assert warning["reason"].endswith(f"write it at {places[0]} or {places[1]}")


def test_labels_and_templates_of_jobs_are_wrong_places_too(tmp_path: Path, shiplap: Shiplap) -> None:
    jobs = {"template": {"metadata": {"annotations": {MINIMUM: "4"}}, "spec": {"template": template(None)}}}
    between = thing("jobset.x-k8s.io/v1alpha2", "JobSet", replicatedJobs=[jobs])
    as_label = moved(KINDS[0])
    as_label["spec"]["template"]["metadata"]["labels"] = {MINIMUM: "4"}
    for written, field in (
        (between, f"spec.replicatedJobs[0].template.metadata.annotations[{MINIMUM}]"),
        (as_label, f"spec.template.metadata.labels[{MINIMUM}]"),
        (above(KINDS[0], at="labels"), f"metadata.labels[{MINIMUM}]"),
        (
            above(thing("batch/v1", "CronJob", jobTemplate={"spec": KINDS[0]["spec"]})),
            f"metadata.annotations[{MINIMUM}]",
        ),
    ):
        (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="64"), written)
        assert warning["field"] == field


def test_an_object_without_pods_is_told_of_pods(tmp_path: Path, shiplap: Shiplap) -> None:
    group = above(thing("scheduling.x-k8s.io/v1alpha1", "PodGroup", minMember=4), DEADLINE, "2h")
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(), group)
    assert warning["reason"].endswith("write it at metadata.annotations of the pods")


def test_a_copy_beside_the_right_place_or_of_another_object_is_harmless(tmp_path: Path, shiplap: Shiplap) -> None:
    twice = {**KINDS[0], "metadata": above(KINDS[0])["metadata"]}
    owner = [{"kind": "Deployment", "name": "train", "uid": "1", "controller": True}]
    copied = above(thing("apps/v1", "ReplicaSet", template=template()))
    copied["metadata"]["ownerReferences"] = owner
    assert warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="64"), twice, copied) == []


@pytest.mark.parametrize("held", [None, 4, MINIMUM, [MINIMUM]])
def test_what_cannot_be_read_is_passed_over(tmp_path: Path, shiplap: Shiplap, held: object) -> None:
    odd = {**moved(KINDS[0]), "metadata": {"name": "odd", "annotations": held}}
    (warning,) = warned_of_gangs(shiplap, tmp_path, gpu_pool(gpus="64"), odd, above(KINDS[0]))
    assert warning["document"] == "Job/train"


def test_plan_notes_it(tmp_path: Path, shiplap: Shiplap) -> None:
    page = shiplap.page(*plan_of(tmp_path, above(KINDS[0])), code=None)
    assert f"Job/train: metadata.annotations[{MINIMUM}]: has no effect here, since pods do not get it" in page
    assert "has no effect" not in shiplap.page(*plan_of(tmp_path, KINDS[0]), code=None)
