"""`shiplap lab dev` without a terminal: a line for each phase, and nothing that only a terminal understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shiplap_cli.commands.lab import dev as command
from shiplap_cli.output import Format
from shiplap_lab.checks.observation import RegionObservation
from shiplap_lab.dev.dev_report import summarize
from shiplap_lab.dev.player import Played
from shiplap_lab.scenarios.scenario import Play

EMPTY = RegionObservation((), (), 0)


class Stage:
    """A region that is set up in two phases."""

    def __init__(self, play: Play, tell: Callable[[str], None], *, live: bool) -> None:
        self.tell = tell
        self.live = live

    def __enter__(self) -> Stage:
        self.tell("starting the emulated AWS")
        self.tell("reading \x1b[31mwhat EC2 sells")
        return self

    def __exit__(self, *_: object) -> None:
        return None


def played(play: Play, stage: Any, show: Callable[[str, RegionObservation], None]) -> Played:
    for say in ("three pods come", "three pods come", "one goes"):
        show(say, EMPTY)
    return Played(summarize(play.name, EMPTY, {}), ())


@pytest.mark.parametrize(("once", "output"), [(False, Format.TABLE), (True, Format.TABLE), (False, Format.JSON)])
def test_progress_is_told_line_by_line_where_no_terminal_is(
    once: bool, output: Format, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "LocalRegion", Stage)
    monkeypatch.setattr(command, "play_observed", played)

    assert command.dev(once=once, output=output) == 0

    out, told = capsys.readouterr()
    lines = [line.partition(" s  ")[2] for line in told.splitlines()]
    assert lines == ["starting the emulated AWS", "reading \\x1b[31mwhat EC2 sells", "three pods come", "one goes"]
    assert not {"\x1b", "\r"} & {*out, *told}
    assert ("Try next:" in out) == (not once and output is Format.TABLE)
    assert "flex-first" in out


@pytest.mark.parametrize("keep", [False, True])
def test_manifests_are_objects_of_the_clusters_that_stay(
    keep: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kubectl changes them there; a scenario alone is played as most installs are."""
    stayed = []
    monkeypatch.setattr(command, "LocalRegion", Stage)
    monkeypatch.setattr(
        command, "play_observed", lambda play, stage, show: stayed.append(stage) or played(play, stage, show)
    )
    monkeypatch.setattr(command, "_stay", lambda _stage: None)
    assert command.dev(keep=keep) == 0
    assert [stage.live for stage in stayed] == [keep]
    assert "flex-first" in capsys.readouterr().out
