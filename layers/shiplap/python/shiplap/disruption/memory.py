"""What one disruption decision leaves to the next, per cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.disruption.commands import Proposal, Reason
from shiplap.disruption.snapshot import NodeHistory

SECOND_LOOK_S = 15.0
"""How old a proposal must be before it is acted on, in seconds, if it is made again."""

STALE_S = 600.0
"""A proposal that nobody looked at again for this long, in seconds, starts anew."""


class Proposed(msgspec.Struct, frozen=True):
    """Nodes that were to go, for a reason, first at `since` and last at `seen`, epoch seconds."""

    nodes: tuple[str, ...]
    reason: Reason
    since: float
    seen: float


class Memory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Histories by node, and what was proposed and has not begun."""

    histories: tuple[NodeHistory, ...] = ()
    proposed: tuple[Proposed, ...] = ()


def confirmed(
    known: Sequence[Proposed], proposals: Sequence[Proposal], now: float
) -> tuple[tuple[Proposal, ...], tuple[Proposed, ...]]:
    """The proposals that were made before and hold still, and what to remember of the others.

    Nodes that were empty at both looks may go although others of the same proposal may not.

    Args:
        known: what was remembered.
        proposals: what is proposed now.
        now: epoch seconds.
    """
    before = {(item.nodes, item.reason): item.since for item in known if now - item.seen < STALE_S}
    empty = {node: since for (nodes, reason), since in before.items() if reason is Reason.EMPTY for node in nodes}
    ready: list[Proposal] = []
    waiting: list[Proposed] = []
    for proposal in proposals:
        if proposal.reason is Reason.EMPTY:
            old = tuple(node for node in proposal.nodes if now - empty.get(node, now) >= SECOND_LOOK_S)
            if old:
                ready.append(msgspec.structs.replace(proposal, nodes=old))
            fresh = [node for node in proposal.nodes if node not in old]
            waiting += [Proposed((node,), Reason.EMPTY, empty.get(node, now), now) for node in fresh]
            continue
        since = before.get((proposal.nodes, proposal.reason), now)
        if now - since >= SECOND_LOOK_S:
            ready.append(proposal)
        else:
            waiting.append(Proposed(proposal.nodes, proposal.reason, since, now))
    return tuple(ready), tuple(waiting)
