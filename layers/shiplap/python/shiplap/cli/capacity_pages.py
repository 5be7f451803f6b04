"""Learned capacity as `shiplap capacity` prints it: entries, their observations, and tables of both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.instances import learning
from shiplap.instances.types import LearnedCapacity
from shiplap.kubernetes.quantity import MEMORY, format_amount, format_resources
from shiplap.kubernetes.timestamps import rfc3339


class Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed; resources as Kubernetes quantities, times as RFC 3339."""


class _Memory(Part, frozen=True):
    """Allocatable memory: the smallest of the last 60 days, and what the newest node's plan relied on."""

    learned: str
    predicted: str


class Row(Part, frozen=True):
    """An entry in a line."""

    ami: str
    instance_type: str
    kubelet_hash: str
    memory: _Memory
    count: int
    last_seen: str


class _Seen(Part, frozen=True):
    cluster: str
    node: str
    observed_at: str
    capacity: dict[str, str]
    allocatable: dict[str, str]
    predicted: dict[str, str]


class Entry(Part, frozen=True):
    """`capacity` and `allocatable` are what planning uses: the smallest of the last 60 days."""

    ami: str
    instance_type: str
    kubelet_hash: str
    count: int
    capacity: dict[str, str]
    allocatable: dict[str, str]
    observations: tuple[_Seen, ...]


def row_of(entry: LearnedCapacity) -> Row:
    """A line of the list."""
    newest = entry.recent[-1] if entry.recent else None
    memory = _Memory(
        _quantity(learning.allocatable(entry).get(MEMORY)),
        _quantity(newest.predicted.get(MEMORY) if newest else None),
    )
    last_seen = rfc3339(newest.observed_at) if newest else ""
    return Row(entry.ami, entry.instance_type, entry.kubelet_hash, memory, entry.count, last_seen)


def _quantity(memory: int | None) -> str:
    return "" if memory is None else format_amount(MEMORY, memory)


def entry_of(entry: LearnedCapacity) -> Entry:
    """Everything of an entry."""
    return Entry(
        entry.ami,
        entry.instance_type,
        entry.kubelet_hash,
        entry.count,
        format_resources(learning.capacity(entry)),
        format_resources(learning.allocatable(entry)),
        tuple(
            _Seen(
                each.cluster,
                each.node,
                rfc3339(each.observed_at),
                format_resources(each.capacity),
                format_resources(each.allocatable),
                format_resources(each.predicted),
            )
            for each in entry.recent
        ),
    )


def _table(*columns: str, rows: Iterator[tuple[str, ...]]) -> Table:
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold") for cell in row))  # as Text: brackets would be taken for markup
    return table


def list_table(rows: Sequence[Row]) -> RenderableType:
    """For people: a line per entry."""
    if not rows:
        return Text("nothing learned yet")
    return _table(
        *("AMI", "instance type", "kubelet", "memory learned", "memory predicted", "nodes", "last seen"),
        rows=(
            (
                row.ami,
                row.instance_type,
                row.kubelet_hash,
                row.memory.learned,
                row.memory.predicted,
                str(row.count),
                row.last_seen,
            )
            for row in rows
        ),
    )


def entries_table(entries: Sequence[Entry]) -> RenderableType:
    """For people: resources and observations of each entry."""
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
    return Group(*parts)
