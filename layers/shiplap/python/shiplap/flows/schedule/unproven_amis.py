"""How many nodes may be on their way on an AMI that no node has joined with: a broken one must not cost hundreds.

That an AMI is broken shows only when its nodes fail to join, and until then a burst would launch as many as it needs.
So an AMI without proof gets a bounded first batch. One node that joins opens it for good; the bound is wide enough that
few first scale-ups ever meet it, and those wait a minute for their second batch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness.joins import JoinHistory, JoinRecord
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim

SHRINKS = 10
"""The first batch is this many times smaller for each failure in a row."""

_UNJOINED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED})

TypesFor = Callable[[NodeClaim], Mapping[str, InstanceType]]


def limits_of_amis(joins: JoinHistory, sold: Iterable[InstanceType], most: int) -> dict[str, int]:
    """Nodes that may be on their way at once, for each AMI without proof.

    Args:
        joins: how nodes of this cluster joined.
        sold: all that can be launched; a type that is verified on its AMI has been seen as a node of some cluster.
        most: the first batch.
    """
    items = tuple(sold)
    proven = {item.ami for item in items if item.verified} | {item.ami for item in joins.amis if item.all.joined_at}
    records = {item.ami: item.all for item in joins.amis}
    return {
        ami: max(1, most // SHRINKS ** min(records.get(ami, JoinRecord()).failures, 9))
        for ami in sorted({item.ami for item in items} - proven - {""})
    }


def is_full(sold: Iterable[InstanceType], claims: Iterable[NodeClaim], limits: Mapping[str, int]) -> bool:
    """Whether nothing that is sold could be launched before a first node joins.

    Args:
        sold: all that can be launched.
        claims: all in flight; those that have no AMI yet may take any.
        limits: of AMIs, see `limits_of_amis`.
    """
    under_way = Counter(
        claim.known_instance.ami for claim in claims if claim.state in _UNJOINED and claim.known_instance.ami
    )
    amis = {item.ami for item in sold}
    return bool(amis) and all(ami in limits and under_way[ami] >= limits[ami] for ami in amis)


def within_limits(
    groups: Sequence[Sequence[NodeClaim]], claims: Iterable[NodeClaim], limits: Mapping[str, int], types_for: TypesFor
) -> list[Sequence[NodeClaim]]:
    """Of each group of claims as many as may be launched now; groups of which none may are left out.

    Args:
        groups: those that would be launched, by launch; none is empty.
        claims: all in flight.
        limits: of AMIs, see `limits_of_amis`.
        types_for: what is sold to a claim, by name.
    """
    if not limits:
        return list(groups)
    under_way = Counter(_ami(claim, types_for) for claim in claims if claim.state in _UNJOINED)
    kept = []
    for group in groups:
        ami = _ami(group[0], types_for)
        allowed = max(limits[ami] - under_way[ami], 0) if ami in limits else len(group)
        if allowed:
            kept.append(group[:allowed])
            under_way[ami] += len(kept[-1])
    return kept


def _ami(claim: NodeClaim, types_for: TypesFor) -> str:
    """The AMI it was launched with, or of the first type that it may be launched as."""
    if claim.known_instance.ami or not claim.plan.instance_types:
        return claim.known_instance.ami
    item = types_for(claim).get(claim.plan.instance_types[0])
    return item.ami if item is not None else ""
