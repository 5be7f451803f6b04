"""Tests the payment that claims and Nodes show for their instances: which follow, when, and what stays as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterError, ObjectConflict, ObjectNotFound
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.sweep.purchase_options import update_purchase_options
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from tests.builders.claims import node_claim
from tests.builders.nodes import node_object
from tests.builders.pools import family_pool
from tests.conformance.catalogues import fake_type
from tests.integration.flows.stage import Stage

IN_USE = (ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED, ClaimState.DISRUPTING)
M5 = replace(
    fake_type("m5.large"),
    offerings=(
        Offering("a", "on-demand", 0.5),
        Offering("a", "reserved", 0.001, reservation_id="cr-1", reservation_type="default"),
    ),
)


@pytest.fixture
def stage() -> Stage:
    return Stage((family_pool("web", ("m5",), capacity_types=("reserved", "on-demand")),))


def put(stage: Stage, name: str = "c", state: ClaimState = ClaimState.INITIALIZED, **fields: Any) -> NodeClaim:
    known: dict[str, Any] = {
        "node_pool": "web",
        "instance_id": f"i-{name}",
        "instance_type": "m5.large",
        "zone": "a",
        "capacity_type": "reserved",
        "labels": {labels.CAPACITY_TYPE: "reserved", labels.RESERVATION_ID: "cr-1"},
        "hourly": 0.001,
    }
    stage.state.adopt(node_claim(cluster=stage.name, name=name, state=state, **known | fields))
    return claim_of(stage, name)


def claim_of(stage: Stage, name: str = "c") -> NodeClaim:
    found = stage.state.claim(stage.name, name)
    assert found is not None
    return found


def described(stage: Stage, name: str = "c", *, age_s: float = GRACE_S + 1, **fields: Any) -> Instance:
    known: dict[str, Any] = {
        "id": f"i-{name}",
        "instance_type": "m5.large",
        "zone": "a",
        "capacity_type": "on-demand",
        "ami": "ami-1",
        "state": "running",
        "launched_at": stage.clock.now() - age_s,
    }
    return Instance(**known | fields)


def add_node(stage: Stage, name: str = "c", *, registered: str = "true", **marks: str) -> None:
    item = node_object(f"n-{name}", providerID=f"aws:///a/i-{name}")
    item["metadata"]["labels"] = {labels.REGISTERED: registered, **marks}
    stage.server.create("nodes", item)


def follow(
    stage: Stage, instances: Sequence[Instance], types: dict[str, InstanceType] | None = None
) -> dict[str, dict[str, str]]:
    """Labels of Nodes after the chore."""
    claims = stage.state.claims(stage.name)
    joined = {node.spec.provider_id.rpartition("/")[2]: node for node in stage.cluster.nodes()}
    stage.faults.clear()
    sold = {"m5.large": M5} if types is None else types
    update_purchase_options(stage.settings, claims, instances, joined, lambda _: sold, stage.context)
    return {node.metadata.name: dict(node.metadata.labels) for node in stage.cluster.nodes()}


@pytest.mark.parametrize("state", [state for state in ClaimState if state is not ClaimState.GONE])
def test_claims_of_running_instances_follow_them(stage: Stage, state: ClaimState) -> None:
    put(stage, state=state)
    follow(stage, [described(stage)])
    assert claim_of(stage).known_instance.capacity_type == ("on-demand" if state in IN_USE else "reserved")
    assert claim_of(stage).state is state


def test_a_claim_that_leaves_or_has_no_instance_keeps_none_behind_it_back(stage: Stage) -> None:
    put(stage, "a", ClaimState.DRAINING)
    put(stage, "b")
    put(stage, "c")
    follow(stage, [described(stage, "c")])
    assert [claim_of(stage, name).known_instance.capacity_type for name in "abc"] == ["reserved"] * 2 + ["on-demand"]


@pytest.mark.parametrize(("age_s", "follows"), [(GRACE_S - 0.5, False), (GRACE_S, True), (GRACE_S + 0.5, True)])
def test_ec2_is_believed_once_an_instance_is_old_enough(stage: Stage, age_s: float, follows: bool) -> None:
    put(stage)
    follow(stage, [described(stage, age_s=age_s)])
    assert (claim_of(stage).known_instance.capacity_type == "on-demand") is follows


@pytest.mark.parametrize(("before", "after"), [("spot", "on-demand"), ("on-demand", "spot"), ("spot", "reserved")])
def test_spot_never_changes(stage: Stage, before: str, after: str) -> None:
    put(stage, capacity_type=before, labels={labels.CAPACITY_TYPE: before})
    follow(stage, [described(stage, capacity_type=after, reservation="cr-1" if after == "reserved" else "")])
    assert claim_of(stage).known_instance.capacity_type == before


@pytest.mark.parametrize(("types", "hourly"), [({"m5.large": M5}, 0.5), ({}, 0.0), ({"c5.large": M5}, 0.0)])
def test_a_claim_has_the_price_of_what_it_is_paid_as_if_it_is_known(
    stage: Stage, types: dict[str, InstanceType], hourly: float
) -> None:
    put(stage)
    follow(stage, [described(stage)], types)
    claim = claim_of(stage)
    assert (claim.known_instance.capacity_type, claim.hourly) == ("on-demand", hourly)
    assert claim.plan.labels == {labels.CAPACITY_TYPE: "on-demand"}


@pytest.mark.parametrize(("node_pool", "becomes"), [("web", "reserved"), ("gone", "on-demand")])
def test_only_a_pool_that_is_there_may_use_a_reservation(stage: Stage, node_pool: str, becomes: str) -> None:
    on_demand = {labels.CAPACITY_TYPE: "on-demand"}
    put(stage, node_pool=node_pool, capacity_type="on-demand", labels=on_demand, hourly=0.5)
    follow(stage, [described(stage, capacity_type="reserved", reservation="cr-1")])
    claim = claim_of(stage)
    assert claim.known_instance.capacity_type == becomes
    assert claim.plan.labels.get(labels.RESERVATION_ID) == ("cr-1" if becomes == "reserved" else None)


@pytest.mark.parametrize(
    ("known", "seen", "written"),
    [("", "", False), ("", "3", True), ("3", "3", False), ("3", "", False), ("2", "3", True)],
)
def test_a_partition_is_written_when_it_is_another(stage: Stage, known: str, seen: str, written: bool) -> None:
    marks = {labels.CAPACITY_TYPE: "on-demand"} | ({labels.PARTITION: known} if known else {})
    put(stage, capacity_type="on-demand", labels=marks, hourly=0.5)
    follow(stage, [described(stage, partition=seen)])
    assert ("before state.advance" in stage.faults.points) is written
    assert claim_of(stage).plan.labels.get(labels.PARTITION, "") == (seen or known)


ON_DEMAND = {labels.CAPACITY_TYPE: "on-demand"}


@pytest.mark.parametrize(
    ("registered", "before", "after"),
    [
        ("true", {labels.CAPACITY_TYPE: "reserved", labels.RESERVATION_ID: "cr-1", "x": "y"}, {**ON_DEMAND, "x": "y"}),
        ("true", ON_DEMAND, None),
        ("true", {labels.CAPACITY_TYPE: "spot"}, None),
        ("true", {}, None),
        ("false", {labels.CAPACITY_TYPE: "reserved"}, None),
    ],
    ids=["another", "the same", "spot", "none", "not registered"],
)
def test_a_registered_node_says_what_its_claim_does(
    stage: Stage, registered: str, before: dict[str, str], after: dict[str, str] | None
) -> None:
    put(stage, capacity_type="on-demand", labels=ON_DEMAND, hourly=0.5)
    add_node(stage, registered=registered, **before)
    (marks,) = follow(stage, [described(stage)]).values()
    assert marks == {labels.REGISTERED: registered, **(before if after is None else after)}
    assert ("before cluster.patch_node" in stage.faults.points) is (after is not None)


def test_a_node_of_spot_has_the_partition_of_its_claim_and_nothing_else_of_it(stage: Stage) -> None:
    put(stage, capacity_type="spot", labels={labels.CAPACITY_TYPE: "spot", labels.PARTITION: "2"})
    add_node(stage, **{labels.CAPACITY_TYPE: "reserved"})
    (marks,) = follow(stage, [described(stage, capacity_type="spot")]).values()
    assert marks == {labels.REGISTERED: "true", labels.CAPACITY_TYPE: "reserved", labels.PARTITION: "2"}


@pytest.mark.parametrize("error", [ObjectNotFound("gone"), ObjectConflict("changed", status=409)])
def test_a_node_that_is_gone_or_keeps_changing_keeps_no_other_back(stage: Stage, error: ClusterError) -> None:
    for name in "ab":
        put(stage, name, capacity_type="on-demand", labels=ON_DEMAND, hourly=0.5)
        add_node(stage, name, **{labels.CAPACITY_TYPE: "reserved"})
    claims, nodes = stage.state.claims(stage.name), stage.cluster.nodes()
    joined = {node.spec.provider_id.rpartition("/")[2]: node for node in nodes}
    tries = 1 if isinstance(error, ObjectNotFound) else 5
    for number in range(tries):
        stage.faults.on("before", "cluster.patch_node", error, nth=number + 1)
    update_purchase_options(stage.settings, claims, (), joined, lambda _: {}, stage.context)
    kinds = [node.metadata.labels[labels.CAPACITY_TYPE] for node in stage.cluster.nodes()]
    assert kinds == ["reserved", "on-demand"]
