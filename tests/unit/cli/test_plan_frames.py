"""The plan's pages as people see them, at two widths: golden frames, and what a terminal alone is shown."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from shiplap_cli.main import run
from shiplap_cli.output import progress
from tests.builders.nodes import node_object
from tests.commands import Shiplap
from tests.unit.cli.planned_files import CATALOG, POOL, pod

FRAMES = Path(__file__).parent / "frames"
NODE = node_object("here", pool="default", instance_type="large", zone="z1", capacity_type="on-demand")
NODE["status"] = {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "3"}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    objects = [*(pod(f"p{number}", "1") for number in range(7)), pod("huge", "70"), NODE]
    limited = json.loads(json.dumps(POOL))
    limited["spec"]["limits"] = {"cpu": "2"}
    for name, document in (
        ("state", {"kind": "List", "items": objects}),
        ("old", POOL),
        ("new", limited),
        ("catalog", CATALOG),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    return tmp_path


CASES = {
    "plan": ["--manifests", "old.json"],
    "details": ["--manifests", "old.json", "--details"],
    "diff": ["--diff", "old.json", "new.json"],
}


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", CASES)
def test_a_frame(folder: Path, name: str, width: int, monkeypatch: pytest.MonkeyPatch, shiplap: Shiplap) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    printed = shiplap("plan", "-f", "state.json", "--catalog", "catalog.json", *CASES[name], code=1)
    assert max(map(len, printed.splitlines())) <= width
    shown = "\n".join(line.rstrip() for line in printed.splitlines())
    shown = re.sub(r"\d+ ms\)", "N ms)", shown) + "\n"
    assert shown == (FRAMES / f"{name}-{width}.txt").read_text()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for stream, seen in ((io.StringIO(), False), (Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress("reading pods") as told:
            told("planning")
        assert bool(stream.getvalue()) == seen
    monkeypatch.setattr(sys, "stderr", None)
    with progress("reading pods") as told:
        told("planning")


@pytest.mark.parametrize(("no_color", "colours"), [("", True), ("1", False)])
def test_no_color_is_kept_to(folder: Path, no_color: str, colours: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert run(["plan", "-f", "state.json", "--catalog", "catalog.json", "--manifests", "old.json"]) == 1
    assert ("\x1b[32m" in terminal.getvalue() or "\x1b[1;32m" in terminal.getvalue()) == colours
