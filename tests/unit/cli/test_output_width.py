"""The output of commands is readable on 80 columns, and in a pipe it is neither wrapped nor padded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from shiplap_cli.command_list import COMMANDS
from shiplap_cli.main import run
from shiplap_cli.output import FURTHER
from tests.builders.nodes import node_object
from tests.builders.pods import pod_object
from tests.unit.cli.planned_files import CATALOG, POOL
from tests.unit.manifests.manifest_samples import EC2_NODE_CLASS as NODE_CLASS
from tools.command_reference import commands

LONG = "a-workload-with-a-name-of-more-than-sixty-letters-as-they-are-legal-0"
STATE = ["--cluster-state", "state.json", "--now", "2026-01-31T12:00:00Z", "--catalog", "catalog.json"]
MANIFESTS = ["--manifests", "pools.yaml", "classes.yaml"]
ASKED = {
    "plan": ["plan", *STATE, *MANIFESTS],
    "plan --details": ["plan", *STATE, *MANIFESTS, "--details"],
    "plan --diff": ["plan", *STATE, "--diff", "pools.yaml", "pools.yaml"],
    "plan --arm": ["plan", *STATE, *MANIFESTS, "--arm", LONG],
    "disrupt": ["disrupt", *STATE, *MANIFESTS],
    "explain pod": ["explain", "pod", f"default/{LONG}", *STATE, *MANIFESTS],
    "explain pod without a place": ["explain", "pod", "default/huge", *STATE, *MANIFESTS],
    "explain pool": ["explain", "pool", "default", *STATE, *MANIFESTS],
    "explain node": ["explain", "node", "n1", *STATE, *MANIFESTS],
    "validate": ["validate", "pools.yaml", "classes.yaml"],
    "validate what is wrong": ["validate", "wrong.yaml"],
    "migrate": ["migrate", "convert", "former.yaml"],
    "instance-types": ["explain", "instance-types", "m5.large", "--nodeclass", "classes.yaml", "--region", "eu-west-1"],
    "capacity list": ["capacity", "list", "--file", "learned.json"],
    "capacity show": ["capacity", "show", "ami-0123456789abcdef0", "--file", "learned.json"],
}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    anywhere = {"tolerations": [{"operator": "Exists"}]}
    pods = [pod_object(LONG, "1", **anywhere), pod_object("huge", "5000", **anywhere), pod_object("b", "7", **anywhere)]
    (tmp_path / "state.json").write_text(json.dumps({"kind": "List", "items": [*pods, node_object("n1")]}))
    (tmp_path / "pools.yaml").write_text(yaml.safe_dump(POOL))
    (tmp_path / "classes.yaml").write_text(yaml.safe_dump(NODE_CLASS))
    (tmp_path / "catalog.json").write_text(json.dumps(CATALOG))
    wrong = {**POOL, "spec": {**POOL["spec"], "weight": 1000, "limts": {"cpu": "1"}}}
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump(wrong))
    former = {"apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "old"}, "spec": {}}
    (tmp_path / "former.yaml").write_text(yaml.safe_dump(former))
    amounts = {"cpu": 2000, "memory": 8_000_000_000, "pods": 29}
    seen = {
        "ami": "ami-0123456789abcdef0",
        "instance_type": "m5.large",
        "kubelet_hash": "0123456789ab",
        "capacity": amounts,
        "allocatable": amounts,
        "observed_at": 1_700_000_000.0,
        "cluster": "production",
        "node": "ip-10-0-0-1.eu-west-1.compute.internal",
    }
    key = {name: seen[name] for name in ("ami", "instance_type", "kubelet_hash")}
    (tmp_path / "learned.json").write_text(json.dumps({"entries": [{**key, "recent": [seen], "count": 1}]}))
    return tmp_path


def printed(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run(arguments) in (0, 1, 2)
    return capsys.readouterr().out


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_80_columns_are_enough(
    asked: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = printed(asked, capsys)
    if asked[0] != "validate":  # one line for each problem, as compilers print theirs
        assert [line for line in page.splitlines() if len(line) > 80] == []
    assert "\N{HORIZONTAL ELLIPSIS}" not in page
    assert page


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_a_pipe_gets_whole_lines(
    asked: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    page = printed(asked, capsys)
    assert [line for line in page.splitlines() if line != line.rstrip()] == []
    assert "\N{HORIZONTAL ELLIPSIS}" not in page
    if LONG in "".join(page.split()):
        assert LONG in page


@pytest.mark.usefixtures("files")
def test_each_problem_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = printed(["validate", "wrong.yaml"], capsys).splitlines()
    assert len(lines) == 2
    assert all(line.startswith("wrong.yaml:") for line in lines)


@pytest.mark.parametrize("path", ["", *COMMANDS, *(command.name for command in commands() if " " in command.name)])
def test_help_fits_80_columns(path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    page = printed([*path.split(), "--help"], capsys)
    assert "\N{HORIZONTAL ELLIPSIS}" not in page
    assert page
    assert [line for line in page.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("path", [command.name for command in commands()])
def test_help_is_plain_and_begins_with_the_usual_options(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At most twelve, counting `--help`; the others stand under a second heading. No command has a style of its own."""
    lines = printed([*path.split(), "--help"], capsys).splitlines()
    assert lines[0].startswith(f"Usage: shiplap {path} [OPTIONS]")
    headings = [line for line in lines if line and not line.startswith((" ", "Usage: "))]
    assert headings == [name for name in ("Commands:", "Arguments:", "Options:", f"{FURTHER}:") if name in headings]
    usual = lines[lines.index("Options:") + 1 :]
    usual = usual[: usual.index("")] if "" in usual else usual
    assert sum(line.startswith("  -") for line in usual) <= 12


@pytest.mark.usefixtures("files")
def test_former_versions_are_sent_to_migrate(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", "former.yaml"]) == 2
    told = capsys.readouterr()
    assert "shiplap migrate convert" in told.out + told.err
