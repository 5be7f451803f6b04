"""From a plan's claims to the records that are committed: complete, and with a token for each launch."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.manifests.nodeclaim import ClaimCause, ClaimPlan, LaunchRequest, NodeClaim
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot

_TOKEN_LENGTH = 32
"""Characters of a launch token; EC2 takes up to 64 in ASCII."""

_KEPT = tuple(name for name in ClaimPlan.__struct_fields__ if name in PlannedClaim.__struct_fields__)


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
            plan=_marked(plan_of(item), origin),
            launch=LaunchRequest(owner=origin.owner),
            cause=ClaimCause(origin.event_id, origin.first_event_at),
            created_at=origin.at,
            changed_at=origin.at,
            deadline_at=origin.at + origin.lease_s,
            hourly=item.launch.price,
        )
        for item in planned
    ]


def plan_of(planned: PlannedClaim) -> ClaimPlan:
    """What of a planned claim outlives the decision."""
    return ClaimPlan(**{name: getattr(planned, name) for name in _KEPT})


def spec_hashes(snapshot: Snapshot) -> dict[str, str]:
    """What claims of this decision remember of their EC2NodeClasses, by name."""
    return {catalog.node_class: catalog.spec_hash for catalog in snapshot.catalogs if catalog.spec_hash}


def _marked(plan: ClaimPlan, origin: ClaimOrigin) -> ClaimPlan:
    known = origin.spec_hashes.get(plan.node_class)
    if not known:
        return plan
    marks = {NODE_CLASS_HASH: known, NODE_CLASS_HASH_VERSION: HASH_VERSION}
    return replace(plan, annotations={**plan.annotations, **marks})


def with_token(claims: Sequence[NodeClaim], epoch: int, install: str) -> list[NodeClaim]:
    """Claims that are launched together, with a token that will never be another launch's, nor another install's.

    Two installs may make the same plan at the same moment, and EC2 would give both the same instances.
    """
    first = claims[0]
    identity = f"{install}/{first.cluster}/{first.name}/{epoch}/{first.created_at}"
    token = hashlib.sha256(identity.encode()).hexdigest()[:_TOKEN_LENGTH]
    return [replace(claim, launch=replace(claim.launch, token=token)) for claim in claims]
