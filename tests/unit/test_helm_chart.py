"""The Helm chart gives what docs/rbac*.yaml say, but for the fields that values change; wrong values are refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import shiplap
from tools.dist import CHART, pack_chart

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "docs" / "rbac.yaml"
LIVE_RBAC = ROOT / "docs" / "rbac-cluster-manifests.yaml"
MISTAKES = [
    ({"grup": "shiplap"}, "grup"),
    ({"group": ""}, "/group"),
    ({"group": "two words"}, "/group"),
    ({"group": None}, "group"),
    ({"group": ["shiplap"]}, "/group"),
    ({"manifests": "Cluster"}, "/manifests"),
    ({"manifests": True}, "/manifests"),
    ({"karpenterLease": "Karpenter"}, "/karpenterLease"),
    ({"karpenterLease": ""}, "/karpenterLease"),
    ({"karpenterLease": "-a"}, "/karpenterLease"),
    ({"flowControl": False}, "flowControl"),
    ({"flowControl": {"enabled": "yes"}}, "/flowControl/enabled"),
    ({"flowControl": {"nominalConcurrencyShares": 0}}, "/flowControl/nominalConcurrencyShares"),
    ({"flowControl": {"nominalConcurrencyShares": "20"}}, "/flowControl/nominalConcurrencyShares"),
    ({"flowControl": {"nominalConcurrencyShares": 1.5}}, "/flowControl/nominalConcurrencyShares"),
    ({"flowControl": {"lendablePercent": 101}}, "/flowControl/lendablePercent"),
    ({"flowControl": {"lendablePercent": -1}}, "/flowControl/lendablePercent"),
    ({"flowControl": {"shares": 20}}, "shares"),
]


def helm(*arguments: str, values: Mapping[str, Any], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `helm` on the chart; the test is skipped where there is none."""
    path = os.pathsep.join([os.environ["PATH"], str(ROOT / "build" / "helm")])
    program = shutil.which("helm", path=path)
    if program is None:
        pytest.skip("there is no helm; `make helm` builds it")
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    command = [program, *arguments, "--kube-version", "1.33", "--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own


def rendered(folder: Path, chart: Path = CHART, **values: object) -> list[Any]:
    done = helm("template", "mine", str(chart), values=values, folder=folder)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def written(*files: Path) -> list[Any]:
    return [document for file in files for document in yaml.safe_load_all(file.read_text())]


def by_kind(objects: list[Any], kind: str) -> list[Any]:
    found = [each for each in objects if each["kind"] == kind]
    assert found, kind
    return found


def in_order(objects: list[Any]) -> list[Any]:
    """Helm sorts by kind, and the order of objects means nothing."""
    return sorted(objects, key=lambda each: (each["kind"], each["metadata"]["name"]))


def test_the_chart_gives_the_objects_of_the_manifests(tmp_path: Path) -> None:
    assert in_order(rendered(tmp_path)) == in_order(written(RBAC))
    assert in_order(rendered(tmp_path, manifests="cluster")) == in_order(written(RBAC, LIVE_RBAC))


def test_a_group_of_another_name_is_bound_and_has_the_share(tmp_path: Path) -> None:
    objects = rendered(tmp_path, group="provisioner", manifests="cluster")

    assert len(by_kind(objects, "ClusterRoleBinding")) == 2
    for binding in by_kind(objects, "ClusterRoleBinding"):
        assert [subject["name"] for subject in binding["subjects"]] == ["provisioner"]
        assert binding["roleRef"]["name"] == binding["metadata"]["name"]
    (schema,) = by_kind(objects, "FlowSchema")
    (rule,) = schema["spec"]["rules"]
    assert rule["subjects"] == [{"kind": "Group", "group": {"name": "provisioner"}}]


def test_a_lease_of_another_name_is_the_only_one_that_may_be_read(tmp_path: Path) -> None:
    roles = by_kind(rendered(tmp_path, karpenterLease="other", manifests="cluster"), "ClusterRole")

    leases = [rule["resourceNames"] for role in roles for rule in role["rules"] if "leases" in rule["resources"]]
    assert leases == [["other"]]


def test_the_share_of_the_api_server_is_as_told_or_left_out(tmp_path: Path) -> None:
    told = rendered(tmp_path, flowControl={"nominalConcurrencyShares": 7, "lendablePercent": 0})
    without = rendered(tmp_path, flowControl={"enabled": False})

    (level,) = by_kind(told, "PriorityLevelConfiguration")
    limited = level["spec"]["limited"]
    assert (limited["nominalConcurrencyShares"], limited["lendablePercent"]) == (7, 0)
    assert [each["kind"] for each in without] == ["ClusterRole", "ClusterRoleBinding"]


@pytest.mark.parametrize(("values", "field"), MISTAKES)
def test_helm_refuses_wrong_values_and_names_the_field(values: Mapping[str, Any], field: str, tmp_path: Path) -> None:
    done = helm("template", "mine", str(CHART), values=values, folder=tmp_path)

    assert done.returncode == 1
    assert field in done.stderr
    assert done.stdout == ""


def test_a_group_of_kubernetes_gets_no_permissions(tmp_path: Path) -> None:
    done = helm("template", "mine", str(CHART), values={"group": "system:authenticated"}, folder=tmp_path)

    assert done.returncode == 1
    assert "group: system:authenticated is a group of Kubernetes itself" in done.stderr


def test_the_chart_passes_lint(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), values={}, folder=tmp_path)

    assert done.returncode == 0, done.stdout


def test_the_packed_chart_gives_the_same(tmp_path: Path) -> None:
    packed = pack_chart(tmp_path / "shiplap-cluster.tgz", epoch=0)

    assert rendered(tmp_path, packed, manifests="cluster") == rendered(tmp_path, manifests="cluster")


@pytest.mark.parametrize(("values", "field"), MISTAKES)
def test_the_schema_refuses_wrong_values(values: Mapping[str, Any], field: str) -> None:
    given = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.validate(given, schema)
    given |= {name: given[name] | value if isinstance(value, dict) else value for name, value in values.items()}

    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate(given, schema)
    path = "/".join(["", *map(str, refused.value.absolute_path)])
    assert field in f"{path} {refused.value.message}"


def test_the_chart_has_the_version_of_the_release_and_the_files_of_the_docs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (shiplap.__version__, shiplap.__version__)
    assert {path.resolve() for path in (CHART / "files").iterdir()} == {RBAC, LIVE_RBAC}
