"""`shiplap migrate convert` from the outside: what it writes, what it says, its exit codes."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.builders.nodes import node_object
from tests.builders.pods import owned_by, pod_object
from tests.commands import Shiplap, listed

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
        - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  userData: |
    #!/bin/bash
    echo hello
"""


def group() -> dict[str, Any]:
    return {
        "nodegroup": {
            "nodegroupName": "core",
            "clusterName": "prod",
            "scalingConfig": {"maxSize": 4},
            "instanceTypes": ["m5.large"],
            "subnets": ["subnet-1"],
            "amiType": "AL2023_x86_64_STANDARD",
            "nodeRole": "arn:aws:iam::111122223333:role/core",
        }
    }


@pytest.fixture
def karpenter(tmp_path: Path) -> Path:
    path = tmp_path / "karpenter.yaml"
    path.write_text(POOL)
    return path


def test_what_is_written_is_valid(karpenter: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    folder = tmp_path / "out" / "manifests"
    assert f"Written to {folder}" in shiplap.page(
        "migrate", "convert", karpenter, "--to", str(folder), "--cluster", "prod", "--region", "eu-west-1"
    )
    shiplap("validate", folder)
    assert sorted(path.name for path in folder.iterdir()) == ["MIGRATION.md", "ec2nodeclasses.yaml", "nodepools.yaml"]
    assert "userData: |\n    #!/bin/bash\n    echo hello\n" in (folder / "ec2nodeclasses.yaml").read_text()
    report = (folder / "MIGRATION.md").read_text()
    for text in (
        "region: eu-west-1\n",
        f"- name: prod\n  manifests: {folder}\n",
        "tolerates: shiplap.dev/migration",
        "kubectl drain -l karpenter.sh/nodepool=default",
    ):
        assert text in report


def test_the_settings_name_a_role_for_each_instance_profile(karpenter: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    karpenter.write_text(POOL.replace("role: node", "instanceProfile: of-nodes"))
    shiplap("migrate", "convert", karpenter, "--to", str(tmp_path / "manifests"), "--cluster", "prod")
    report = (tmp_path / "manifests" / "MIGRATION.md").read_text()
    assert "  nodeRoles:\n  - <role of instance profile of-nodes>\n" in report
    settings = shiplap.json("migrate", "convert", karpenter)["settings"]
    assert settings["nodeRoles"] == ["<role of instance profile of-nodes>"]


@pytest.mark.parametrize(
    ("fields", "region"),
    [
        ({"nodegroupArn": "arn:aws:eks:eu-west-1:111122223333:nodegroup/prod/core/1"}, "eu-west-1"),
        ({"availabilityZones": ["us-gov-west-1a"]}, "us-gov-west-1"),
        ({"nodegroupArn": "arn:aws:eks:eu-west-1:1:x", "zones": ["us-east-1a"]}, "REGION"),
        ({"x": "not-a-zone"}, "REGION"),
    ],
)
def test_the_region_that_the_input_names(fields: dict[str, Any], region: str, tmp_path: Path, shiplap: Shiplap) -> None:
    path, folder = tmp_path / "groups.json", tmp_path / "out"
    path.write_text(json.dumps({"nodegroup": group()["nodegroup"] | fields}))
    shiplap("migrate", "convert", path, "--to", folder, code=1)
    report = (folder / "MIGRATION.md").read_text()
    assert f"region: {region}\n" in report
    asked = f" --region {region}" if region != "REGION" else ""
    again = f"shiplap migrate convert {path}{asked} --suffix=-shiplap --no-taint --to {folder}-untainted"
    assert again in report
    shiplap(*shlex.split(again)[1:], code=1)
    assert "shiplap.dev/migration" not in (tmp_path / "out-untainted" / "nodepools.yaml").read_text()


def test_nothing_is_overwritten(karpenter: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    (tmp_path / "nodepools.yaml").write_text("mine")
    assert "is there already" in shiplap.error("migrate", "convert", karpenter, "--to", str(tmp_path))
    assert (tmp_path / "nodepools.yaml").read_text() == "mine"


def test_the_json_of_it(karpenter: Path, shiplap: Shiplap) -> None:
    found = shiplap.json("migrate", "convert", karpenter, "--no-taint", "--suffix", "-new")
    assert found["from"] == "Karpenter"
    assert found["summary"] == {"exact": 2, "approximate": 0, "not mapped": 0}
    assert [item["metadata"]["name"] for item in found["manifests"]] == ["default", "default-new"]
    assert found["settings"] == {"claimRules": [], "nodeRoles": [], "joinTimeoutSeconds": None}
    assert found["dryRun"] is None


def test_what_does_not_map_is_exit_code_one(tmp_path: Path, shiplap: Shiplap) -> None:
    path = tmp_path / "groups.json"
    path.write_text(json.dumps(group()))
    assert "1 not mapped" in shiplap("migrate", "convert", str(path), code=1)


def test_a_kustomization_that_nobody_applied_does_not_map(karpenter: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "pools.yaml").write_text(karpenter.read_text())
    (folder / "kustomization.yaml").write_text(
        "kind: Kustomization\nresources: [pools.yaml]\npatches: [{path: p.yaml}]\n"
    )
    page = shiplap("migrate", "convert", str(folder), code=1)
    assert "1 not mapped" in page
    assert "patches not applied" in page


def test_a_dry_run_of_the_present_pods(karpenter: Path, tmp_path: Path, shiplap: Shiplap) -> None:
    pod = partial(pod_object, namespace="web", phase="Running", metadata=owned_by("ReplicaSet"))
    state = [
        node_object("old", instance_type="m5.4xlarge", zone="us-east-1a"),
        node_object("odd", instance_type="x.unknown", zone="us-east-1a"),
        pod("a", "1", node="old", nodeSelector={"karpenter.sh/nodepool": "default"}),
        pod("b", "1", node="old"),
        pod("huge", "900"),
        pod("daemon", "1", node="old", metadata=owned_by("DaemonSet")),
    ]
    path = tmp_path / "state.json"
    path.write_text(listed(*state))
    found = shiplap.json("migrate", "convert", karpenter, "--cluster-state", path, code=1)
    trial = found["dryRun"]
    assert (trial["pods"], trial["nodes"], trial["presentNodes"], trial["unpricedNodes"]) == (3, 2, 2, 1)
    assert 0 < trial["hourly"] < trial["presentHourly"]
    assert [pod for pod, _ in trial["leftOut"]] == ["web/huge"]
    assert any(finding["field"] == "nodeSelector karpenter.sh/nodepool" for finding in found["findings"])

    assert "Dry run: 2 of 3 pods on 2 new nodes" in shiplap(
        "migrate", "convert", karpenter, "--cluster-state", path, code=1
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs files"),
        (["--from-aws"], "needs --cluster"),
        (["-", "--cluster-state", "-"], "standard input can be read once"),
        (["missing.yaml"], "cannot be read"),
    ],
)
def test_bad_input(arguments: list[str], said: str, shiplap: Shiplap) -> None:
    assert said in shiplap.error("migrate", "convert", *arguments)
