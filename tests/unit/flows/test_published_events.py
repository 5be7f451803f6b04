"""Tests the content of each event on the bus: docs/reference/events.md promises these fields to any listener."""

from __future__ import annotations

import pytest

from shiplap.flows import claim_events
from shiplap.flows.messages import MOST_PODS
from shiplap.manifests.nodeclaim import PodReference
from shiplap.ports import BusEvent
from tests.builders.claims import node_claim

NOW = 1_700_000_000.25
PODS = tuple(PodReference("web", f"p{number:03}", f"uid-{number:03}") for number in range(MOST_PODS + 1))


def named(number: int) -> list[list[str]]:
    return [["web", f"p{place:03}", f"uid-{place:03}"] for place in range(number)]


def test_an_event_of_a_claim_says_what_was_launched_for_whom_and_what_it_costs() -> None:
    claim = node_claim(
        cluster="demo",
        name="c-1",
        node_pool="flex",
        node_class="default",
        tier=2,
        instance_id="i-1",
        instance_type="m5.large",
        zone="eu-west-1a",
        capacity_type="spot",
        ami="ami-1",
        hourly=0.04,
        node_name="ip-10-0-0-1",
        pods=PODS,
    )
    assert claim_events.of_claim(claim_events.LAUNCHED, claim, NOW, kind="SpotInterruption") == BusEvent(
        "NodeClaimLaunched",
        {
            "cluster": "demo",
            "id": "demo/c-1/NodeClaimLaunched",
            "time": "2023-11-14T22:13:20.250Z",
            "claim": "c-1",
            "nodePool": "flex",
            "nodeClass": "default",
            "tier": 2,
            "instanceId": "i-1",
            "instanceType": "m5.large",
            "zone": "eu-west-1a",
            "capacityType": "spot",
            "ami": "ami-1",
            "hourly": 0.04,
            "node": "ip-10-0-0-1",
            "pods": named(MOST_PODS),
            "kind": "SpotInterruption",
        },
    )


def test_a_hint_about_pods_says_which_and_why() -> None:
    event = claim_events.pods_pending("demo", PODS, "Disruption", NOW, event_id="e-1")
    detail = {
        "cluster": "demo",
        "id": "e-1",
        "time": "2023-11-14T22:13:20.250Z",
        "pods": named(MOST_PODS),
        "reason": "Disruption",
    }
    assert event == BusEvent("PodPending", detail, "shiplap.functions")
    assert claim_events.pods_pending("demo", (), "x", NOW, event_id="e", source="watch").source == "shiplap.watch"


@pytest.mark.parametrize(("ready", "detail_type"), [(True, "NodeReady"), (False, "NodeJoined")])
def test_a_hint_about_a_node_names_it_and_its_instance(ready: bool, detail_type: str) -> None:
    event = claim_events.node_seen("demo", "ip-1", "aws:///a/i-1", NOW, ready=ready, event_id="e-2")
    detail = {
        "cluster": "demo",
        "id": "e-2",
        "time": "2023-11-14T22:13:20.250Z",
        "node": "ip-1",
        "providerID": "aws:///a/i-1",
    }
    assert event == BusEvent(detail_type, detail, "shiplap.watch")


def test_what_is_due_names_its_cluster_and_moment() -> None:
    moment = "2023-11-14T22:13:20.250Z"
    assert claim_events.disruption_due("demo", "net-a", NOW) == BusEvent(
        "DisruptionDue",
        {"cluster": "demo", "network": "net-a", "id": "demo/disruption/1700000000.250", "time": moment},
    )
    assert claim_events.inspection_due("demo", NOW) == BusEvent(
        "InspectionDue", {"cluster": "demo", "id": "demo/inspection/1700000000.250", "time": moment}
    )
    assert claim_events.disruption_hint("demo", 7) == "demo/7/disruption"
