"""Documents against each other, kinds and versions, and the list of all problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidManifests
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.decoding import decode, field_name, kind_of
from shiplap.manifests.files.loading import inspect_files, load_manifests
from tests.unit.manifests.manifest_samples import (
    ABSENT,
    EC2_NODE_CLASS,
    NODE_OVERLAY,
    NODE_POOL,
    changed,
    fields_of,
    problems_of,
)


def write(folder: Path, **files: list[dict[str, Any]]) -> Path:
    for name, objects in files.items():
        (folder / f"{name}.json").write_text("\n".join(map(json.dumps, objects)))
    return folder


def test_manifests_are_sorted_by_name_and_other_kinds_are_passed_over(tmp_path: Path) -> None:
    write(
        tmp_path,
        a=[changed(NODE_POOL, "metadata.name", "z"), NODE_OVERLAY],
        b=[
            NODE_POOL,
            EC2_NODE_CLASS,
            {"apiVersion": "apps/v1", "kind": "Deployment"},
            {"apiVersion": "v1", "kind": "Pod"},
        ],
    )
    report = inspect_files([tmp_path])
    assert [pool.metadata.name for pool in report.manifests.node_pools] == ["default", "z"]
    assert [overlay.metadata.name for overlay in report.manifests.node_overlays] == ["measured"]
    assert (report.checked, len(report.skipped), report.problems) == (4, 2, ())
    assert load_manifests([tmp_path]) == report.manifests


def test_manifests_survive_their_encoding(tmp_path: Path) -> None:
    manifests = load_manifests([write(tmp_path, a=[NODE_POOL, EC2_NODE_CLASS, NODE_OVERLAY])])
    assert msgspec.json.decode(msgspec.json.encode(manifests), type=Manifests) == manifests


def test_load_raises_with_every_problem_of_every_file(tmp_path: Path) -> None:
    write(tmp_path, b=[changed(NODE_POOL, "spec.weight", 0), changed(EC2_NODE_CLASS, "spec.x", 1)])
    (tmp_path / "a.yaml").write_text("kind: NodePool\na: [")
    with pytest.raises(InvalidManifests) as caught:
        load_manifests([tmp_path, tmp_path / "absent.yaml"])
    problems = caught.value.problems
    assert [(Path(problem.source).name, problem.document, problem.field) for problem in problems] == [
        ("a.yaml", "", ""),
        ("absent.yaml", "", ""),
        ("b.json", "NodePool/default", "spec.weight"),
        ("b.json", "EC2NodeClass/default", "spec.x"),
    ]
    assert str(caught.value).endswith("(and 3 more)")
    assert caught.value.source == problems[0].source


def test_an_empty_folder_is_a_problem_and_does_not_hide_others(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    report = inspect_files([tmp_path / "empty", write(tmp_path, a=[changed(NODE_POOL, "spec.weight", 0)]) / "a.json"])
    assert [problem.field for problem in report.problems] == ["", "spec.weight"]


def test_problems_come_with_file_line_document_and_field(tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    file.write_text("""\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: default
spec:
  weight: 101
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - key: kubernetes.io/arch
          operator: Is
""")
    assert [str(problem) for problem in inspect_files([file]).problems] == [
        f"{file}:6: NodePool/default: spec.weight: must be from 1 to 100, is 101",
        f"{file}:12: NodePool/default: spec.template.spec.requirements[0].operator: must be one of In, NotIn, Exists, "
        "DoesNotExist, Gt, Lt, Gte, Lte, is 'Is'",
    ]


def test_two_of_one_kind_and_name() -> None:
    assert fields_of(NODE_POOL, EC2_NODE_CLASS, NODE_POOL) == ["metadata.name"]
    assert fields_of(NODE_POOL, changed(NODE_POOL, "metadata.name", "other")) == []


def test_a_node_class_that_is_not_there() -> None:
    other = changed(EC2_NODE_CLASS, "metadata.name", "other")
    assert problems_of(NODE_POOL, other) == [
        (
            "spec.template.spec.nodeClassRef.name",
            "there is no EC2NodeClass 'default' among the manifests: EC2NodeClass/other",
        )
    ]
    assert problems_of(NODE_POOL) == []  # it may be in the cluster
    assert fields_of(NODE_POOL, changed(EC2_NODE_CLASS, "spec.role", 1)) == ["spec.role"]  # there, if not well


CONVERTS = "; `shiplap migrate convert` converts it"
BRING = "; bring it to v1 first, `shiplap migrate convert` says how"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            changed(NODE_POOL, "apiVersion", "karpenter.sh/v1beta1"),
            (
                "apiVersion",
                "karpenter.sh/v1beta1 is not read; write it as karpenter.sh/v1; `shiplap migrate convert` converts it",
            ),
        ),
        (
            changed(EC2_NODE_CLASS, "apiVersion", "karpenter.k8s.aws/v1beta1"),
            ("apiVersion", "karpenter.k8s.aws/v1beta1 is not read; write it as karpenter.k8s.aws/v1" + CONVERTS),
        ),
        (
            changed(NODE_POOL, "kind", "Provisioner"),
            ("kind", "Provisioner of karpenter.sh is not a manifest; karpenter.sh has NodeOverlay, NodePool" + BRING),
        ),
        (
            changed(EC2_NODE_CLASS, "kind", "AWSNodeTemplate"),
            (
                "kind",
                "AWSNodeTemplate of karpenter.k8s.aws is not a manifest; karpenter.k8s.aws has EC2NodeClass" + BRING,
            ),
        ),
        (changed(NODE_POOL, "kind", ABSENT), ("kind", "required field is missing or not text")),
        (changed(NODE_POOL, "apiVersion", 1), ("apiVersion", "required field is missing or not text")),
    ],
)
def test_what_is_not_read_is_named(data: dict[str, Any], problem: tuple[str, str]) -> None:
    assert problems_of(data) == [problem]


def test_fields_of_later_parts_of_the_api_are_kept() -> None:
    node_class = changed(EC2_NODE_CLASS, "spec.capacityReservationSelectorTerms", [{"id": "cr-1"}])
    assert problems_of(changed(node_class, "spec.placementGroupSelector", {"name": "x"})) == []
    assert problems_of(changed(NODE_POOL, "spec.replicas", 2)) == []


@pytest.mark.parametrize("field", ["generateName", "managedFields", "selfLink", "deletionGracePeriodSeconds"])
def test_metadata_may_hold_what_the_api_server_knows(field: str) -> None:
    assert problems_of(changed(NODE_POOL, f"metadata.{field}", "anything")) == []


def test_owner_references() -> None:
    owner = {"apiVersion": "v1", "kind": "A", "name": "b", "uid": "c", "blockOwnerDeletion": True}
    assert problems_of(changed(NODE_POOL, "metadata.ownerReferences", [owner])) == []
    assert fields_of(changed(NODE_POOL, "metadata.ownerReferences", [{**owner, "x": 1}])) == [
        "metadata.ownerReferences[0].x"
    ]


def test_nulls_count_as_absent() -> None:
    data = changed(changed(NODE_POOL, "spec.limits", None), "metadata.labels", {"a": None})
    assert problems_of(changed(data, "spec.weight", None)) == []
    assert problems_of(changed(NODE_POOL, "spec.template", None)) == [("spec.template", "required field is missing")]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (5, "expected text, got a whole number (5); put it in quotes"),
        (True, "expected text, got true or false (True); put it in quotes"),
        (["a"], "expected text, got a list"),
        ({}, "expected text, got a mapping"),
    ],
)
def test_wrong_types_are_explained(value: Any, reason: str) -> None:
    data = changed(NODE_POOL, "spec.template.spec.expireAfter", value)
    assert problems_of(data) == [("spec.template.spec.expireAfter", reason)]


@pytest.mark.parametrize(("value", "reason"), [(100, "a whole number (100); write 100Gi"), (1.5, "a number (1.5)")])
def test_a_volume_size_without_a_unit_is_answered_with_the_text_to_write(value: float, reason: str) -> None:
    data = changed(EC2_NODE_CLASS, "spec.blockDeviceMappings", [{"deviceName": "a", "ebs": {"volumeSize": value}}])
    (problem,) = [reason for field, reason in problems_of(data) if field.endswith("volumeSize")]
    assert problem.startswith(f"expected text, got {reason}")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("budgets", [{"nodes": "1"}, {"nodes": "0", "timeZone": "Europe/Berlin"}], "shiplap.dev/disruption-time-zone"),
        ("repairPolicies", [], "`repairPolicies` of the cluster in shiplap.yaml"),
    ],
)
def test_a_field_that_is_written_elsewhere_is_told_so(field: str, value: object, reason: str) -> None:
    ((_, said),) = problems_of(changed(NODE_POOL, f"spec.disruption.{field}", value))
    assert said.startswith("unknown field: ")
    assert reason in said


def test_decoding_leaves_unknown_fields_out_and_goes_on() -> None:
    pool, problems = decode(changed(NODE_POOL, "spec.colour", 1), NodePool)
    assert pool is not None
    assert problems == [(("spec", "colour"), "unknown field")]
    broken, problems = decode(changed(NODE_POOL, "spec", []), NodePool)
    assert broken is None
    assert problems == [(("spec",), "expected a mapping, got a list")]


def test_paths_are_written_as_users_write_them() -> None:
    assert field_name(("spec", "tags", "a.b/c")) == "spec.tags[a.b/c]"
    assert field_name(("spec", "taints", 0, "key")) == "spec.taints[0].key"
    assert field_name(()) == ""
    assert kind_of(b"") == "bytes"
