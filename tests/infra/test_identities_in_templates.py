"""Tests the parts of the nodes' identity that stay, go and come when an install is written in another way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

IDENTITY = ("AWS::IAM::Role", "AWS::IAM::InstanceProfile", "AWS::EKS::AccessEntry")
NODE_CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {{name: default}}
spec:
  role: {role}
  amiSelectorTerms: [{{alias: {alias}}}]
  subnetSelectorTerms: [{{tags: {{a: b}}}}]
  securityGroupSelectorTerms: [{{tags: {{a: b}}}}]
"""
LINUX, WINDOWS = "al2023@latest", "windows2022@latest"


def identity(folder: Path, role: str, alias: str, more: str = "") -> dict[str, Any]:
    """Resources of the cluster's nested stack by logical id: the identity of its nodes, and the names of profiles."""
    from shiplap_cdk.install_document import read  # noqa: PLC0415 - as above
    from shiplap_cdk.synthesis import build  # noqa: PLC0415 - the CDK's binding starts Node.js when it is imported

    folder.mkdir()
    (folder / "nodes.yaml").write_text(NODE_CLASS.format(role=role, alias=alias))
    cluster = f"{{name: demo, manifests: nodes.yaml{more}}}"
    (folder / "shiplap.yaml").write_text(f"region: eu-west-1\nclusters: [{cluster}]\n")
    build(read(folder / "shiplap.yaml"), local=True, outdir=str(folder / "cdk.out")).synth()
    (nested,) = (folder / "cdk.out").glob("*Cluster*.template.json")
    found: dict[str, Any] = json.loads(nested.read_text())["Resources"]
    return {
        name: item
        for name, item in found.items()
        if (item["Type"] in IDENTITY and not name.startswith("Entry")) or item["Type"] == "AWS::SSM::Parameter"
    }


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("a", LINUX), ("b", LINUX)),
        (("shiplap-node-demo", LINUX), ("b", LINUX)),
        (("shiplap-node-demo", LINUX), ("shiplap-node-demo", WINDOWS)),
    ],
    ids=["another role", "a role of one's own", "Windows"],
)
def test_what_nodes_carry_is_retained_and_what_comes_is_another_resource(
    tmp_path: Path, before: tuple[str, str], after: tuple[str, str]
) -> None:
    old, new = identity(tmp_path / "old", *before), identity(tmp_path / "new", *after)
    for name, item in (old | new).items():
        if item["Type"] in IDENTITY:
            assert (item["DeletionPolicy"], item["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
            assert name not in old.keys() & new.keys(), "running nodes carry it, and it would change in place"
            assert not {"RoleName", "InstanceProfileName"} & item["Properties"].keys(), "what is kept has the name"


def test_what_is_written_in_the_same_way_stays_as_it_is(tmp_path: Path) -> None:
    first = identity(tmp_path / "first", "shiplap-node-demo", LINUX)
    assert {item["Type"] for item in first.values()} == {*IDENTITY, "AWS::SSM::Parameter"}
    assert identity(tmp_path / "second", "shiplap-node-demo", LINUX) == first


@pytest.mark.parametrize("cidr", ["", ", serviceCIDR: 10.100.0.0/16", ', serviceCIDR: "fd00:1234::/108"'])
def test_nodes_may_assign_ipv6_addresses_in_clusters_with_ipv6_alone(tmp_path: Path, cidr: str) -> None:
    found = identity(tmp_path / "demo", "shiplap-node-demo", LINUX, cidr)
    (role,) = [item["Properties"] for item in found.values() if item["Type"] == "AWS::IAM::Role"]
    assert ("ec2:AssignIpv6Addresses" in json.dumps(role.get("Policies", []))) == ("fd00" in cidr)
