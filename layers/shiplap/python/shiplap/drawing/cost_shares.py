"""Shares out the cost of the nodes of a cluster among the pods on them, by namespace or by a label.

A node's price is shared out by requests. One vCPU counts as much as 4 GiB, as in the packing map. On a node with
accelerators, three quarters of the price are for them. The part of a node that no pod requests belongs to nobody and
has a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from shiplap.drawing import markup
from shiplap.drawing.markup import dollars, percent
from shiplap.drawing.packing_map import units
from shiplap.drawing.picture import Amounts, NodePicture, PodPicture

UNREQUESTED = "requested by no pod"
"""The row of what is paid for and not requested, and of pods that are not among those listed."""

_ACCELERATORS_PART = 0.75
_MOST_ROWS = 40


class CostShare(msgspec.Struct, frozen=True):
    """A group of pods, and its part of the nodes' prices, USD per hour."""

    group: str
    pods: int
    hourly: float


def share_costs(nodes: Iterable[NodePicture], group_of: Callable[[PodPicture], str]) -> tuple[CostShare, ...]:
    """The dearest group first, then by name; the sum is the price of all nodes. Nodes without a price count nothing.

    Args:
        nodes: with their pods.
        group_of: names the group of a pod; an empty name is a group, too.
    """
    pods: dict[str, int] = {}
    hourly: dict[str, float] = {}
    for node in nodes:
        left = node.hourly
        for pod in node.pods:
            group = group_of(pod)
            part = min(node.hourly * _part(pod.amounts, node), left)
            left -= part
            pods[group] = pods.get(group, 0) + 1
            hourly[group] = hourly.get(group, 0.0) + part
        if left > 0:
            pods.setdefault(UNREQUESTED, 0)
            hourly[UNREQUESTED] = hourly.get(UNREQUESTED, 0.0) + left
    shares = (CostShare(group, pods[group], hourly[group]) for group in pods)
    return tuple(sorted(shares, key=lambda share: (-share.hourly, share.group)))


def _part(asked: Amounts, node: NodePicture) -> float:
    """Return the part of the node that pods request; 0 for a node whose capacity is not known."""
    whole = sum(units(node.allocatable))
    plain = sum(units(asked)) / whole if whole else 0.0
    devices = node.allocatable.accelerators
    if not devices:
        return plain
    return _ACCELERATORS_PART * asked.accelerators / devices + (1 - _ACCELERATORS_PART) * plain


def cost_table(title: str, head: str, shares: Iterable[CostShare], *, estimated: bool) -> str:
    """The shares as a table under its title; nothing where no node has a price."""
    known = [share for share in shares if share.hourly > 0]
    if not known:
        return ""
    total = sum(share.hourly for share in known)
    rows = [*_rows(known[:_MOST_ROWS], total, estimated=estimated)]
    if more := known[_MOST_ROWS:]:
        rest = CostShare(f"{len(more):,} more", sum(share.pods for share in more), sum(share.hourly for share in more))
        rows += _rows([rest], total, estimated=estimated)
    shown = markup.table((head, "pods", "per hour", "share"), rows, numbers=(1, 2, 3), stacks=True)
    return f"<h2>{markup.text(title)}</h2>{shown}"


def _rows(shares: Iterable[CostShare], total: float, *, estimated: bool) -> Iterator[tuple[str, str, str, str]]:
    for share in shares:
        pods = f"{share.pods:,}" if share.pods else ""
        price = dollars(share.hourly, estimated=estimated)
        yield share.group or "without a value", pods, price, percent(share.hourly, total)
