"""From a plan's claims to the records that are committed: complete, and with a token for each launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot

_TOKEN_LENGTH = 32
"""Characters of a launch token; EC2 takes up to 64 in ASCII."""


class ClaimOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Who decided, when and why. Times are epoch seconds.

    `owner` is the invocation that may launch the claims for `lease_s` from `at` on; then anybody may. `first_event_at`
    is when the first hint that led to this was sent, `event_id` names a hint. `spec_hashes` are those of
    EC2NodeClasses, by name, where they are known.
    """

    cluster: str
    owner: str
    at: float
    lease_s: float
    first_event_at: float = 0.0
    event_id: str = ""
    spec_hashes: Mapping[str, str] = {}


def records_of(planned: Iterable[PlannedClaim], origin: ClaimOrigin) -> list[NodeClaim]:
    """Planned claims as they are committed, but for their tokens."""
    return [
        NodeClaim(
            cluster=origin.cluster,
            name=item.name,
            node_pool=item.node_pool,
            node_class=item.node_class,
            tier=item.tier,
            created_at=origin.at,
            changed_at=origin.at,
            deadline_at=origin.at + origin.lease_s,
            requirements=item.requirements,
            labels=item.labels,
            annotations={**item.annotations, **_marks_of(item.node_class, origin)},
            taints=item.taints,
            startup_taints=item.startup_taints,
            instance_types=item.instance_types,
            relies_on_estimate=item.relies_on_estimate,
            requests=item.requests,
            pods=item.pods,
            reasons=item.reasons,
            owner=origin.owner,
            hourly=item.launch.price,
            allocatable=item.allocatable,
            first_event_at=origin.first_event_at,
            event_id=origin.event_id,
        )
        for item in planned
    ]


def spec_hashes(snapshot: Snapshot) -> dict[str, str]:
    """What claims of this decision remember of their EC2NodeClasses, by name."""
    return {catalog.node_class: catalog.spec_hash for catalog in snapshot.catalogs if catalog.spec_hash}


def _marks_of(node_class: str, origin: ClaimOrigin) -> dict[str, str]:
    known = origin.spec_hashes.get(node_class)
    return {NODE_CLASS_HASH: known, NODE_CLASS_HASH_VERSION: HASH_VERSION} if known else {}


def with_token(claims: Sequence[NodeClaim], epoch: int, install: str) -> list[NodeClaim]:
    """Claims that are launched together, with a token that will never be another launch's, nor another install's.

    Two installs may make the same plan at the same moment, and EC2 would give both the same instances.
    """
    first = claims[0]
    identity = f"{install}/{first.cluster}/{first.name}/{epoch}/{first.created_at}"
    token = hashlib.sha256(identity.encode()).hexdigest()[:_TOKEN_LENGTH]
    return [msgspec.structs.replace(claim, token=token) for claim in claims]
