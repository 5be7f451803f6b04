"""Tests the facts that the judge gets beside a real cluster: each visible promise gets one breach."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.aws import tags
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.catalogue import embedded
from shiplap_lab.emulated_ec2.control import EmulatedInstance
from shiplap_lab.emulated_ec2.regional_prices import Prices
from shiplap_lab.fakes.signals import FakeClock
from shiplap_lab.fakes.state import FakeState
from shiplap_lab.judge.promises import Promise
from tests.builders.claims import node_claim, with_fields
from tests.e2e.judging import JudgedCluster, pools_in

POOLS = """
kind: NodePool
metadata: {name: flex}
spec: {limits: {example.com/disk: "3"}}
---
kind: EC2NodeClass
metadata: {name: default}
spec: {}
"""
TYPE = "m5.large"
HOURLY = Prices.of(embedded.load()).price(TYPE, "us-east-1a", "on-demand")


class RealCluster:
    """A cluster, a table and EC2, each as a judge asks it, and how an instance becomes a node."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.api, self.state = ApiServer(self.clock), FakeState()
        self.machines: dict[str, EmulatedInstance] = {}
        self.judge = JudgedCluster("real", self.api, self.state, self, pools_in(POOLS), self.clock.now)

    def instances(self) -> tuple[EmulatedInstance, ...]:
        return tuple(self.machines.values())

    def run(self, name: str, state: str = "running") -> None:
        """An instance runs, or does so no longer."""
        self.machines[name] = EmulatedInstance(
            id=f"i-{name}",
            instance_type=TYPE,
            zone="us-east-1a",
            capacity_type="on-demand",
            ami="ami-1",
            state=state,
            launched_at=1001.0,
            private_dns=f"node-{name}",
            private_ip="10.0.0.1",
            subnet_id="subnet-1",
            instance_profile="",
            tags={tags.CLUSTER: "real", tags.NODE_POOL: "flex", tags.LAUNCH: name},
            user_data="",
        )

    def claim(self, name: str, *, created_at: float = 1000.0) -> NodeClaim:
        planned = node_claim(cluster="real", name=name, node_pool="flex", token=name, created_at=created_at)
        self.state.commit("real", self.state.epoch("real"), [planned])
        return planned

    def node(self, name: str) -> NodeClaim:
        """A node in service."""
        claim = self.state.advance(self.claim(name), ClaimState.LAUNCHING)
        self.run(name)
        launched = with_fields(claim, instance_id=f"i-{name}", instance_type=TYPE, zone="us-east-1a")
        claim = self.state.advance(claim, ClaimState.LAUNCHED, instance=launched.instance, hourly=HOURLY)
        amounts = {"cpu": "2", "memory": "8Gi", "pods": "10", "example.com/disk": "2"}
        ready = {"type": "Ready", "status": "True"}
        body = {
            "metadata": {"name": f"node-{name}"},
            "spec": {"providerID": f"aws:///us-east-1a/i-{name}"},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }
        self.api.create("nodes", body)
        claim = self.state.advance(claim, ClaimState.REGISTERED, node_name=f"node-{name}")
        return self.state.advance(claim, ClaimState.INITIALIZED)

    def pod(self, name: str, node: str, **resources: Any) -> None:
        container = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
        self.api.create("pods", {"metadata": {"name": name}, "spec": {"containers": [container], **resources}})
        self.api.bind(name, f"node-{node}")

    def told(self) -> set[Promise]:
        self.judge.look()
        return {violation.promise for violation in self.judge.violations}


@pytest.fixture
def real() -> RealCluster:
    return RealCluster()


def test_a_node_in_service_keeps_every_promise(real: RealCluster) -> None:
    assert real.told() == set()
    real.node("a")
    real.pod("web", "a")
    assert real.told() == set()


def test_requests_are_read_as_the_api_server_has_them(real: RealCluster) -> None:
    """Requests of a whole pod replace those of its containers."""
    real.node("a")
    real.pod("web", "a", resources={"requests": {"cpu": "3"}})
    assert real.told() == {Promise.NODES_HOLD}


def test_an_instance_that_no_claim_waits_for_is_found(real: RealCluster) -> None:
    real.run("a")
    assert real.told() == {Promise.WRITTEN_FIRST}


def test_an_instance_without_its_claim_is_paid_for_fifteen_minutes_at_most(real: RealCluster) -> None:
    claim = real.node("a")
    assert real.told() == set()
    for state in (ClaimState.DRAINING, ClaimState.TERMINATING, ClaimState.GONE):
        claim = real.state.advance(claim, state)
    real.judge.look()
    real.clock.advance(901)
    assert real.told() == {Promise.ACCOUNTED_FOR}


def test_two_instances_for_one_claim_are_found(real: RealCluster) -> None:
    real.node("a")
    real.machines["b"] = replace(real.machines["a"], id="i-b")
    assert real.told() == {Promise.NO_SECOND_LAUNCH}


def test_a_limit_of_a_resource_that_only_nodes_name_is_counted(real: RealCluster) -> None:
    real.node("a")
    assert real.told() == set()
    real.node("b")
    real.judge.look()
    real.node("c")
    assert real.told() == {Promise.LIMITS}


def test_a_node_that_ends_early_is_found(real: RealCluster) -> None:
    claim = real.node("a")
    real.pod("web", "a")
    real.judge.look()
    claim = real.state.advance(claim, ClaimState.DRAINING, failure="Underutilized")
    real.state.advance(claim, ClaimState.TERMINATING)
    real.run("a", "shutting-down")
    assert real.told() == {Promise.PODS_LEAVE_FIRST}


def test_a_deadline_counts_from_the_moment_that_the_warning_names(real: RealCluster) -> None:
    claim = real.node("a")
    real.judge.look()
    warning = {"detail-type": "EC2 Spot Instance Interruption Warning", "detail": {"instance-id": "i-a"}}
    real.judge.warned({**warning, "time": "1970-01-01T00:16:00Z"})
    real.state.advance(claim, ClaimState.DRAINING, failure="SpotInterruption", deadline_at=1180.0)
    assert real.told() == {Promise.DEADLINES}


def test_what_ends_the_judge_is_kept(real: RealCluster) -> None:
    real.machines["a"] = None  # type: ignore[assignment]
    judge = real.judge
    with judge:
        while judge.failure is None:
            judge._stopping.wait(0.01)
    assert isinstance(judge.failure, AttributeError)
