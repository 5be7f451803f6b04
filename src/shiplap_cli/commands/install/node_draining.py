"""Has the functions of an install empty and end the nodes of a cluster, by the claims in table `state`.

Nothing is ended from here: a claim that is Draining or Terminating is the lifecycle function's work, which the sweep
reminds of within a minute. Launches must be frozen before, or new nodes take the place of those that go.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.errors import ConditionFailed
from shiplap.flows.claim_updates import grace_ends_at
from shiplap.manifests.nodeclaim import FINAL, GOING_FOR_GOOD, ClaimState, NodeClaim
from shiplap.ports import StateStore
from shiplap.settings import ClusterSettings

UNINSTALLED = "Uninstalled"
"""Why a claim ends, as its record says."""

_UNLAUNCHED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING})


class DrainedCluster(msgspec.Struct, frozen=True):
    """Claims of a cluster, by name: those that this look has begun to end, and those that end already.

    `launching` may have an instance that EC2 does not show yet; they end or become nodes within minutes. `newer` were
    written by a newer release, and only its code may end them.
    """

    begun: tuple[str, ...] = ()
    ending: tuple[str, ...] = ()
    launching: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()


def drain_cluster(settings: ClusterSettings, state: StateStore, now: float, *, grace_s: float = 0.0) -> DrainedCluster:
    """Begin to end every claim that has an instance. It may be repeated.

    Args:
        settings: the cluster; the NodePools of its files say how long a node may take to become empty.
        state: its claims.
        now: epoch seconds.
        grace_s: after so many seconds pods are ended against their PodDisruptionBudgets; 0 for never.

    Raises:
        StoreError: what was begun goes on.
    """
    claims = [claim for claim in state.claims(settings.name) if claim.state not in FINAL]
    able = [claim for claim in claims if not claim.newer]
    begun = [
        claim.name
        for claim in able
        if claim.state not in GOING_FOR_GOOD | _UNLAUNCHED and _begin(claim, settings, state, now, grace_s)
    ]
    return DrainedCluster(
        tuple(begun),
        _names(claim for claim in able if claim.state in GOING_FOR_GOOD),
        _names(claim for claim in able if claim.state in _UNLAUNCHED),
        _names(claim for claim in claims if claim.newer),
    )


def _names(claims: Iterable[NodeClaim]) -> tuple[str, ...]:
    return tuple(claim.name for claim in claims)


def _begin(claim: NodeClaim, settings: ClusterSettings, state: StateStore, now: float, grace_s: float) -> bool:
    """Write the claim; True if that succeeded. False means that a function wrote it meanwhile: wait for it."""
    try:
        if claim.state is ClaimState.LAUNCHED:  # no pod runs on it yet
            state.advance(claim, ClaimState.TERMINATING, failure=UNINSTALLED, changed_at=now)
            return True
        of_pool = grace_ends_at(claim, settings, now)
        deadlines = [at for at in (of_pool, now + grace_s if grace_s else None) if at is not None]
        deadline_at = min(deadlines, default=0.0)
        state.advance(claim, ClaimState.DRAINING, failure=UNINSTALLED, changed_at=now, deadline_at=deadline_at)
    except ConditionFailed:
        return False
    return True
