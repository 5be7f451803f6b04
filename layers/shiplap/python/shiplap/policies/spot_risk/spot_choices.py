"""The risk of spot in a plan: which offerings of each claim's launch list are asked for, and what that is worth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.nodeclaim import FINAL, NodeClaim, PreferredSpot
from shiplap.manifests.shiplap_annotations import ALLOCATION_STRATEGY, MOVE_COST
from shiplap.policies.spot_risk.risk_rates import RiskRates
from shiplap.policies.spot_risk.safer_offerings import KnownSpotRisk, SpotOffering, most_of_pool, risk_of_launch
from shiplap.scheduling.model.scheduling_plan import PlannedClaim, RiskOfLaunch
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.supply.pool_catalogs import SoldTypes, meets
from shiplap.scheduling.supply.templates import usable_pools


def with_spot_risk(planned: Sequence[PlannedClaim], snapshot: Snapshot, inputs: KnownSpotRisk) -> list[PlannedClaim]:
    """The same claims, and for those that will be spot what the risk means for their launch."""
    weigher = _Weigher(snapshot, inputs)
    weighed = [(claim, weigher.risk_of(claim)) for claim in planned]
    spot = Counter(claim.node_pool for claim, risk in weighed if risk is not None)
    return [
        claim if risk is None else weigher.marked(claim, risk, new=spot[claim.node_pool]) for claim, risk in weighed
    ]


class _Weigher:
    """Weighs the launches of one plan; those with equal lists and about equally many pods only once."""

    def __init__(self, snapshot: Snapshot, inputs: KnownSpotRisk) -> None:
        self._inputs = inputs
        self._rates = RiskRates(inputs.evidence, snapshot.now)
        self._pools = {pool.metadata.name: pool for pool in usable_pools(snapshot.manifests.node_pools)}
        self._sold = SoldTypes(snapshot)
        self._known: dict[tuple[object, ...], RiskOfLaunch | None] = {}
        self._held = spot_nodes(snapshot)

    def risk_of(self, claim: PlannedClaim) -> RiskOfLaunch | None:
        """None when the claim will not be spot, or its NodePool says itself how EC2 is to choose."""
        pool = self._pools.get(claim.node_pool)
        if claim.launch.capacity_type != labels.SPOT or pool is None:
            return None
        if ALLOCATION_STRATEGY in pool.metadata.annotations:
            return None
        # Claims that differ by a pod or two are launched together: they must have the same list.
        pods = 1 << (len(claim.pods) + len(claim.virtual_pods)).bit_length() >> 1
        key = (claim.node_pool, claim.tier, claim.requirements, claim.instance_types, pods)
        if key not in self._known:
            written = pool.metadata.annotations.get(MOVE_COST)
            self._known[key] = risk_of_launch(
                _spot_offerings(claim, self._sold.of(claim.node_class, claim.node_pool)),
                self._rates,
                pods=pods,
                move_cost=self._inputs.move_cost if written is None else float(written),
                settings=self._inputs.settings,
            )
        return self._known[key]

    def marked(self, claim: PlannedClaim, risk: RiskOfLaunch, *, new: int) -> PlannedClaim:
        """The claim with its risk and, unless it is only observed, the offerings that it asks for."""
        if risk.observed or not risk.offerings:
            return replace(claim, spot_risk=risk)
        held, unknown = self._held.get(claim.node_pool, (Counter[str](), 0))
        asked = PreferredSpot(
            risk.offerings,
            risk.bounded,
            # What other launches in flight may get of an offering counts as if they did.
            most=max(most_of_pool(held.total() + unknown + new) - unknown, 0),
            held={key: held[key] for key in risk.bounded if key in held},
        )
        return replace(claim, spot_risk=replace(risk, offerings=(), bounded=()), preferred_spot=asked)


def _spot_offerings(claim: PlannedClaim, types: Mapping[str, InstanceType]) -> list[SpotOffering]:
    """The available spot offerings of a launch list that the claim's requirements allow."""
    wanted = Requirements.of(claim.requirements)
    listed = sorted(name for name in claim.instance_types if name in types)
    return [
        SpotOffering(name, offering.zone, offering.zone_id, round(offering.price * 1e6))
        for name in listed
        for offering in sorted(types[name].offerings, key=lambda item: item.zone)
        if offering.capacity_type == labels.SPOT and offering.available and meets(offering, wanted)
    ]


def spot_nodes(snapshot: Snapshot) -> Mapping[str, tuple[Counter[str], int]]:
    """By NodePool: its spot nodes by `type/zone`, and how many launches in flight may become spot of any offering."""
    pools = {pool.metadata.name for pool in snapshot.manifests.node_pools}
    counted: dict[str, tuple[Counter[str], int]] = {}
    seen: set[str] = set()
    for node in snapshot.view.nodes:
        of = node.metadata.labels
        pool = name_of_label(of.get(labels.NODE_POOL, ""), pools)
        if pool and of.get(labels.CAPACITY_TYPE) == labels.SPOT:
            seen.add(node.spec.provider_id.rpartition("/")[2])
            held, unknown = counted.get(pool, (Counter[str](), 0))
            held[f"{labels.value_of(of, labels.INSTANCE_TYPE)}/{labels.value_of(of, labels.ZONE)}"] += 1
            counted[pool] = (held, unknown)
    for claim in snapshot.claims:
        if claim.state in FINAL or (claim.instance_id and claim.instance_id in seen):
            continue
        held, unknown = counted.get(claim.plan.node_pool, (Counter[str](), 0))
        if claim.known_instance.capacity_type == labels.SPOT:
            held[f"{claim.known_instance.type}/{claim.known_instance.zone}"] += 1
        elif not claim.instance_id and _may_be_spot(claim):
            unknown += 1
        counted[claim.plan.node_pool] = (held, unknown)
    return counted


def _may_be_spot(claim: NodeClaim) -> bool:
    wanted = Requirements.of(claim.plan.requirements).get(labels.CAPACITY_TYPE)
    return wanted is None or wanted.has(labels.SPOT)
