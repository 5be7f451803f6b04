"""A plan within ceilings in dollars: claims that no ceiling lets pass are left out, and their pods say which one.

A plan that has no ceilings in its snapshot never comes here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.quantity import CPU
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import (
    BufferState,
    LaunchChoice,
    Plan,
    PlannedClaim,
    StaticPool,
    Unschedulable,
)
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.supply.pool_catalogs import accepted_overlays, as_seen_by
from shiplap.spending.ceilings import (
    CRITICAL_PRIORITY,
    AdmittedLaunch,
    CeilingMode,
    LaunchVerdicts,
    SpendingView,
    WantedLaunch,
    admit,
    dollars,
)
from shiplap.spending.ledger import micros_of, unknown_rate

_CENTS = 1e-9

_Types = Mapping[str, InstanceType]


def within_ceilings(snapshot: Snapshot, view: SpendingView, decided: Plan, again: Callable[[Snapshot], Plan]) -> Plan:
    """The plan without what ceilings refuse.

    Where pods that may have a node share one with pods that may not, it is planned again without the latter. `again`
    plans a snapshot regardless of ceilings.
    """
    launches = LaunchCosts(snapshot)
    verdicts = admit(view, launches.wanted(decided.node_claims))
    if not verdicts.refused:
        return _narrowed(decided, verdicts, launches)
    unworthy = launches.unworthy(decided.node_claims, verdicts.refused, view)
    if not unworthy:
        return _refused(_narrowed(decided, verdicts, launches), verdicts.refused, decided)
    left = tuple(pod for pod in snapshot.view.pods if pod.key not in unworthy)
    second = again(replace(snapshot, view=replace(snapshot.view, pods=left)))
    wait = tuple(Unschedulable(pod, reason) for pod, reason in unworthy.values())
    second = replace(second, unschedulable=(*second.unschedulable, *wait))
    verdicts = admit(view, launches.wanted(second.node_claims))
    return _refused(_narrowed(second, verdicts, launches), verdicts.refused, second)


def wanted_launches(
    snapshot: Snapshot, claims: Iterable[PlannedClaim], *, replaces: bool = False
) -> list[WantedLaunch]:
    """Planned claims as ceilings see them; none without ceilings.

    With `replaces` they take the place of nodes in service, and their launch lists are decided.
    """
    if snapshot.spending is None:
        return []
    wanted = LaunchCosts(snapshot).wanted(claims)
    return [replace(launch, replaces=True, fixed=True) for launch in wanted] if replaces else wanted


class LaunchCosts:
    """What planned claims may cost, and whom they are for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
        self._sold = {catalog.node_class: catalog.instance_types for catalog in snapshot.catalogs}
        self._seen: dict[tuple[str, str], _Types] = {}
        self._cheapest: dict[tuple[object, ...], tuple[float, str]] = {}
        self._pods: Mapping[str, Pod] = {}
        modes = {ceiling.mode for ceiling in snapshot.spending.ceilings} if snapshot.spending is not None else set()
        self._asks_cheapest = CeilingMode.CHEAPEST in modes

    def wanted(self, claims: Iterable[PlannedClaim]) -> list[WantedLaunch]:
        """The claims as ceilings see them."""
        claims = list(claims)
        self._pods = self._pods_of(claims)
        return [self._wanted(claim) for claim in claims]

    def unworthy(
        self, claims: Sequence[PlannedClaim], refused: Mapping[str, str], view: SpendingView
    ) -> dict[str, tuple[PodReference, str]]:
        """Pods to plan without, by `namespace/name`, each with why it waits; empty if that changes nothing."""
        above = [ceiling.above_priority for ceiling in view.ceilings if ceiling.mode is CeilingMode.PRIORITY]
        least = min([CRITICAL_PRIORITY - 1, *above]) + 1
        found: dict[str, tuple[PodReference, str]] = {}
        is_mixed = False
        for claim in claims:
            if claim.name not in refused:
                continue
            worthy = [self._is_leaving(pod) or self._priority(pod) >= least for pod in claim.pods]
            is_mixed |= any(worthy)
            for pod, is_worthy in zip(claim.pods, worthy, strict=True):
                if not is_worthy:
                    found[pod.key] = pod, refused[claim.name]
        return found if is_mixed else {}

    def types_of(self, claim: PlannedClaim) -> _Types:
        """What the claim's EC2NodeClass sells as its NodePool sees it, by name."""
        key = (claim.node_class, claim.node_pool)
        if key not in self._seen:
            sold = self._sold.get(claim.node_class, ())
            pool = self._pools.get(claim.node_pool)
            seen = sold if pool is None else as_seen_by(pool, sold, accepted_overlays(self._snapshot))
            self._seen[key] = {instance_type.name: instance_type for instance_type in seen}
        return self._seen[key]

    def offerings(self, claim: PlannedClaim, instance_type: str) -> list[Offering]:
        """What the claim may be launched as in this type, of the capacity type that it is planned for."""
        known = self.types_of(claim).get(instance_type)
        wanted = Requirements.of(claim.requirements)
        return [
            offering
            for offering in (known.offerings if known is not None else ())
            if offering.available and offering.capacity_type == claim.launch.capacity_type and _meets(offering, wanted)
        ]

    def _wanted(self, claim: PlannedClaim) -> WantedLaunch:
        prices = {}
        for name in claim.instance_types:
            offered = self.offerings(claim, name)
            if offered:
                prices[name] = max(self._micros(claim, name, offering) for offering in offered)
        if not prices:
            prices = {claim.launch.instance_type: micros_of(claim.launch.price)}
        pods = claim.pods
        return WantedLaunch(
            name=claim.name,
            node_pool=claim.node_pool,
            prices=prices,
            priority=min(map(self._priority, pods), default=0),
            replaces=bool(pods) and all(self._is_leaving(pod) for pod in pods),
            cheapest=self._cheaper(claim) if self._asks_cheapest else "",
            fixed=any(requirement.min_values for requirement in claim.requirements),
        )

    def _micros(self, claim: PlannedClaim, name: str, offering: Offering) -> int:
        if offering.price > 0:
            return micros_of(offering.price)
        return unknown_rate(0.0, self.types_of(claim)[name].capacity.get(CPU, 0)).micros

    def _cheaper(self, claim: PlannedClaim) -> str:
        """The cheapest offering for the claim's pods, available or not, if the claim would be dearer; else empty."""
        key = (claim.node_class, claim.node_pool, claim.requirements, tuple(sorted(claim.requests.items())))
        if key not in self._cheapest:
            self._cheapest[key] = min(self._offers(claim), default=(claim.launch.price, ""))
        price, name = self._cheapest[key]
        return f"{name}, {dollars(micros_of(price))} per hour," if price < claim.launch.price - _CENTS else ""

    def _offers(self, claim: PlannedClaim) -> Iterable[tuple[float, str]]:
        wanted = Requirements.of(claim.requirements)
        pool = self._pools.get(claim.node_pool)
        free = Requirements(entry for key, entry in wanted.items() if key != labels.CAPACITY_TYPE)
        if pool is not None:
            free = free.and_(_capacity_types(pool))
        for instance_type in self.types_of(claim).values():
            if not _has_room(claim, instance_type) or not _suits(instance_type, free):
                continue
            for offering in instance_type.offerings:
                if offering.price > 0 and _meets(offering, free):
                    yield offering.price, f"{instance_type.name} as {offering.capacity_type}"

    def _pods_of(self, claims: Iterable[PlannedClaim]) -> dict[str, Pod]:
        named = {pod.key for claim in claims for pod in claim.pods}
        return {pod.key: pod for pod in self._snapshot.view.pods if pod.key in named} if named else {}

    def _priority(self, pod: PodReference) -> int:
        known = self._pods.get(pod.key)
        return known.spec.priority if known is not None else 0

    def _is_leaving(self, pod: PodReference) -> bool:
        """Whether a pod that is planned for has a node, which then is on its way out."""
        known = self._pods.get(pod.key)
        return known is not None and bool(known.spec.node_name)


def _meets(offering: Offering, wanted: Requirements) -> bool:
    facts = {
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        labels.ZONE_ID: offering.zone_id,
        **offering.reservation_labels,
    }
    return all(wanted[key].has(value) for key, value in facts.items() if value and key in wanted)


def _capacity_types(pool: NodePool) -> tuple[Requirement, ...]:
    entry = Requirements.of(pool.spec.template.spec.requirements).get(labels.CAPACITY_TYPE)
    return () if entry is None else (entry,)


def _has_room(claim: PlannedClaim, instance_type: InstanceType) -> bool:
    allocatable = instance_type.allocatable
    return all(allocatable.get(name, 0) >= amount for name, amount in claim.requests.items())


def _suits(instance_type: InstanceType, wanted: Requirements) -> bool:
    """Whether the type's own labels satisfy what the claim wants of them, but for its name."""
    own = (entry for entry in instance_type.requirements if entry.key != labels.INSTANCE_TYPE)
    return all(entry.key not in wanted or wanted[entry.key].intersects(entry) for entry in own)


def _narrowed(decided: Plan, verdicts: LaunchVerdicts, launches: LaunchCosts) -> Plan:
    """The plan with only what is admitted, each claim reduced to the types that fit below its ceilings."""
    admitted = {launch.name: launch for launch in verdicts.admitted}
    kept = tuple(
        _reduced(claim, admitted[claim.name], launches) for claim in decided.node_claims if claim.name in admitted
    )
    return replace(decided, node_claims=kept, hourly=round(sum((claim.launch.price for claim in kept), 0.0), 6))


def _reduced(claim: PlannedClaim, admitted: AdmittedLaunch, launches: LaunchCosts) -> PlannedClaim:
    kept = tuple(name for name in claim.instance_types if name in admitted.instance_types)
    if kept == claim.instance_types or not kept:
        return claim
    estimates = tuple(name for name in claim.relies_on_estimate if name in kept)
    reduced = replace(claim, instance_types=kept, relies_on_estimate=estimates)
    if claim.launch.instance_type in kept:
        return reduced
    offers = ((offering.price, name, offering) for name in kept for offering in launches.offerings(claim, name))
    _, name, offering = min(offers, key=lambda offer: (offer[0], offer[1], offer[2].zone))
    choice = LaunchChoice(name, offering.zone, offering.capacity_type, offering.price, offering.reservation_id)
    return replace(reduced, launch=choice)


def _refused(decided: Plan, refused: Mapping[str, str], planned: Plan) -> Plan:
    """The plan with the pods, static pools and buffers of refused claims told why they wait."""
    left_out = [claim for claim in planned.node_claims if claim.name in refused]
    if not left_out:
        return _sorted(decided)
    wait = tuple(Unschedulable(pod, refused[claim.name]) for claim in left_out for pod in claim.pods)
    return _sorted(
        replace(
            decided,
            unschedulable=(*decided.unschedulable, *wait),
            static_pools=tuple(_lacking(pool, left_out, refused) for pool in decided.static_pools),
            buffers=_without(decided.buffers, left_out, refused),
        )
    )


def _sorted(decided: Plan) -> Plan:
    return replace(decided, unschedulable=tuple(sorted(decided.unschedulable, key=lambda entry: entry.pod)))


def _lacking(pool: StaticPool, left_out: Sequence[PlannedClaim], refused: Mapping[str, str]) -> StaticPool:
    mine = [claim for claim in left_out if claim.node_pool == pool.node_pool]
    if not mine:
        return pool
    return replace(pool, missing=pool.missing + len(mine), reason=pool.reason or refused[mine[0].name])


def _without(
    buffers: Collection[BufferState], left_out: Sequence[PlannedClaim], refused: Mapping[str, str]
) -> tuple[BufferState, ...]:
    """Buffers less the virtual pods of these claims; a virtual pod is named after its buffer."""
    lost: Counter[tuple[str, str]] = Counter()
    reasons: dict[tuple[str, str], str] = {}
    for claim in left_out:
        for pod in claim.virtual_pods:
            buffer = next((item for item in buffers if _is_of(pod, item)), None)
            if buffer is not None:
                lost[buffer.namespace, buffer.name] += 1
                reasons.setdefault((buffer.namespace, buffer.name), refused[claim.name])
    return tuple(
        replace(
            buffer,
            new=buffer.new - lost[buffer.namespace, buffer.name],
            missing=buffer.missing + lost[buffer.namespace, buffer.name],
            reason=buffer.reason or reasons.get((buffer.namespace, buffer.name), ""),
        )
        for buffer in buffers
    )


def _is_of(pod: PodReference, buffer: BufferState) -> bool:
    return pod.namespace == buffer.namespace and pod.name.rpartition("-")[0] == buffer.name
