"""The Helm chart gives what docs/rbac*.yaml say, but for the fields that values change; wrong values are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import shiplap
from shiplap_cdk.policy_document import documents
from tests.helm_program import helm
from tools.dist import CHART, pack_chart

ROOT = Path(__file__).parents[2]
RBAC = ROOT / "docs" / "rbac.yaml"
LIVE_RBAC = ROOT / "docs" / "rbac-cluster-manifests.yaml"
OF_FEATURES = {
    "deletionCosts": ROOT / "docs" / "rbac-deletion-costs.yaml",
    "rollouts": ROOT / "docs" / "rbac-rollouts.yaml",
}


def rendered(folder: Path, chart: Path = CHART, **values: object) -> list[Any]:
    done = helm("template", "mine", str(chart), values=yaml.safe_dump(values), folder=folder)
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


@pytest.mark.parametrize("feature", OF_FEATURES)
def test_a_feature_that_is_on_has_its_permissions(feature: str, tmp_path: Path) -> None:
    of_feature = OF_FEATURES[feature]
    assert in_order(rendered(tmp_path, features={feature: True})) == in_order(written(RBAC, of_feature))
    both = rendered(tmp_path, features=dict.fromkeys(OF_FEATURES, True), group="provisioner")
    assert len(both) == len(written(RBAC, *OF_FEATURES.values()))
    bindings = by_kind(both, "ClusterRoleBinding")
    assert {subject["name"] for binding in bindings for subject in binding["subjects"]} == {"provisioner"}


def test_every_feature_with_permissions_has_a_value() -> None:
    needed = {document.rbac for _, document in documents() if document.rbac}
    assert {path.name for path in OF_FEATURES.values()} >= needed
    assert yaml.safe_load((CHART / "values.yaml").read_text())["features"] == dict.fromkeys(OF_FEATURES, False)


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


def test_a_lease_may_be_named_with_its_namespace(tmp_path: Path) -> None:
    objects = rendered(tmp_path, karpenterLease="kube-system/karpenter-leader-election", manifests="cluster")
    assert objects == rendered(tmp_path, manifests="cluster")


def test_the_chart_passes_lint(tmp_path: Path) -> None:
    done = helm("lint", "--strict", str(CHART), values="{}", folder=tmp_path)

    assert done.returncode == 0, done.stdout


def test_the_packed_chart_gives_the_same(tmp_path: Path) -> None:
    packed = pack_chart(tmp_path / "shiplap-cluster.tgz", epoch=0)

    assert rendered(tmp_path, packed, manifests="cluster") == rendered(tmp_path, manifests="cluster")


def test_the_chart_has_the_version_of_the_release_and_the_files_of_the_docs() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert (chart["version"], chart["appVersion"]) == (shiplap.__version__, shiplap.__version__)
    assert {path.resolve() for path in (CHART / "files").iterdir()} == {RBAC, LIVE_RBAC, *OF_FEATURES.values()}
