"""Nodes whose instances AWS will change or end some day leave before that, in turn.

A maintenance is announced for many instances at once, mostly weeks ahead. To empty all their nodes at that moment would
launch as many replacements and move as many pods; so they leave as the budgets of their NodePools allow, the earliest
change first, until a change is so near that waiting would let AWS do it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from shiplap.api.nodeclaim import LEAVING, ClaimState, NodeClaim
from shiplap.api.types import NodePool
from shiplap.disruption.budgets import allowance
from shiplap.disruption.commands import Reason
from shiplap.ports import Ailment
from shiplap.provisioning.claims import facts, pool_of
from shiplap.provisioning.interrupt import PRESSING_S, answer
from shiplap.provisioning.notices import Kind, Notice
from shiplap.provisioning.world import World
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_NOT_LEAVING = frozenset({ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING})


def leave_in_turn(
    settings: ClusterSettings, claims: Sequence[NodeClaim], ailments: Iterable[Ailment], world: World
) -> None:
    """Have nodes with a scheduled change replaced, each by the same conditional write as an interruption.

    Budgets count as for drift: like that, it can wait for a maintenance window. A change of an unknown time presses.

    Args:
        settings: the cluster.
        claims: all of the cluster.
        ailments: what EC2 tells of instances.
        world: state is written.

    Raises:
        StoreError: tried again with the next sweep.
    """
    told: dict[str, float] = {}
    for ailment in ailments:
        if ailment.kind == "event":
            told[ailment.instance_id] = min(told.get(ailment.instance_id, ailment.due_at), ailment.due_at)
    due = [
        (told.get(claim.instance_id, claim.change_at), claim)
        for claim in claims
        if claim.state in _NOT_LEAVING and (claim.instance_id in told or claim.change_at)
    ]
    now = world.clock.now()
    left: dict[str, int] = {}
    for due_at, claim in sorted(due, key=lambda item: (item[0], item[1].name)):
        pool = pool_of(claim, settings)
        if due_at > now + PRESSING_S and pool is not None:
            if claim.node_pool not in left:
                left[claim.node_pool] = _room(pool, claims, now)
            if left[claim.node_pool] < 1:
                world.meter.count("ScheduledChangesWaiting")
                _LOG.info("a scheduled change waits for the budgets of its pool", extra=facts(claim))
                continue
            left[claim.node_pool] -= 1
        answer(claim.name, Notice(Kind.SCHEDULED_CHANGE, (claim.instance_id,)), settings, world)


def _room(pool: NodePool, claims: Iterable[NodeClaim], now: float) -> int:
    """How many more nodes of a NodePool may leave now."""
    own = [claim for claim in claims if claim.node_pool == pool.metadata.name]
    leaving = sum(claim.state in LEAVING for claim in own)
    total = leaving + sum(claim.state is ClaimState.INITIALIZED for claim in own)
    return allowance(pool, Reason.DRIFTED, total, leaving, now).nodes
