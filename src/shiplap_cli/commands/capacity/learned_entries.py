"""Entries of learned capacity as `shiplap capacity` prints them: lines of a list, and everything of an entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.instances.capacity.trusted_amounts import FarStanding
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.kubernetes.quantity import MEMORY, format_amount, format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_cli.judged_reports import judged
from shiplap_cli.output import Printed, plain_table


class _Memory(Printed, frozen=True, omit_defaults=True):
    """Allocatable memory: the smallest of 60 days, what the newest node's plan relied on, what was imported."""

    learned: str
    predicted: str
    imported: str = ""


class LearnedRow(Printed, frozen=True, omit_defaults=True):
    """An entry in a line; `set_aside` counts reports that are far from what EC2 says."""

    ami: str
    instance_type: str
    kubelet_hash: str
    memory: _Memory
    count: int
    last_seen: str
    set_aside: int = 0


class _ObservedNode(Printed, frozen=True):
    cluster: str
    node: str
    observed_at: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    predicted: dict[str, str]


class _SetAside(Printed, frozen=True):
    """A report that is far from what EC2 says: whose it is, what it is worth in its own cluster, and until when."""

    cluster: str
    nodes: tuple[str, ...]
    figure: str
    resource: str
    amount: str
    standing: str
    until: str


class LearnedEntry(Printed, frozen=True, omit_defaults=True):
    """`capacity` and `allocatable` are the smallest of the last 60 days, without the reports that are set aside."""

    ami: str
    instance_type: str
    kubelet_hash: str
    count: int
    capacity: dict[str, str]
    allocatable: dict[str, str]
    observations: tuple[_ObservedNode, ...]
    set_aside: tuple[_SetAside, ...] = ()


def learned_row(entry: LearnedCapacity, now: float) -> LearnedRow:
    """A line of the list, at a moment, epoch seconds."""
    newest = entry.recent[-1] if entry.recent else None
    seen = judged(entry, now)
    memory = _Memory(
        _quantity(seen.allocatable.get(MEMORY)),
        _quantity(newest.predicted.get(MEMORY) if newest else None),
        _quantity(entry.imported.allocatable.get(MEMORY) if entry.imported else None),
    )
    last_seen = rfc3339(newest.observed_at) if newest else ""
    return LearnedRow(entry.ami, entry.instance_type, entry.kubelet_hash, memory, entry.count, last_seen, len(seen.far))


def _quantity(memory: int | None) -> str:
    return "" if memory is None else format_amount(MEMORY, memory)


def learned_entry(entry: LearnedCapacity, now: float) -> LearnedEntry:
    """Everything of an entry, at a moment, epoch seconds."""
    seen = judged(entry, now)
    return LearnedEntry(
        entry.ami,
        entry.instance_type,
        entry.kubelet_hash,
        entry.count,
        format_resources(seen.capacity),
        format_resources(seen.allocatable),
        tuple(
            _ObservedNode(
                each.cluster,
                each.node,
                rfc3339(each.observed_at),
                format_resources(each.capacity),
                format_resources(each.allocatable),
                format_resources(each.predicted),
            )
            for each in entry.recent
        ),
        tuple(
            _SetAside(
                each.cluster,
                each.nodes,
                "allocatable" if each.of_allocatable else "capacity",
                each.resource,
                format_amount(each.resource, each.amount),
                each.standing,
                rfc3339(each.until),
            )
            for each in seen.far
        ),
    )


def _table(*columns: str | Column, rows: Iterator[tuple[str, ...]]) -> Table:
    """Cells as Text, for brackets would be taken for markup."""
    return plain_table(*columns, rows=(tuple(map(Text, row)) for row in rows))


def list_table(rows: Sequence[LearnedRow]) -> RenderableType:
    """The list as a table, a line per entry."""
    if not rows:
        return Text("nothing learned yet")
    return _table(
        *(
            Column("AMI", no_wrap=True),
            "instance type",
            "kubelet",
            "learned",
            "predicted",
            "imported",
            "nodes",
            "last seen",
            "set aside",
        ),
        rows=(
            (
                row.ami,
                row.instance_type,
                row.kubelet_hash,
                row.memory.learned,
                row.memory.predicted,
                row.memory.imported,
                str(row.count),
                row.last_seen,
                str(row.set_aside or ""),
            )
            for row in rows
        ),
    )


def entries_table(entries: Sequence[LearnedEntry]) -> RenderableType:
    """The resources and observations of each entry as tables."""
    parts: list[RenderableType] = []
    for entry in entries:
        newest = entry.observations[-1].predicted if entry.observations else {}
        parts += [
            Text(f"{entry.ami} {entry.instance_type} {entry.kubelet_hash}: {entry.count} nodes seen"),
            _table(
                *("resource", "capacity", "allocatable", "predicted"),
                rows=(
                    (name, entry.capacity.get(name, ""), entry.allocatable.get(name, ""), newest.get(name, ""))
                    for name in sorted(entry.capacity.keys() | entry.allocatable.keys() | newest.keys())
                ),
            ),
            _table(
                *("observed", "cluster", "node", "allocatable"),
                rows=(
                    (
                        each.observed_at,
                        each.cluster,
                        each.node,
                        ", ".join(f"{name} {amount}" for name, amount in each.allocatable.items()),
                    )
                    for each in entry.observations
                ),
            ),
        ]
        if entry.set_aside:
            parts.append(_set_aside_table(entry.set_aside))
    return Group(*parts)


_MEANINGS = {
    FarStanding.DOUBTED: "counts for its cluster until {until}; a pilot may rely on more",
    FarStanding.CONFIRMED: "counts for its cluster until {until}",
    FarStanding.OUTVOTED: "outvoted by other nodes of its cluster",
    FarStanding.FORGOTTEN: "forgotten since {until}",
}


def _set_aside_table(reports: Sequence[_SetAside]) -> RenderableType:
    """Reports that count for no other cluster."""
    return _table(
        *("set aside", "nodes", "resource", "amount", "what it is worth"),
        rows=(
            (
                each.cluster or "unknown",
                ", ".join(each.nodes),
                f"{each.figure} of {each.resource}",
                each.amount,
                _MEANINGS[FarStanding(each.standing)].format(until=each.until),
            )
            for each in reports
        ),
    )
