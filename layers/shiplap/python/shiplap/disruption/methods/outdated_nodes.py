"""Outdated nodes: expired or drifted, in the order in which they are replaced."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.commands import Reason
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.methods.drift import drift_reason, expected_node_of
from shiplap.manifests.times import seconds_or_never


class OutdatedNode(msgspec.Struct, frozen=True, eq=False):
    """A node that is to be replaced, and why."""

    node: Candidate
    reason: Reason
    why: str


def find_outdated(progress: DecisionProgress, candidates: Sequence[Candidate]) -> list[OutdatedNode]:
    """The nodes that may be replaced now: empty ones first, then those that drifted first. Others are noted."""
    outdated = _outdated(progress, candidates)
    drifted = {item.node.name for item in outdated if item.reason is Reason.DRIFTED}
    progress.drifted = tuple(sorted(drifted.union(progress.drifted)))
    movable = []
    for item in outdated:
        if why := _protection(progress, item) or progress.backing_off(item.node):
            progress.blocked[item.node.name] = why
            progress.keep_outdated([item.node])
        else:
            movable.append(item)
    return sorted(
        movable,
        key=lambda item: (not item.node.empty, item.node.history.drifted_at, item.node.born_at, item.node.name),
    )


def _outdated(progress: DecisionProgress, candidates: Sequence[Candidate]) -> list[OutdatedNode]:
    snapshot, clock = progress.snapshot, progress.clock
    expected = {}
    for pool in snapshot.scheduling.manifests.node_pools:
        if mine := [item for item in candidates if item.pool is pool]:
            expected[pool.metadata.name] = expected_node_of(pool, snapshot.scheduling, progress.market, mine)
    found = []
    for item in candidates:
        name = item.pool.metadata.name
        expires_s = seconds_or_never(item.expire_after)
        if expires_s is not None and clock.is_past(item.born_at + expires_s):
            found.append(OutdatedNode(item, Reason.EXPIRED, f"older than {item.expire_after}"))
        elif name in snapshot.unsettled_pools:
            continue
        elif why := drift_reason(item, progress.market, expected[name], clock) or item.history.said_to_drift:
            found.append(OutdatedNode(item, Reason.DRIFTED, why))
    return found


def _protection(progress: DecisionProgress, item: OutdatedNode) -> str:
    """Return which protected pod keeps a node without a deadline, or "". Note a node that has expired as overdue."""
    node, expired = item.node, item.reason is Reason.EXPIRED
    if not node.protected or node.grace is not None or (expired and progress.snapshot.settings.expire_protected):
        return ""
    if not expired:
        return node.protected
    progress.overdue[node.name] = (
        f"has expired ({item.why}) and stays because {node.protected}: terminationGracePeriod of the NodePool, or "
        "disruption.expireProtected of the cluster, would end this"
    )
    return progress.overdue[node.name]
