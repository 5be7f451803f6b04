"""NodeClaim objects follow their claims in the invocation that changes them, not only with the next sweep."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from shiplap.errors import ClusterDenied, ClusterUnreachable
from shiplap.flows import shown_claims
from shiplap.flows.claim_events import pods_pending
from shiplap.flows.shown_claims import show_claims
from tests.integration.flows.live_stage import LiveStage, lease
from tests.integration.flows.loaded_functions import Context, Load, load, records
from tests.integration.flows.stage import CLUSTER

__all__ = ["load"]


@pytest.fixture
def stage() -> LiveStage:
    stage = LiveStage()
    stage.add_pods(1)
    return stage


def conditions(stage: LiveStage) -> dict[str, str]:
    (item,) = stage.objects().values()
    return {each["type"]: each["status"] for each in item["status"]["conditions"]}


def invoke(load: Load, stage: LiveStage, function: str, *bodies: str) -> None:
    stage.settings = stage.deployed
    module, _ = load(function, stage)
    assert module.handle(records(*bodies), Context()) == {"batchItemFailures": []}


def launch(load: Load, stage: LiveStage) -> None:
    """Schedule for a pod that waits: no sweep is among the hints."""
    event = pods_pending(CLUSTER, (), "unschedulable", stage.clock.now(), event_id="event-1")
    body = {"detail-type": event.detail_type, "source": event.source, "detail": event.detail}
    invoke(load, stage, "schedule", json.dumps(body))


def due(stage: LiveStage, step: str) -> list[str]:
    return [json.dumps({"cluster": CLUSTER, "claim": claim.name, "step": step}) for claim in stage.claims()]


def test_an_object_is_there_when_its_launch_is(load: Load, stage: LiveStage) -> None:
    launch(load, stage)
    assert set(stage.objects()) == {claim.name for claim in stage.claims()}
    assert conditions(stage)["Launched"] == "True"
    assert conditions(stage)["Registered"] == "Unknown"


def test_it_shows_a_node_in_service_at_once_and_the_node_is_guarded(load: Load, stage: LiveStage) -> None:
    launch(load, stage)
    stage.join()
    invoke(load, stage, "lifecycle", *due(stage, "join"))
    assert set(conditions(stage).values()) == {"True"}
    (node,) = stage.server.list("nodes").items
    assert node["metadata"]["finalizers"] == ["karpenter.sh/termination"]


def test_each_step_of_a_node_is_shown_in_the_invocation_that_takes_it(load: Load, stage: LiveStage) -> None:
    launch(load, stage)
    stage.join(ready=False)
    invoke(load, stage, "lifecycle", *due(stage, "join"))
    assert (conditions(stage)["Registered"], conditions(stage)["Initialized"]) == ("True", "Unknown")
    (node,) = stage.cluster.nodes()
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    stage.server.patch("nodes", node.metadata.name, ready, subresource="status")
    invoke(load, stage, "lifecycle", *due(stage, "initialize"))
    assert conditions(stage)["Initialized"] == "True"


def test_both_objects_go_in_the_invocation_that_ends_the_instance(load: Load, stage: LiveStage) -> None:
    stage.play_on()
    stage.minute()
    (claim,) = stage.claims()
    stage.server.delete("nodeclaims", claim.name)
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.minute()
    for _ in range(3):
        invoke(load, stage, "lifecycle", *due(stage, "drain"))
        stage.clock.advance(60)
    assert stage.compute.alive() == ()
    assert stage.objects() == {}
    assert stage.server.list("nodes").items[0]["metadata"].get("finalizers", []) == []


def shown(stage: LiveStage) -> set[str]:
    show_claims([claim.name for claim in stage.claims()], stage.read(), stage.context, stage.manifest_state)
    return set(stage.objects())


@pytest.fixture
def launched(stage: LiveStage) -> LiveStage:
    stage.schedule()
    return stage


def test_nothing_is_written_beside_karpenter(launched: LiveStage) -> None:
    settings = launched.read()
    launched.server.create("leases", lease(launched.clock.now()))
    show_claims([claim.name for claim in launched.claims()], settings, launched.context)
    assert launched.objects() == {}
    assert shown(launched) == set()


def test_nothing_is_written_where_manifests_are_files(launched: LiveStage) -> None:
    names = [claim.name for claim in launched.claims()]
    show_claims(names, replace(launched.read(), live_manifests=False), launched.context)
    assert launched.objects() == {}


@pytest.mark.parametrize("effect", ["cluster.lease", "cluster.node_claim_object", "cluster.create_node_claim"])
def test_a_refusal_is_counted_and_left_to_the_sweep(launched: LiveStage, effect: str) -> None:
    settings = launched.read()
    launched.faults.on("before", effect, ClusterDenied("no", status=403))
    show_claims([claim.name for claim in launched.claims()], settings, launched.context)
    assert launched.objects() == {}
    assert launched.meter.counts["StatusesNotWritten"] == 1
    launched.minute()
    assert set(launched.objects()) == {claim.name for claim in launched.claims()}


def test_a_node_that_cannot_be_read_is_left_to_the_sweep(launched: LiveStage) -> None:
    launched.join()
    launched.attend()
    launched.faults.on("before", "cluster.node", ClusterUnreachable("no answer", status=503))
    assert shown(launched) == set()
    assert launched.meter.counts["StatusesNotWritten"] == 1


def test_a_burst_is_left_to_the_sweep_but_for_some(launched: LiveStage, monkeypatch: pytest.MonkeyPatch) -> None:
    launched.add_pods(8, cpu="3", prefix="more")
    launched.schedule()
    assert len(launched.claims()) > 2
    monkeypatch.setattr(shown_claims, "MOST_SHOWN_AT_ONCE", 2)
    assert len(shown(launched)) == 2
    launched.minute()
    assert set(launched.objects()) == {claim.name for claim in launched.claims()}


def test_a_name_without_a_claim_touches_nothing(launched: LiveStage) -> None:
    labels = {"shiplap.dev/install": launched.settings.install}
    launched.server.create("nodeclaims", {"metadata": {"name": "gone", "labels": labels}, "spec": {}})
    show_claims(["gone"], launched.read(), launched.context)
    assert set(launched.objects()) == {"gone"}
