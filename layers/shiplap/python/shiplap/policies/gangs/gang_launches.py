"""Launches of gangs: the claims that are launched together, and those that are of no use without others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from shiplap.policies.gangs.gang import GangMembers
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim


def incomplete_gangs(
    plan: Plan, gangs: Sequence[GangMembers], left_out: Collection[str], unproven: Collection[str]
) -> dict[str, str]:
    """Return the claims of gangs that would be short without what is left out, by name, with the reason.

    A gang that is short only because a first node has to prove its AMI or its kind of pod launches one node as a pilot,
    unless it has one already.
    """
    out, useless = set(left_out), dict[str, str]()
    pilots = set[str]()
    short = True
    while short:  # a claim may hold members of two gangs
        short = False
        for members in gangs:
            mine = _claims_of(members, plan.node_claims)
            gone = [claim for claim in mine if claim.name in out]
            if not gone or _left(members, plan, out) >= members.needed:
                continue
            kept = [claim for claim in mine if claim.name not in out]
            if not _has_begun(members, plan) and all(claim.name in unproven for claim in gone):
                pilots.add(members.gang.key)
            if members.gang.key in pilots:
                kept = kept[1:]
            why = f"gang {members.gang.key}: {len(gone)} of its {len(mine)} nodes may not be launched now, so none is"
            useless |= {claim.name: why for claim in kept}
            out |= {claim.name for claim in kept}
            short = short or bool(kept)
    return useless


def launched_together(planned: Iterable[PlannedClaim], gangs: Iterable[GangMembers]) -> Mapping[str, str]:
    """Return the claims of which a gang needs all, by name, with the name of the gang; one node needs no other.

    Claims of members above the minimum are launched by themselves.
    """
    claims, found = sorted(planned, key=lambda claim: claim.name), dict[str, str]()
    for members in gangs:
        mine = [claim for claim in _claims_of(members, claims) if claim.name not in found]
        surplus = sum(len(_pods_of(members, claim)) for claim in mine) - members.needed
        needed = []
        for claim in reversed(mine):
            spare = len(_pods_of(members, claim))
            if spare <= surplus:
                surplus -= spare
            else:
                needed.append(claim.name)
        if len(needed) > 1:
            found |= dict.fromkeys(needed, members.gang.key)
    return found


def _claims_of(members: GangMembers, claims: Iterable[PlannedClaim]) -> list[PlannedClaim]:
    return [claim for claim in claims if _pods_of(members, claim)]


def _pods_of(members: GangMembers, claim: PlannedClaim) -> list[str]:
    keys = {pod.key for pod in members.waiting}
    return [pod.key for pod in claim.pods if pod.key in keys]


def _left(members: GangMembers, plan: Plan, out: Collection[str]) -> int:
    """How many members have a place without these claims."""
    keys = {pod.key for pod in members.waiting}
    there = sum(pod.key in keys for place in plan.existing_nodes for pod in place.pods)
    return there + sum(len(_pods_of(members, claim)) for claim in plan.node_claims if claim.name not in out)


def _has_begun(members: GangMembers, plan: Plan) -> bool:
    keys = {pod.key for pod in members.waiting}
    return bool(members.placed) or any(pod.key in keys for place in plan.existing_nodes for pod in place.pods)
