"""The history of each node, from one disruption decision to the next.

The API server has the present state, not since when. One object per cluster keeps that; only the disrupt function
writes it. If it is lost, disruption only waits longer: a node without history counts as changed just now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from shiplap.disruption.candidates import reschedulable_pods
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.planned_pods import pair
from shiplap.scheduling.model.snapshot import ClusterView

FIRST_BACKOFF_S = 900.0
LONGEST_BACKOFF_S = 4 * 3600.0
"""The first and the longest back-off of a node after its command was undone, in seconds: the cause seldom ends within a
minute, and each try costs a node."""

FORGIVEN_S = 24 * 3600.0
"""After so many seconds without an undone command, the back-off starts over."""


def observe_nodes(
    known: Sequence[NodeHistory], view: ClusterView, claims: Sequence[NodeClaim], now: float
) -> tuple[NodeHistory, ...]:
    """The histories of the nodes that exist and are initialised, by name.

    Args:
        known: the previous histories.
        view: the cluster as it is.
        claims: all that are not over.
        now: epoch seconds.
    """
    paired, _ = pair(view.nodes, claims)
    held = view.of_pods(_held)
    remembered = {history.node: history for history in known}
    result = []
    for node in sorted(view.nodes, key=lambda item: item.metadata.name):
        name = node.metadata.name
        claim = paired.get(name)
        if claim is None or node.metadata.labels.get(labels.INITIALIZED) != "true":
            continue
        digest = held.get(name, _EMPTY)
        before = remembered.get(name)
        if before is None:
            since = claim.changed_at if claim.state is ClaimState.INITIALIZED else now
            # Pods are already moving to a replacement node: it is like the nodes passed to `with_moves`.
            before = NodeHistory(name, initialized_at=since, moved_in_at=since if claim.is_replacement else 0.0)
        if before.pods != digest:
            before = replace(before, last_pod_event_at=now, pods=digest)
        result.append(before)
    return tuple(result)


def with_drift(known: Sequence[NodeHistory], drifted: Collection[str], now: float) -> tuple[NodeHistory, ...]:
    """The histories with the time at which nodes drifted; it is reset for a node that no longer drifts."""
    return tuple(
        replace(history, drifted_at=(history.drifted_at or now) if history.node in drifted else 0.0)
        for history in known
    )


def with_moves(known: Sequence[NodeHistory], taking: Collection[str], now: float) -> tuple[NodeHistory, ...]:
    """The histories once a command has begun to move pods onto these nodes."""
    return tuple(replace(history, moved_in_at=now) if history.node in taking else history for history in known)


def with_undone(known: Sequence[NodeHistory], given_up: Collection[str], now: float) -> tuple[NodeHistory, ...]:
    """The histories once commands to remove these nodes are undone; undone commands of long ago no longer count."""
    return tuple(
        replace(
            history,
            undone_at=now,
            undone=1 + (history.undone if now - history.undone_at < FORGIVEN_S else 0),
        )
        if history.node in given_up
        else history
        for history in known
    )


def backoff_until(history: NodeHistory) -> float:
    """Epoch seconds at which the back-off of a node after undone commands ends: each time twice as long."""
    if not history.undone:
        return 0.0
    return history.undone_at + min(FIRST_BACKOFF_S * (1 << min(history.undone - 1, 10)), LONGEST_BACKOFF_S)


def _held(view: ClusterView) -> dict[str, str]:
    """Digests of the pods that would move with their node, by its name."""
    by_node = view.of_pods(reschedulable_pods)
    return {node: _digest([pod.metadata.uid or pod.key for pod in pods]) for node, pods in by_node.items()}


def _digest(uids: Collection[str]) -> str:
    return hashlib.blake2b("\n".join(sorted(uids)).encode(), digest_size=8).hexdigest()


_EMPTY = _digest(())
