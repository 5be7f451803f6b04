"""The view of EC2 in one round of decisions: what rests, what may be tried a little, and which subnets have room.

It begins with what all clusters of the account have learned and grows with every answer, so that the next launch of the
round does not ask for what the one before could not get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.flows.planning.planned_launches import places_in_turns
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import (
    LEAST_DRAIN_S,
    ResolvedNodeClass,
    emptiest_subnets,
    open_subnets,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.offerings.spot_lists import may_get_more
from shiplap.instances.offerings.unavailability import ANY, in_placement_group, launch_budget, quota_of
from shiplap.instances.readiness.joins import is_left_alone, is_node_class, node_class_scope
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import DecisionState, FleetOverride, OfferingFailure, UnavailableOffering

Offering = tuple[str, str, str]
"""Instance type, zone, capacity type."""

_NOT_JOINED = frozenset({ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED})
_CAPACITY_TYPES = (labels.ON_DEMAND, labels.SPOT)


def unavailable_offerings(resting: Iterable[UnavailableOffering], catalog: Catalog) -> frozenset[Offering]:
    """Every offering that rests: by itself, with the quota of its type, or with all of its capacity type."""
    scopes = {offering.scope for offering in resting}
    wide = {scope for scope in scopes if ANY in scope}
    if not wide:
        return frozenset(scopes)
    rests = {
        (name, zone, capacity_type)
        for name, zones in catalog.zones.items()
        for capacity_type in _CAPACITY_TYPES
        if not wide.isdisjoint(_wider(name, capacity_type))
        for zone in zones
    }
    return frozenset(scopes | rests)


def unavailable_in_group(group: str, resting: Iterable[UnavailableOffering], catalog: Catalog) -> frozenset[Offering]:
    """Every offering that rests for launches into a placement group, beside those that rest for all."""
    scopes = {offering.scope for offering in resting if offering.scope[0].startswith(f"{group}/")}
    if not group or not scopes:
        return frozenset()
    return frozenset(
        own
        for name, zones in catalog.zones.items()
        for zone in zones
        for capacity_type in _CAPACITY_TYPES
        if not scopes.isdisjoint(_in_group(group, own := (name, zone, capacity_type)))
    )


def _in_group(group: str, offering: Offering) -> tuple[Offering, Offering]:
    """Return the scopes of an offering in a placement group: itself, and all the group may have in the zone."""
    name, zone, capacity_type = offering
    return (in_placement_group(group, name), zone, capacity_type), (in_placement_group(group, ANY), zone, ANY)


def _wider(instance_type: str, capacity_type: str) -> tuple[Offering, Offering]:
    return (quota_of(instance_type), ANY, capacity_type), (ANY, ANY, capacity_type)


class OfferingMarket:
    """One round's knowledge. `state` is what was read at its beginning."""

    def __init__(self, state: DecisionState) -> None:
        self._resting = {offering.scope for offering in state.unavailable}
        self._recovering = {offering.scope: offering for offering in state.recovering}
        self._suspected = sorted(name for name, *_ in self._resting | self._recovering.keys() if is_node_class(name))
        self._in_flight = {claim.plan.node_class for claim in state.claims if claim.state in _NOT_JOINED}
        self._addresses = dict(state.addresses)
        self._launched: Counter[str] = Counter()
        own = {
            claim.launch.token for claim in state.claims
        }  # the plan itself counts what it has promised to claims in flight
        self._reserved = {
            name: sum(number for token, number in tokens.items() if token not in own)
            for name, tokens in state.reserved.items()
        }

    def learn(self, failures: Iterable[OfferingFailure]) -> None:
        """Leave alone what has just failed."""
        self._resting |= {failure.scope for failure in failures}

    def is_unavailable(self, instance_type: str, zone: str, capacity_type: str, group: str = "") -> bool:
        """True if an offering is not to be asked for, in a placement group if it is for one."""
        if not self._resting:
            return False
        own = (instance_type, zone, capacity_type)
        for_group = _in_group(group, own) if group else ()
        scopes = (own, *for_group, *_wider(instance_type, capacity_type))
        return not self._resting.isdisjoint(scopes)

    def is_node_class_unavailable(self, cluster: str, node_class: EC2NodeClass) -> bool:
        """True if nothing is to be launched from an EC2NodeClass, as it is written now, because its instances ended."""
        return (node_class_scope(cluster, node_class), ANY, ANY) in self._resting

    def open(self, resolved: ResolvedNodeClass, now: float = 0.0, drain_s: float = LEAST_DRAIN_S) -> ResolvedNodeClass:
        """An EC2NodeClass with what is worth a launch: subnets, less what launches in flight take, and reservations,
        less what other clusters take and, at `now` in epoch seconds, blocks that are about to end, with nodes that take
        `drain_s` seconds to be emptied.
        """
        resting = {scope[0] for scope in self._resting}
        reservations = (
            msgspec.structs.replace(held, available=max(held.available - self._reserved.get(held.id, 0), 0))
            for held in resolved.capacity_reservations
            if not held.is_expiring(now, drain_s)
        )
        return msgspec.structs.replace(
            resolved,
            subnets=open_subnets(resolved.subnets, resting, self._addresses),
            capacity_reservations=tuple(reservations),
        )

    def reserve(self, overrides: Sequence[FleetOverride], resolved: ResolvedNodeClass, count: int) -> dict[str, int]:
        """Addresses a launch may take, by subnet id; counted for the launches after it from now on.

        Which zone EC2 takes is not known yet, so they are counted in each: at least as many as pods fit on the node
        with fewest, for that is how many the VPC CNI may hold.
        """
        fewest: dict[str, int] = {}
        for override in overrides:
            fewest[override.zone] = min(fewest.get(override.zone, override.max_pods), override.max_pods)
        best = emptiest_subnets(resolved.subnets)
        taken = {best[zone].id: max(fewest[zone], 1) * count for zone in sorted(fewest) if zone in best}
        for subnet, addresses in taken.items():
            self._addresses[subnet] = self._addresses.get(subnet, 0) + addresses
        return taken

    def preferred(self, claims: Sequence[NodeClaim]) -> tuple[str, ...]:
        """The spot offerings, as `type/zone`, that claims of one launch ask for alone; none where all are asked for."""
        asked = claims[0].plan.preferred_spot
        return () if asked is None else may_get_more(asked, len(claims), self._launched)

    def count_launched(self, claims: Iterable[NodeClaim]) -> None:
        """Count what launches of this round got: the next ones must not get too much of the same offering."""
        self._launched.update(f"{claim.known_instance.type}/{claim.known_instance.zone}" for claim in claims)

    def proven(self, claims: Iterable[NodeClaim]) -> list[UnavailableOffering]:
        """Offerings that had failed and have now given one of these claims its instance."""
        given = {
            (
                claim.plan.labels.get(labels.RESERVATION_ID, claim.known_instance.type),
                claim.known_instance.zone,
                claim.known_instance.capacity_type,
            )
            for claim in claims
        }
        return [self._recovering.pop(scope) for scope in sorted(given & self._recovering.keys())]

    def within_budget(
        self, groups: Sequence[Sequence[NodeClaim]], types: Sequence[Mapping[str, InstanceType]]
    ) -> list[Sequence[NodeClaim]]:
        """The claims that may be launched now, of each group; `types` are what is sold to each.

        A group that can be launched on offerings which have not failed lately is launched as a whole. The others share
        the budgets of the offerings that have, domain by domain: what may be asked for at once is halved with each
        failure and doubled with each success, so that many clusters and retries together cannot make a storm. A request
        for all or nothing counts as one instance, and is kept whole: EC2 refuses it whole, and half is of no use. Of an
        EC2NodeClass whose instances ended before they joined there is one claim at a time, until that is forgotten.
        """
        left = {scope: launch_budget(offering.failures) for scope, offering in self._recovering.items()}
        tried = set(self._in_flight)
        kept = [len(claims) for claims in groups]
        shared: list[tuple[int, set[Offering]]] = []
        bounded: list[NodeClaim] = []
        for group, (claims, sold) in enumerate(zip(groups, types, strict=True)):
            node_class = claims[0].plan.node_class
            if is_left_alone(claims[0].cluster, node_class, self._suspected):
                kept[group] = 0 if node_class in tried else 1
                tried.add(node_class)
            elif left and (offerings := self._offerings(claims[0], sold)) and offerings <= left.keys():
                kept[group] = 0
                counted = claims[:1] if claims[0].launch.atomic else claims
                shared += [(group, offerings)] * len(counted)
                bounded += counted
        for place in places_in_turns(bounded):
            group, offerings = shared[place]
            able = [scope for scope in offerings if left[scope] > 0]
            whole = len(groups[group]) if groups[group][0].launch.atomic else 1
            kept[group] += whole if able else 0
            left |= {scope: left[scope] - 1 for scope in able}
        return [claims[:number] for claims, number in zip(groups, kept, strict=True)]

    def _offerings(self, claim: NodeClaim, types: Mapping[str, InstanceType]) -> set[Offering]:
        sold = {
            (offering.reservation_id or name, offering.zone, offering.capacity_type)
            for name in claim.plan.instance_types
            if name in types
            for offering in types[name].offerings
            if offering.available
        }
        return {offering for offering in sold if not self.is_unavailable(*offering)}
