"""`plan --diff` counts the nodes that drift by the new manifests, with their dollars and the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiplap.manifests.template_hash import HASH_VERSION, POOL_HASH, POOL_HASH_VERSION
from tests.builders.nodes import node_object
from tests.commands import Shiplap, listed
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.manifests.manifest_samples import changed

OTHER = changed(POOL, "metadata.name", "other")
NAME = POOL["metadata"]["name"]
NODE_CLASS = "spec.template.spec.nodeClassRef.name"
REQUIREMENTS = "spec.template.spec.requirements"


def of_pool(name: str, pool: str = NAME, kind: str = "small", **annotations: str) -> dict[str, Any]:
    marks = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/initialized": "true",
    }
    made: dict[str, Any] = node_object(name, instance_type=kind, zone="z1", labels=marks)
    made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **annotations}
    return made


class Compared:
    """Compares two sets of NodePools on nodes of two pools and a node of none."""

    def __init__(self, shiplap: Shiplap, folder: Path) -> None:
        self.shiplap, self.folder = shiplap, folder
        self.nodes = [of_pool("a"), of_pool("b", kind="large"), of_pool("c", "other"), node_object("managed")]

    def arguments(self, old: list[Any], new: list[Any]) -> list[str]:
        files = {"state": listed(*self.nodes), "catalog": json.dumps(CATALOG), "old": listed(*old), "new": listed(*new)}
        for name, text in files.items():
            (self.folder / f"{name}.json").write_text(text)
        state, catalog, *diff = (str(self.folder / f"{name}.json") for name in files)
        return ["plan", "-f", state, "--catalog", catalog, "--now", "2026-01-31T12:00:00Z", "--diff", *diff]

    def __call__(self, old: list[Any], new: list[Any]) -> list[tuple[str, list[str], float]]:
        answer = self.shiplap.json(*self.arguments(old, new), code=None)
        return [(each["reason"], each["nodes"], each["hourly"]) for each in answer["drifting"]]


@pytest.fixture
def compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Compared:
    return Compared(Shiplap(capsys), tmp_path)


def test_manifests_that_mean_the_same_make_no_node_drift(compared: Compared) -> None:
    assert compared([POOL, OTHER], [OTHER, changed(POOL, "spec.limits", {"cpu": "5"})]) == []


def test_a_changed_template_makes_all_nodes_of_its_pool_drift(compared: Compared) -> None:
    new = changed(POOL, "spec.template.metadata", {"labels": {"team": "web"}})
    ((reason, nodes, hourly),) = compared([POOL, OTHER], [new, OTHER])
    assert reason == f"NodePoolDrifted: the template of NodePool {NAME} has changed since"
    assert nodes == ["a", "b"]
    assert hourly == pytest.approx(0.5)


def test_each_reason_is_told_by_itself(compared: Compared) -> None:
    small = [
        *POOL["spec"]["template"]["spec"]["requirements"],
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["small"]},
    ]
    found = compared([POOL, OTHER], [changed(POOL, REQUIREMENTS, small), changed(OTHER, NODE_CLASS, "new")])
    assert [(reason.partition(":")[0], nodes) for reason, nodes, _ in found] == [
        ("RequirementsDrifted", ["b"]),
        ("NodePoolDrifted", ["c"]),
    ]


def test_nodes_that_have_drifted_already_are_not_counted_again(compared: Compared) -> None:
    written = {POOL_HASH: "0" * 16, POOL_HASH_VERSION: HASH_VERSION}
    compared.nodes[0] = of_pool("a", **written)
    new = changed(POOL, "spec.template.metadata", {"labels": {"team": "web"}})
    assert [nodes for _, nodes, _ in compared([POOL, OTHER], [new, OTHER])] == [["b"]]


def test_hashes_of_karpenter_are_not_compared_with_ours(compared: Compared) -> None:
    compared.nodes[0] = of_pool("a", **{POOL_HASH: "123", POOL_HASH_VERSION: "v3"})
    new = changed(POOL, "spec.template.metadata", {"labels": {"team": "web"}})
    assert compared([POOL], [POOL]) == []
    assert [nodes for _, nodes, _ in compared([POOL], [new])] == [["a", "b"]]


def test_people_read_it_in_the_terminal_on_the_page_and_in_markdown(compared: Compared) -> None:
    new = changed(POOL, "spec.template.metadata", {"labels": {"team": "web"}})
    arguments = compared.arguments([POOL, OTHER], [new, OTHER])
    page, report = compared.folder / "page.html", compared.folder / "report.md"
    said = compared.shiplap.page(*arguments, "--html", str(page), "--markdown", str(report), code=None)
    assert "2 nodes would drift and be replaced: $0.5000/h, $365 a month" in said
    assert f"a, b NodePoolDrifted: the template of NodePool {NAME} has changed since" in said
    assert "2 nodes would drift and be replaced" in page.read_text()
    assert f"| NodePoolDrifted: the template of NodePool {NAME} has changed since | a, b | $365 |" in report.read_text()
