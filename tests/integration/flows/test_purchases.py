"""Reserved capacity that ends under running nodes, and nodes that come into a reservation."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.errors import ClusterError, ConditionFailed, ObjectConflict
from shiplap.flows.claim_updates import GRACE_S
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.builders.pools import family_pool
from tests.integration.flows.stage import ZONES, Stage

PRICE = 0.096


def staged(*kinds: str, reservations: int = 1, left: int = 2) -> Stage:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",), capacity_types=kinds or ("reserved", "on-demand")),))
    stage.compute.reservations = tuple(
        CapacityReservation(id=f"cr-{number}", instance_type="m6i.large", zone=ZONES[0], available=left)
        for number in range(1, reservations + 1)
    )
    return stage


def settled(stage: Stage) -> NodeClaim:
    """One node in service, older than the time describing may lag."""
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    stage.play_on()
    stage.clock.advance(GRACE_S + 1)
    (claim,) = stage.claims()
    assert claim.state is ClaimState.INITIALIZED
    return claim


def node_of(stage: Stage) -> Node:
    (node,) = stage.cluster.nodes()
    return node


def marks(of: dict[str, str]) -> dict[str, str | None]:
    keys = {
        "kind": labels.CAPACITY_TYPE,
        "id": labels.RESERVATION_ID,
        "type": labels.RESERVATION_TYPE,
        "interruptible": labels.RESERVATION_INTERRUPTIBLE,
    }
    return {name: of.get(key) for name, key in keys.items()}


RESERVED = {"kind": "reserved", "id": "cr-1", "type": "default", "interruptible": "false"}
ON_DEMAND = {"kind": "on-demand", "id": None, "type": None, "interruptible": None}


def test_a_node_whose_reservation_ended_is_on_demand() -> None:
    stage = staged()
    claim = settled(stage)
    assert (marks(claim.plan.labels), marks(node_of(stage).metadata.labels)) == (RESERVED, RESERVED)
    stage.sweep()
    assert stage.claims() == (claim,)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.sweep()
    (changed,) = stage.claims()
    assert (changed.known_instance.capacity_type, changed.state, changed.hourly) == (
        "on-demand",
        ClaimState.INITIALIZED,
        PRICE,
    )
    assert (marks(changed.plan.labels), marks(node_of(stage).metadata.labels)) == (ON_DEMAND, ON_DEMAND)
    assert changed.plan.labels.keys() == claim.plan.labels.keys() - {
        labels.RESERVATION_ID,
        labels.RESERVATION_TYPE,
        labels.RESERVATION_INTERRUPTIBLE,
    }
    assert stage.meter.counts["NodesDemoted"] == 1
    stage.sweep()
    assert stage.claims() == (changed,)


def test_the_node_follows_a_claim_that_was_demoted_before() -> None:
    stage = staged()
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.faults.on("before", "cluster.patch_node", ClusterError("no", status=500))
    stage.sweep()
    (changed,) = stage.claims()
    assert (changed.known_instance.capacity_type, marks(node_of(stage).metadata.labels)) == ("on-demand", RESERVED)
    stage.sweep()
    assert marks(node_of(stage).metadata.labels) == ON_DEMAND
    assert stage.claims() == (changed,)


def test_a_node_that_keeps_changing_is_relabelled_by_the_next_sweep() -> None:
    stage = staged()
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    for number in range(5):
        stage.faults.on("before", "cluster.patch_node", ObjectConflict("changed", status=409), nth=number + 1)
    assert stage.sweep().unfinished == ""
    assert marks(node_of(stage).metadata.labels) == RESERVED
    stage.sweep()
    assert marks(node_of(stage).metadata.labels) == ON_DEMAND


def test_a_claim_that_moves_meanwhile_is_looked_at_again() -> None:
    stage = staged()
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.faults.on("before", "state.advance", ConditionFailed("moved"))
    stage.sweep()
    assert stage.claims() == (claim,)
    stage.sweep()
    assert stage.claims()[0].known_instance.capacity_type == "on-demand"


@pytest.mark.parametrize("state", [ClaimState.DRAINING, ClaimState.TERMINATING])
def test_what_leaves_is_not_relabelled(state: ClaimState) -> None:
    stage = staged()
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    left = stage.state.advance(claim, ClaimState.DRAINING)
    if state is ClaimState.TERMINATING:
        left = stage.state.advance(left, state)
    stage.sweep()
    assert stage.claims()[0].known_instance.capacity_type == "reserved"


def test_a_claim_without_a_node_is_demoted_and_its_node_is_born_so() -> None:
    stage = staged()
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    (claim,) = stage.claims()
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.clock.advance(GRACE_S + 1)
    stage.sweep()
    stage.play_on()
    (changed,) = stage.claims()
    assert (changed.known_instance.capacity_type, marks(node_of(stage).metadata.labels)["kind"]) == (
        "on-demand",
        "on-demand",
    )


def test_what_ec2_says_in_the_first_minutes_is_not_believed_yet() -> None:
    stage = staged()
    stage.add_pods(1, cpu="1200m")
    stage.schedule()
    (claim,) = stage.claims()
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.sweep()
    assert stage.claims() == (claim,)


def test_an_instance_moved_into_a_reservation_of_its_pool_is_reserved() -> None:
    stage = staged(left=0)
    claim = settled(stage)
    assert marks(claim.plan.labels)["kind"] == "on-demand"
    stage.compute.sold_as(claim.instance_id, "reserved", "cr-1")
    stage.sweep()
    (changed,) = stage.claims()
    assert (marks(changed.plan.labels), marks(node_of(stage).metadata.labels)) == (RESERVED, RESERVED)
    assert changed.hourly < 0.001
    assert stage.meter.counts["NodesPromoted"] == 1


@pytest.mark.parametrize(("kinds", "reservation"), [(("on-demand",), "cr-1"), (("reserved", "on-demand"), "cr-other")])
def test_an_instance_in_a_reservation_that_is_not_its_pools_stays_as_it_was(
    kinds: tuple[str, ...], reservation: str
) -> None:
    stage = staged(*kinds, left=0)
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "reserved", reservation)
    stage.sweep()
    assert stage.claims() == (claim,)
    assert marks(node_of(stage).metadata.labels) == {**ON_DEMAND}


def test_a_node_moved_between_reservations_says_so() -> None:
    stage = staged(reservations=2)
    claim = settled(stage)
    other = {"cr-1": "cr-2", "cr-2": "cr-1"}[claim.plan.labels[labels.RESERVATION_ID]]
    stage.compute.sold_as(claim.instance_id, "reserved", other)
    stage.sweep()
    assert stage.claims()[0].plan.labels[labels.RESERVATION_ID] == other
    assert node_of(stage).metadata.labels[labels.RESERVATION_ID] == other


def test_of_several_reservations_a_claim_might_use_its_node_names_the_one_it_is_in() -> None:
    stage = staged(reservations=2)
    claim = settled(stage)
    (instance,) = stage.compute.alive()
    assert instance.reservation in ("cr-1", "cr-2")
    assert claim.plan.labels[labels.RESERVATION_ID] == instance.reservation
    assert node_of(stage).metadata.labels[labels.RESERVATION_ID] == instance.reservation


def test_a_demoted_claim_holds_nothing_of_the_reservation_it_was_launched_into() -> None:
    stage = staged(left=1)
    claim = settled(stage)
    stage.compute.sold_as(claim.instance_id, "on-demand")
    stage.sweep()
    stage.compute.reservations = (msgspec.structs.replace(stage.compute.reservations[0], available=1),)
    stage.add_pods(1, cpu="1200m", prefix="more")
    stage.schedule()
    assert sorted(item.known_instance.capacity_type for item in stage.claims()) == ["on-demand", "reserved"]


def test_the_partition_that_ec2_chose_is_a_label_of_claim_and_node() -> None:
    stage = staged("on-demand")
    claim = settled(stage)
    (instance,) = stage.compute.alive()
    stage.compute.add(msgspec.structs.replace(instance, partition="3"))
    stage.faults.on("before", "state.advance", ConditionFailed("moved"))
    stage.sweep()
    assert labels.PARTITION not in stage.claims()[0].plan.labels
    stage.sweep()
    assert stage.claims()[0].plan.labels == {**claim.plan.labels, labels.PARTITION: "3"}
    assert node_of(stage).metadata.labels[labels.PARTITION] == "3"
    assert node_of(stage).metadata.labels[labels.CAPACITY_TYPE] == "on-demand"
