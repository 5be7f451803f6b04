"""The keys `ceilings` of shiplap.yaml, of the install and of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidManifests
from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from tests.infra.written_installs import written

CEILINGS = """
ceilings:
  - {monthly: 20000, mode: stop}
clusters:
  - name: blue
    manifests: manifests
    ceilings:
      - {hourly: 30, mode: priority, abovePriority: 100}
      - {nodePool: general, monthly: 3000, mode: cheapest}
"""


def test_ceilings_of_the_account_and_of_a_cluster_reach_the_functions(folder: Path) -> None:
    (cluster,) = written(folder, "region: eu-west-1" + CEILINGS).settings().clusters
    of_cluster = (
        Ceiling(hourly=30, mode=CeilingMode.PRIORITY, above_priority=100),
        Ceiling(monthly=3000, mode=CeilingMode.CHEAPEST, node_pool="general"),
    )
    of_account = (Ceiling(monthly=20000, mode=CeilingMode.STOP),)
    assert cluster.policy(CeilingSettings) == CeilingSettings(of_cluster, of_account)
    assert cluster.policies_on == ("ceilings",)
    without = written(folder, "region: eu-west-1\nclusters: [{name: blue, manifests: manifests}]")
    assert without.settings().clusters[0].policies_on == ()


def test_a_mistake_in_a_ceiling_is_told_with_its_line_and_the_way_out(folder: Path) -> None:
    text = "region: eu-west-1" + CEILINGS.replace("abovePriority: 100", "recoveryPercent: 80")
    with pytest.raises(InvalidManifests) as caught:
        written(folder, text)
    problems = {problem.field: problem for problem in caught.value.problems}
    wrong = problems["clusters[0].ceilings[0].abovePriority"]
    assert "is needed with mode priority: the value of a PriorityClass" in str(wrong)
    assert "clusters[0].ceilings[0].recoveryPercent" in problems


def test_a_mode_that_does_not_exist_is_told_with_its_line_and_the_modes(folder: Path) -> None:
    text = "region: eu-west-1" + CEILINGS.replace("mode: stop", "mode: halt")
    with pytest.raises(InvalidManifests) as caught:
        written(folder, text)
    (wrong,) = caught.value.problems
    assert (wrong.field, wrong.line) == ("ceilings[0].mode", 3)
    assert wrong.reason == "must be one of warn, cheapest, priority, stop, is 'halt'"


def test_a_ceiling_on_a_node_pool_that_is_not_there_is_told_with_those_that_are(folder: Path) -> None:
    with pytest.raises(InvalidManifests) as caught:
        written(folder, "region: eu-west-1" + CEILINGS.replace("{nodePool: general", "{nodePool: nights"))
    (wrong,) = caught.value.problems
    assert wrong.field == "clusters[0].ceilings[1].nodePool"
    assert wrong.reason == "NodePool 'nights' is not in the manifests; there are general"


@pytest.mark.parametrize(
    ("old", "new", "fields"),
    [
        ("  role: edge-nodes", "  role: 'not a role'", ["clusters[0].ceilings[1].nodePool", "spec.role"]),
        ("  name: general", "  name: general\n  labels: 5", ["metadata.labels"]),
        ("kind: NodePool", "kind: [", [""]),
    ],
    ids=["another object is wrong", "a NodePool is not read", "a file is not read"],
)
def test_a_node_pool_is_missing_only_where_all_could_be_read(
    folder: Path, old: str, new: str, fields: list[str]
) -> None:
    nodes = folder / "manifests" / "nodes.yaml"
    assert old in nodes.read_text()
    nodes.write_text(nodes.read_text().replace(old, new, 1))
    with pytest.raises(InvalidManifests) as caught:
        written(folder, "region: eu-west-1" + CEILINGS.replace("{nodePool: general", "{nodePool: nights"))
    assert [problem.field for problem in caught.value.problems] == fields
