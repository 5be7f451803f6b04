"""`shiplap install chart`: the chart as it is shipped, and values that fit the clusters of a shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from shiplap_cdk.policy_document import documents
from shiplap_cdk.shipped_files import shipped
from tests.commands import Shiplap
from tests.helm_program import helm

SETTINGS = """\
region: eu-west-1
clusters:
  - {name: live, manifests: cluster, nodeRoles: [nodes], karpenterLease: karpenter/lease}
  - {name: filed, manifests: pools.yaml}
"""
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-0a1b2c3d}]
  securityGroupSelectorTerms: [{id: sg-0a1b2c3d}]
"""


@pytest.fixture
def shiplap(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shiplap:
    monkeypatch.chdir(tmp_path)
    return Shiplap(capsys)


def test_without_settings_the_chart_is_written_as_it_is_shipped(shiplap: Shiplap, tmp_path: Path) -> None:
    answer = shiplap.json("install", "chart", "--to", "chart")
    source = shipped("charts/shiplap-cluster")
    names = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    assert {str(Path(name).relative_to("chart")) for name in answer["files"]} == names
    assert all((tmp_path / "chart" / name).read_bytes() == (source / name).read_bytes() for name in names)
    assert answer["commands"] == ["helm upgrade --install shiplap chart"]
    assert not any(path.is_symlink() for path in (tmp_path / "chart").rglob("*"))
    assert "no shiplap.yaml here: write chart/values.yaml for" in shiplap.page("install", "chart", "--to", "chart")


def test_each_cluster_of_the_settings_gets_values_that_helm_takes(shiplap: Shiplap, tmp_path: Path) -> None:
    Path("shiplap.yaml").write_text(SETTINGS)
    Path("pools.yaml").write_text(POOL)
    Path("chart").mkdir()
    Path("chart/theirs.yaml").write_text("kept: true\n")
    page = shiplap.page("install", "chart", "--to", "chart")
    for name, values in (
        ("live", {"manifests": "cluster", "karpenterLease": "karpenter/lease"}),
        ("filed", {"manifests": "files"}),
    ):
        written = f"chart/values-{name}.yaml"
        assert f"helm upgrade --install shiplap chart --kube-context CONTEXT --values {written}" in page
        assert yaml.safe_load(Path(written).read_text()) == values
    assert Path("chart/theirs.yaml").read_text() == "kept: true\n"
    text = Path("chart/values-live.yaml").read_text()
    done = helm("template", "mine", "chart", values=text, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "resourceNames:\n  - lease\n" in done.stdout


def test_features_that_are_on_have_their_permissions(shiplap: Shiplap) -> None:
    """All features that need an RBAC manifest are on in one cluster of two."""
    needs = {name: document.rbac for name, document in documents() if document.rbac}
    if not needs:
        pytest.skip("no feature of this tree needs an RBAC manifest")
    keys = {
        name: "".join(part.capitalize() if at else part for at, part in enumerate(name.split("_"))) for name in needs
    }
    on = ", ".join(f"{key}: {{mode: annotated}}" for key in keys.values())
    clusters = f"  - {{name: moved, manifests: pools.yaml, {on}}}\n  - {{name: still, manifests: pools.yaml}}\n"
    Path("shiplap.yaml").write_text(f"region: eu-west-1\nclusters:\n{clusters}")
    Path("pools.yaml").write_text(POOL)
    shiplap.json("install", "chart", "--to", "chart")
    values = {name: yaml.safe_load(Path(f"chart/values-{name}.yaml").read_text()) for name in ("moved", "still")}
    assert values["moved"]["features"] == dict.fromkeys(keys.values(), True)
    assert values["still"] == {"manifests": "files"}
    assert yaml.safe_load(Path("chart/values.yaml").read_text())["features"].keys() >= set(keys.values())
