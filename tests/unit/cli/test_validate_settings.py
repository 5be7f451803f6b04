"""`shiplap validate` checks a shiplap.yaml that it finds or is given, with the manifests of its clusters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shiplap_cli.main import run
from tests.commands import Shiplap
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS, NODE_POOL, changed

CLUSTERS = """\
region: eu-west-1
clusters:
  - {name: blue, manifests: pools/blue}
  - {name: green, manifests: pools/green}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two clusters whose manifests have the same names, and manifests that no shiplap.yaml names."""
    for name in ("pools/blue", "pools/green", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
        for kind, manifest in (("pool", NODE_POOL), ("class", EC2_NODE_CLASS)):
            (tmp_path / name / f"{kind}.json").write_text(json.dumps(manifest))
    (tmp_path / "shiplap.yaml").write_text(CLUSTERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def places(shiplap: Shiplap, *arguments: str | Path) -> list[tuple[str, str]]:
    problems = shiplap.json("validate", *arguments, code=2)["problems"]
    return [(f"{problem['file']}:{problem['line']}", problem["field"]) for problem in problems]


@pytest.mark.parametrize(("named", "checked"), [([], 5), (["shiplap.yaml"], 5), (["."], 7), (["pools/../."], 7)])
def test_settings_are_judged_with_the_manifests_of_each_cluster(
    named: list[str], checked: int, folder: Path, shiplap: Shiplap
) -> None:
    assert shiplap.json("validate", *named)["documents"] == checked
    assert f"shiplap.yaml, {checked - 1} manifests valid" in shiplap.page("validate", *named)


def test_manifests_that_no_settings_tell_apart_are_judged_together(folder: Path, shiplap: Shiplap) -> None:
    found = places(shiplap, "pools")
    assert found == [("pools/green/class.json:1", "metadata.name"), ("pools/green/pool.json:1", "metadata.name")]


def test_zones_of_another_region_are_warned_of_once_for_clusters_that_share_manifests(
    folder: Path, shiplap: Shiplap
) -> None:
    (folder / "shiplap.yaml").write_text(CLUSTERS.replace("pools/green", "pools/blue"))
    for key in ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"):
        zones = {
            "key": key,
            "operator": "In",
            "values": ["eu-west-1a", "eu-west-1-wl1-lon-1", "us-east-1a", "eu-west-1"],
        }
        elsewhere = [{**zones, "operator": "NotIn"}, zones]
        pool = changed(NODE_POOL, "spec.template.spec.requirements", elsewhere)
        (folder / "pools/blue/pool.json").write_text(json.dumps(pool))
        warned = [(item["field"], item["reason"]) for item in shiplap.json("validate")["warnings"]]
        told = ("spec.template.spec.requirements[1].values", "us-east-1a is in another Region than eu-west-1")
        assert warned.count(told) == 1
        a_region = (told[0], "eu-west-1 is a Region, its zones end with a letter: eu-west-1a")
        assert [item for item in warned if "Region" in item[1]] == [told, a_region]


def test_all_problems_of_settings_and_manifests_are_told_at_once(
    folder: Path, shiplap: Shiplap, capsys: pytest.CaptureFixture[str]
) -> None:
    text = CLUSTERS.replace("green, m", "green, colour: red, m").replace("eu-west-1", "eu-west-9")
    (folder / "shiplap.yaml").write_text(text)
    (folder / "pools/blue/pool.json").write_text(json.dumps(changed(NODE_POOL, "spec.weight", 0)))
    (folder / "elsewhere/pool.json").write_text(json.dumps(changed(NODE_POOL, "spec.weight", -1)))
    own = [
        ("shiplap.yaml:1", "region"),
        ("shiplap.yaml:4", "clusters[1].colour"),
        ("pools/blue/pool.json:1", "spec.weight"),
    ]
    assert places(shiplap) == own
    assert run(["validate"]) == 2
    assert capsys.readouterr().err == "shiplap: 3 problems in shiplap.yaml, 4 manifests\n"
    assert places(shiplap, ".") == [*own, ("elsewhere/pool.json:1", "spec.weight")]


@pytest.mark.parametrize(
    "command", ["doctor --before-deploy", "install template", "install terraform", "init", "validate"]
)
def test_every_command_tells_the_same_list(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JSII_NODE", "/nowhere/node")
    (folder / "shiplap.yaml").write_text(CLUSTERS.replace("region: eu-west-1", "region: 5\nname: A b"))
    (folder / "pools/blue/pool.json").write_text(json.dumps(changed(NODE_POOL, "spec.weight", 0)))
    assert run(command.split()) == 2
    said = capsys.readouterr()
    lines = [line.removeprefix("shiplap: ") for line in (said.out + said.err).splitlines()]
    assert [": ".join(line.split(": ")[:2]) for line in lines[:3]] == [
        "shiplap.yaml:1: region",
        "shiplap.yaml:2: name",
        "pools/blue/pool.json:1: NodePool/default",
    ]
    assert len(lines) == 3 + (command == "validate")


@pytest.mark.parametrize("text", ["region: [", "region:\n\t- x", "[1]", "region: a\nregion: b\nclusters: []\n"])
def test_settings_that_are_no_yaml_are_a_problem_wherever_they_are_found(
    text: str, folder: Path, shiplap: Shiplap
) -> None:
    (folder / "shiplap.yaml").write_text(text)
    for named in ([], ["."]):
        assert places(shiplap, *named)[0][0].startswith("shiplap.yaml:"), named


def test_settings_under_another_name_are_known_by_their_keys(folder: Path, shiplap: Shiplap) -> None:
    (folder / "shiplap.yaml").rename(folder / "prod.yaml")
    (folder / "prod.yaml").write_text(CLUSTERS + "colour: red\n")
    assert ("prod.yaml:5", "colour") in places(shiplap, ".")


def test_a_description_of_a_fleet_is_no_settings(folder: Path, shiplap: Shiplap) -> None:
    (folder / "shiplap.yaml").write_text("installs: [{name: a, region: eu-west-1}]\n")
    assert shiplap.json("validate", ".", "pools/blue", code=2)["skipped"][0]["file"] == "shiplap.yaml"


def test_nothing_to_validate_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no shiplap.yaml here" in shiplap.error("validate")
