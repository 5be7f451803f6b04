"""Tests the facts that a Node gets on registration, its completeness, and the nodes whose owner is looked up."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import (
    AwsError,
    AwsThrottled,
    ClusterDenied,
    ClusterError,
    ClusterUnreachable,
    ObjectConflict,
    ObjectNotFound,
    ShiplapError,
    StoreError,
    StoreThrottled,
)
from shiplap.flows.lifecycle.lifecycle import is_of_a_node_pool
from shiplap.flows.lifecycle.pod_placement import FIRST_PODS, MOST_WITHDRAWN, WITHDRAWN_S, Steering, withdraw
from shiplap.flows.lifecycle.registration import (
    initialize,
    is_registered,
    not_initialized,
    object_reference,
    open_to_pods,
    publish_missed,
    update_node,
)
from shiplap.flows.messages import Timer
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, Taint
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim, with_fields
from tests.builders.nodes import node_object
from tests.builders.pods import pod
from tests.integration.flows.stage import Stage

UNREGISTERED = {"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}


@pytest.fixture
def stage() -> Stage:
    return Stage()


CLAIM = node_claim(
    name="c",
    cluster="demo",
    state=ClaimState.REGISTERED,
    node_pool="flex",
    node_name="n",
    instance_id="i-1",
    instance_type="m5.large",
    zone="a",
    capacity_type="spot",
)


def put(stage: Stage, *taints: dict[str, str], ready: bool = True, **marks: str) -> Node:
    item = node_object("n", ready=ready, taints=list(taints), metadata={"uid": "u-n"}, providerID="aws:///a/i-1")
    item["metadata"]["labels"] = marks
    stage.server.create("nodes", item)
    return stage.cluster.node("n")


def taints_of(node: Node) -> list[tuple[str, str]]:
    return [(taint.key, taint.effect) for taint in node.spec.taints]


def test_a_node_that_is_opened_says_whose_it_is_and_what_was_bought(stage: Stage) -> None:
    opened = open_to_pods(with_fields(CLAIM, annotations={"note": "x"}), put(stage, UNREGISTERED), stage.context)
    assert opened == stage.cluster.node("n")
    assert opened.spec.taints == ()
    assert dict(opened.metadata.labels) == {
        labels.NODE_POOL: "flex",
        labels.NODE_CLAIM: "c",
        labels.NODE_CLASS: "default",
        labels.CAPACITY_TYPE: "spot",
        labels.INSTANCE_TYPE: "m5.large",
        labels.ZONE: "a",
        labels.REGISTERED: "true",
    } | {key: value for key, value in opened.metadata.labels.items() if key in labels.of_pool("flex")}
    assert opened.metadata.annotations["note"] == "x"


@pytest.mark.parametrize("lacking", ["capacity_type", "instance_type", "zone", "node_class"])
def test_a_label_without_a_value_is_not_written(stage: Stage, lacking: str) -> None:
    opened = open_to_pods(with_fields(CLAIM, **{lacking: ""}), put(stage), stage.context)
    assert "" not in opened.metadata.labels.values()
    assert len(opened.metadata.labels) == len(open_to_pods(CLAIM, put_again(stage), stage.context).metadata.labels) - 1


def put_again(stage: Stage) -> Node:
    stage.server.delete("nodes", "n")
    return put(stage)


def test_labels_of_the_claim_win(stage: Stage) -> None:
    opened = open_to_pods(with_fields(CLAIM, labels={labels.ZONE: "mine", "team": "x"}), put(stage), stage.context)
    assert (opened.metadata.labels[labels.ZONE], opened.metadata.labels["team"]) == ("mine", "x")


@pytest.mark.parametrize(
    ("present", "synced", "after"),
    [
        ([UNREGISTERED], True, [("a", "NoSchedule"), ("s", "NoExecute")]),
        ([], True, [("a", "NoSchedule"), ("s", "NoExecute")]),
        ([{"key": "z", "effect": "NoSchedule"}], True, [("z", "NoSchedule"), ("a", "NoSchedule"), ("s", "NoExecute")]),
        ([{"key": "a", "effect": "NoSchedule"}], True, [("a", "NoSchedule"), ("s", "NoExecute")]),
        (
            [{"key": "a", "effect": "NoExecute"}],
            True,
            [("a", "NoExecute"), ("a", "NoSchedule"), ("s", "NoExecute")],
        ),
        ([UNREGISTERED, {"key": "z", "effect": "NoSchedule"}], False, [("z", "NoSchedule")]),
    ],
)
def test_a_node_gets_the_taints_that_it_lacks(
    stage: Stage, present: list[dict[str, str]], synced: bool, after: list[tuple[str, str]]
) -> None:
    marks = {} if synced else {labels.DO_NOT_SYNC_TAINTS: "true"}
    item = with_fields(
        CLAIM, taints=(Taint("a", "NoSchedule"),), startup_taints=(Taint("s", "NoExecute"), Taint("a", "NoSchedule"))
    )
    assert taints_of(open_to_pods(item, put(stage, *present, **marks), stage.context)) == after


@pytest.mark.parametrize(
    ("marks", "taints", "registered"),
    [
        ({labels.REGISTERED: "true"}, [], True),
        ({labels.REGISTERED: "true"}, [UNREGISTERED], False),
        ({labels.REGISTERED: "true"}, [{"key": "x", "effect": "NoExecute"}], True),
        ({labels.REGISTERED: "false"}, [], False),
        ({}, [], False),
    ],
)
def test_a_node_is_opened_once(
    stage: Stage, marks: dict[str, str], taints: list[dict[str, str]], registered: bool
) -> None:
    node = put(stage, *taints, **marks)
    assert is_registered(node) is registered
    stage.faults.clear()
    assert (open_to_pods(CLAIM, node, stage.context) is node) is registered
    assert ("before cluster.patch_node" in stage.faults.points) is not registered


@pytest.mark.parametrize(("uid", "owned"), [("", []), ("u-o", ["mine"])])
def test_the_node_of_a_users_object_belongs_to_it(stage: Stage, uid: str, owned: list[str]) -> None:
    item = with_fields(CLAIM, object_name="mine", object_uid=uid)
    opened = open_to_pods(item, put(stage, UNREGISTERED), stage.context)
    assert [owner.name for owner in opened.metadata.owner_references] == owned
    assert object_reference(item) == {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": "mine",
        "uid": uid,
        "blockOwnerDeletion": True,
    }


def add_label(stage: Stage, node: Node) -> Node:
    return update_node(node, {"a": "b", "gone": None}, {}, lambda current: current.spec.taints, stage.context)


@pytest.mark.parametrize(("conflicts", "raises"), [(0, False), (1, False), (2, False), (50, True)])
def test_a_node_that_changes_meanwhile_is_read_again_a_few_times(stage: Stage, conflicts: int, raises: bool) -> None:
    node = put(stage, gone="x")
    for number in range(conflicts):
        stage.faults.on("before", "cluster.patch_node", ObjectConflict("changed"), nth=number + 1)
    if raises:
        with pytest.raises(ObjectConflict):
            add_label(stage, node)
        tries = stage.faults.points.count("before cluster.patch_node")
        assert stage.faults.points.count("before cluster.node") - 1 == tries - 1
        assert 3 <= tries <= 10
    else:
        assert dict(add_label(stage, node).metadata.labels) == {"a": "b"}


def test_another_node_of_the_same_name_is_not_written_to(stage: Stage) -> None:
    node = put(stage)
    stage.server.delete("nodes", "n")
    stage.server.create("nodes", node_object("n", metadata={"uid": "other"}))
    with pytest.raises(ObjectNotFound, match="another has its name"):
        add_label(stage, node)
    assert "a" not in stage.cluster.node("n").metadata.labels


READY = {"type": "Ready", "status": "True"}


@pytest.mark.parametrize(
    ("ready", "taints", "requests", "missing"),
    [
        (True, [], {}, ""),
        (False, [], {}, "NodeNotReady"),
        (True, [("s", "NoExecute")], {}, "StartupTaintsExist"),
        (True, [("s", "NoSchedule")], {}, ""),
        (True, [("node.kubernetes.io/not-ready", "NoSchedule")], {}, "KnownEphemeralTaintsExist"),
        (True, [("s", "NoExecute"), ("node.kubernetes.io/not-ready", "NoSchedule")], {}, "StartupTaintsExist"),
        (True, [("z", "NoExecute")], {"cpu": 1}, ""),
        (True, [], {"nvidia.com/gpu": 1}, "ResourceNotRegistered"),
        (True, [], {"cpu": 1, "nvidia.com/gpu": 1}, "ResourceNotRegistered"),
        (True, [], {"nvidia.com/gpu": 0}, ""),
    ],
)
def test_what_a_node_still_lacks(
    ready: bool, taints: Sequence[tuple[str, str]], requests: dict[str, int], missing: str
) -> None:
    marks = [{"key": key, "effect": effect} for key, effect in taints]
    node = msgspec.convert(node_object("n", ready=ready, taints=marks), Node)
    assert (
        not_initialized(with_fields(CLAIM, startup_taints=(Taint("s", "NoExecute"),), requests=requests), node)
        == missing
    )


def stored(stage: Stage, **fields: Any) -> NodeClaim:
    stage.state.adopt(with_fields(CLAIM, cluster=stage.name, changed_at=stage.clock.now() - 40, **fields))
    found = stage.state.claim(stage.name, "c")
    assert found is not None
    return found


@pytest.mark.parametrize(("event_ago_s", "since_event_s"), [(300.0, 300.0), (None, 90.0)])
def test_a_complete_node_is_in_service_and_its_story_is_measured(
    stage: Stage, event_ago_s: float | None, since_event_s: float
) -> None:
    now = stage.clock.now()
    event = {} if event_ago_s is None else {"first_event_at": now - event_ago_s}
    known = stored(stage, created_at=now - 90, **event)
    done = initialize(known, put(stage, **{labels.REGISTERED: "true"}), stage.context)
    assert done is not None
    assert (done.state, done.missed, done.changed_at) == (ClaimState.INITIALIZED, False, now)
    assert stage.cluster.node("n").metadata.labels[labels.INITIALIZED] == "true"
    assert stage.meter.counts == {"JoinedToReady": 40.0, "EventToReady": since_event_s, "NodesInitialized": 1.0}
    assert [event.detail_type for event in stage.bus.events] == ["NodeClaimInitialized"]
    assert stage.capacity.all() == ()


@pytest.mark.parametrize(("missed", "told"), [(False, True), (True, False)])
def test_a_device_plugin_that_reports_too_little_is_a_miss_that_is_told_once(
    stage: Stage, missed: bool, told: bool
) -> None:
    known = stored(stage, missed=missed, requests={"nvidia.com/gpu": 2}, pods=(PodReference("d", "p", "u"),))
    node = put(stage, **{labels.REGISTERED: "true"})
    amounts = {**node.status.allocatable, "nvidia.com/gpu": "1"}
    node = replace(node, status=replace(node.status, allocatable=amounts, capacity=amounts))
    done = initialize(known, node, stage.context)
    assert done is not None
    assert done.missed
    assert len(stage.capacity.all()) == 1
    assert [event.detail_type for event in stage.bus.events] == [
        "NodeClaimInitialized",
        *(["NodeClaimMissed", "PodPending"] if told else []),
    ]
    assert stage.meter.counts.get("NodeClaimsMissed") == (1.0 if told else None)


def test_an_incomplete_node_is_opened_and_waited_for(stage: Stage) -> None:
    known = stored(stage)
    assert initialize(known, put(stage, UNREGISTERED, ready=False), stage.context) is None
    assert is_registered(stage.cluster.node("n"))
    assert stage.state.claim(stage.name, "c") == known
    assert stage.meter.counts == {}


def test_pods_that_miss_are_told_with_what_is_short(stage: Stage) -> None:
    publish_missed(with_fields(CLAIM, pods=(PodReference("d", "p", "u"),)), {"memory": 2**30}, stage.context)
    missed, hint = (event.detail for event in stage.bus.events)
    assert missed["short"] == {"memory": "1Gi"}
    assert (hint["id"], hint["reason"], hint["pods"]) == ("demo/c/missed", "NodeClaimMissed", [["d", "p", "u"]])
    assert stage.meter.counts == {"NodeClaimsMissed": 1.0}


@pytest.mark.parametrize(
    ("marks", "taints", "ours"),
    [
        ({}, [], False),
        ({labels.NODE_POOL: "flex"}, [], True),
        ({}, [UNREGISTERED], True),
        ({}, [{"key": "x", "effect": "NoSchedule"}], False),
        ({}, [{"key": "x", "effect": "NoSchedule"}, UNREGISTERED], True),
    ],
)
def test_only_nodes_that_say_that_they_are_of_a_pool_are_looked_up(
    marks: dict[str, str], taints: list[dict[str, str]], ours: bool
) -> None:
    node = msgspec.convert({"metadata": {"name": "n", "labels": marks}, "spec": {"taints": taints}}, Node)
    assert is_of_a_node_pool(node) is ours


# Nominations


def test_in_a_crowd_each_pod_is_nominated_by_its_name_and_uid_in_its_namespace(stage: Stage) -> None:
    told: list[tuple[str, str, str, str]] = []
    crowd = [pod(f"p{number}", metadata={"uid": f"p{number}"}) for number in range(FIRST_PODS)]
    cluster: Any = SimpleNamespace(
        pending_pods=lambda most: crowd[:most],
        nominate=lambda pod, node: told.append((pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, node)),
    )
    pods = (PodReference("web", "a", "u1"), PodReference("batch", "a", "u2"))
    node = msgspec.convert({"metadata": {"name": "n"}}, Node)
    Steering("nominate", replace(stage.context, cluster=cluster)).nominate(with_fields(CLAIM, pods=pods), node)
    assert told == [("web", "a", "u1", "n"), ("batch", "a", "u2", "n")]


# Nominations that came to nothing


def nominated(name: str, node: str = "n") -> Pod:
    return pod(name, metadata={"uid": name}, status={"nominatedNodeName": node})


def serving(stage: Stage, *pods: str, ago_s: float = WITHDRAWN_S, **fields: Any) -> NodeClaim:
    refs = tuple(PodReference("default", name, name) for name in pods)
    known = {"state": ClaimState.INITIALIZED, "changed_at": stage.clock.now() - ago_s, "pods": refs}
    return with_fields(CLAIM, **known | fields)


def withdrawn(stage: Stage, claims: list[NodeClaim], *pods: Pod) -> list[str]:
    for item in pods:
        body = {"metadata": {"name": item.metadata.name, "namespace": "default", "uid": item.metadata.uid}, "spec": {}}
        stage.server.create("pods", {**body, "status": {"nominatedNodeName": item.status.nominated_node_name}})
    number = withdraw(claims, ClusterView(pods=pods), stage.context)
    found = [
        item["metadata"]["name"]
        for item in stage.server.list("pods").items
        if not item["status"].get("nominatedNodeName") and not item["spec"].get("nodeName")
    ]
    assert len(found) == number
    assert stage.meter.counts.get("NominationsWithdrawn") == (float(number) if number else None)
    return sorted(found)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["p"]),
        ({"ago_s": WITHDRAWN_S - 1}, []),
        ({"state": ClaimState.REGISTERED}, []),
        ({"state": ClaimState.DISRUPTING}, []),
        ({"node_name": "other"}, []),
        ({"pods": (PodReference("default", "q", "q"),)}, []),
    ],
)
def test_a_nomination_is_taken_back_when_its_node_has_long_been_complete(
    stage: Stage, fields: dict[str, Any], expected: list[str]
) -> None:
    assert withdrawn(stage, [serving(stage, "p", **fields)], nominated("p")) == expected


def test_while_other_pods_end_on_the_node_kube_scheduler_is_left_to_it(stage: Stage) -> None:
    ends = pod("ends", node="n", metadata={"uid": "ends"})
    ends = replace(ends, metadata=replace(ends.metadata, deletion_timestamp=rfc3339(stage.clock.now())))
    view = ClusterView(pods=(nominated("p"), ends))
    assert withdraw([serving(stage, "p")], view, stage.context) == 0


def test_the_longest_waiting_nominations_are_taken_back_first_and_only_so_many(stage: Stage) -> None:
    names = [f"p{number:03}" for number in range(MOST_WITHDRAWN)]
    late = serving(stage, *names, name="late")
    early = serving(stage, "z", ago_s=WITHDRAWN_S + 60, name="early", node_name="m")
    found = withdrawn(stage, [late, early], *(nominated(name) for name in names), nominated("z", "m"))
    assert found == [*names[:-1], "z"]


@pytest.mark.parametrize(
    ("error", "expected", "counted"),
    [
        (ObjectNotFound("gone"), ["q", "r"], None),
        (ObjectConflict("bound"), ["q", "r"], None),
        (ClusterDenied("no", status=403), [], 1.0),
    ],
    ids=["it is gone", "it is bound", "nobody may"],
)
def test_a_pod_that_needs_it_no_more_keeps_no_other_from_it_but_a_refusal_is_met_once(
    stage: Stage, error: ClusterError, expected: list[str], counted: float | None
) -> None:
    stage.faults.on("before", "cluster.nominate", error)
    left = withdrawn(stage, [serving(stage, *"pqr")], *map(nominated, "pqr"))
    assert left == expected
    assert stage.meter.counts.get("PodsNotSteered") == counted


@pytest.mark.parametrize("state", [ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.FAILED, ClaimState.GONE])
def test_a_claim_whose_launch_is_not_written_down_or_that_is_over_is_left_as_it_is(
    stage: Stage, state: ClaimState
) -> None:
    stage.state.adopt(node_claim(cluster=stage.name, name="c", state=state, changed_at=stage.clock.now() - 3600))
    before = stage.state.claim(stage.name, "c")
    stage.faults.clear()
    stage.attend(Timer(stage.name, "c", "join"))
    assert stage.state.claim(stage.name, "c") == before
    assert stage.timers.reminders == []
    assert not any(point.startswith(("before compute", "before state.advance")) for point in stage.faults.points)


@pytest.mark.parametrize("state", [ClaimState.PLANNED, ClaimState.LAUNCHING])
def test_a_node_that_is_there_before_its_launch_is_written_down_is_looked_at_again_soon(
    stage: Stage, state: ClaimState
) -> None:
    stage.state.adopt(node_claim(cluster=stage.name, name="c", state=state))
    item = node_object("n", providerID="aws:///a/i-1")
    item["metadata"]["labels"] = {labels.NODE_CLAIM: "c", labels.NODE_POOL: "default"}
    stage.server.create("nodes", item)
    stage.compute.add(
        Instance(
            id="i-1",
            instance_type="m5.large",
            zone="a",
            capacity_type="on-demand",
            ami="ami-1",
            state="running",
            launched_at=stage.clock.now(),
            cluster=stage.name,
            install="shiplap",
            claim="c",
        )
    )
    stage.attend()
    assert [(reminder.claim, reminder.step) for reminder in stage.timers.reminders] == [("c", "join")]
    found = stage.state.claim(stage.name, "c")
    assert found is not None
    assert (found.state, found.deadline_at) == (state, 0.0)


@pytest.mark.parametrize(
    ("error", "visits"),
    [
        (ClusterUnreachable("timed out"), 1),
        (ClusterDenied("no", status=403), 1),
        (StoreThrottled("slow down"), 1),
        (AwsThrottled("slow down"), 1),
        (ClusterError("odd", status=500), 3),
        (StoreError("odd"), 3),
        (AwsError("odd", code="Odd"), 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_every_visit_would_meet_ends_them_all_and_the_rest_is_of_one_claim(
    stage: Stage, error: ShiplapError, visits: int
) -> None:
    stage.faults.clear()
    stage.faults.on("before", "state.claim", error)
    with pytest.raises(type(error)):
        stage.attend(*(Timer(stage.name, name, "join") for name in "abc"))
    assert stage.faults.points.count("before state.claim") == visits
