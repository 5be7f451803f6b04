"""Tests the ends of claims that were never drained: questions to EC2, order of the reports, what is left alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.errors import ClusterGone, StoreError
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.lifecycle.endings import (
    Inventory,
    delete_orphaned_node,
    give_up,
    give_up_ended,
    has_vanished,
    never_joined,
    terminate_claims,
    terminate_garbage,
    why_ended,
    write_off,
)
from shiplap.flows.policies import active
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance, OfferingFailure
from tests.builders.claims import node_claim
from tests.integration.flows.stage import Stage

PODS = (PodReference("default", "web", "uid-web"),)
FAILURE = OfferingFailure("m5.large", "a", "on-demand", "Server.InsufficientInstanceCapacity", message="none left")


@pytest.fixture
def stage() -> Stage:
    return Stage()


def put(stage: Stage, name: str = "c", state: ClaimState = ClaimState.LAUNCHED, **fields: Any) -> NodeClaim:
    """A claim of an instance that runs."""
    known: dict[str, Any] = {
        "cluster": stage.name,
        "instance_id": f"i-{name}",
        "instance_type": "m5.large",
        "ami": "ami-1",
        "kubelet_hash": "k",
        "relies_on_estimate": ("m5.large",),
        "pods": PODS,
        "changed_at": stage.clock.now(),
    }
    stage.state.adopt(node_claim(name=name, state=state, **known | fields))
    found = stage.state.claim(stage.name, name)
    assert found is not None
    if found.instance_id:
        stage.compute.add(instance(stage, found.instance_id))
        stage.capacity.acquire_pilot("ami-1", "m5.large", "k", f"{stage.name}/{name}", stage.clock.now())
    return found


def instance(stage: Stage, instance_id: str, **fields: Any) -> Instance:
    known: dict[str, Any] = {
        "id": instance_id,
        "instance_type": "m5.large",
        "zone": "a",
        "capacity_type": "on-demand",
        "ami": "ami-1",
        "state": "running",
        "launched_at": stage.clock.now() - 3600,
        "cluster": stage.name,
        "install": "shiplap",
    }
    return Instance(**known | fields)


def leases(stage: Stage) -> frozenset[str]:
    return stage.capacity.pilots(["ami-1"], stage.clock.now())


def told(stage: Stage) -> list[str]:
    return [event.detail_type for event in stage.bus.events]


def alive(stage: Stage) -> list[str]:
    return [item.id for item in stage.compute.alive()]


def test_a_claim_is_given_up_before_its_instance_is_ended(stage: Stage) -> None:
    claim = give_up(put(stage, state=ClaimState.REGISTERED, changed_at=1.0), "too late", stage.context)
    assert claim == stage.state.claim(stage.name, "c")
    assert (claim.state, claim.failure, claim.changed_at) == (ClaimState.TERMINATING, "too late", stage.clock.now())
    assert alive(stage) == ["i-c"]


def test_instances_end_by_one_request_and_claims_after_them(stage: Stage) -> None:
    claims = [
        put(stage, name, ClaimState.TERMINATING, node_name="n", failure="old", changed_at=1.0) for name in ("a", "b")
    ]
    stage.faults.clear()
    gone = terminate_claims(claims, stage.context)
    assert [(claim.name, claim.state) for claim in gone] == [("a", ClaimState.GONE), ("b", ClaimState.GONE)]
    assert {claim.changed_at for claim in gone} == {stage.clock.now()}
    assert alive(stage) == []
    assert stage.faults.points.count("before compute.terminate") == 1
    assert stage.faults.points.index("after compute.terminate") < stage.faults.points.index("before state.advance")
    assert stage.meter.counts["NodesTerminated"] == 2
    assert told(stage) == ["NodeClaimTerminated", "PodPending"] * 2
    assert stage.bus.events[0].detail["reason"] == "old"
    hint = stage.bus.events[1].detail
    assert (hint["id"], hint["reason"]) == (f"{stage.name}/a/ended", "old")
    assert hint["pods"] == [["default", "web", "uid-web"]]
    assert leases(stage) == frozenset()


def test_a_claim_that_others_have_advanced_is_left_to_them_and_counted(stage: Stage) -> None:
    stale = put(stage, "a", ClaimState.TERMINATING, node_name="n")
    other = put(stage, "b", ClaimState.TERMINATING, node_name="n")
    stage.state.advance(stale, ClaimState.GONE)
    assert [claim.name for claim in terminate_claims([stale, other], stage.context)] == ["b"]
    assert stage.meter.counts["ClaimsLost"] == 1
    assert stage.meter.counts["NodesTerminated"] == 1


def test_without_claims_ec2_is_asked_for_nothing(stage: Stage) -> None:
    assert terminate_claims([], stage.context) == ()
    assert not [point for point in stage.faults.points if "compute" in point]


@pytest.mark.parametrize(
    ("fields", "itself"),
    [
        ({"failure": "InstanceTerminated"}, True),
        ({"failure": "InstanceStopped"}, True),
        ({"failure": "SpotInterruption"}, False),
        ({"failure": ""}, False),
        ({"failure": "InstanceTerminated", "node_name": "n"}, False),
        ({"failure": "did not join", "node_name": ""}, False),
    ],
)
def test_which_instances_ended_by_themselves_before_they_joined(fields: dict[str, str], itself: bool) -> None:
    assert never_joined(node_claim(name="c", state=ClaimState.TERMINATING, **fields)) is itself


def test_an_end_that_ec2_explains_fails_the_claim_with_the_reason(stage: Stage) -> None:
    claim = put(stage, state=ClaimState.TERMINATING, failure="InstanceTerminated")
    stage.compute.lose("i-c", "Server.InsufficientInstanceCapacity", "capacity")
    (failed,) = terminate_claims([claim], stage.context)
    assert failed.state is ClaimState.FAILED
    assert failed.failure.startswith("its instance i-c ended before it joined: ")
    assert "Server.InsufficientInstanceCapacity: told by the twin" in failed.failure
    assert told(stage) == ["NodeClaimFailed", "PodPending"]
    assert stage.bus.events[1].detail["reason"] == failed.failure
    assert stage.meter.counts["InstancesVanished"] == 1
    assert "NodesTerminated" not in stage.meter.counts
    assert leases(stage) == frozenset()
    (event,) = stage.server.list("events").items
    assert (event["involvedObject"]["name"], event["message"]) == ("web", failed.failure)


@pytest.mark.parametrize(("after_s", "ended"), [(0.0, False), (GRACE_S - 1, False), (GRACE_S, True)])
def test_an_end_that_ec2_does_not_explain_is_waited_out(stage: Stage, after_s: float, ended: bool) -> None:
    """The instance still runs as far as EC2 says: describing may lag behind the event."""
    claim = put(stage, state=ClaimState.TERMINATING, failure="InstanceTerminated")
    served = put(stage, "d", ClaimState.TERMINATING, node_name="n")
    stage.clock.advance(after_s)
    done = terminate_claims([claim, served], stage.context)
    assert [item.name for item in done] == (["c", "d"] if ended else ["d"])
    assert alive(stage) == ([] if ended else ["i-c"])
    if ended:
        assert done[0].failure == "its instance i-c ended before it joined"


def test_why_an_instance_ended_is_asked_of_its_cluster(stage: Stage) -> None:
    claim = put(stage)
    assert why_ended(claim, stage.context) is None
    stage.compute.lose("i-c", "Client.UserInitiatedShutdown", "transient")
    found = why_ended(claim, stage.context)
    assert found is not None
    assert (found.code, found.kind) == ("Client.UserInitiatedShutdown", "transient")


@pytest.mark.parametrize(
    ("kind", "node_class", "scope"),
    [
        ("capacity", "default", ("m5.large", "a", "on-demand")),
        ("configuration", "default", ("demo/default", "*", "*")),
        ("configuration", "removed", None),
        ("transient", "default", None),
    ],
)
def test_what_ended_an_instance_is_remembered_before_its_claim_is_given_up(
    stage: Stage, kind: str, node_class: str, scope: tuple[str, str, str] | None
) -> None:
    claim = put(stage, node_class=node_class)
    failure = msgspec.structs.replace(FAILURE, kind=kind)
    after = give_up_ended(claim, failure, stage.settings, stage.context)
    assert (after.state, after.failure) == (ClaimState.TERMINATING, "InstanceTerminated")
    known = stage.state.read(stage.name, stage.clock.now()).unavailable
    if scope is None:
        assert known == ()
    else:
        (unavailable,) = known
        assert unavailable.scope[1:] == scope[1:]
        assert (unavailable.scope[0] == scope[0]) or kind == "configuration"
        assert unavailable.scope[0] != "m5.large" or kind == "capacity"
        first, then = (stage.faults.points.index(f"before state.{name}") for name in ("mark_unavailable", "advance"))
        assert first < then
    assert stage.meter.counts.get("NodesNotJoined", 0.0) == (1.0 if kind == "transient" else 0.0)


@pytest.mark.parametrize(
    ("after_s", "there", "vanished"),
    [(GRACE_S - 1, False, False), (GRACE_S, False, True), (GRACE_S, True, False), (10 * GRACE_S, True, False)],
)
def test_an_instance_has_vanished_once_describing_must_show_it(
    stage: Stage, after_s: float, there: bool, vanished: bool
) -> None:
    claim = put(stage)
    if not there:
        stage.compute.lose("i-c")
    stage.clock.advance(after_s)
    assert has_vanished(claim, stage.context) is vanished


@pytest.mark.parametrize(
    ("state", "ends_as", "events"),
    [
        (ClaimState.LAUNCHED, ClaimState.FAILED, ["NodeClaimFailed", "PodPending"]),
        (ClaimState.REGISTERED, ClaimState.GONE, ["NodeClaimTerminated"]),
        (ClaimState.DRAINING, ClaimState.GONE, ["NodeClaimTerminated"]),
    ],
)
def test_a_claim_whose_instance_has_vanished_is_over(
    stage: Stage, state: ClaimState, ends_as: ClaimState, events: list[str]
) -> None:
    claim = write_off(put(stage, state=state, changed_at=1.0), stage.context)
    assert claim == stage.state.claim(stage.name, "c")
    assert (claim.state, claim.failure) == (ends_as, "instance i-c is gone")
    assert claim.changed_at == stage.clock.now()
    assert told(stage) == events
    assert stage.bus.events[0].detail["reason"] == "instance i-c is gone"
    assert stage.meter.counts["InstancesVanished"] == 1


def test_what_a_node_lived_is_noted_at_its_end(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is what risks of spot are learned from."""
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(active, "ended", lambda claim, _: noted.append((claim.name, claim.state)))
    terminate_claims([put(stage, "a", ClaimState.TERMINATING, node_name="n")], stage.context)
    write_off(put(stage, "b", ClaimState.REGISTERED), stage.context)
    write_off(put(stage, "c", ClaimState.LAUNCHED), stage.context)
    assert noted == [("a", ClaimState.GONE), ("b", ClaimState.GONE)]


def node(
    name: str = "n", instance_id: str = "i-c", *, ready: bool = False, opened: bool = True, ours: bool = True
) -> dict[str, Any]:
    taints = [{"key": "other", "effect": "NoSchedule"}]
    if not opened:
        taints.append({"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"})
    marks = {labels.NODE_POOL: "flex", labels.REGISTERED: "true", labels.NODE_CLAIM: "lost"} if ours else {}
    return {
        "metadata": {"name": name, "labels": marks},
        "spec": {"providerID": f"aws:///a/{instance_id}", "taints": taints},
        "status": {"conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}]},
    }


@pytest.mark.parametrize(
    ("state", "instance_id", "seen", "lost", "removed"),
    [
        (ClaimState.GONE, "i-c", {}, True, True),
        (ClaimState.FAILED, "i-c", {}, True, True),
        (ClaimState.TERMINATING, "i-c", {}, True, False),
        (ClaimState.GONE, "", {}, True, False),
        (ClaimState.GONE, "", {"instance_id": ""}, True, False),
        (ClaimState.GONE, "i-c", {"ready": True}, True, False),
        (ClaimState.GONE, "i-c", {"instance_id": "i-d"}, True, False),
        (ClaimState.GONE, "i-c", {}, False, False),
    ],
)
def test_only_the_silent_node_of_an_ended_claim_whose_instance_is_gone_is_removed(
    stage: Stage, state: ClaimState, instance_id: str, seen: dict[str, Any], lost: bool, removed: bool
) -> None:
    claim = put(stage, state=state, instance_id=instance_id)
    if lost and instance_id:
        stage.compute.lose(instance_id)
    stage.server.create("nodes", node("before", "i-other", ready=True))
    stage.server.create("nodes", node("n", **seen))
    inventory = Inventory(stage.name, stage.context)
    assert delete_orphaned_node(stage.name, claim, inventory, stage.context) is removed
    names = {item["metadata"]["name"] for item in stage.server.list("nodes").items}
    assert names == ({"before"} if removed else {"before", "n"})
    assert stage.meter.counts.get("NodesCleared", 0.0) == float(removed)


@pytest.mark.parametrize("first", [{"instance_id": "i-other"}, {"ready": True}])
def test_another_node_does_not_hide_the_orphan_behind_it(stage: Stage, first: dict[str, Any]) -> None:
    claim = put(stage, state=ClaimState.GONE)
    stage.compute.lose("i-c")
    stage.server.create("nodes", node("a", **first))
    stage.server.create("nodes", node("b"))
    assert delete_orphaned_node(stage.name, claim, Inventory(stage.name, stage.context), stage.context)
    assert [item["metadata"]["name"] for item in stage.server.list("nodes").items] == ["a"]


def test_garbage_of_a_name_is_ended_and_nothing_else(stage: Stage) -> None:
    put(stage, "kept")
    for seen in (
        instance(stage, "i-1", claim="lost"),
        instance(stage, "i-2", launch="lost"),
        instance(stage, "i-3", claim="other"),
        instance(stage, "i-4", claim="lost", launched_at=stage.clock.now()),
        instance(stage, "i-5", claim="lost", cluster="another"),
        instance(stage, "i-6", claim="lost", state="shutting-down"),
    ):
        stage.compute.add(seen)
    inventory = Inventory(stage.name, stage.context)
    assert terminate_garbage(stage.settings, "lost", inventory, stage.context)
    assert alive(stage) == ["i-kept", "i-3", "i-4", "i-5", "i-6"]
    assert stage.meter.counts["GarbageTerminated"] == 2
    assert stage.faults.points.count("before compute.terminate") == 1
    assert not terminate_garbage(stage.settings, "nothing", Inventory(stage.name, stage.context), stage.context)


def test_a_node_that_was_opened_to_pods_is_not_ended_under_them(stage: Stage) -> None:
    stage.compute.add(instance(stage, "i-1", claim="lost"))
    stage.compute.add(instance(stage, "i-2", claim="lost"))
    stage.server.create("nodes", node("foreign", "i-1", ours=False))
    stage.server.create("nodes", node("closed", "i-2", opened=False))
    assert terminate_garbage(stage.settings, "lost", Inventory(stage.name, stage.context), stage.context)
    assert alive(stage) == ["i-1"]
    assert stage.meter.counts["NodesWithoutClaim"] == 1
    assert stage.meter.counts["GarbageTerminated"] == 1


def test_what_is_looked_for_is_listed_once_instances_before_claims(stage: Stage) -> None:
    stage.compute.add(instance(stage, "i-1", claim="lost"))
    stage.faults.clear()
    inventory = Inventory(stage.name, stage.context)
    for _ in range(2):
        assert inventory.holders.of(inventory.instances[0]) is None
        assert inventory.in_service(inventory.instances[0]) is None
    assert [point for point in stage.faults.points if point.startswith("before")] == [
        "before compute.instances",
        "before state.claims",
        "before cluster.nodes",
    ]


def test_a_cluster_that_is_gone_has_no_nodes(stage: Stage) -> None:
    stage.faults.on("before", "cluster.nodes", ClusterGone("deleted"))
    assert Inventory(stage.name, stage.context).nodes == ()


def test_which_node_of_an_instance_is_in_service(stage: Stage) -> None:
    stage.server.create("nodes", node("a", "i-1"))
    stage.server.create("nodes", node("b", "i-2", opened=False))
    inventory = Inventory(stage.name, stage.context)
    found: list[Node | None] = [inventory.in_service(instance(stage, name)) for name in ("i-1", "i-2", "i-3")]
    assert [item.metadata.name if item is not None else None for item in found] == ["a", None, None]


def test_what_cannot_be_written_is_an_error_and_the_instance_has_ended_all_the_same(stage: Stage) -> None:
    claim = put(stage, state=ClaimState.TERMINATING, node_name="n")
    stage.faults.on("before", "state.advance", StoreError("down"))
    with pytest.raises(StoreError):
        terminate_claims([claim], stage.context)
    assert alive(stage) == []
