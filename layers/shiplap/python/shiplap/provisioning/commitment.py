"""From a plan's claims to the records that are committed: complete, in groups that one request can launch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from shiplap.api.nodeclaim import NodeClaim
from shiplap.provisioning.fleet import launches
from shiplap.scheduling.plan import PlannedClaim

_TOKEN_LENGTH = 32
"""Characters of a launch token; EC2 takes up to 64 in ASCII."""


def groups_of(
    planned: Sequence[PlannedClaim],
    cluster: str,
    epoch: int,
    *,
    owner: str,
    now: float,
    lease_s: float,
    first_event_at: float = 0.0,
) -> list[list[NodeClaim]]:
    """Planned claims by launch, each with its token.

    Args:
        planned: of one decision.
        cluster: its cluster.
        epoch: the one it was decided at; with it no token is ever another launch's.
        owner: the invocation that may launch them until `now` (epoch seconds) plus `lease_s`; then anybody may.
        now: epoch seconds.
        lease_s: see `owner`.
        first_event_at: when the first hint that led to this was sent, epoch seconds.
    """
    claims = [
        NodeClaim(
            cluster=cluster,
            name=item.name,
            node_pool=item.node_pool,
            node_class=item.node_class,
            tier=item.tier,
            created_at=now,
            changed_at=now,
            deadline_at=now + lease_s,
            requirements=item.requirements,
            labels=item.labels,
            annotations=item.annotations,
            taints=item.taints,
            startup_taints=item.startup_taints,
            instance_types=item.instance_types,
            relies_on_estimate=item.relies_on_estimate,
            requests=item.requests,
            pods=item.pods,
            reasons=item.reasons,
            owner=owner,
            hourly=item.launch.price,
            allocatable=item.allocatable,
            first_event_at=first_event_at,
        )
        for item in planned
    ]
    return [_with_token(group, epoch) for group in launches(claims)]


def _with_token(claims: Sequence[NodeClaim], epoch: int) -> list[NodeClaim]:
    first = claims[0]
    identity = f"{first.cluster}/{first.name}/{epoch}/{first.created_at}"
    token = hashlib.sha256(identity.encode()).hexdigest()[:_TOKEN_LENGTH]
    return [msgspec.structs.replace(claim, token=token) for claim in claims]
