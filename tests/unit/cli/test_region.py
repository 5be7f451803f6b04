"""The Region that prices and zones are of: that of the nodes, and said where it is only assumed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from shiplap.settings import ClusterSettings
from shiplap_cli.inputs.cluster_inputs import read_cluster_inputs
from shiplap_cli.installs import installed
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.options import Sources
from tests.builders.nodes import node_object
from tests.commands import Shiplap, listed
from tests.unit.cli.files_of_regions import MANIFESTS, POD

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


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    return tmp_path


def asked(folder: Path, command: Sequence[str], regions: Sequence[str], *more: str) -> list[str]:
    """The arguments of a command on a file with a node of each Region."""
    nodes = [node_object(f"n{number}", "", "", "", region=region) for number, region in enumerate(regions or [""])]
    file = folder / "state.json"
    file.write_text(listed(POD, *nodes, *MANIFESTS))
    return [*command, "-f", str(file), *more]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_region_is_that_of_the_nodes(cluster: Path, command: tuple[str, ...], shiplap: Shiplap) -> None:
    found = shiplap.json(*asked(cluster, command, ["eu-west-1", "eu-west-1"]), code=None)
    assert found["region"] == "eu-west-1"
    assert "assumed" not in " ".join(found["notes"])
    assert "embedded catalogue of eu-west-1: prices are estimates" in found["notes"][0]


def test_what_is_launched_is_in_a_zone_of_that_region(cluster: Path, shiplap: Shiplap) -> None:
    (claim,) = shiplap.json(*asked(cluster, ["plan"], ["eu-west-1"]), code=None)["nodeClaims"]
    assert claim["launch"]["zone"].startswith("eu-west-1")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("regions", "region", "said"),
    [(["eu-west-1", "us-east-1", "eu-west-1"], "eu-west-1", SEVERAL), ([], "us-east-1", NONE)],
    ids=["several", "none"],
)
def test_a_region_that_is_assumed_is_said(
    cluster: Path, command: tuple[str, ...], regions: list[str], region: str, said: str, shiplap: Shiplap
) -> None:
    found = shiplap.json(*asked(cluster, command, regions), code=None)
    assert found["region"] == region
    assert said in found["notes"]
    assert said in shiplap.page(*asked(cluster, command, regions), code=None)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_option_wins_and_is_not_assumed(cluster: Path, command: tuple[str, ...], shiplap: Shiplap) -> None:
    found = shiplap.json(*asked(cluster, command, ["eu-west-1", "us-east-1"], "--region", "ap-south-1"), code=None)
    assert found["region"] == "ap-south-1"
    assert "all nodes are of eu-west-1 or us-east-1, not of ap-south-1: none of them has a price" in found["notes"]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_option_may_choose_among_the_regions_of_nodes(
    cluster: Path, command: tuple[str, ...], shiplap: Shiplap
) -> None:
    found = shiplap.json(*asked(cluster, command, ["eu-west-1", "us-east-1"], "--region", "us-east-1"), code=None)
    assert found["region"] == "us-east-1"
    assert "all nodes are of" not in " ".join(found["notes"])


@pytest.mark.parametrize("command", ["plan", "disrupt"])
def test_pages_say_it_too(cluster: Path, command: str, shiplap: Shiplap) -> None:
    page = cluster / "page.html"
    shiplap(*asked(cluster, [command], [], "--html", str(page)), code=None)
    assert NONE in page.read_text()


def test_a_region_that_the_catalogue_does_not_know(cluster: Path, shiplap: Shiplap) -> None:
    """Of a node it is no reason to refuse the file; of the option it is."""
    found = shiplap.json(*asked(cluster, ["plan"], ["xx-new-9"]), code=None)
    assert found["region"] == "us-east-1"
    assert "embedded catalogue of us-east-1 (xx-new-9 of the nodes is not known)" in " ".join(found["notes"])
    assert "no region 'xx-new-9'" in shiplap.error(*asked(cluster, ["plan"], ["eu-west-1"], "--region", "xx-new-9"))


def test_a_catalogue_file_knows_no_region(cluster: Path, shiplap: Shiplap) -> None:
    offering = {"zone": "z1", "capacityType": "on-demand", "price": 0.1}
    kind = {"name": "small", "capacity": {"cpu": "2", "memory": "8Gi", "pods": "10"}, "offerings": [offering]}
    catalog = cluster / "catalog.json"
    catalog.write_text(json.dumps({"instanceTypes": [kind]}))
    found = shiplap.json(*asked(cluster, ["plan"], [], "--catalog", str(catalog)), code=None)
    assert "region" not in found
    assert "notes" not in found


def test_a_comparison_says_it_as_well(cluster: Path, shiplap: Shiplap) -> None:
    for name in ("old", "new"):
        (cluster / f"{name}.json").write_text(listed(*MANIFESTS))
    page = cluster / "page.html"
    diff = ("--diff", str(cluster / "old.json"), str(cluster / "new.json"), "--html", str(page))
    found = shiplap.json(*asked(cluster, ["plan"], ["eu-west-1", "us-east-1", "eu-west-1"], *diff), code=None)
    assert found["region"] == "eu-west-1"
    assert SEVERAL in found["notes"]
    assert SEVERAL in page.read_text()


@pytest.mark.parametrize(
    ("regions", "region", "notes"), [(["eu-west-1"], "eu-west-1", 1), ([], "us-east-1", 2)], ids=["nodes", "none"]
)
def test_a_dry_run_of_a_migration_has_the_prices_of_the_nodes_region(
    cluster: Path, regions: list[str], region: str, notes: int, shiplap: Shiplap
) -> None:
    state = asked(cluster, [], regions)[1]
    pools = cluster / "pools.json"
    pools.write_text(listed(*MANIFESTS))
    dry_run = shiplap.json("migrate", "convert", pools, "--cluster-state", state, code=None)["dryRun"]
    assert dry_run["region"] == region
    assert len(dry_run["notes"]) == notes
    assert (NONE in shiplap.page("migrate", "convert", pools, "--cluster-state", state, code=None)) == (notes == 2)


@pytest.mark.parametrize(("option", "region"), [("us-east-1", "us-east-1"), ("", "eu-west-1")])
def test_the_option_goes_before_the_install_and_the_install_before_the_nodes(
    cluster: Path, monkeypatch: pytest.MonkeyPatch, option: str, region: str
) -> None:
    settings = ClusterSettings(name="blue", region="eu-west-1")
    read = SimpleNamespace(settings=settings, cluster="blue", notes=[], state=None)
    monkeypatch.setattr(installed, "read_installed_cluster", lambda *_: read)
    file = asked(cluster, ["plan"], ["ap-south-1"])[-1]
    sources = Sources(cluster_state=[Path(file)], region=option)
    found = read_cluster_inputs(sources, InstallOptions(cluster="blue"), 0.0, own_manifests=False)
    assert (found.cluster.region, found.region_given) == (region, True)
