"""The Region that prices and zones are of: that of the nodes, and said where it is only assumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shiplap_cli.main import run

CLASS_REF = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
ANY_CAPACITY = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
MANIFESTS = [
    {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": CLASS_REF, "requirements": ANY_CAPACITY}}},
    },
    {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
            "role": "node",
        },
    },
]
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "api", "namespace": "web"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
}
COMMANDS = (
    ("plan",),
    ("plan", "--from-scratch"),
    ("explain", "pod", "web/api"),
    ("explain", "pool", "default"),
    ("explain", "node", "n0"),
    ("disrupt",),
)
NONE = "no node says its Region: us-east-1 is assumed; --region gives another"
SEVERAL = "nodes are of eu-west-1 and us-east-1: eu-west-1 is assumed for all; --region gives another"


def node(name: str, region: str) -> dict[str, Any]:
    labels = {
        "topology.kubernetes.io/region": region,
        "topology.kubernetes.io/zone": f"{region}a",
        "node.kubernetes.io/instance-type": "m5.large",
    }
    marks = labels if region else {}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": marks}}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return tmp_path


def asked(folder: Path, command: Sequence[str], regions: Sequence[str], *more: str, output: str = "json") -> list[str]:
    """The arguments of a command on a file with a node of each Region."""
    nodes = [node(f"n{number}", region) for number, region in enumerate(regions or [""])]
    file = folder / "state.json"
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [POD, *nodes, *MANIFESTS]}))
    return [*command, "-f", str(file), "-o", output, *more]


def answer(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = capsys.readouterr()
    assert not found.err
    written: dict[str, Any] = json.loads(found.out)
    return written


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_region_is_that_of_the_nodes(
    cluster: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(asked(cluster, command, ["eu-west-1", "eu-west-1"])) in (0, 1)
    found = answer(capsys)
    assert found["region"] == "eu-west-1"
    assert "assumed" not in " ".join(found["notes"])
    assert "embedded catalogue of eu-west-1: prices are estimates" in found["notes"][0]


def test_what_is_launched_is_in_a_zone_of_that_region(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(asked(cluster, ["plan"], ["eu-west-1"])) == 0
    (claim,) = answer(capsys)["nodeClaims"]
    assert claim["launch"]["zone"].startswith("eu-west-1")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("regions", "region", "said"),
    [(["eu-west-1", "us-east-1", "eu-west-1"], "eu-west-1", SEVERAL), ([], "us-east-1", NONE)],
    ids=["several", "none"],
)
def test_a_region_that_is_assumed_is_said(
    cluster: Path,
    command: tuple[str, ...],
    regions: list[str],
    region: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(asked(cluster, command, regions))
    found = answer(capsys)
    assert found["region"] == region
    assert said in found["notes"]
    run(asked(cluster, command, regions, output="table"))
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_option_wins_and_is_not_assumed(
    cluster: Path, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    run(asked(cluster, command, ["eu-west-1", "us-east-1"], "--region", "ap-south-1"))
    found = answer(capsys)
    assert found["region"] == "ap-south-1"
    assert "assumed" not in " ".join(found["notes"])


@pytest.mark.parametrize("command", ["plan", "disrupt"])
def test_pages_say_it_too(cluster: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = cluster / "page.html"
    run(asked(cluster, [command], [], "--html", str(page)))
    assert NONE in page.read_text()
    capsys.readouterr()


def test_a_region_that_the_catalogue_does_not_know(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a node it is no reason to refuse the file; of the option it is."""
    assert run(asked(cluster, ["plan"], ["xx-new-9"])) == 0
    found = answer(capsys)
    assert found["region"] == "us-east-1"
    assert "embedded catalogue of us-east-1 (xx-new-9 of the nodes is not known)" in " ".join(found["notes"])
    assert run(asked(cluster, ["plan"], ["eu-west-1"], "--region", "xx-new-9")) == 2
    assert "no region 'xx-new-9'" in capsys.readouterr().err


def test_a_catalogue_file_knows_no_region(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offering = {"zone": "z1", "capacityType": "on-demand", "price": 0.1}
    kind = {"name": "small", "capacity": {"cpu": "2", "memory": "8Gi", "pods": "10"}, "offerings": [offering]}
    catalog = cluster / "catalog.json"
    catalog.write_text(json.dumps({"instanceTypes": [kind]}))
    assert run(asked(cluster, ["plan"], [], "--catalog", str(catalog))) == 0
    found = answer(capsys)
    assert "region" not in found
    assert "notes" not in found


def test_a_comparison_says_it_as_well(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "new"):
        (cluster / f"{name}.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": MANIFESTS}))
    page = cluster / "page.html"
    diff = ("--diff", str(cluster / "old.json"), str(cluster / "new.json"), "--html", str(page))
    assert run(asked(cluster, ["plan"], ["eu-west-1", "us-east-1", "eu-west-1"], *diff)) == 0
    found = answer(capsys)
    assert found["region"] == "eu-west-1"
    assert SEVERAL in found["notes"]
    assert SEVERAL in page.read_text()


@pytest.mark.parametrize(
    ("regions", "region", "notes"), [(["eu-west-1"], "eu-west-1", 1), ([], "us-east-1", 2)], ids=["nodes", "none"]
)
def test_a_dry_run_of_a_migration_has_the_prices_of_the_nodes_region(
    cluster: Path, regions: list[str], region: str, notes: int, capsys: pytest.CaptureFixture[str]
) -> None:
    state = asked(cluster, [], regions)[1]
    pools = cluster / "pools.json"
    pools.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": MANIFESTS}))
    run(["migrate", str(pools), "--cluster-state", state, "-o", "json"])
    dry_run = answer(capsys)["dryRun"]
    assert dry_run["region"] == region
    assert len(dry_run["notes"]) == notes
    run(["migrate", str(pools), "--cluster-state", state])
    assert (NONE in " ".join(capsys.readouterr().out.split())) == (notes == 2)
