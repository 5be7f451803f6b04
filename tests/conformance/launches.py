"""A small language for launch cases: given claims, what is sold and what EC2 answers, expect requests and claims.

The launch flow runs for real on the in-memory fakes; only the plan before it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from shiplap.errors import AwsError
from shiplap.flows.assign_instances import Attempt
from shiplap.flows.planning.decision_inputs import NodeClassSupply
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.planning.planned_launches import launches
from shiplap.flows.schedule.launch import LaunchOutcome, launch
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, Subnet
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.requirements import requirement
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec, RequirementSpec
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import FleetRequest, FleetResult, OfferingFailure
from tests.builders.claims import node_claims, with_fields
from tests.integration.flows.stage import CLUSTER, Stage

A, B, C = "test-zone-1a", "test-zone-1b", "test-zone-1c"
SPOT, ON_DEMAND, RESERVED = labels.SPOT, labels.ON_DEMAND, labels.RESERVED
PLENTY = 4000


def sold(
    name: str,
    price: float = 0.1,
    *,
    spot: float | None = None,
    zones: Sequence[str] = (A, B, C),
    reserved: Sequence[Offering] = (),
    **extra: int,
) -> InstanceType:
    """A type with an on-demand offering per zone, spot ones when they have a price; `extra` capacity by name."""
    offerings = [Offering(zone, ON_DEMAND, price) for zone in zones]
    offerings += [Offering(zone, SPOT, spot) for zone in zones if spot is not None]
    return InstanceType(
        name,
        (requirement("karpenter.k8s.aws/instance-family", "In", (name.partition(".")[0],)),),
        {"cpu": 4000, "memory": 8 * 2**30, "pods": 29, **extra},
        {},
        (*offerings, *reserved),
        ami="ami-twin",
    )


def held(
    name: str, left: int, *, zone: str = A, price: float = 0.00001, kind: str = "default", interruptible: bool = False
) -> Offering:
    """A capacity reservation, as it is sold."""
    return Offering(
        zone,
        RESERVED,
        price,
        reservation_id=name,
        reservation_capacity=left,
        reservation_type=kind,
        reservation_interruptible=interruptible,
    )


def rule(key: str, operator: str, *values: str, min_values: int | None = None) -> RequirementSpec:
    """A requirement of a claim."""
    return RequirementSpec(key, operator, values, min_values)


claims = partial(node_claims, cluster=CLUSTER, requests={"cpu": 1000})


def refuse(code: str, kind: str, *, subnet: str = "", reservation: str = "") -> Callable[[FleetRequest], FleetResult]:
    """An answer that refuses every offering for one reason."""

    def answer(request: FleetRequest) -> FleetResult:
        offerings = sorted({(item.instance_type, item.zone) for item in request.overrides})
        return FleetResult(
            (),
            tuple(
                OfferingFailure(*item, request.capacity_type, code, kind, "", subnet, reservation=reservation)
                for item in offerings
            ),
        )

    return answer


@dataclass
class Ground:
    """An account with what EC2 sells; every `launch` is a round of its own."""

    stage: Stage
    types: dict[str, InstanceType]
    supply: NodeClassSupply

    def launch(self, wanted: Sequence[NodeClaim]) -> LaunchOutcome:
        """Commit the claims and launch them; what became of all of them."""
        state = self.stage.state.read(CLUSTER, self.stage.clock.now())
        market = OfferingMarket(state)
        attempt = Attempt(owner="test", deadline=self.stage.clock.now() + 900, join_timeout_s=900)
        listed = [
            item if item.plan.instance_types else with_fields(item, instance_types=tuple(self.types)) for item in wanted
        ]
        groups = [
            [with_fields(item, token=f"{state.epoch}-{number}") for item in group]
            for number, group in enumerate(launches(listed))
        ]
        self.stage.state.commit(CLUSTER, state.epoch, [item for group in groups for item in group])
        ends = [launch(group, self.supply, self.types, attempt, market, self.stage.context) for group in groups]
        return LaunchOutcome(
            launched=tuple(item for end in ends for item in end.launched),
            failed=tuple(item for end in ends for item in end.failed),
            pending=tuple(item for end in ends for item in end.pending),
            broken=next((end.broken for end in ends if end.broken), ""),
            throttled=any(end.throttled for end in ends),
        )

    @property
    def requests(self) -> list[FleetRequest]:
        """Return the fleet requests that EC2 got."""
        return self.stage.compute.requests

    @property
    def asked(self) -> list[tuple[str, str]]:
        """(type, zone) of the last request, cheapest first."""
        return [(item.instance_type, item.zone) for item in sorted(self.requests[-1].overrides)]

    def rests(self) -> set[tuple[str, str, str]]:
        """Return the scopes of the offerings that all clusters leave alone now."""
        return {item.scope for item in self.stage.state.read(CLUSTER, self.stage.clock.now()).unavailable}

    def later(self, seconds: float) -> None:
        self.stage.clock.advance(seconds)


def given(
    *types: InstanceType,
    dry: Sequence[tuple[str, str, str]] = (),
    left: Mapping[tuple[str, str, str], int] | None = None,
    answers: Sequence[Callable[[FleetRequest], FleetResult]] = (),
    raises: AwsError | None = None,
    subnets: Sequence[Subnet] = (),
) -> Ground:
    """An account.

    Args:
        types: what is sold.
        dry: (type, zone, capacity type) without any capacity.
        left: those with so many instances left.
        answers: what the first launches are answered with, instead of by capacity.
        raises: what the first launch raises.
        subnets: those of the EC2NodeClass; without any, a large one per zone.
    """
    stage = Stage()
    stage.compute.capacity.update(dict.fromkeys(dry, 0) | dict(left or {}))
    stage.compute.answers += answers
    stage.compute.subnets = tuple(subnets) or tuple(
        Subnet(f"subnet-{zone}", zone, free_ips=PLENTY) for zone in (A, B, C)
    )
    if raises is not None:
        stage.faults.on("before", "compute.launch", raises)
    node_class = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec())
    reservations = tuple(
        CapacityReservation(
            id=offering.reservation_id,
            instance_type=item.name,
            zone=offering.zone,
            available=offering.reservation_capacity,
            type=offering.reservation_type,
            interruptible=offering.reservation_interruptible,
        )
        for item in types
        for offering in item.offerings
        if offering.reservation_id
    )
    resolved = replace(stage.compute.resolve(node_class), capacity_reservations=reservations)
    return Ground(stage, {item.name: item for item in types}, NodeClassSupply(node_class, resolved))
