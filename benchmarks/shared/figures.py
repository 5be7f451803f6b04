"""Keeps the figures of benchmarks in build/benchmarks/figures.jsonl, and shows the newest beside the commit before.

Each figure is a line with its commit and machine. `make bench` ends with the table; figures of other machines are left
out of it, because only figures of one machine show a trend.

    python -m benchmarks.shared.figures              # the table
    python -m benchmarks.shared.figures --trend "10,000 diverse pods"   # all figures of metrics with this text, by age
"""

from __future__ import annotations

import argparse
import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "build" / "benchmarks" / "figures.jsonl"


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure that a benchmark measured."""

    metric: str
    value: float
    unit: str
    commit: str
    """Its begin, with a plus sign if files differed from it."""

    machine: str
    """The processor and the number of its cores, and the version of Python."""

    bar: float | None = None
    """The most that it may be."""

    karpenter: float | None = None
    """The figure of Karpenter's own program on the same input."""


def keep(
    metric: str,
    value: float,
    unit: str,
    *,
    bar: float | None = None,
    karpenter: float | None = None,
    into: Path = FIGURES,
) -> None:
    """Add a figure of this commit and machine to the file."""
    figure = Figure(metric, round(value, 4), unit, commit(), machine(), bar, karpenter)
    into.parent.mkdir(parents=True, exist_ok=True)
    with into.open("ab") as file:
        file.write(msgspec.json.encode(figure) + b"\n")


@functools.cache
def commit() -> str:
    """Return the begin of the checked-out commit; empty without git."""
    asked = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"]
    try:
        told = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603 - git
    except FileNotFoundError:
        return ""
    return told.stdout.strip()


@functools.cache
def machine() -> str:
    """Name the processor, its cores and the version of Python."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{os.cpu_count()} x {models[0] if models else platform.machine()}, Python {platform.python_version()}"


def kept(path: Path = FIGURES) -> list[Figure]:
    """Return all figures of the file, the oldest first."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Figure) for line in path.read_bytes().splitlines() if line.strip()]


def newest(figures: Iterable[Figure], here: str) -> list[tuple[Figure, Figure | None]]:
    """Return the last figure of each metric on a machine, and the last one of the commit before it, if there is one."""
    by_metric: dict[str, list[Figure]] = {}
    for figure in figures:
        if figure.machine == here:
            by_metric.setdefault(figure.metric, []).append(figure)
    pairs = []
    for of in by_metric.values():
        before = [figure for figure in of if figure.commit != of[-1].commit]
        pairs.append((of[-1], before[-1] if before else None))
    return pairs


def table(pairs: Sequence[tuple[Figure, Figure | None]]) -> Table:
    """Return the figures as a table for people."""
    shown = Table("metric", "Karpenter", "here", "ratio", "bar", "commit before", title="figures of this machine")
    for now, before in pairs:
        ratio = f"{now.karpenter / now.value:.1f} x" if now.karpenter and now.value else ""
        limit = "" if now.bar is None else f"{now.bar:g}" + (" missed" if now.value > now.bar else "")
        earlier = "" if before is None else f"{before.value:g} ({before.commit[:8]})"
        theirs = "" if now.karpenter is None else f"{now.karpenter:g}"
        shown.add_row(now.metric, theirs, f"{now.value:g} {now.unit}", ratio, limit, earlier)
    return shown


def main() -> None:
    """Print the table, or the trend of metrics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trend", metavar="TEXT", help="print all figures of the metrics whose names contain this")
    wanted = parser.parse_args().trend
    if wanted is None:
        Console(width=160).print(table(newest(kept(), machine())))
        return
    for figure in kept():
        if wanted in figure.metric and figure.machine == machine():
            print(f"{figure.commit:14} {figure.value:12g} {figure.unit:6} {figure.metric}")


if __name__ == "__main__":
    main()
