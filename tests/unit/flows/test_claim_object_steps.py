"""In which order NodeClaim objects and finalizers are written, and what each write leaves as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.decision_memory import DecisionMemory
from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import ClusterUnreachable, ObjectConflict, ObjectNotFound, StoreError
from shiplap.flows.live_settings import NO_NODE_POOL, ManifestState
from shiplap.flows.schedule.standalone_launches import (
    delete_ended,
    delete_futile,
    delete_unplanned,
    not_begun,
    with_objects,
)
from shiplap.flows.shown_claims import show_claims, take_steps
from shiplap.flows.sweep.manifest_statuses import disruption_of_claims
from shiplap.manifests.custom_resources import NodePoolTemplate
from shiplap.manifests.live.nodeclaim_objects import FINALIZER, INSTALL_LABEL, ClaimDisruption, ClaimObjectChanges
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.scheduling.model.snapshot import ClusterView, NodeClassCatalog, Snapshot
from shiplap_lab.fakes.stores import FakeMemory
from tests.builders.claims import node_claim, running_claim
from tests.builders.nodes import node_object
from tests.integration.flows.stage import Stage

OTHER = "example.com/keep"


@pytest.fixture
def stage() -> Stage:
    return Stage()


def stored(stage: Stage, name: str, finalizers: Sequence[str] = (), **metadata: Any) -> dict[str, Any]:
    body = {"metadata": {"name": name, "uid": f"uid-{name}", "finalizers": list(finalizers), **metadata}, "spec": {}}
    stage.server.create("nodeclaims", body)
    return found(stage, name)


def found(stage: Stage, name: str) -> dict[str, Any]:
    item = next(item for item in stage.server.list("nodeclaims").items if item["metadata"]["name"] == name)
    return dict(item)


def take(stage: Stage, most: int | None = None, **changes: Any) -> None:
    take_steps(ClaimObjectChanges(**changes), stage.settings, stage.context, most=most)


def node_with(stage: Stage, name: str, finalizers: Sequence[str], **marks: str) -> Any:
    item = node_object(name, labels=marks, metadata={"finalizers": list(finalizers)}, providerID=f"aws:///a/i-{name}")
    item["metadata"]["labels"] = marks
    stage.server.create("nodes", item)
    return stage.cluster.node(name)


def finalizers(stage: Stage, plural: str, name: str) -> list[str]:
    (item,) = [item for item in stage.server.list(plural).items if item["metadata"]["name"] == name]
    return list(item["metadata"].get("finalizers", []))


def test_an_object_goes_although_somebody_has_written_to_it_since_it_was_read(stage: Stage) -> None:
    read = stored(stage, "c1", [OTHER, FINALIZER])
    stage.server.patch("nodeclaims", "c1", {"metadata": {"labels": {"team": "a"}, "finalizers": [FINALIZER]}})
    take(stage, deleted=(read,))
    assert stage.server.list("nodeclaims").items == []


def test_another_object_of_the_same_name_stays(stage: Stage) -> None:
    read = stored(stage, "c1", [FINALIZER])
    stage.server.patch("nodeclaims", "c1", {"metadata": {"finalizers": []}})
    stage.server.delete("nodeclaims", "c1")
    stored(stage, "c1", [FINALIZER], uid="another")
    take(stage, deleted=(read,))
    assert found(stage, "c1")["metadata"]["finalizers"] == [FINALIZER]


def test_an_ending_object_is_deleted_and_stays_for_its_finalizer(stage: Stage) -> None:
    take(stage, ending=(stored(stage, "c1", [FINALIZER]),))
    metadata = found(stage, "c1")["metadata"]
    assert (metadata["finalizers"], bool(metadata["deletionTimestamp"])) == ([FINALIZER], True)
    take(stage, deleted=(found(stage, "c1"),))
    assert stage.server.list("nodeclaims").items == []


def test_objects_are_created_first_and_statuses_written_last(stage: Stage) -> None:
    items = {name: stored(stage, name) for name in ("deleted", "taken", "marked", "annotated", "status")}
    guarded = node_with(stage, "guarded", ())
    unclaimed = node_with(stage, "unclaimed", (FINALIZER,))
    changes: dict[str, Any] = {
        "created": ({"metadata": {"name": "created"}, "spec": {}},),
        "deleted": (items["deleted"],),
        "taken_over": (items["taken"],),
        "marked": (items["marked"],),
        "guarded": (guarded,),
        "unclaimed": (unclaimed,),
        "annotated": ((items["annotated"], {"a": "b"}),),
        "statuses": ((items["status"], {"nodeName": "n"}),),
    }
    stage.faults.clear()
    take(stage, **changes)
    assert [point.partition(".")[2] for point in stage.faults.points if point.startswith("before cluster")] == [
        "create_node_claim",
        "delete_node_claim",
        "set_finalizers",
        "set_finalizers",
        "set_finalizers",
        "set_finalizers",
        "set_finalizers",
        "write_status",
    ]
    assert {item["metadata"]["name"] for item in stage.server.list("nodeclaims").items} == {
        "created",
        "taken",
        "marked",
        "annotated",
        "status",
    }
    assert found(stage, "status")["status"] == {"nodeName": "n"}
    assert found(stage, "annotated")["metadata"]["annotations"] == {"a": "b"}


def test_no_more_steps_are_taken_than_are_allowed(stage: Stage) -> None:
    take(stage, most=2, created=tuple({"metadata": {"name": f"c{number}"}, "spec": {}} for number in range(3)))
    assert [item["metadata"]["name"] for item in stage.server.list("nodeclaims").items] == ["c0", "c1"]


def test_what_somebody_else_changed_first_holds_up_no_other_step(stage: Stage) -> None:
    stale = stored(stage, "a")
    stage.server.patch("nodeclaims", "a", {"metadata": {"labels": {"x": "y"}}})
    take(stage, taken_over=(stale, stored(stage, "b")))
    assert INSTALL_LABEL not in found(stage, "a")["metadata"]["labels"]
    assert found(stage, "b")["metadata"]["labels"] == {INSTALL_LABEL: "shiplap"}


@pytest.mark.parametrize(
    ("changed", "before", "after"),
    [
        ("taken_over", (OTHER,), [OTHER]),
        ("taken_over", (), []),
        ("marked", (), [FINALIZER]),
        ("marked", (OTHER,), [OTHER, FINALIZER]),
        ("marked", (FINALIZER, OTHER), [FINALIZER, OTHER]),
    ],
)
def test_an_object_that_is_taken_over_keeps_the_finalizers_of_others(
    stage: Stage, changed: str, before: Sequence[str], after: list[str]
) -> None:
    changes: dict[str, Any] = {changed: (stored(stage, "c", before),)}
    take(stage, **changes)
    assert finalizers(stage, "nodeclaims", "c") == after
    assert found(stage, "c")["metadata"]["labels"] == {INSTALL_LABEL: "shiplap"}


def test_annotations_are_written_without_touching_finalizers(stage: Stage) -> None:
    item = stored(stage, "c", (FINALIZER, OTHER), annotations={"old": "stays"})
    take(stage, annotated=((item, {"a": "b"}),))
    assert finalizers(stage, "nodeclaims", "c") == [FINALIZER, OTHER]
    assert found(stage, "c")["metadata"]["annotations"] == {"a": "b", "old": "stays"}


def test_our_finalizer_goes_before_our_own_deletion_and_those_of_others_stay(stage: Stage) -> None:
    take(stage, deleted=(stored(stage, "c", (OTHER, FINALIZER)),))
    item = found(stage, "c")["metadata"]
    assert (item["finalizers"], bool(item.get("deletionTimestamp"))) == ([OTHER], True)


def test_an_object_without_finalizers_is_gone_when_it_is_deleted(stage: Stage) -> None:
    stage.faults.clear()
    take(stage, deleted=(stored(stage, "c"),))
    assert stage.server.list("nodeclaims").items == []
    assert "before cluster.set_finalizers" not in stage.faults.points


def test_an_object_that_a_user_deletes_is_let_go_and_not_deleted_again(stage: Stage) -> None:
    stored(stage, "c", (FINALIZER, OTHER))
    stage.server.delete("nodeclaims", "c")
    stage.faults.clear()
    take(stage, deleted=(found(stage, "c"),))
    assert finalizers(stage, "nodeclaims", "c") == [OTHER]
    assert "before cluster.delete_node_claim" not in stage.faults.points


@pytest.mark.parametrize("before", [(), (OTHER,), (FINALIZER, OTHER), (OTHER, FINALIZER)])
def test_a_guarded_node_has_our_finalizer_once_and_last(stage: Stage, before: Sequence[str]) -> None:
    take(stage, guarded=(node_with(stage, "n", before),))
    assert finalizers(stage, "nodes", "n") == [*(name for name in before if name != FINALIZER), FINALIZER]
    assert stage.cluster.node("n").metadata.labels[INSTALL_LABEL] == "shiplap"


@pytest.mark.parametrize(
    ("state", "ready", "released"),
    [
        (ClaimState.GONE, True, True),
        (ClaimState.FAILED, True, True),
        (ClaimState.INITIALIZED, False, False),
        (ClaimState.TERMINATING, False, False),
        (None, True, False),
        (None, False, True),
    ],
)
def test_a_node_is_let_go_when_its_claim_has_ended_or_nothing_is_known_of_it(
    stage: Stage, state: ClaimState | None, ready: bool, released: bool
) -> None:
    if state is not None:
        stage.state.adopt(node_claim(cluster=stage.name, name="c", state=state))
    node_with(stage, "n", (OTHER, FINALIZER), **{"karpenter.sh/nodeclaim": "c"})
    status = {"conditions": [{"type": "Ready", "status": str(ready)}]}
    stage.server.patch("nodes", "n", {"status": status}, subresource="status")
    take(stage, unclaimed=(stage.cluster.node("n"),))
    assert finalizers(stage, "nodes", "n") == ([OTHER] if released else [OTHER, FINALIZER])


@pytest.mark.parametrize(
    ("state", "ready", "released"), [(ClaimState.GONE, True, True), (None, True, False), (None, False, True)]
)
def test_a_node_that_somebody_has_written_to_since_it_was_read_is_judged_again(
    stage: Stage, state: ClaimState | None, ready: bool, released: bool
) -> None:
    if state is not None:
        stage.state.adopt(node_claim(cluster=stage.name, name="c", state=state))
    node_with(stage, "n", (OTHER, FINALIZER), **{"karpenter.sh/nodeclaim": "c"})
    status = {"conditions": [{"type": "Ready", "status": "False"}]}
    stage.server.patch("nodes", "n", {"status": status}, subresource="status")
    read = stage.cluster.node("n")
    status = {"conditions": [{"type": "Ready", "status": str(ready), "reason": "heard"}]}
    stage.server.patch("nodes", "n", {"status": status}, subresource="status")
    take(stage, unclaimed=(read,))
    assert finalizers(stage, "nodes", "n") == ([OTHER] if released else [OTHER, FINALIZER])


# What disruption says of claims


def known(
    stage: Stage, *claims: NodeClaim, histories: Sequence[NodeHistory] = (), enabled: bool = True
) -> Mapping[str, ClaimDisruption] | None:
    memory = FakeMemory(stage.faults)
    memory.save(stage.name, DecisionMemory(histories=tuple(histories)))
    context = replace(stage.context, memory=memory)
    settings = replace(stage.settings, disruption=replace(stage.settings.disruption, enabled=enabled))
    return disruption_of_claims(claims, settings, context)


@pytest.mark.parametrize(
    ("state", "failure", "reason"),
    [
        (ClaimState.DRAINING, "Drifted", "Drifted"),
        (ClaimState.TERMINATING, "Underutilized", "Underutilized"),
        (ClaimState.DRAINING, "SpotInterruption", None),
        (ClaimState.INITIALIZED, "Drifted", None),
        (ClaimState.GONE, "Drifted", None),
        (ClaimState.DRAINING, "NodeUnhealthy", "Unhealthy"),
        (ClaimState.TERMINATING, "InstanceImpaired", "Unhealthy"),
        (ClaimState.INITIALIZED, "NodeUnhealthy", None),
    ],
)
def test_the_reason_of_a_claim_that_leaves_is_that_of_its_command(
    stage: Stage, state: ClaimState, failure: str, reason: str | None
) -> None:
    expected = {} if reason is None else {"c": ClaimDisruption(reason)}
    assert known(stage, running_claim("c", state=state, failure=failure)) == expected


@pytest.mark.parametrize(
    ("reboots", "reason"),
    [({"reboot_cause": "its GPU is lost"}, "Unhealthy"), ({"reboot_ended_at": 9.0}, None)],
)
def test_a_node_is_unhealthy_while_it_is_rebooted(stage: Stage, reboots: dict[str, Any], reason: str | None) -> None:
    expected = {} if reason is None else {"c": ClaimDisruption(reason)}
    assert known(stage, running_claim("c", reboots_at=(5.0,), **reboots), running_claim("d")) == expected


def test_the_targets_of_commands_under_way_have_their_reason(stage: Stage) -> None:
    """Not the replacements; and no command is read while no claim is Disrupting."""
    command = DisruptionCommand(
        cluster=stage.name,
        name="k",
        reason=Reason.DRIFTED,
        method=Method.DRIFT,
        targets=("a", "b"),
        nodes=("node-a", "node-b"),
        replacements=("new",),
    )
    stage.state.commit(stage.name, 0, (), [command])
    claims = [
        running_claim("a", state=ClaimState.DISRUPTING),
        running_claim("b"),
        running_claim("new", state=ClaimState.LAUNCHED),
    ]
    assert known(stage, *claims) == {"a": ClaimDisruption("Drifted"), "b": ClaimDisruption("Drifted")}
    assert known(stage, claims[1], claims[2]) == {}


def test_what_disruption_remembers_of_a_node_is_that_of_its_claim(stage: Stage) -> None:
    seen = NodeHistory("node-a", last_pod_event_at=50.0, initialized_at=40.0, drifted_at=60.0)
    quiet = NodeHistory("node-b", last_pod_event_at=30.0, initialized_at=70.0)
    told = known(stage, *map(running_claim, "abd"), histories=[seen, quiet])
    assert told == {"a": ClaimDisruption("", True, 50.0, 50.0), "b": ClaimDisruption("", False, 30.0, 70.0)}


def test_without_disruption_or_its_memory_only_reasons_are_known(stage: Stage) -> None:
    history = NodeHistory("node-c", last_pod_event_at=50.0)
    assert known(stage, running_claim("c"), histories=[history], enabled=False) == {}
    assert disruption_of_claims([running_claim("c")], stage.settings, stage.context) == {}


def test_a_memory_that_cannot_be_read_leaves_what_is_shown_as_it_is(stage: Stage) -> None:
    stage.faults.on("before", "memory.load", StoreError("down"))
    assert known(stage, running_claim("c")) is None
    assert stage.meter.counts == {"StatusesNotWritten": 1.0}


# NodeClaims that users write


def wanted(name: str = "mine", uid: str = "0123456789abcdef", **fields: Any) -> StandaloneClaim:
    template = {"spec": {"nodeClassRef": {"name": "default"}, "expireAfter": "10h", "terminationGracePeriod": "5m"}}
    return StandaloneClaim(name, uid, msgspec.convert(template, NodePoolTemplate), **fields)


@pytest.mark.parametrize(
    ("claims", "waits_as", "ended"),
    [
        ([], "mine", False),
        # An earlier object of the name: its claim has ended, so the name of the second one is taken.
        ([("mine", "other", ClaimState.GONE)], "mine-01234567", False),
        ([("mine", "other", ClaimState.FAILED)], "mine-01234567", False),
        ([("mine", "other", ClaimState.INITIALIZED)], None, False),
        ([("mine", "0123456789abcdef", ClaimState.PLANNED)], None, False),
        ([("mine", "0123456789abcdef", ClaimState.FAILED)], None, True),
        ([("mine", "0123456789abcdef", ClaimState.GONE)], None, True),
        ([("mine", "x", ClaimState.GONE), ("mine-01234567", "0123456789abcdef", ClaimState.LAUNCHED)], None, False),
        ([("mine", "x", ClaimState.GONE), ("mine-01234567", "0123456789abcdef", ClaimState.GONE)], None, True),
        ([("mine", "x", ClaimState.GONE), ("mine-01234567", "y", ClaimState.GONE)], None, False),
    ],
)
def test_which_objects_have_no_claim_yet(
    stage: Stage, claims: list[tuple[str, str, ClaimState]], waits_as: str | None, ended: bool
) -> None:
    for name, uid, state in claims:
        stage.state.adopt(node_claim(cluster=stage.name, name=name, state=state, object_uid=uid))
    item = wanted()
    waiting, over = not_begun(stage.name, [item], stage.context)
    assert [each.claim for each in waiting] == ([] if waits_as is None else [waits_as])
    assert over == ((item,) if ended else ())


@pytest.mark.parametrize(("length", "keeps"), [(63, True), (64, False)])
def test_an_object_whose_name_is_no_label_value_gets_a_shorter_claim(stage: Stage, length: int, keeps: bool) -> None:
    item = wanted("n" * length)
    ((waiting,), _) = not_begun(stage.name, [item], stage.context)
    assert (waiting.claim == item.name) is keeps
    assert len(waiting.claim) <= 63


def test_a_claim_says_of_its_object_what_ends_it() -> None:
    planned = [node_claim(name="mine", termination_grace_period=""), node_claim(name="other")]
    first, second = with_objects(planned, [wanted(claim="mine")])
    assert (first.plan.object_name, first.plan.object_uid) == ("mine", "0123456789abcdef")
    assert (first.plan.expire_after, first.plan.termination_grace_period) == ("10h", "5m")
    assert second == planned[1]


def test_an_object_in_vain_is_deleted_with_an_event_that_says_why(stage: Stage) -> None:
    stored(stage, "mine")
    delete_futile(stage.name, "mine", "uid-mine", "x" * 2000, stage.context)
    assert stage.server.list("nodeclaims").items == []
    (event,) = stage.server.list("events").items
    assert event["involvedObject"] | {"name": "mine", "uid": "uid-mine", "kind": "NodeClaim"} == event["involvedObject"]
    assert event["involvedObject"]["apiVersion"] == "karpenter.sh/v1"
    assert (event["reason"], event["type"]) == ("LaunchFailed", "Warning")
    assert event["message"] == ("the NodeClaim is deleted: " + "x" * 2000)[:1024]
    assert (event["source"]["component"], event["reportingComponent"]) == ("shiplap", "shiplap")
    assert event["lastTimestamp"] == "2023-11-14T22:13:20Z"
    assert stage.meter.counts == {"NodeClaimsRefused": 1.0}


def test_another_object_of_that_name_is_not_deleted(stage: Stage) -> None:
    stored(stage, "mine")
    delete_futile(stage.name, "mine", "uid-of-the-first", "gone", stage.context)
    assert len(stage.server.list("nodeclaims").items) == 1
    assert stage.meter.counts == {"NodeClaimsRefused": 1.0}


@pytest.mark.parametrize("error", [ObjectConflict("another", status=409), ObjectNotFound("gone", status=404)])
def test_an_object_that_is_gone_already_is_no_failure(stage: Stage, error: Exception) -> None:
    stage.faults.on("before", "cluster.delete_node_claim", error)
    delete_futile(stage.name, "mine", "uid-mine", "why", stage.context)
    assert stage.meter.counts == {"NodeClaimsRefused": 1.0}


def test_what_the_api_server_refuses_is_counted(stage: Stage) -> None:
    stage.faults.on("before", "cluster.publish", ClusterUnreachable("no answer"))
    delete_futile(stage.name, "mine", "uid-mine", "why", stage.context)
    assert stage.meter.counts == {"NodeClaimsRefused": 1.0, "StatusesNotWritten": 1.0}


@pytest.mark.parametrize(
    ("live", "suspended", "names", "looks"),
    [
        (True, "", ["c"], True),
        (True, NO_NODE_POOL, ["c"], True),
        (True, "Karpenter runs here", ["c"], False),
        (True, "", [], False),
        (False, "", ["c"], False),
        (False, "", [], False),
    ],
)
def test_when_the_objects_of_claims_are_looked_at(
    stage: Stage, live: bool, suspended: str, names: list[str], looks: bool
) -> None:
    settings = replace(stage.settings, live_manifests=live)
    stage.faults.clear()
    show_claims(names, settings, stage.context, ManifestState(suspended))
    assert ("before cluster.node_claim_object" in stage.faults.points) is looks
    assert (stage.faults.points != []) is looks


@pytest.mark.parametrize(
    ("not_ready", "age_s", "planned", "deleted"),
    [
        ("no subnet", 299.0, (), False),
        ("no subnet", 300.0, (), True),
        ("", 1.0, (), True),
        ("", 1.0, ("mine",), False),
        ("no subnet", 300.0, ("mine",), False),
    ],
    ids=["waits for its class", "has waited", "no type", "planned", "planned at last"],
)
def test_a_nodeclaim_that_cannot_be_launched_is_deleted_once_its_class_has_had_its_time(
    stage: Stage, not_ready: str, age_s: float, planned: tuple[str, ...], deleted: bool
) -> None:
    """Five minutes, as upstream gives a launch."""
    now = stage.clock.now()
    stored(stage, "mine")
    item = replace(wanted("mine", "uid-mine"), claim="mine", created_at=now - age_s)
    catalog = NodeClassCatalog("default", not_ready=not_ready)
    snapshot = Snapshot(cluster=stage.name, now=now, view=ClusterView(), catalogs=(catalog,), standalone_claims=(item,))
    delete_unplanned(snapshot, planned, stage.context)
    assert ("NodeClaimsRefused" in stage.meter.counts) is deleted
    assert (stage.server.list("nodeclaims").items == []) is deleted


def test_nodeclaims_whose_claims_have_ended_are_deleted_each(stage: Stage) -> None:
    for name in ("a", "b", "c"):
        stored(stage, name)
    stage.faults.on("before", "cluster.publish", ObjectNotFound("gone"))
    delete_ended(stage.name, [wanted(name, f"uid-{name}") for name in ("a", "b")], stage.context)
    assert [item["metadata"]["name"] for item in stage.server.list("nodeclaims").items] == ["a", "c"]
    assert stage.meter.counts["NodeClaimsRefused"] == 2
