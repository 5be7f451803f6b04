"""Launches of gangs: the claims that are launched together, and those that are of no use without others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from shiplap.policies.gangs.gang import GangMembers
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim


def incomplete_gangs(
    plan: Plan, gangs: Sequence[GangMembers], left_out: Collection[str], unproven: Collection[str]
) -> dict[str, str]:
    """Return the claims of gangs that would be short without what is left out, by name, with the reason.

    A gang that is short only because a first node has to prove its AMI or its kind of pod launches one node as a pilot,
    unless it has one already.
    """
    places = _Places(plan.node_claims, plan.existing_nodes)
    out, useless = set(left_out), dict[str, str]()
    pilots = set[str]()
    short = True
    while short:  # a claim may hold members of two gangs
        short = False
        for members in gangs:
            mine, there = places.claims(members), places.on_nodes(members)
            gone = [name for name in mine if name in out]
            if not gone or there + sum(mine[name] for name in mine if name not in out) >= members.needed:
                continue
            kept = [name for name in mine if name not in out]
            if not (members.placed or there) and all(name in unproven for name in gone):
                pilots.add(members.gang.key)
            if members.gang.key in pilots:
                kept = kept[1:]
            why = f"gang {members.gang.key}: {len(gone)} of its {len(mine)} nodes may not be launched now, so none is"
            useless |= dict.fromkeys(kept, why)
            out |= {*kept}
            short = short or bool(kept)
    return useless


def launched_together(planned: Iterable[PlannedClaim], gangs: Iterable[GangMembers]) -> Mapping[str, str]:
    """Return the claims of which a gang needs all, by name, with the name of the gang; one node needs no other.

    Claims of members above the minimum are launched by themselves.
    """
    places, found = _Places(sorted(planned, key=lambda claim: claim.name)), dict[str, str]()
    for members in gangs:
        mine = {name: number for name, number in places.claims(members).items() if name not in found}
        surplus = sum(mine.values()) - members.needed
        needed = []
        for name, number in reversed(mine.items()):
            if number <= surplus:
                surplus -= number
            else:
                needed.append(name)
        if len(needed) > 1:
            found |= dict.fromkeys(needed, members.gang.key)
    return found


def most_at_risk(planned: Iterable[PlannedClaim], members: GangMembers, most_together: int) -> float:
    """Return the most that a gang can cost before its last request is refused, USD per hour at the prices of the plan.

    EC2 gives one request all of its instances or none. Claims that differ, and more than `most_together`, are several
    requests, one after the other: at worst all but the cheapest have been given by then.
    """
    claims = list(planned)
    together = launched_together(claims, [members])
    requests: dict[bytes, list[float]] = {}
    for claim in claims:
        if claim.name in together:
            requests.setdefault(_request(claim), []).append(claim.launch.price)
    costs = [
        sum(prices[first : first + most_together])
        for prices in requests.values()
        for first in range(0, len(prices), most_together)
    ]
    return round(sum(costs) - min(costs), 6) if costs else 0.0


def _request(claim: PlannedClaim) -> bytes:
    """Equal bytes mean claims that one request can launch: they differ in their pods alone."""
    alone = claim.name if claim.relies_on_estimate else ""
    shape = (claim.node_pool, claim.node_class, claim.tier, claim.requirements, claim.labels, claim.annotations)
    kept_off = (claim.taints, claim.startup_taints)
    return msgspec.json.encode((alone, shape, kept_off, claim.instance_types), order="deterministic")


class _Places:
    """Where the pods of a plan are: each is looked up, not looked for, as there may be a thousand gangs."""

    def __init__(self, claims: Sequence[PlannedClaim], existing: Iterable[Placement] = ()) -> None:
        self._claims = claims
        self._claim_of = {pod.key: place for place, claim in enumerate(claims) for pod in claim.pods}
        self._on_nodes = {pod.key for placement in existing for pod in placement.pods}

    def claims(self, members: GangMembers) -> dict[str, int]:
        """The claims with waiting members of a gang, by name in the order of the claims, and how many each has."""
        found = Counter(self._claim_of[pod.key] for pod in members.waiting if pod.key in self._claim_of)
        return {self._claims[place].name: found[place] for place in sorted(found)}

    def on_nodes(self, members: GangMembers) -> int:
        """How many waiting members of a gang have a place on nodes that exist."""
        return sum(pod.key in self._on_nodes for pod in members.waiting)
