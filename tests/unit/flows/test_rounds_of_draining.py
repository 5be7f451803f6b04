"""One round of emptying a node: what ends it, what is asked of each pod, and when the next one comes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import DisruptionProposal, Method, Reason
from shiplap.errors import ClusterError, ClusterUnreachable, ObjectConflict, ObjectNotFound, TooManyRequests
from shiplap.flows import cluster_metrics
from shiplap.flows.disrupt.second_look import objections, still_valid
from shiplap.flows.lifecycle.drain import (
    HEAD_START_S,
    Drains,
    cordon,
    delete_leaving_pod,
    drain,
    evict_pod,
    release_from_balancers,
    set_drain_timer,
    uncordon,
)
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim
from tests.builders.nodes import node_object
from tests.builders.pods import pod, pod_object
from tests.integration.flows.stage import Stage
from tests.unit.flows.leaving_nodes import DISRUPTED, leaving, on_node


@pytest.fixture
def stage() -> Stage:
    return Stage()


def add_pod(stage: Stage, name: str = "web", **spec: Any) -> None:
    stage.server.create("pods", pod_object(name, node="n", **spec))


def one_round(stage: Stage, claim: NodeClaim, node: Node | None, *, again: bool = True) -> NodeClaim | None:
    stage.timers.reminders.clear()
    return drain(claim, node, Drains(stage.settings, stage.context), stage.context, again=again)


def evicted(stage: Stage) -> list[str]:
    return sorted(
        item["metadata"]["name"]
        for item in stage.server.list("pods").items
        if item["metadata"].get("deletionTimestamp")
    )


@pytest.mark.parametrize(
    ("there", "ready", "runs", "ends"),
    [
        (False, True, True, True),
        (True, False, False, True),  # silent, and its instance is gone
        (True, False, True, False),
        (True, True, False, False),  # a kubelet that reports has an instance, whatever describing shows
    ],
)
def test_a_node_that_is_gone_ends_its_claim_pods_or_not(
    stage: Stage, there: bool, ready: bool, runs: bool, ends: bool
) -> None:
    claim = leaving(stage, ago_s=1000.0, runs=runs)
    node = on_node(stage, ready=ready)
    add_pod(stage)
    after = one_round(stage, claim, node if there else None)
    assert (after is not None) is ends
    if after is not None:
        assert (after.state, after.failure) == (ClaimState.TERMINATING, "Drifted")


@pytest.mark.parametrize(("closed", "ends"), [(True, True), (False, False)])
def test_an_empty_node_ends_once_it_was_closed_at_the_round_before(stage: Stage, closed: bool, ends: bool) -> None:
    claim = leaving(stage)
    assert (one_round(stage, claim, on_node(stage, closed=closed)) is not None) is ends
    node = stage.cluster.node("n")
    assert [taint.key for taint in node.spec.taints] == [DISRUPTED["key"]]
    assert node.metadata.labels[labels.EXCLUDE_BALANCERS] == "shiplap"
    assert [(item.claim, item.step) for item in stage.timers.reminders] == ([] if ends else [("c", "drain")])


@pytest.mark.parametrize(("in_s", "ends"), [(0.0, True), (-5.0, True), (0.5, False), (None, False)])
def test_at_its_deadline_a_node_ends_with_whatever_is_on_it(stage: Stage, in_s: float | None, ends: bool) -> None:
    claim = leaving(stage, in_s=in_s)
    node = on_node(stage)
    add_pod(stage)
    assert (one_round(stage, claim, node) is not None) is ends


@pytest.mark.parametrize(("ago_s", "goes"), [(HEAD_START_S - 1, False), (HEAD_START_S, True)])
def test_pods_leave_after_their_head_start(stage: Stage, ago_s: float, goes: bool) -> None:
    claim = leaving(stage, ago_s=ago_s)
    node = on_node(stage)
    add_pod(stage)
    stage.faults.clear()
    assert one_round(stage, claim, node) is None
    assert evicted(stage) == (["web"] if goes else [])
    assert ("before state.read" in stage.faults.points) is goes


@pytest.mark.parametrize(
    ("error", "metric", "raises"),
    [
        (TooManyRequests("budget", status=429), "EvictionsForbidden", False),
        (ClusterUnreachable("several budgets", status=500), "EvictionsForbidden", False),
        (ObjectNotFound("gone", status=404), None, False),
        (ObjectConflict("another", status=409), None, False),
        (ClusterError("denied", status=403), None, True),
        (ClusterUnreachable("no answer"), None, True),
    ],
)
def test_what_the_api_server_says_to_an_eviction(
    stage: Stage, error: ClusterError, metric: str | None, raises: bool
) -> None:
    claim = leaving(stage)
    node = on_node(stage)
    add_pod(stage)
    stage.faults.on("before", "cluster.evict", error)
    if raises:
        with pytest.raises(type(error)):
            one_round(stage, claim, node)
    else:
        assert one_round(stage, claim, node) is None
    assert stage.meter.counts == ({metric: 1.0} if metric else {})
    assert evicted(stage) == []


@pytest.mark.parametrize(("left_s", "given_s"), [(-5.0, 1), (0.2, 1), (40.7, 40), (60.0, None), (600.0, None)])
def test_an_evicted_pod_gets_what_time_its_node_has_left(stage: Stage, left_s: float, given_s: int | None) -> None:
    """At least a second; its own grace period where that is shorter."""
    told: list[int | None] = []
    cluster: Any = SimpleNamespace(evict=lambda _, shortened: told.append(shortened))
    now = stage.clock.now()
    claim = node_claim(name="c", deadline_at=now + left_s)
    evict_pod(pod(spec={"terminationGracePeriodSeconds": 60}), claim, now, replace(stage.context, cluster=cluster))
    assert told == [given_s]


@pytest.mark.parametrize(("left_s", "given_s"), [(-5.0, 1), (0.2, 1), (40.7, 40), (600.0, 60)])
def test_a_pod_that_outlives_its_node_is_deleted_within_the_time_that_is_left(
    stage: Stage, left_s: float, given_s: int
) -> None:
    told: list[int] = []
    cluster: Any = SimpleNamespace(delete_pod=lambda _, seconds: told.append(seconds))
    now = stage.clock.now()
    claim = node_claim(name="c", deadline_at=now + left_s)
    delete_leaving_pod(
        pod(spec={"terminationGracePeriodSeconds": 60}), claim, now, replace(stage.context, cluster=cluster)
    )
    assert told == [given_s]


def test_an_eviction_that_is_taken_is_counted(stage: Stage) -> None:
    claim = leaving(stage)
    node = on_node(stage)
    add_pod(stage)
    one_round(stage, claim, node)
    assert stage.meter.counts == {"PodsEvicted": 1.0}


def delays(stage: Stage, claim: NodeClaim, *pods: Pod, soon: bool = False) -> list[int]:
    stage.timers.reminders.clear()
    set_drain_timer(claim, pods, Drains(stage.settings, stage.context), stage.context, soon=soon)
    assert all((item.claim, item.step) == ("c", "drain") for item in stage.timers.reminders)
    return [item.delay_s for item in stage.timers.reminders]


WITHOUT_GRACE = {"terminationGracePeriodSeconds": 0}


def going(stage: Stage, *, protected_s: float | None = None, ending: bool = True) -> Pod:
    """A pod that ends, or one that may not be disrupted for a while."""
    now = stage.clock.now()
    kept = {} if protected_s is None else {labels.DO_NOT_DISRUPT: f"{protected_s + 100:.0f}s"}
    metadata = {"deletionTimestamp": rfc3339(now)} if ending else {}
    return pod(annotations=kept, started_at=now - 100, metadata=metadata, spec=WITHOUT_GRACE)


def test_without_haste_the_sweep_sends_the_next_round(stage: Stage) -> None:
    assert delays(stage, leaving(stage), pod(spec=WITHOUT_GRACE)) == []
    assert delays(stage, leaving(stage)) == []


@pytest.mark.parametrize(("ago_s", "expected"), [(HEAD_START_S - 0.5, [10]), (HEAD_START_S, [])])
def test_the_round_after_the_head_start_comes_by_itself(stage: Stage, ago_s: float, expected: list[int]) -> None:
    assert delays(stage, leaving(stage, ago_s=ago_s), pod(spec=WITHOUT_GRACE)) == expected


@pytest.mark.parametrize(("ago_s", "quick"), [(HEAD_START_S, True), (179.0, True), (180.0, False)])
def test_a_node_that_sleeps_has_rounds_of_its_own_for_three_minutes(stage: Stage, ago_s: float, quick: bool) -> None:
    """Others wait for its part of a disruption budget."""
    usual = int(Drains(stage.settings, stage.context).round_s)
    claim = replace(leaving(stage, ago_s=ago_s), failure=Reason.ASLEEP)
    assert delays(stage, claim, going(stage)) == ([usual] if quick else [])


@pytest.mark.parametrize(
    ("closed", "balancers", "writes"),
    [
        (True, "shiplap", True),
        (True, None, True),
        (True, "mine", True),
        (False, "shiplap", True),
        (False, "mine", False),
        (False, None, False),
    ],
)
def test_a_node_that_stays_after_all_is_opened_and_in_service_without_a_deadline(
    stage: Stage, closed: bool, balancers: str | None, writes: bool
) -> None:
    claim = replace(leaving(stage, in_s=50.0), failure=Reason.ASLEEP)
    on_node(stage, closed=closed)
    stage.server.patch("nodes", "n", {"metadata": {"labels": {labels.EXCLUDE_BALANCERS: balancers}}})
    drains = Drains(stage.settings, stage.context)
    drains.__dict__["_sleep"] = None
    stage.faults.clear()
    assert drain(claim, stage.cluster.node("n"), drains, stage.context, again=True) is None
    node = stage.cluster.node("n")
    assert node.spec.taints == ()
    assert node.metadata.labels.get(labels.EXCLUDE_BALANCERS) == ("mine" if balancers == "mine" else None)
    assert ("before cluster.patch_node" in stage.faults.points) is writes
    after = stage.state.claim(stage.name, "c")
    assert after is not None
    assert (after.state, after.failure, after.deadline_at) == (ClaimState.INITIALIZED, "", 0.0)
    assert (after.changed_at, stage.meter.counts) == (stage.clock.now(), {"NodesAwakeAgain": 1.0})


@pytest.mark.parametrize(
    ("closed", "balancers", "writes"),
    [
        (True, "shiplap", False),
        (True, None, True),
        (False, "shiplap", True),
        (False, "mine", True),
        (True, "mine", False),
    ],
)
def test_what_is_missing_of_a_closed_node_is_made_good(
    stage: Stage, closed: bool, balancers: str | None, writes: bool
) -> None:
    on_node(stage, closed=closed)
    stage.server.patch("nodes", "n", {"metadata": {"labels": {labels.EXCLUDE_BALANCERS: balancers}}})
    stage.faults.clear()
    release_from_balancers(stage.cluster.node("n"), stage.context)
    node = stage.cluster.node("n")
    assert [taint.key for taint in node.spec.taints] == [DISRUPTED["key"]]
    assert node.metadata.labels[labels.EXCLUDE_BALANCERS] == ("mine" if balancers == "mine" else "shiplap")
    assert ("before cluster.patch_node" in stage.faults.points) is writes


def test_what_was_just_closed_is_looked_at_again_soon_if_it_is_empty(stage: Stage) -> None:
    claim = leaving(stage)
    assert delays(stage, claim, soon=True) == [int(Drains(stage.settings, stage.context).round_s)]
    assert delays(stage, claim, pod(spec=WITHOUT_GRACE), soon=True) == []


@pytest.mark.parametrize(
    ("protected_s", "ending", "expected"),
    [
        (30, False, [30]),
        (59, False, [59]),
        (60, False, []),
        (1, False, [1]),
        (0, False, []),
        (-5, False, []),
        (30, True, []),
    ],
)
def test_a_round_comes_when_the_protection_of_a_pod_that_stays_ends(
    stage: Stage, protected_s: float, ending: bool, expected: list[int]
) -> None:
    assert delays(stage, leaving(stage), going(stage, protected_s=protected_s, ending=ending)) == expected


def test_a_round_comes_when_a_pod_can_wait_no_longer(stage: Stage) -> None:
    """Its grace period, and ten seconds for its node, before the deadline."""
    claim = leaving(stage, in_s=600.0)
    (delay,) = delays(stage, claim, pod(spec={"terminationGracePeriodSeconds": 560}))
    assert delay == 600 - 560 - 10
    assert delays(stage, claim, pod(spec={"terminationGracePeriodSeconds": 300})) == []


@pytest.mark.parametrize(("in_s", "expected"), [(3.2, [4]), (100.0, None), (180.0, []), (100_000.0, [])])
def test_a_short_deadline_is_kept_by_rounds_of_its_own(stage: Stage, in_s: float, expected: list[int] | None) -> None:
    claim = leaving(stage, in_s=in_s)
    usual = int(Drains(stage.settings, stage.context).round_s)
    assert delays(stage, claim) == ([usual] if expected is None else expected)


def test_a_node_is_closed_and_opened_once(stage: Stage) -> None:
    node = on_node(stage, closed=False)
    uncordon(node, stage.context)
    cordon(node, stage.context)
    closed = stage.cluster.node("n")
    assert [taint.key for taint in closed.spec.taints] == [DISRUPTED["key"]]
    stage.faults.clear()
    cordon(closed, stage.context)
    assert "before cluster.patch_node" not in stage.faults.points
    uncordon(closed, stage.context)
    assert stage.cluster.node("n").spec.taints == ()


def test_other_taints_stay_when_a_node_is_closed_and_opened(stage: Stage) -> None:
    other = {"key": "karpenter.sh/disrupted", "effect": "NoExecute"}
    item = node_object("n", providerID="aws:///a/i-n", taints=[other, {"key": "x", "effect": "NoSchedule"}])
    stage.server.create("nodes", item)
    cordon(stage.cluster.node("n"), stage.context)
    taints = [(taint.key, taint.effect) for taint in stage.cluster.node("n").spec.taints]
    assert taints == [("karpenter.sh/disrupted", "NoExecute"), ("x", "NoSchedule"), tuple(DISRUPTED.values())]
    uncordon(stage.cluster.node("n"), stage.context)
    assert [taint.key for taint in stage.cluster.node("n").spec.taints] == ["karpenter.sh/disrupted", "x"]


# The second look at what is to be disrupted


def proposal(reason: Reason, *nodes: str) -> DisruptionProposal:
    return DisruptionProposal(reason, Method.EMPTINESS if reason is Reason.EMPTY else Method.CONSOLIDATION, nodes)


@pytest.mark.parametrize(
    ("reason", "nodes", "kept"),
    [
        (Reason.EMPTY, ("n", "m"), [("n", "m")]),
        (Reason.EMPTY, ("n", "busy"), [("n",)]),
        (Reason.EMPTY, ("busy",), []),
        (Reason.UNDERUTILIZED, ("n", "busy"), []),
        (Reason.UNDERUTILIZED, ("n", "m"), [("n", "m")]),
    ],
)
def test_nodes_on_which_pods_came_meanwhile_stay_and_of_empty_ones_the_others_go(
    stage: Stage, reason: Reason, nodes: tuple[str, ...], kept: list[tuple[str, ...]]
) -> None:
    stage.server.create("pods", pod_object("old", node="n", metadata={"uid": "old"}))
    seen = stage.cluster.view().pods
    stage.server.create("pods", pod_object("late", node="busy", metadata={"uid": "late"}))
    found = still_valid(stage.name, [proposal(reason, *nodes), proposal(reason, "n")], seen, stage.context)
    assert [item.nodes for item in found] == [*kept, ("n",)]
    assert stage.meter.counts.get("ProposalsOutdated") == (1.0 if "busy" in nodes else None)


@pytest.mark.parametrize(
    "change", [{"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}, {"spec": {"priority": 7}}]
)
def test_a_pod_that_was_changed_meanwhile_is_looked_at_anew(stage: Stage, change: dict[str, Any]) -> None:
    stage.server.create("pods", pod_object("old", node="n", metadata={"uid": "old"}))
    seen = stage.cluster.view().pods
    stage.server.patch("pods", "old", change)
    assert still_valid(stage.name, [proposal(Reason.UNDERUTILIZED, "n")], seen, stage.context) == ()


def test_without_proposals_no_pods_are_listed(stage: Stage) -> None:
    assert still_valid(stage.name, (), (), stage.context) == ()
    assert stage.faults.points == []


PROTECTED = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "true"}}}


@pytest.mark.parametrize(
    ("reason", "grace", "expires", "spared"),
    [
        (Reason.UNDERUTILIZED, "", False, True),
        (Reason.DRIFTED, "", False, True),
        (Reason.DRIFTED, "5m", False, False),
        (Reason.EXPIRED, "", False, True),
        (Reason.EXPIRED, "", True, False),
        (Reason.DRIFTED, "", True, True),
    ],
)
def test_a_pod_that_must_not_be_disrupted_spares_its_node_unless_that_has_a_deadline(
    stage: Stage, reason: Reason, grace: str, expires: bool, spared: bool
) -> None:
    node = on_node(stage)
    stage.server.create("pods", pod_object("p", node="n", metadata={"uid": "p", **PROTECTED["metadata"]}))
    disruption = replace(stage.settings.disruption, expire_protected=expires)
    settings = replace(stage.settings, disruption=disruption)
    going = [
        node_claim(name="gone", node_name="elsewhere"),
        node_claim(name="c", node_name="n", termination_grace_period=grace),
    ]
    found = objections(settings, reason, going, {"n": node}, stage.context)
    assert list(found) == (["c"] if spared else [])
    assert stage.meter.counts.get("NodesSpared") == (1.0 if spared else None)


# What is measured


def test_pods_are_measured_by_cluster_and_pool(stage: Stage) -> None:
    on_node(stage)
    stage.server.patch("nodes", "n", {"metadata": {"labels": {labels.NODE_POOL: "flex"}}})
    stage.server.create("nodes", node_object("foreign"))
    add_pod(stage, "a")
    add_pod(stage, "b")
    stage.server.create("pods", pod_object("c", node="foreign"))
    stage.add_pods(3)
    view: ClusterView = replace(stage.cluster.view(), unreadable=("pods x: broken",))
    cluster_metrics.measure_pods("demo", view, stage.clock.now(), stage.meter)
    of_cluster = (("cluster", "demo"),)
    assert stage.meter.seen["ObjectsUnreadable"] == [(1, of_cluster)]
    assert stage.meter.seen["Pods"] == [(2, (("cluster", "demo"), ("pool", "flex")))]
    assert stage.meter.seen["PodsWaiting"] == [(3, of_cluster)]
    assert [item[1] for item in stage.meter.seen["OldestPodWaiting"]] == [of_cluster]
