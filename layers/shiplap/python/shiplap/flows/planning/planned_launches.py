"""From a plan's claims to launches: the records that are committed, those launched together, and what a fleet may take.

Records are complete, and those of one launch share a token. Which offerings a fleet may take is decided by the filters
of the launch path, as one pure function.

The order of these filters is Karpenter's: what is compatible and available; what is reserved, if anything is; no exotic
hardware where plain will do; no spot dearer than on-demand; then one capacity type: spot where any is left, else
on-demand. A minimum of values does not switch filters off: each is left out only where too few values would remain.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.instances.capacity.described_capacity import ENCLAVES, FABRIC_ADAPTERS
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.spot_lists import is_choice
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import ACCELERATORS, PODS
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimCause, ClaimPlan, LaunchRequest, NodeClaim
from shiplap.manifests.template_hash import HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION
from shiplap.ports import COMMIT_BYTES, COMMIT_GROUP, FleetOverride
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.planned_claims import plan_of
from shiplap.scheduling.supply.existing_nodes import still_fits

_TOKEN_LENGTH = 32
"""Characters of a launch token; EC2 takes up to 64 in ASCII."""

_ATTACHED = (FABRIC_ADAPTERS, ENCLAVES)
"""Resources for which an instance is launched differently."""

_CENTS = 1e-9

_GROWTH_BYTES = 8_000
"""What a claim may still grow by: the labels of its instance type."""

_OF_TYPES = frozenset({labels.INSTANCE_TYPE, labels.ARCH, labels.OS})
"""Labels that follow from a type, not from where a node is."""


class ClaimOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Holds who decided, when and why. Times are epoch seconds."""

    cluster: str

    owner: str
    """The invocation that alone may launch the claims during its lease; then any may. Empty: any may at once."""

    at: float
    """The time of the decision."""

    lease_s: float
    """How long the lease lasts, in seconds."""

    first_event_at: float = 0.0
    """When the first hint that led to the decision was sent."""

    event_id: str = ""
    """The id of that hint."""


def records_of(planned: Iterable[PlannedClaim], origin: ClaimOrigin, snapshot: Snapshot) -> list[NodeClaim]:
    """Planned claims as they are committed, but for their tokens; `snapshot` is that of the decision."""
    hashes = {catalog.node_class: catalog.spec_hash for catalog in snapshot.catalogs if catalog.spec_hash}
    pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
    return [
        NodeClaim(
            cluster=origin.cluster,
            name=claim.name,
            plan=_completed(plan_of(claim), hashes.get(claim.node_class), pools.get(claim.node_pool)),
            launch=LaunchRequest(owner=origin.owner),
            cause=ClaimCause(origin.event_id, origin.first_event_at),
            created_at=origin.at,
            changed_at=origin.at,
            deadline_at=origin.at + origin.lease_s,
            hourly=claim.launch.price,
        )
        for claim in planned
    ]


def _completed(plan: ClaimPlan, spec_hash: str | None, pool: NodePool | None) -> ClaimPlan:
    """A plan that remembers what its EC2NodeClass and its NodePool say today."""
    if spec_hash:
        marks = {NODE_CLASS_HASH: spec_hash, NODE_CLASS_HASH_VERSION: HASH_VERSION}
        plan = replace(plan, annotations={**plan.annotations, **marks})
    if pool is None:
        return plan
    spec = pool.spec.template.spec
    grace = spec.termination_grace_period or ""
    return replace(plan, expire_after=spec.expire_after, termination_grace_period=grace)


def in_turns(claims: Sequence[NodeClaim]) -> list[NodeClaim]:
    """The claims domain by domain: those of each zone, capacity type and label take turns, fewest pods first.

    So a budget decides how many nodes there are, and not in which zones: each beginning of this order is as level as
    claims of whole nodes can be. Claims of one domain keep their order.
    """
    return [claims[place] for place in places_in_turns(claims)]


def places_in_turns(claims: Sequence[NodeClaim]) -> list[int]:
    """The places of claims in the order of `in_turns`."""
    pods: Counter[tuple[tuple[str, str], ...]] = Counter()
    turns = []
    for place, claim in enumerate(claims):
        domain = tuple(sorted(item for item in claim.plan.labels.items() if item[0] not in _OF_TYPES))
        turns.append((pods[domain], place))
        pods[domain] += len(claim.plan.pods)
    return [place for _, place in sorted(turns)]


def with_token(claims: Sequence[NodeClaim], epoch: int, install: str) -> list[NodeClaim]:
    """Claims that are launched together, with a token that will never be another launch's, nor another install's.

    Two installs may make the same plan at the same moment, and EC2 would give both the same instances.
    """
    first = claims[0]
    identity = f"{install}/{first.cluster}/{first.name}/{epoch}/{first.created_at}"
    token = hashlib.sha256(identity.encode()).hexdigest()[:_TOKEN_LENGTH]
    return [replace(claim, launch=replace(claim.launch, token=token)) for claim in claims]


def alike(claims: Sequence[NodeClaim]) -> NodeClaim:
    """One claim that asks for what each of some claims of one launch asks for, so that any of them can have its
    instance.
    """
    first = claims[0]
    resources = sorted({resource for claim in claims for resource in claim.plan.requests})
    most = {resource: max(claim.plan.requests.get(resource, 0) for claim in claims) for resource in resources}
    dearest = min(claim.most_hourly for claim in claims)
    return replace(first, plan=replace(first.plan, requests=most), most_hourly=dearest)


def launches(claims: Iterable[NodeClaim]) -> list[list[NodeClaim]]:
    """Claims that one request can launch, together; in the order of the first of each.

    They differ in their pods and in nothing EC2 or the node is told. A claim that explores an estimate is launched by
    itself: the right to do so is its own. What is launched together must also fit into one write.
    """
    found: dict[bytes, list[list[NodeClaim]]] = {}
    sizes: dict[bytes, int] = {}
    for claim in claims:
        key, size = _shape(claim), len(msgspec.json.encode(claim)) + _GROWTH_BYTES
        groups = found.setdefault(key, [[]])
        if len(groups[-1]) == _most_together(claim) or sizes.get(key, 0) + size > COMMIT_BYTES:
            groups.append([])
            sizes[key] = 0
        groups[-1].append(claim)
        sizes[key] = sizes.get(key, 0) + size
    return [group for groups in found.values() for group in groups]


def _most_together(claim: NodeClaim) -> int:
    """Return how many claims like this one are launched at once: EC2 may give all of them one offering."""
    preferred = claim.plan.preferred_spot
    return min(max(preferred.most, 1), COMMIT_GROUP) if preferred is not None and preferred.bounded else COMMIT_GROUP


def _shape(claim: NodeClaim) -> bytes:
    alone = claim.name if claim.plan.relies_on_estimate else ""
    shape = (
        claim.plan.node_pool,
        claim.plan.node_class,
        claim.plan.tier,
        claim.plan.requirements,
        claim.plan.labels,
        claim.plan.annotations,
    )
    attached = [claim.plan.requests.get(resource, 0) > 0 for resource in _ATTACHED]
    kept_off = (claim.plan.taints, claim.plan.startup_taints)
    listed = (claim.plan.instance_types, claim.plan.preferred_spot)
    return msgspec.json.encode((alone, shape, attached, kept_off, listed, claim.launch.atomic), order="deterministic")


class FleetOptions(msgspec.Struct, frozen=True):
    """One capacity type and its offerings, cheapest first; without overrides nothing can be launched.

    `strategy` is how EC2 is to choose among them unless the NodePool says otherwise, empty for the usual one.
    """

    capacity_type: str = ""
    overrides: tuple[FleetOverride, ...] = ()
    strategy: str = ""

    @property
    def requested_from(self) -> str:
        """The reservation or capacity type that a request for these options asks for, as `LaunchRequest` has it."""
        return self.overrides[0].reservation or self.capacity_type


class _Candidate(msgspec.Struct, frozen=True):
    type: InstanceType
    offering: Offering


def fleet_options(
    claim: NodeClaim,
    types: Mapping[str, InstanceType],
    zones: Iterable[str],
    rests: Callable[[str, str, str], bool] = lambda *_: False,
    preferred: Collection[str] = (),
    requested_from: str = "",
) -> FleetOptions:
    """The offerings of the claim's launch list that can be asked for now.

    Args:
        claim: its requirements choose zones and capacity types, its launch list the types.
        types: the NodeClass's instance types by name, with current availability.
        zones: zones in which the NodeClass has a subnet.
        rests: whether a (type, zone, capacity type) has failed since the types' availability was looked up; asked of a
            reservation by its id in the place of the type, too.
        preferred: spot offerings, as `type/zone`, that are asked for alone while they are enough to choose among.
        requested_from: what an earlier request of the launch asked for, as `LaunchRequest` has it. Nothing else is
            asked for: EC2 may have answered that request, and its answer would be read as one to another question.
    """
    candidates = _candidates(claim, types, frozenset(zones), rests)
    for narrowed in (_reserved, _without_exotic, _without_dear_spot):
        left = narrowed(candidates)
        if _diverse(claim, _of_one_capacity_type(left, claim)):
            candidates = left
    chosen = _preferred_spot(claim, _of_one_capacity_type(candidates, claim), preferred)
    if requested_from:
        chosen = [candidate for candidate in chosen if _source(candidate.offering) == requested_from]
    if not chosen or not _diverse(claim, chosen):
        return FleetOptions()
    overrides = sorted(_override(candidate, claim) for candidate in chosen)
    # EC2 would rank by its own prices: where a NodeOverlay states others, it is told the order.
    strategy = "prioritized" if any(candidate.offering.overlaid for candidate in chosen) else ""
    return FleetOptions(chosen[0].offering.capacity_type, tuple(overrides), strategy)


def _candidates(
    claim: NodeClaim, types: Mapping[str, InstanceType], zones: Collection[str], rests: Callable[[str, str, str], bool]
) -> list[_Candidate]:
    """The offerings of the launch list that are available, suit the claim and have not failed.

    Hundreds of offerings have few different zones and capacity types, so each of these is judged once.
    """
    wanted, most = Requirements.of(claim.plan.requirements), claim.most_hourly + _CENTS
    suits: dict[tuple[str, str, str], bool] = {}
    found = []
    for name in claim.plan.instance_types:
        sold = types.get(name)
        if sold is None or not still_fits(claim, sold):  # what is known by now may be less than when it was planned
            continue
        for offering in sold.offerings:
            if not offering.available or offering.zone not in zones:
                continue
            place = (offering.zone, offering.capacity_type, offering.zone_id)
            if offering.reservation_id:
                suitable = _allowed(offering, wanted)
            else:
                if place not in suits:
                    suits[place] = _allowed(offering, wanted)
                suitable = suits[place]
            if not suitable or (claim.most_hourly and offering.price > most):  # what ceilings in dollars were asked for
                continue
            if not any(rests(key, offering.zone, offering.capacity_type) for key in _names_of(name, offering)):
                found.append(_Candidate(sold, offering))
    return found


def _preferred_spot(claim: NodeClaim, chosen: list[_Candidate], preferred: Collection[str]) -> list[_Candidate]:
    """The preferred offerings of what was chosen, where it is spot and they are enough; else all of it."""
    if not preferred or not chosen or chosen[0].offering.capacity_type != labels.SPOT:
        return chosen
    wanted = frozenset(preferred)
    keys = {id(candidate): f"{candidate.type.name}/{candidate.offering.zone}" for candidate in chosen}
    left = [candidate for candidate in chosen if keys[id(candidate)] in wanted]
    enough = is_choice([keys[id(candidate)] for candidate in left], keys.values())
    return left if enough and _diverse(claim, left) else chosen


def _source(offering: Offering) -> str:
    return offering.reservation_id or offering.capacity_type


def _names_of(instance_type: str, offering: Offering) -> tuple[str, ...]:
    """By what an offering may be known to rest: its type, and its reservation if it is in one."""
    return (instance_type, offering.reservation_id) if offering.reservation_id else (instance_type,)


def _of_one_capacity_type(candidates: list[_Candidate], claim: NodeClaim) -> list[_Candidate]:
    """Return the reserved candidates where there are any, else spot, else on-demand.

    It skips a capacity type with too little choice for the claim.
    """
    for capacity_type in (labels.RESERVED, labels.SPOT):
        chosen = _reserved([candidate for candidate in candidates if candidate.offering.capacity_type == capacity_type])
        if chosen and _diverse(claim, chosen):
            return chosen
    return [candidate for candidate in candidates if candidate.offering.capacity_type == labels.ON_DEMAND]


def _reserved(candidates: list[_Candidate]) -> list[_Candidate]:
    """Only the cheapest reservation, if there is any, so that what is taken of it can be counted before the launch.

    Of equally cheap ones ordinary ones come before blocks, these before interruptible ones; then that with most left.
    """
    reserved = [candidate for candidate in candidates if candidate.offering.capacity_type == labels.RESERVED]
    if not reserved:
        return candidates

    def rank(candidate: _Candidate) -> tuple[object, ...]:
        held = candidate.offering
        is_block = held.reservation_type == "capacity-block"
        return held.price, held.reservation_interruptible, is_block, -held.reservation_capacity, held.reservation_id

    best = min(reserved, key=rank).offering.reservation_id
    return [candidate for candidate in reserved if candidate.offering.reservation_id == best]


def has_min_values(claim: NodeClaim) -> bool:
    """True if the claim must keep a choice of values, which forbids narrowing its launch list."""
    return any(requirement.min_values for requirement in claim.plan.requirements)


def _diverse(claim: NodeClaim, candidates: list[_Candidate]) -> bool:
    """True if the types left still offer as many values as the claim must have."""
    for wanted in claim.plan.requirements:
        if wanted.min_values is None:
            continue
        values: set[str] = set()
        for candidate in candidates:
            for own in candidate.type.requirements:
                if own.key == wanted.key and not own.complement:
                    values |= own.values
        if len(values) < wanted.min_values:
            return False
    return True


def _allowed(offering: Offering, wanted: Requirements) -> bool:
    """Zone, capacity type and reservation suit."""
    facts = {
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        labels.ZONE_ID: offering.zone_id,
        **offering.reservation_labels,
    }
    return all(wanted[key].has(value) for key, value in facts.items() if key in wanted)


def _without_exotic(candidates: list[_Candidate]) -> list[_Candidate]:
    types = {candidate.type.name: candidate.type for candidate in candidates}
    exotic = {name: _exotic(kind) for name, kind in types.items()}
    plain = [candidate for candidate in candidates if not exotic[candidate.type.name]]
    return plain or candidates


def _exotic(instance_type: InstanceType) -> bool:
    """Bare metal and accelerators: more than a claim needs that other types satisfy too."""
    return "metal" in instance_type.name.partition(".")[2] or any(
        instance_type.capacity.get(resource, 0) > 0 for resource in ACCELERATORS
    )


def _without_dear_spot(candidates: list[_Candidate]) -> list[_Candidate]:
    """Drop spot offerings that cost more than the cheapest on-demand one of all types."""
    on_demand = [item.offering.price for item in candidates if item.offering.capacity_type == labels.ON_DEMAND]
    if not on_demand:
        return candidates
    most = min(on_demand)
    return [c for c in candidates if c.offering.capacity_type != labels.SPOT or c.offering.price <= most]


def _override(candidate: _Candidate, claim: NodeClaim) -> FleetOverride:
    wants_fabric = claim.plan.requests.get(FABRIC_ADAPTERS, 0) > 0
    return FleetOverride(
        price=candidate.offering.price,
        instance_type=candidate.type.name,
        zone=candidate.offering.zone,
        ami=candidate.type.ami,
        max_pods=candidate.type.capacity.get(PODS, 0),
        kubelet_hash=candidate.type.kubelet_hash,
        kubelet_values=candidate.type.kubelet_values,
        fabric_adapters=candidate.type.capacity.get(FABRIC_ADAPTERS, 0) if wants_fabric else 0,
        reservation=candidate.offering.reservation_id,
    )
