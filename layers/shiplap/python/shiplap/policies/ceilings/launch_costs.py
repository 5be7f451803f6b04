"""Finds what planned claims may cost, and whom they are for, as ceilings in dollars see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.instance_rates import micros_of, unknown_rate_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod, TopologySpreadConstraint
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.kubernetes.selectors import matches
from shiplap.manifests.custom_resources import NodePool, RequirementSpec
from shiplap.manifests.nodeclaim import IN_FLIGHT, PodReference
from shiplap.policies.ceilings.ceilings import (
    CRITICAL_PRIORITY,
    CeilingMode,
    SpendingView,
    SpreadLevel,
    Standing,
    WantedLaunch,
    dollars,
)
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.supply.pool_catalogs import SoldTypes, meets

_CENTS = 1e-9

_SPARE = -(2**31)
"""The priority of room for no pod, which a CapacityBuffer asks for: the lowest that a pod may have."""


def wanted_launches(
    snapshot: Snapshot, view: SpendingView, claims: Iterable[PlannedClaim], *, replaces: bool = False
) -> list[WantedLaunch]:
    """Return planned claims as ceilings see them.

    With `replaces` they take the place of nodes in service, and their launch lists are decided.
    """
    wanted = LaunchCosts(snapshot, view).wanted(claims)
    return [replace(item, replaces=True, kept_to=max(item.prices.values())) for item in wanted] if replaces else wanted


class LaunchCosts:
    """Finds what planned claims may cost, and whom they are for."""

    def __init__(self, snapshot: Snapshot, view: SpendingView) -> None:
        self._snapshot = snapshot
        self._pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
        self._sold = SoldTypes(snapshot)
        self._cheapest: dict[tuple[object, ...], tuple[float, str]] = {}
        self._pods: dict[str, Pod] = {}
        self._asks_cheapest = CeilingMode.CHEAPEST in {ceiling.mode for ceiling in view.ceilings}

    def wanted(self, claims: Iterable[PlannedClaim]) -> list[WantedLaunch]:
        """The claims as ceilings see them."""
        claims = list(claims)
        self.look_up(pod.key for claim in claims for pod in claim.pods)
        levels = self._levels(claims)
        return [replace(self._wanted(claim), level=levels.get(claim.name)) for claim in claims]

    def _levels(self, claims: Iterable[PlannedClaim]) -> dict[str, SpreadLevel]:
        """Return the spread level of each claim with pods that a required topology spread concerns, by name."""
        levels: dict[str, SpreadLevel] = {}
        counts: dict[str, Counter[str]] = {}
        for claim in sorted(claims, key=lambda claim: (claim.launch.price, claim.name)):
            for pod in claim.pods:
                rule = _spread_of(self._pods.get(pod.key))
                if rule is None or rule.topology_key not in claim.labels:
                    continue
                series = f"{pod.namespace}/{rule.topology_key}/{rule.label_selector}"
                if series not in counts:
                    counts[series] = self._standing(pod.namespace, rule)
                domain = claim.labels[rule.topology_key]
                levels[claim.name] = SpreadLevel(series, counts[series][domain], len(claim.pods), rule.max_skew)
                counts[series][domain] += len(claim.pods)
                break
        return levels

    def _standing(self, namespace: str, rule: TopologySpreadConstraint) -> Counter[str]:
        """Count the pods of each domain that a spread counts, on nodes or for claims in flight."""
        view = self._snapshot.view
        counted: Counter[str] = Counter()
        for node in view.nodes:
            domain = node.metadata.labels.get(rule.topology_key)
            on_node = view.by_node.get(node.metadata.name, ()) if domain is not None else ()
            for pod in on_node:
                if (pod.metadata.namespace or "default") == namespace and _selects(rule, pod):
                    counted[domain or ""] += 1
        pending = {pod.key: pod for pod in view.unbound}
        for claim in self._snapshot.claims:
            domain = claim.plan.labels.get(rule.topology_key)
            if domain is not None and claim.state in IN_FLIGHT:
                mine = (pending.get(pod.key) for pod in claim.plan.pods if pod.namespace == namespace)
                counted[domain] += sum(1 for pod in mine if pod is not None and _selects(rule, pod))
        return counted

    def standing_of(self, pod: PodReference) -> Standing:
        """Return the standing with ceilings of a launch for a pod of a claim that was asked about."""
        priority = self._priority(pod)
        return Standing(priority, self._is_leaving(pod) or priority >= CRITICAL_PRIORITY)

    def may_hold(self, pods: Iterable[PodReference], pool: NodePool, most_micros: int | None) -> bool:
        """True if a node of a NodePool at this price per hour could hold any of these pods, by its size."""
        requests = [pod_requests(self._pods[pod.key]) for pod in pods]
        common = set.intersection(*map(set, requests)) if requests else set()
        smallest = {name: min(each[name] for each in requests) for name in common}
        return any(
            _has_room(smallest, item) and any(self._is_below(most_micros, item, offer) for offer in item.offerings)
            for item in self._sold.of(pool.spec.template.spec.node_class_ref.name, pool.metadata.name).values()
        )

    def _is_below(self, most_micros: int | None, item: InstanceType, offering: Offering) -> bool:
        return offering.available and (most_micros is None or _micros(item, offering) <= most_micros)

    def types_of(self, claim: PlannedClaim) -> Mapping[str, InstanceType]:
        """Return the types that the claim's EC2NodeClass sells as its NodePool sees them, by name."""
        return self._sold.of(claim.node_class, claim.node_pool)

    def offerings(self, claim: PlannedClaim, instance_type: str) -> list[Offering]:
        """Return the offerings of this type that the claim may be launched as, of its planned capacity type."""
        known = self.types_of(claim).get(instance_type)
        wanted = Requirements.of(claim.requirements)
        return [
            offering
            for offering in (known.offerings if known is not None else ())
            if offering.available and offering.capacity_type == claim.launch.capacity_type and meets(offering, wanted)
        ]

    def in_zone_of_launch(self, claim: PlannedClaim) -> PlannedClaim:
        """The claim for nodes of the zone of its launch alone, with the types on its list that are sold there.

        A claim that must keep a choice of values, for minValues, stays as it is.
        """
        if any(line.min_values for line in claim.requirements):
            return claim
        zone = claim.launch.zone
        lines = (
            *(line for line in claim.requirements if line.key != labels.ZONE),
            RequirementSpec(labels.ZONE, "In", (zone,)),
        )
        there = replace(
            claim,
            requirements=tuple(sorted(lines, key=lambda line: line.key)),
            labels=claim.labels | {labels.ZONE: zone},
        )
        names = tuple(name for name in claim.instance_types if self.offerings(there, name))
        estimates = tuple(name for name in claim.relies_on_estimate if name in names)
        return replace(there, instance_types=names, relies_on_estimate=estimates)

    def _wanted(self, claim: PlannedClaim) -> WantedLaunch:
        prices = {}
        for name in claim.instance_types:
            offered = self.offerings(claim, name)
            if offered:
                prices[name] = max(_micros(self.types_of(claim)[name], offering) for offering in offered)
        if not prices:
            prices = {claim.launch.instance_type: micros_of(claim.launch.price)}
        pods = claim.pods
        return WantedLaunch(
            name=claim.name,
            node_pool=claim.node_pool,
            prices=prices,
            priority=min(map(self._priority, pods), default=_SPARE if claim.virtual_pods else 0),
            replaces=bool(pods) and all(self._is_leaving(pod) for pod in pods),
            cheapest=self._cheaper(claim) if self._asks_cheapest else "",
            kept_to=self._kept_to(claim, prices),
            pods=len(pods),
        )

    def _kept_to(self, claim: PlannedClaim, prices: Mapping[str, int]) -> int:
        """The price up to which the claim's list must go to keep minValues: the most if only types without one do."""
        least = {line.key: line.min_values for line in claim.requirements if line.min_values}
        if not least:
            return 0
        types, wanted = self.types_of(claim), Requirements.of(claim.requirements)
        found: dict[str, set[str]] = {key: set() for key in least}
        for name in sorted(prices, key=prices.__getitem__):
            for own in types[name].requirements if name in types else ():
                if own.key in found and not own.complement:
                    found[own.key].update(filter(wanted[own.key].has, own.values))
            if all(len(found[key]) >= number for key, number in least.items()):
                return prices[name]
        return max(prices.values())

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
            if not _has_room(claim.requests, instance_type) or not _suits(instance_type, free):
                continue
            for offering in instance_type.offerings:
                if offering.price > 0 and meets(offering, free):
                    yield offering.price, f"{instance_type.name} as {offering.capacity_type}"

    def look_up(self, keys: Iterable[str]) -> None:
        """Remember pods by `namespace/name`, whose priorities and requests are asked for next."""
        missing = set(keys) - self._pods.keys()
        if missing:
            self._pods |= {pod.key: pod for pod in self._snapshot.view.pods if pod.key in missing}

    def _priority(self, pod: PodReference) -> int:
        known = self._pods.get(pod.key)
        return known.spec.priority if known is not None else 0

    def _is_leaving(self, pod: PodReference) -> bool:
        """True if a pod that is planned for has a node. That node is then on its way out."""
        known = self._pods.get(pod.key)
        return known is not None and bool(known.spec.node_name)


def _spread_of(pod: Pod | None) -> TopologySpreadConstraint | None:
    """The first required spread of a pod over another label than the hostname."""
    rules = pod.spec.topology_spread_constraints if pod is not None else ()
    required = (rule for rule in rules if rule.when_unsatisfiable == "DoNotSchedule")
    return next((rule for rule in required if rule.topology_key != labels.HOSTNAME), None)


def _selects(rule: TopologySpreadConstraint, pod: Pod) -> bool:
    return matches(rule.label_selector, pod.metadata.labels)


def _capacity_types(pool: NodePool) -> tuple[Requirement, ...]:
    entry = Requirements.of(pool.spec.template.spec.requirements).get(labels.CAPACITY_TYPE)
    return () if entry is None else (entry,)


def _micros(instance_type: InstanceType, offering: Offering) -> int:
    if offering.price > 0:
        return micros_of(offering.price)
    return unknown_rate_of(instance_type).micros


def _has_room(requests: Mapping[str, int], instance_type: InstanceType) -> bool:
    allocatable = instance_type.allocatable
    return all(allocatable.get(name, 0) >= amount for name, amount in requests.items())


def _suits(instance_type: InstanceType, wanted: Requirements) -> bool:
    """True if the type's own labels, except for its name, satisfy the claim's requirements."""
    own = (entry for entry in instance_type.requirements if entry.key != labels.INSTANCE_TYPE)
    return all(entry.key not in wanted or wanted[entry.key].intersects(entry) for entry in own)
