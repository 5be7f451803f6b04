"""ProvisioningRequests in flows: capacity is launched or found, booked, consumed and given up."""

from __future__ import annotations

from tests.integration.flows.gangs_request_stage import (
    CHECK,
    add_consumers,
    add_request,
    add_template,
    conditions,
    message,
    stage_of_requests,
    status_of,
)

ACCEPTED = {"Accepted": ("True", "Accepted")}


def test_a_request_is_launched_whole_booked_and_consumed() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    assert len(stage.sweep().launched) == 2
    assert conditions(stage) == ACCEPTED | {"Provisioned": ("False", "NodesAreLaunched")}
    assert message(stage, "Provisioned") == "0 of 2 pods have room on nodes that are ready, 2 on nodes on their way"
    stage.minutes(3)
    assert conditions(stage) == ACCEPTED | {"Provisioned": ("True", "CapacityIsProvisioned")}
    assert message(stage, "Provisioned").startswith("2 pods have room on 2 nodes, kept until ")
    assert status_of(stage)["provisioningClassDetails"]["BookedNodes"].count("=1") == 2
    stage.minutes(3)
    assert len(stage.compute.alive()) == 2
    add_consumers(stage)
    stage.minutes(8)
    assert stage.pending() == 0
    assert len(stage.compute.alive()) == 2
    assert conditions(stage)["BookingExpired"] == ("True", "CapacityReservationTimeExpired")


def test_messages_name_no_pod_that_nobody_can_look_up() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.add_pods(1, cpu="7", memory="2Gi")
    stage.minutes(3)
    (launched,) = (event.detail["pods"] for event in stage.bus.of_type("NodeClaimLaunched") if event.detail["pods"])
    assert [pod[1] for pod in launched] == ["web-000"]
    assert len(stage.bus.of_type("NodeClaimLaunched")) == 3
    named = {pod[1] for event in stage.bus.events for pod in event.detail.get("pods", ())}
    assert not any("/" in name for name in named)


def test_booked_nodes_stay_until_the_booking_expires() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2)
    stage.minutes(9)
    assert len(stage.compute.alive()) == 2
    stage.minutes(12)
    assert conditions(stage)["BookingExpired"] == ("True", "CapacityReservationTimeExpired")
    assert stage.compute.alive() == ()


def test_a_node_that_has_room_for_several_pods_is_counted_once() -> None:
    stage = stage_of_requests()
    add_template(stage, cpu="1")
    add_template(stage, "driver", cpu="500m")
    add_request(stage, 1, 2, templates=("driver", "worker"))
    assert len(stage.sweep().launched) == 1
    stage.minutes(3)
    assert message(stage, "Provisioned").startswith("3 pods have room on 1 node, kept until ")


def test_a_check_launches_nothing() -> None:
    stage = stage_of_requests()
    add_template(stage)
    add_request(stage, 2, of=CHECK)
    assert stage.sweep().launched == ()
    assert conditions(stage) == ACCEPTED | {"Provisioned": ("False", "CapacityIsNotFound")}
    assert message(stage, "Provisioned").startswith("0 of 2 pods have room on nodes that exist")


def test_a_check_finds_the_room_that_exists_and_books_it() -> None:
    stage = stage_of_requests()
    add_template(stage, cpu="1")
    stage.add_pods(1, cpu="5", memory="2Gi")
    stage.minutes(3)
    assert len(stage.compute.alive()) == 1
    add_request(stage, 1, of=CHECK)
    stage.clock.advance(1)
    add_request(stage, 2, name="second", of=CHECK)
    stage.sweep()
    assert conditions(stage) == ACCEPTED | {"Provisioned": ("True", "CapacityIsFound")}
    assert conditions(stage, "second") == ACCEPTED | {"Provisioned": ("False", "CapacityIsNotFound")}
    assert "nodes that exist: of 1 nodes 1 suit its constraints" in message(stage, "Provisioned", "second")
    assert "cpu short by 90m" in message(stage, "Provisioned", "second")
    assert message(stage, "Provisioned").startswith("1 pod has room on 1 node, kept until ")
    stage.sweep()
    assert conditions(stage, "second") == ACCEPTED | {"Provisioned": ("False", "CapacityIsNotFound")}
