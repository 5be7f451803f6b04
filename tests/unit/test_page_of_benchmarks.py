"""Compares the page of benchmarks with their folders: each benchmark has a row under its folder, and can be run."""

from __future__ import annotations

import re
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_has_a_row_below_its_folder() -> None:
    sections = re.split(r"^## ", (BENCHMARKS / "README.md").read_text(), flags=re.MULTILINE)[1:]
    described = {
        f"{section.splitlines()[0]}/{name}"
        for section in sections
        for name in re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    }
    runnable = {
        f"{path.parent.name}/{path.stem}"
        for path in BENCHMARKS.glob("*/*.py")
        if path.parent.name != "shared" and '__name__ == "__main__"' in path.read_text()
    }
    assert len(runnable) > 20
    assert described == runnable


def test_folders_that_make_bench_runs_hold_benchmarks_alone() -> None:
    run = [path for path in BENCHMARKS.glob("*/*.py") if path.parent.name not in ("shared", "karpenter")]
    assert [path.name for path in run if '__name__ == "__main__"' not in path.read_text()] == []
    assert all(len(list(folder.glob("*.py"))) <= 15 for folder in BENCHMARKS.iterdir())
