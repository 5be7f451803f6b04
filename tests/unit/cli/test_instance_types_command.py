"""`shiplap explain instance-types`: selection, settings, formats and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation
from shiplap_cli.inputs.learned.learned_file import dump_learned
from tests.commands import Shiplap

NODE_CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: rocket}
spec:
  role: nodes
  amiSelectorTerms: [{alias: bottlerocket@latest}]
  subnetSelectorTerms: [{tags: {cluster: demo}}]
  securityGroupSelectorTerms: [{tags: {cluster: demo}}]
  kubelet: {maxPods: 110}
"""


def answer(shiplap: Shiplap, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = shiplap.json("explain", "instance-types", *arguments)
    return found


def complaint(shiplap: Shiplap, *arguments: str) -> str:
    return shiplap.error("explain", "instance-types", *arguments)


def test_the_fixed_format(shiplap: Shiplap) -> None:
    found = answer(shiplap, "m5.large")
    assert list(found) == ["m5.large"]
    made = found["m5.large"]
    assert list(made) == ["labels", "capacity", "overhead", "allocatable", "sources"]
    assert made["labels"]["karpenter.k8s.aws/instance-family"] == "m5"
    branches = {"vpc.amazonaws.com/pod-eni": "9"}
    assert made["capacity"] == {"cpu": "2", "ephemeral-storage": "20Gi", "memory": "7577Mi", "pods": "29"} | branches
    assert made["overhead"] == {"cpu": "70m", "ephemeral-storage": "3Gi", "memory": "674Mi"}
    allocatable = {"cpu": "1930m", "ephemeral-storage": "17Gi", "memory": "6903Mi", "pods": "29"}
    assert made["allocatable"] == allocatable | branches
    assert made["sources"] == {
        "cpu": "catalog",
        "ephemeral-storage": "formula",
        "memory": "formula",
        "pods": "formula",
        "vpc.amazonaws.com/pod-eni": "formula",
    }


def test_all_types_without_a_name_and_globs(shiplap: Shiplap) -> None:
    assert len(answer(shiplap)) > 1200
    assert list(answer(shiplap, "m5.large", "t3.nan*")) == ["m5.large", "t3.nano"]


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        ((), "8"),
        (("--prefix-delegation",), "98"),
        (("--prefix-delegation", "--cni-version", "1.8.0"), "8"),
        (("--prefix-delegation", "--cni-version", "v1.19.2"), "98"),
        (("--custom-networking",), "5"),
        (("--prefix-delegation", "--custom-networking"), "50"),
        (("--prefix-delegation", "--cni-max-eni", "1"), "50"),
        (("--reserved-enis", "1"), "5"),
    ],
)
def test_how_the_cni_is_set(shiplap: Shiplap, options: tuple[str, ...], pods: str) -> None:
    assert answer(shiplap, "c6g.medium", *options)["c6g.medium"]["allocatable"]["pods"] == pods


def test_the_overhead_fraction(shiplap: Shiplap) -> None:
    found = answer(shiplap, "r5a.8xlarge", "--vm-memory-overhead-percent", "0.048")
    assert found["r5a.8xlarge"]["allocatable"]["memory"] == "246632Mi"


def test_another_region(shiplap: Shiplap) -> None:
    found = answer(shiplap, "m5.large", "--region", "eu-west-1")["m5.large"]
    assert found["labels"]["topology.kubernetes.io/region"] == "eu-west-1"


def test_an_ec2_node_class_of_ones_own(shiplap: Shiplap, tmp_path: Path) -> None:
    path = tmp_path / "class.yaml"
    path.write_text(NODE_CLASS)
    found = answer(shiplap, "c6g.medium", "m5.large", "--nodeclass", str(path))
    assert found["m5.large"]["allocatable"] == {
        "cpu": "1930m",
        "ephemeral-storage": "17Gi",
        "memory": "6012Mi",
        "pods": "110",
        "vpc.amazonaws.com/pod-eni": "9",
    }
    assert found["c6g.medium"]["allocatable"]["pods"] == "98"


def test_learned_capacity(shiplap: Shiplap, tmp_path: Path) -> None:
    path = tmp_path / "capacity.json"
    seen = Observation("ami-1", "m5.large", "h", {"memory": 8000 * 2**20}, {}, 1.0, "demo", "n1")
    path.write_bytes(dump_learned([LearnedCapacity("ami-1", "m5.large", "h", (seen,), 1)]))
    found = answer(shiplap, "m5.large", "--capacity", str(path))["m5.large"]
    assert found["capacity"]["memory"] == "8000Mi"
    assert found["sources"]["memory"] == "sibling"


def test_the_table_marks_estimates(shiplap: Shiplap) -> None:
    shown = shiplap("explain", "instance-types", "m5.large", "g5.xlarge")
    assert "6903Mi" in shown
    assert "~0.0" in shown
    assert "1 nvidia.com/gpu" in shown
    assert shown.index("g5.xlarge") < shown.index("m5.large")


def test_a_type_that_is_not_sold_in_the_region_has_no_price(shiplap: Shiplap) -> None:
    assert " - " in shiplap("explain", "instance-types", "trn2.48xlarge")


def test_what_cannot_be_answered(shiplap: Shiplap, tmp_path: Path) -> None:
    assert "'m99.*' matches none" in complaint(shiplap, "m99.*")
    assert "none.yaml" in complaint(shiplap, "--nodeclass", str(tmp_path / "none.yaml"))
    assert "none.json" in complaint(shiplap, "--capacity", str(tmp_path / "none.json"))
    assert "mars" in complaint(shiplap, "--region", "mars")
    assert "--cni-version" in complaint(shiplap, "--cni-version", "newest")
    two = tmp_path / "two.yaml"
    two.write_text(NODE_CLASS + "---" + NODE_CLASS.replace("rocket", "second", 1))
    assert "exactly one" in complaint(shiplap, "--nodeclass", str(two))
