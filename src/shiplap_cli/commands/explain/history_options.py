"""Histories of a live install for `shiplap explain`: options, reading and page."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap_cli.commands.explain.history import History, HistoryReader, HistorySources
from shiplap_cli.installs.find_install import STACK, InstallOptions, find_install, sole_cluster
from shiplap_cli.options import Sources
from shiplap_cli.output import progress, warning_line

_MOMENT = len("2026-01-31T12:00:00Z")


class HistoryOptions(InstallOptions, frozen=True, kw_only=True):
    """The install and cluster of a history, and how far it goes back."""

    since: Annotated[float, typer.Option("--since", min=0, help="Hours that a history goes back.")] = 24.0


def reject_conflicts(options: HistoryOptions, sources: Sources, record: str = "") -> None:
    """Raises InvalidInput when files are given beside an install, or a record beside a cluster: its id names one."""
    if (options.cluster and record) or (
        options.given and (sources.cluster_state or sources.manifests or sources.catalog)
    ):
        raise InvalidInput("--cluster", "reads the history from an install; leave files and --record out")


def read_history(options: HistoryOptions, ask: Callable[[HistoryReader], History]) -> History:
    """Find the install and read a history from it.

    Raises:
        InvalidInput: there is no such install, cluster or thing.
        AwsError, StoreError: it cannot be read.
    """
    install = find_install(bucket="", stack=options.stack or STACK, dev=options.dev)
    with progress("reading the install's state") as report:
        reader = HistoryReader(
            HistorySources(
                cluster=options.cluster or sole_cluster(install),
                state=install.state(),
                records=install.records(),
                capacity=install.capacity(),
                now=time.time(),
                since_s=options.since * 3600,
                progress=report,
            )
        )
        return ask(reader)


def require_known(history: History | None, kind: str, name: str, names: Sequence[str]) -> History:
    """The history. Raises InvalidInput, with similar names, when there is none."""
    if history is not None:
        return history
    near = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(near)}?" if near else f"it has {', '.join(names[:5]) or 'none'}"
    raise InvalidInput(kind, f"the install knows no {kind} {name}; {hint}")


_NOTHING = {
    True: "no decision about it was written down: a pod that finds room on a node needs none",
    False: "nothing was written down of it",
}
"""What it means that nothing is recorded, of a pod and of all else."""


def history_page(history: History) -> RenderableType:
    """The present state, then the events, each with the id of its record."""
    parts: list[RenderableType] = [
        Text.assemble((f"{history.kind} {history.name}", "bold"), f": {history.state}"),
        Text(),
    ]
    for entry in history.entries:
        lines = Table.grid(padding=(0, 0, 0, 1))
        lines.add_column(width=_MOMENT)
        lines.add_column()
        lines.add_row(Text(entry.at or "·", style="dim"), Text(entry.what))
        for line in entry.details:
            lines.add_row("", Padding(Text(line, style="dim"), (0, 0, 0, 2)))
        if entry.record:
            lines.add_row("", Padding(Text(f"record {entry.record}", style="cyan", overflow="fold"), (0, 0, 0, 2)))
        parts.append(lines)
    if not history.entries:
        parts.append(Text(f"{_NOTHING[history.kind == 'pod']}; --since HOURS looks further back"))
    parts += map(warning_line, history.unseen)
    return Group(*parts)
