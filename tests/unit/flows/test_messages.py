"""Queue bodies in, typed hints out, and every malformed one refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shiplap.errors import InvalidMessage
from shiplap.flows import claim_events
from shiplap.flows.messages import (
    TURN_MISSED,
    NodeSeen,
    PodsPending,
    Sweep,
    Timer,
    decode,
    for_lifecycle,
    for_schedule,
    rfc3339,
)
from shiplap.manifests.nodeclaim import PodReference
from shiplap.ports import BusEvent
from tests.builders.claims import node_claim

TIME = 1_700_000_000.25


def envelope(event: BusEvent, **changes: Any) -> str:
    body = {
        "version": "0",
        "id": "7bf73129",
        "detail-type": event.detail_type,
        "source": event.source,
        "account": "123456789012",
        "time": "2023-11-14T22:13:20Z",
        "region": "eu-west-1",
        "resources": [],
        "detail": event.detail,
    }
    return json.dumps(body | changes)


def test_what_is_published_is_what_is_read() -> None:
    pods = [PodReference("shop", "web-1", "u1"), PodReference("shop", "web-2", "u2")]
    event = claim_events.pods_pending("demo", pods, "Unschedulable", TIME, event_id="e1")
    assert decode(envelope(event), "q") == PodsPending("demo", TIME, "e1", tuple(pods), "Unschedulable")
    seen = claim_events.node_seen("demo", "ip-1", "aws:///z/i-1", TIME, ready=True, event_id="e2")
    assert decode(envelope(seen), "q") == NodeSeen("demo", "ip-1", "aws:///z/i-1", TIME)


def test_an_event_of_somebody_else_needs_no_more_than_its_cluster() -> None:
    event = BusEvent("PodPending", {"cluster": "demo", "extra": {"is": "ignored"}}, "shiplap.me")
    assert decode(envelope(event), "q") == PodsPending("demo", 1_700_000_000.0, "7bf73129")


def test_timers_and_sweeps_are_plain_bodies() -> None:
    assert decode('{"cluster":"demo","claim":"c-1","step":"join"}', "q") == Timer("demo", "c-1", "join")
    assert decode('{"kind":"timer","cluster":"demo","claim":"c-1"}', "q") == Timer("demo", "c-1")
    assert decode('{"kind":"sweep","cluster":"demo"}', "q") == Sweep("demo")
    assert decode('{"kind":"sweep","cluster":"demo","time":"2023-11-14T22:13:20Z"}', "q").time == 1_700_000_000.0
    assert decode('{"kind":"sweep"}', "q") == Sweep()


def test_a_cluster_whose_turn_did_not_come_is_swept_in_the_name_of_its_oldest_message() -> None:
    event = claim_events.pods_pending("demo", (), TURN_MISSED, 1_700_000_000.0, event_id="demo/turn/1")
    body = {"detail-type": event.detail_type, "source": event.source, "detail": event.detail}
    assert decode(json.dumps(body), "q") == Sweep("demo", 1_700_000_000.0)
    with pytest.raises(InvalidMessage, match="cluster: must not be empty"):
        decode(json.dumps({**body, "detail": {**event.detail, "cluster": ""}}), "q")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "truncated"),
        ("not json", "malformed"),
        ("[]", "Expected `object`"),
        ("{}", "cluster"),
        ('{"kind":"sweep","cluster":""}', "cluster: must not be empty"),
        ('{"kind":"dance","cluster":"demo"}', "unknown kind 'dance'"),
        ('{"cluster":"demo"}', "claim: must not be empty"),
        ('{"cluster":"demo","claim":7}', "Expected `str`"),
        ('{"detail-type":"PodPending"}', "detail"),
        ('{"detail-type":"PodPending","detail":[]}', "Expected `object`"),
        ('{"detail-type":"PodPending","detail":{"cluster":"demo","pods":[["a"]]}}', "Expected `array` of length 3"),
        ('{"detail-type":"PodPending","detail":{"cluster":"demo","time":"yesterday"}}', "yesterday"),
        ('{"detail-type":"NodeReady","detail":{"cluster":"demo"}}', "node"),
        ('{"detail-type":"NodeReady","detail":{"cluster":"demo","node":""}}', "node: must not be empty"),
        ('{"detail-type":"NodeReady","detail":{"cluster":"demo","node":"x/proxy"}}', "node: 'x/proxy' may hold only"),
        ('{"detail-type":"NodeJoined","detail":{"cluster":"demo","node":".."}}', "node: '..' may hold only"),
        (
            f'{{"detail-type":"NodeJoined","detail":{{"cluster":"demo","node":"{"n" * 254}"}}}}',
            "node: is longer than 253 characters",
        ),
        ('{"detail-type":"NodeMoved","detail":{"cluster":"demo"}}', "unknown detail-type 'NodeMoved'"),
    ],
)
def test_a_malformed_message_is_refused_with_its_queue_and_a_reason(body: str, reason: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        decode(body, "shiplap-provisioning")
    assert str(refused.value).startswith("shiplap-provisioning: ")
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)


def test_pods_with_names_that_kubernetes_does_not_give_are_left_out() -> None:
    """The message is a hint: the pods beside them are looked for."""
    pods = [["shop", "web-1", "u1"], ["shop", "web/../x", "u2"], ["sh op", "web-3", "u3"], ["shop", "", "u4"]]
    body = json.dumps({"detail-type": "PodPending", "detail": {"cluster": "demo", "id": "e", "pods": pods}})
    assert decode(body, "q") == PodsPending("demo", 0.0, "e", (PodReference("shop", "web-1", "u1"),))


def test_a_message_in_the_wrong_queue_is_refused() -> None:
    timer, sweep = '{"cluster":"demo","claim":"c-1"}', '{"kind":"sweep","cluster":"demo"}'
    assert for_schedule(sweep, "q") == Sweep("demo")
    assert for_lifecycle(timer, "q") == Timer("demo", "c-1")
    with pytest.raises(InvalidMessage, match="Timer does not belong in this queue"):
        for_schedule(timer, "q")
    with pytest.raises(InvalidMessage, match="Sweep does not belong in this queue"):
        for_lifecycle(sweep, "q")


def test_every_event_has_cluster_id_and_time() -> None:
    claim = node_claim(cluster="demo", name="c-1", node_pool="p", node_class="n")
    told = [
        claim_events.of_claim(claim_events.LAUNCHED, claim, TIME),
        claim_events.pods_pending("demo", (), "x", TIME, event_id="e"),
        claim_events.node_seen("demo", "n", "", TIME, ready=False, event_id="e"),
    ]
    for event in told:
        assert event.detail["cluster"] == "demo"
        assert event.detail["id"]
        assert event.detail["time"] == "2023-11-14T22:13:20.250Z" == rfc3339(TIME)


def test_an_event_never_outgrows_the_bus() -> None:
    pods = [PodReference("n" * 63, f"{'p' * 248}{number:05d}", "u" * 36) for number in range(5000)]
    event = claim_events.pods_pending("demo", pods, "x", TIME, event_id="e")
    assert len(json.dumps(event.detail)) < 256 * 1024


def test_an_event_of_a_claim_tells_all_that_docs_name() -> None:
    claim = node_claim(
        cluster="demo",
        name="default-1",
        node_pool="default",
        node_class="bottlerocket",
        tier=2,
        instance_id="i-1",
        instance_type="m5.large",
        zone="eu-west-1a",
        capacity_type="spot",
        ami="ami-1",
        hourly=0.04,
        node_name="ip-1",
        pods=(PodReference("shop", "web-1", "u1"),),
    )
    event = claim_events.of_claim(claim_events.MISSED, claim, TIME, short={"memory": "1Gi"})
    assert event.detail_type == claim_events.MISSED
    assert event.detail == {
        "cluster": "demo",
        "id": f"demo/default-1/{claim_events.MISSED}",
        "time": rfc3339(TIME),
        "claim": "default-1",
        "nodePool": "default",
        "nodeClass": "bottlerocket",
        "tier": 2,
        "instanceId": "i-1",
        "instanceType": "m5.large",
        "zone": "eu-west-1a",
        "capacityType": "spot",
        "ami": "ami-1",
        "hourly": 0.04,
        "node": "ip-1",
        "pods": [["shop", "web-1", "u1"]],
        "short": {"memory": "1Gi"},
    }
