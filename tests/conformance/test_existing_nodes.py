"""Nodes that exist and claims in flight: pods use them before anything is launched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Event, EventSource, ObjectReference
from shiplap.kubernetes.pod_disruption_budgets import PodDisruptionBudget
from shiplap.kubernetes.requirements import requirement
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, fake_type, incrementing_types
from tests.conformance.given import NOW, daemon_set, given, in_flight

ZONE = "topology.kubernetes.io/zone"
ARCH = "kubernetes.io/arch"
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
STARTUP = {"key": "example.com/starting", "effect": "NoSchedule"}


def test_the_same_pods_planned_again_use_the_claim_in_flight() -> None:
    waiting = pods(4, cpu="500m")
    first = given(*waiting)
    again = given(*waiting, claims=[in_flight(claim) for claim in first.claims])
    assert again.claims == ()
    assert again.scheduled
    assert {again.home(p.metadata.name) for p in waiting} == {claim.name for claim in first.claims}


@pytest.mark.parametrize("times", [2, 5])
def test_many_decisions_without_binding_launch_nothing_more(times: int) -> None:
    waiting = [*pods(7, "a", cpu="1"), *pods(9, "b", cpu="300m", selector={ZONE: Z2})]
    flight = [in_flight(claim) for claim in given(*waiting).claims]
    for _ in range(times):
        outcome = given(*waiting, claims=flight)
        assert outcome.claims == ()
        assert outcome.scheduled


# What a pod asks of a node in flight whose claim was opened for `first`: the same node or another one.
IN_FLIGHT: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "nothing": ({}, {}, True),
    "same zone": ({"selector": {ZONE: Z1}}, {"selector": {ZONE: Z1}}, True),
    "other zone": ({"selector": {ZONE: Z1}}, {"selector": {ZONE: Z2}}, False),
    "same arch": ({"selector": {ARCH: "arm64"}}, {"selector": {ARCH: "arm64"}}, True),
    "other arch": ({"selector": {ARCH: "arm64"}}, {"selector": {ARCH: "amd64"}}, False),
    "zone still open": ({}, {"selector": {ZONE: Z1}}, False),
    "all zones it may get": ({"selector": {ZONE: Z1}}, {"requires": [[rule(ZONE, "In", Z1, Z2)]]}, True),
    "a label it cannot get": ({"selector": {ARCH: "amd64"}}, {"requires": [[rule("special", "DoesNotExist")]]}, True),
}


@pytest.mark.parametrize(("first", "second", "shared"), IN_FLIGHT.values(), ids=IN_FLIGHT.keys())
def test_a_second_pod_before_the_node_is_up(first: dict[str, Any], second: dict[str, Any], shared: bool) -> None:
    claim = given(pod("first", cpu="10m", **first)).claim
    outcome = given(pod("second", cpu="10m", **second), claims=[in_flight(claim)])
    assert outcome.scheduled
    assert (outcome.home("second") == claim.name) is shared


def test_pods_promised_a_claim_go_before_larger_newcomers() -> None:
    waiting = pods(2, "small", cpu="900m")
    types = [fake_type("t", cpu="2")]
    claim = given(*waiting, types=types).claim
    outcome = given(*waiting, pod("large", cpu="1500m"), claims=[in_flight(claim)], types=types)
    assert {outcome.home("small-0"), outcome.home("small-1")} == {claim.name}
    assert outcome.home("large") != claim.name


def test_room_of_promised_pods_that_are_gone_is_free() -> None:
    types = [fake_type("t", cpu="2")]
    claim = given(*pods(2, "gone", cpu="900m"), types=types).claim
    outcome = given(pod("large", cpu="1500m"), claims=[in_flight(claim)], types=types)
    assert outcome.home("large") == claim.name


@pytest.mark.parametrize("state", [ClaimState.GONE, ClaimState.FAILED, ClaimState.TERMINATING, ClaimState.DRAINING])
def test_claims_that_are_over_hold_nothing(state: ClaimState) -> None:
    claim = given(pod()).claim
    assert given(pod(), claims=[in_flight(claim, state=state)]).claim.name


# A node | whether a 1 cpu pod may use it.
NODES: dict[str, tuple[dict[str, Any], bool]] = {
    "ready, nobody's": ({}, True),
    "ready, ours": ({"pool": "default"}, True),
    "cordoned": ({"cordoned": True}, False),
    "being deleted": ({"deleting": True}, False),
    "tainted": ({"taints": [{"key": "mine", "effect": "NoSchedule"}]}, False),
    "full": ({"cpu": "500m"}, False),
    "no pods left": ({"pods": "0"}, False),
    "long not ready": ({"ready": False, "taints": [NOT_READY]}, False),
    "just starting": ({"ready": False, "taints": [NOT_READY], "born": rfc3339(NOW - 60)}, True),
    "ours, starting": ({"pool": "default", "initialized": False, "ready": False, "taints": [NOT_READY]}, True),
    "ours, unregistered": (
        {
            "pool": "default",
            "initialized": False,
            "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}],
        },
        True,
    ),
    "ours, ready, failed later": ({"pool": "default", "ready": False, "taints": [NOT_READY]}, False),
    "readiness gate while starting": (
        {
            "pool": "default",
            "initialized": False,
            "taints": [{"key": "readiness.k8s.io/network", "effect": "NoSchedule"}],
        },
        True,
    ),
}


@pytest.mark.parametrize(("shape", "used"), NODES.values(), ids=NODES.keys())
def test_which_nodes_are_used(shape: dict[str, Any], used: bool) -> None:
    outcome = given(pod(cpu="1"), nodes=[node("here", **shape)])
    assert outcome.scheduled
    assert (outcome.home("pod") == "here") is used


def test_startup_taints_of_a_claim_are_ignored_until_its_node_is_initialised() -> None:
    claim = given(pod("first"), pools=[pool(startup_taints=[STARTUP])]).claim
    record = in_flight(claim, state=ClaimState.REGISTERED, node_name="new")
    starting = node("new", pool="default", initialized=False, taints=[STARTUP])
    finished = node("new", pool="default", initialized=True, taints=[STARTUP])
    assert given(pod("first"), nodes=[starting], claims=[record]).home("first") == "new"
    assert given(pod("first"), nodes=[finished], claims=[record]).home("first") != "new"


def test_what_a_starting_node_does_not_report_yet_is_taken_from_its_claim() -> None:
    gpu = "fake.com/vendor-a"
    claim = given(pod("first", requests={gpu: "1"})).claim
    starting = node("new", pool="default", initialized=False, labels={"karpenter.sh/nodeclaim": claim.name})
    outcome = given(pod("first", requests={gpu: "1"}), nodes=[starting], claims=[in_flight(claim)])
    assert outcome.home("first") == "new"


UNREGISTERED = {"key": labels.UNREGISTERED_TAINT, "effect": "NoExecute"}
DEDICATED = {"key": "dedicated", "value": "a", "effect": "NoSchedule"}


def test_a_node_that_is_not_registered_yet_has_the_labels_of_its_claim() -> None:
    """A kubelet does not know them: the pod that the node was launched for asks for one, and gets no second node."""
    asks = pod("first", selector={"team": "a", labels.INSTANCE_TYPE: "small-instance-type"})
    pools = [pool(labels={"team": "a"})]
    claim = given(asks, pools=pools).claim
    joined = node("new", pool="default", initialized=False, provider_id="aws:///z/i-1", taints=[UNREGISTERED])
    joined.metadata.labels.pop(labels.REGISTERED)
    record = in_flight(claim, state=ClaimState.LAUNCHED, instance_id="i-1", instance_type="small-instance-type")
    assert given(asks, pools=pools, nodes=[joined], claims=[record]).home("first") == "new"
    other = in_flight(claim, state=ClaimState.LAUNCHED, instance_id="i-2", instance_type="small-instance-type")
    elsewhere = given(asks, pod("second", selector={"team": "b"}), pools=pools, nodes=[joined], claims=[other])
    assert elsewhere.home("first") == claim.name, "the claim of another instance says nothing of this node"
    assert not elsewhere.home("second")


@pytest.mark.parametrize("synced", [True, False])
def test_a_node_that_is_not_registered_yet_has_the_taints_of_its_claim(synced: bool) -> None:
    pools = [pool(taints=[DEDICATED])]
    tolerates = pod("first", tolerations=[{"key": "dedicated", "operator": "Exists"}])
    claim = given(tolerates, pools=pools).claim
    marks = {} if synced else {labels.DO_NOT_SYNC_TAINTS: "true"}
    joined = node("new", pool="default", initialized=False, instance_id="i-1", labels=marks, taints=[UNREGISTERED])
    joined.metadata.labels.pop(labels.REGISTERED)
    record = in_flight(claim, state=ClaimState.LAUNCHED, instance_id="i-1", instance_type=claim.launch.instance_type)
    outcome = given(tolerates, pod("other"), pools=pools, nodes=[joined], claims=[record])
    assert outcome.home("first") == "new"
    assert outcome.home("other") == ("" if synced else "new")


def test_a_pod_that_may_be_in_several_partitions_of_a_placement_group_gets_one_node_in_one() -> None:
    """EC2 is asked for one partition or any, and its choice among any may be one that the pod refuses."""
    wished = [{"key": labels.PARTITION, "operator": "In", "values": ["10", "3", "2"]}]
    plain = fake_type("small", cpu="4")
    partitions = requirement(labels.PARTITION, "In", [str(number) for number in range(1, 12)])
    types = [replace(plain, requirements=(*plain.requirements, partitions))]
    asks = pod("first", requires=[wished])
    claim = given(asks, types=types).claim
    assert claim.labels[labels.PARTITION] == "2"
    assert [line.values for line in claim.requirements if line.key == labels.PARTITION] == [("2",)]
    again = given(asks, types=types, claims=[in_flight(claim, state=ClaimState.LAUNCHED, instance_type="small")])
    assert again.home("first") == claim.name
    assert not again.claims
    free = given(pod("first"), types=types).claim
    assert labels.PARTITION not in free.labels, "EC2 chooses where nobody asks"


def test_bound_pods_take_their_room() -> None:
    outcome = given(pod("new", cpu="2"), pod("old", cpu="3", node="here"), nodes=[node("here", cpu="4")])
    assert outcome.home("new") != "here"
    outcome = given(
        pod("new", cpu="2"),
        pod("done", cpu="3", node="here", status={"phase": "Succeeded"}),
        nodes=[node("here", cpu="4")],
    )
    assert outcome.home("new") == "here"


def test_pods_nominated_to_a_node_keep_their_room_and_are_left_alone() -> None:
    status = {"nominatedNodeName": "here"}
    outcome = given(pod("new", cpu="2"), pod("soon", cpu="3", status=status), nodes=[node("here", cpu="4")])
    assert "nominated" in outcome.ignored("soon").message
    assert outcome.home("new") != "here"
    gone = given(pod("soon", cpu="3", status=status))
    assert gone.home("soon")


def test_daemons_that_are_still_to_come_keep_their_room() -> None:
    types = [fake_type("sixteen", cpu="16", memory="64Gi", pods="50")]
    daemons = [daemon_set(cpu="1")]
    bound = pod("daemon-1", cpu="1", node="here", owner="daemon")
    here = node("here", cpu="15900m", memory="60Gi")
    assert given(pod(cpu="14.9"), nodes=[here], daemon_sets=daemons, types=types).home("pod") == "here"
    assert given(pod(cpu="15"), nodes=[here], daemon_sets=daemons, types=types).home("pod") == ""
    assert given(pod(cpu="14.9"), bound, nodes=[here], daemon_sets=daemons, types=types).home("pod") == "here"
    larger = pod("daemon-1", cpu="5", node="here", owner="daemon")
    assert given(pod(cpu="11"), larger, nodes=[here], daemon_sets=daemons, types=types).home("pod") != "here"
    assert given(pod(cpu="10.9"), larger, nodes=[here], daemon_sets=daemons, types=types).home("pod") == "here"


def test_a_node_without_a_required_label_is_not_used_although_the_pool_would_allow_it() -> None:
    asks = {"node.kubernetes.io/instance-type": "default-instance-type"}
    outcome = given(pod(selector=asks), nodes=[node("here")])
    assert outcome.claim.launch.instance_type == "default-instance-type"


def test_any_term_of_node_affinity_may_be_met_by_a_node() -> None:
    terms = [[rule(ZONE, "In", Z1)], [rule("team", "In", "a")]]
    assert given(pod(requires=terms), nodes=[node("here", labels={"team": "a"})]).home("pod") == "here"


def test_older_label_spellings_of_nodes_are_understood() -> None:
    here = node("here", labels={"failure-domain.beta.kubernetes.io/zone": Z1})
    assert given(pod(selector={ZONE: Z1}), nodes=[here]).home("pod") == "here"


def test_finished_nodes_are_filled_before_starting_ones_then_by_name() -> None:
    nodes = [
        node("a", pool="default", initialized=False),
        node("c", pool="default"),
        node("b", pool="default"),
    ]
    outcome = given(*pods(3, cpu="3"), nodes=nodes)
    assert [place.name for place in outcome.plan.existing_nodes] == ["a", "b", "c"]
    assert given(pod(cpu="3"), nodes=nodes).home("pod") == "b"


def test_pods_of_leaving_nodes_are_planned_together() -> None:
    leaving = [node(f"old-{n}", deleting=True) for n in range(3)]
    running = [pod(f"app-{n}", cpu="500m", node=f"old-{n}") for n in range(3)]
    kept = [
        pod("daemon-1", node="old-0", owner="d"),
        pod("static", node="old-0", metadata={"ownerReferences": [{"kind": "Node", "name": "old-0"}]}),
        pod("precious", node="old-0", metadata={"annotations": {"karpenter.sh/do-not-disrupt": "true"}}),
        pod("ending", node="old-0", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
    ]
    outcome = given(*running, *kept, nodes=leaving, types=incrementing_types(5))
    assert [entry.name for entry in outcome.claim.pods] == ["app-0", "app-1", "app-2"]


@pytest.mark.parametrize(
    ("specs", "planned"),
    [
        ([{"maxUnavailable": 0}], False),
        ([{"maxUnavailable": "0%"}], False),
        ([{"minAvailable": "100%"}], False),
        ([{"maxUnavailable": 1}, {"minAvailable": 1}], False),
        ([{"maxUnavailable": 1}], True),
        ([{"minAvailable": 1}], True),
    ],
)
def test_pods_that_budgets_never_let_go_need_no_other_room(specs: list[dict[str, Any]], planned: bool) -> None:
    """Scenario 259."""
    budgets = [
        msgspec.convert(
            {
                "metadata": {"name": f"b-{n}", "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": "db"}}, **spec},
            },
            PodDisruptionBudget,
        )
        for n, spec in enumerate(specs)
    ]
    bound = pod("db", node="old", metadata={"labels": {"app": "db"}})
    other = pod("other", node="old")
    outcome = given(bound, other, nodes=[node("old", deleting=True)], budgets=budgets)
    assert bool(outcome.home("db")) is planned
    assert outcome.home("other")


@pytest.mark.parametrize(("started", "planned"), [("2027-01-15T07:30:00Z", False), ("2027-01-15T06:00:00Z", True)])
def test_a_pod_may_be_kept_where_it_is_for_some_time(started: str, planned: bool) -> None:
    """The decision is made at 2027-01-15T08:00:00Z."""
    patient = pod(
        "patient",
        node="old",
        metadata={"annotations": {"karpenter.sh/do-not-disrupt": "1h"}},
        status={"phase": "Running", "startTime": started},
    )
    outcome = given(patient, nodes=[node("old", deleting=True)])
    assert bool(outcome.claims) is planned


# A pod that has no node | whether it is planned.
PENDING: dict[str, tuple[dict[str, Any], bool]] = {
    "unschedulable": ({}, True),
    "from a file, no status": ({"status": {}}, True),
    "gated": ({"spec": {"schedulingGates": [{"name": "wait"}]}}, False),
    "gated by condition": (
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
        False,
    ),
    "of a DaemonSet": ({"owner": "daemon"}, False),
    "not looked at": ({"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}, False),
}


@pytest.mark.parametrize(("shape", "planned"), PENDING.values(), ids=PENDING.keys())
def test_which_pods_are_planned(shape: dict[str, Any], planned: bool) -> None:
    outcome = given(pod(**shape))
    assert bool(outcome.home("pod")) is planned
    if not planned:
        assert outcome.ignored("pod").message


@pytest.mark.parametrize(
    "shape", [{"status": {"phase": "Failed"}}, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}]
)
def test_pods_that_are_over_are_not_mentioned(shape: dict[str, Any]) -> None:
    outcome = given(pod(**shape))
    assert (outcome.claims, outcome.plan.ignored, outcome.plan.unschedulable) == ((), (), ())


def autoscaler(reason: str, age_s: float) -> Event:
    return Event(
        involved_object=ObjectReference("Pod", "default", "pod", "uid-pod"),
        reason=reason,
        source=EventSource("cluster-autoscaler"),
        last_timestamp=rfc3339(NOW - age_s),
    )


def first_said(reason: str, age_s: float, *, last: float | None = None) -> Event:
    """An event that was first told so long ago; without `last` it has no time of its last."""
    told = autoscaler(reason, age_s if last is None else last)
    meta = msgspec.structs.replace(told.metadata, creation_timestamp=rfc3339(NOW - age_s))
    return msgspec.structs.replace(told, metadata=meta, last_timestamp=told.last_timestamp if last else "")


@pytest.mark.parametrize(
    ("event", "held"),
    [
        (autoscaler("TriggeredScaleUp", 30), True),
        (autoscaler("TriggeredScaleUp", 700), False),
        (autoscaler("NotTriggerScaleUp", 30), False),
        (first_said("TriggeredScaleUp", 9000, last=30), True),
        (first_said("TriggeredScaleUp", 9000, last=700), False),
        (first_said("TriggeredScaleUp", 30), True),
    ],
    ids=["just scaled up", "long ago", "could not help", "just said again", "said again long ago", "said once"],
)
def test_pods_cluster_autoscaler_launches_for_are_held_back(event: Event, held: bool) -> None:
    outcome = given(pod(), pod("other"), events=[event])
    assert bool(outcome.home("pod")) is not held
    assert outcome.home("other")
    if held:
        assert "Cluster Autoscaler" in outcome.ignored("pod").message


def test_a_starting_node_whose_claim_is_not_known_is_read_by_its_pool_and_type() -> None:
    gpu = "fake.com/vendor-a"
    starting = node(
        "new",
        pool="default",
        initialized=False,
        taints=[STARTUP],
        labels={"node.kubernetes.io/instance-type": "gpu-vendor-instance-type"},
    )
    pools = [pool(startup_taints=[STARTUP])]
    assert given(pod(requests={gpu: "1"}), pools=pools, nodes=[starting]).home("pod") == "new"
    assert given(pod(), nodes=[starting]).home("pod") != "new"


def test_a_node_with_a_malformed_quantity_stops_the_decision() -> None:
    with pytest.raises(InvalidInput, match=r"memory: '8GB' is not a quantity"):
        given(pod(), nodes=[node("here", memory="8GB")])


@pytest.mark.parametrize(("bound_to", "home"), [("ip-1", ""), ("ip-2", "claim"), ("", "claim")])
def test_a_pod_that_is_bound_to_a_node_not_yet_read_takes_room_on_its_claim(bound_to: str, home: str) -> None:
    """Nodes are read before pods: a node may have joined in between, and kube-scheduler may have used it."""
    types = [fake_type("only", cpu="4", memory="8Gi", pods="10", price=1.0)]
    first = given(pod("first", cpu="1"), types=types)
    coming = in_flight(first.claim, node_name="ip-1", state=ClaimState.LAUNCHED)
    quick = [pod("quick", node=bound_to, cpu="2")] if bound_to else []
    outcome = given(pod("first", cpu="1"), pod("next", cpu="1500m"), *quick, types=types, claims=[coming])
    assert outcome.home("first") == first.claim.name
    assert (outcome.home("next") == first.claim.name) is bool(home)
