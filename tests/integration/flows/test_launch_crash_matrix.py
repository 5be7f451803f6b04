"""A launch of three claims through the real EC2 adapter, killed before and after every request and every write.

The hooks sit on botocore (requests to the emulated EC2) and in the store, so that every call counts by itself: launch
templates looked for and made, the fleet, each transaction. Then the next invocation finishes the work: there must be
exactly three instances, each of exactly one claim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.aws.ec2.ec2_compute import Ec2Compute
from shiplap.flows.assign_instances import Attempt
from shiplap.flows.planning.decision_inputs import NodeClassSupply
from shiplap.flows.planning.offering_market import OfferingMarket
from shiplap.flows.schedule.launch import launch
from shiplap.flows.schedule.resume import orphans, resume
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_lab.fakes.faults import Crash, Faults
from tests.builders.claims import node_claim
from tests.integration.contracts.emulated_ec2 import ZONES, Region, emulated_region
from tests.integration.contracts.fleet_requests import NODE_CLASS
from tests.integration.flows.stage import Stage

pytestmark = pytest.mark.thorough

CLUSTER = "demo"
NAMES = ("claim-a", "claim-b", "claim-c")
PARTIAL = 2
"""Instances of the cheaper zone where a fleet must take from two."""


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with emulated_region() as running:
        yield running


class Scene:
    """Three committed claims of one token, and one function at work on them."""

    def __init__(self, region: Region, *, lag_s: float = 0.0) -> None:
        region.empty()
        region.seed(CLUSTER)
        region.control.timing(describe_lag_s=lag_s)
        region.control.capacity("m5.large", ZONES[0], available=PARTIAL)
        self.region = region
        self.stage = Stage()
        self.faults: Faults = self.stage.faults
        self.compute = self._compute()
        self.context = replace(self.stage.context, compute=self.compute)
        self.supply = NodeClassSupply(NODE_CLASS, self.compute.resolve(NODE_CLASS))
        self.types = {"m5.large": _sold(self.supply)}
        self.stage.state.commit(
            CLUSTER,
            0,
            [
                node_claim(
                    cluster=CLUSTER,
                    name=name,
                    instance_types=("m5.large",),
                    requests={"cpu": 1000},
                    token="token",
                    owner="first",
                    created_at=Stage().clock.now(),
                    deadline_at=Stage().clock.now() + 60,
                )
                for name in NAMES
            ],
        )
        self.faults.clear()

    def _compute(self) -> Ec2Compute:
        """The adapter of a fresh process, whose every request is an effect."""
        compute = self.region.compute(CLUSTER)
        client: Any = self.region.client("ec2")

        def before(event_name: str, **_: Any) -> None:
            self.faults.before(event_name.rpartition(".")[2])

        def after(event_name: str, **_: Any) -> None:
            self.faults.after(event_name.rpartition(".")[2])

        for event, hook in (("before-send.ec2", before), ("before-parse.ec2", after)):
            client.meta.events.unregister(event, unique_id="crash-matrix")
            client.meta.events.register(event, hook, unique_id="crash-matrix")
        return compute

    def begin(self) -> None:
        """The first invocation."""
        claims = self.stage.state.read(CLUSTER, self.stage.clock.now()).claims
        launch(claims, self.supply, self.types, self._attempt("first"), self._market(), self.context)

    def go_on(self) -> None:
        """A later invocation, in a process of its own."""
        self.stage.clock.advance(61)
        self.region.control.advance(61)
        self.context = replace(self.context, compute=self.region.compute(CLUSTER))
        state = self.stage.state.read(CLUSTER, self.stage.clock.now())
        for claims in orphans(state.claims, "second", self.stage.clock.now()):
            resume(claims, self.supply, self.types, self._attempt("second"), self._market(), self.context)

    def _attempt(self, owner: str) -> Attempt:
        return Attempt(owner=owner, deadline=self.stage.clock.now() + 300, join_timeout_s=900)

    def _market(self) -> OfferingMarket:
        return OfferingMarket(self.stage.state.read(CLUSTER, self.stage.clock.now()))

    def close(self) -> None:
        client: Any = self.region.client("ec2")
        for event in ("before-send.ec2", "before-parse.ec2"):
            client.meta.events.unregister(event, unique_id="crash-matrix")


def _sold(supply: NodeClassSupply) -> InstanceType:
    assert supply.resolved is not None
    ami = next(item.id for item in supply.resolved.amis if all(rule[1] != "Exists" for rule in item.requirements))
    offerings = tuple(Offering(zone, labels.ON_DEMAND, 0.1 + place / 100) for place, zone in enumerate(ZONES[:2]))
    capacity = {"cpu": 2000, "memory": 8 * 2**30, "pods": 29}
    return InstanceType("m5.large", (), capacity, {}, offerings, ami=ami)


def points(region: Region) -> list[str]:
    scene = Scene(region)
    try:
        scene.begin()
        return list(scene.faults.points)
    finally:
        scene.close()


def assert_accounted_for(scene: Scene) -> None:
    claims: Sequence[NodeClaim] = scene.stage.state.claims(CLUSTER)
    assert [(claim.name, claim.state) for claim in claims] == [(name, ClaimState.LAUNCHED) for name in NAMES]
    alive = [found.id for found in scene.region.control.instances() if found.state in ("pending", "running")]
    assert len(alive) == len(NAMES)
    assert sorted(claim.instance_id for claim in claims) == sorted(alive)


@pytest.mark.parametrize("lag_s", [0.0, 30.0, 100.0])
def test_killed_anywhere_three_claims_end_with_three_instances(region: Region, lag_s: float) -> None:
    passed = points(region)
    assert {point.partition(" ")[2] for point in passed} >= {
        "DescribeLaunchTemplates",
        "CreateLaunchTemplate",
        "CreateFleet",
        "state.advance_all",
        "state.reserve_addresses",
        "state.mark_unavailable",
        "bus.publish",
        "timers.remind",
    }
    for number, point in enumerate(passed):
        scene = Scene(region, lag_s=lag_s)
        try:
            scene.faults.crash_at(number)
            with pytest.raises(Crash, match=point):
                scene.begin()
            scene.faults.clear()
            for _ in range(3):
                scene.go_on()
            assert_accounted_for(scene)
        finally:
            scene.close()


def test_the_second_function_may_die_too(region: Region) -> None:
    """Killed after the fleet was made; then the next one is killed anywhere."""
    made = points(region).index("after CreateFleet")
    number = 0
    while True:
        scene = Scene(region)
        try:
            scene.faults.crash_at(made)
            assert scene.stage.dies(scene.begin)
            scene.faults.clear()
            scene.faults.crash_at(number)
            died = scene.stage.dies(scene.go_on)
            scene.faults.clear()
            for _ in range(2):
                scene.go_on()
            assert_accounted_for(scene)
        finally:
            scene.close()
        if not died:
            return
        number += 1
