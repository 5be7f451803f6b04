"""Figures of benchmarks are kept, and shown beside those of the commit before on the same machine."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from benchmarks.shared import figures
from benchmarks.shared.figures import Figure, keep, kept, newest, table

ONE = Figure("plan", 170.0, "ms", "aaaaaaaaaaaa", "2 x a processor", bar=100.0, karpenter=17_000.0)


def text_of(*shown: Figure) -> str:
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(table(newest(shown, ONE.machine)))
    return console.export_text()


def test_what_is_kept_is_read_again_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "commit", lambda: ONE.commit)
    monkeypatch.setattr(figures, "machine", lambda: ONE.machine)
    path = tmp_path / "of" / "figures.jsonl"
    assert kept(path) == []
    keep("plan", 170.00004, "ms", bar=100.0, karpenter=17_000.0, into=path)
    keep("cold start", 269, "ms", into=path)
    assert kept(path) == [ONE, replace(ONE, metric="cold start", value=269.0, bar=None, karpenter=None)]


def test_a_figure_is_compared_with_karpenter_its_bar_and_the_commit_before() -> None:
    before = replace(ONE, value=340.0, commit="bbbbbbbbbbbb")
    twice = replace(ONE, value=200.0)
    text = text_of(before, twice, ONE)
    assert "170 ms" in text
    assert "100.0 x" in text
    assert "100 missed" in text
    assert "340 (bbbbbbbb)" in text
    assert "200" not in text, "a second run of one commit replaces the first"
    assert "missed" not in text_of(replace(ONE, value=99.0))


def test_another_machine_and_another_metric_are_no_trend() -> None:
    elsewhere = replace(ONE, machine="64 x another", value=1.0, commit="bbbbbbbbbbbb")
    other = replace(ONE, metric="cold start", value=2.0, commit="bbbbbbbbbbbb")
    assert newest([elsewhere, other, ONE], ONE.machine) == [(other, None), (ONE, None)]


def test_this_commit_and_machine_have_names() -> None:
    assert "Python" in figures.machine()
    assert len(figures.commit()) in (0, 12, 13)
