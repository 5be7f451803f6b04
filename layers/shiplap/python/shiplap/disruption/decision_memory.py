"""The state that one disruption decision keeps for the next, per cluster."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.disruption.commands import EACH_BY_ITSELF, DisruptionProposal, Reason
from shiplap.disruption.disruption_snapshot import NodeHistory

SECOND_LOOK_S = 15.0
"""How old a proposal must be before it is acted on, in seconds, if it is made again."""

STALE_S = 600.0
"""A proposal that was not made again for this long, in seconds, starts over."""


class RememberedProposal(msgspec.Struct, frozen=True):
    """Nodes that were proposed for a reason, first at `since` and last at `seen`, epoch seconds."""

    nodes: tuple[str, ...]
    reason: Reason
    since: float
    seen: float


class DecisionMemory(msgspec.Struct, frozen=True, omit_defaults=True):
    """Histories by node, and proposals that have not begun. `told` are nodes whose rehearsal of sleep has been told."""

    histories: tuple[NodeHistory, ...] = ()
    proposed: tuple[RememberedProposal, ...] = ()
    told: tuple[str, ...] = ()


def confirmed(
    known: Sequence[RememberedProposal], proposals: Sequence[DisruptionProposal], now: float
) -> tuple[tuple[DisruptionProposal, ...], tuple[RememberedProposal, ...]]:
    """The proposals whose nodes were all proposed before, and the others to remember.

    Each node counts by itself, not as part of its proposal: where pods come and go, the best set to remove together
    changes every minute. Nodes that were empty, or asleep, at both looks may go although others of the proposal may
    not.

    Args:
        known: what was remembered.
        proposals: what is proposed now.
        now: epoch seconds.
    """
    since: dict[tuple[str, Reason], float] = {}
    for remembered in known:
        if now - remembered.seen < STALE_S:
            for node in remembered.nodes:
                since[node, remembered.reason] = min(remembered.since, since.get((node, remembered.reason), now))
    ready: list[DisruptionProposal] = []
    waiting: list[RememberedProposal] = []
    for proposal in proposals:
        first = {node: since.get((node, proposal.reason), now) for node in proposal.nodes}
        old = tuple(node for node in proposal.nodes if now - first[node] >= SECOND_LOOK_S)
        if old == proposal.nodes or (old and proposal.reason in EACH_BY_ITSELF):
            ready.append(msgspec.structs.replace(proposal, nodes=old))
            first = {node: at for node, at in first.items() if node not in old}
        for at in sorted(set(first.values())):
            nodes = tuple(node for node in proposal.nodes if first.get(node) == at)
            waiting.append(RememberedProposal(nodes, proposal.reason, at, now))
    return tuple(ready), tuple(waiting)
