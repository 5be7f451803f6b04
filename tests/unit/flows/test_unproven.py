"""Tests the count against the bound on nodes for pods of which no node has run any, and the proof of a kind."""

from __future__ import annotations

import pytest

from shiplap.flows.planning.futile_launches import pod_kind
from shiplap.flows.planning.unproven import (
    UnprovenPodLimit,
    is_any_unproven,
    mark_unproven,
    record_kinds,
    running_kinds,
    unproven_pod_limit,
    windows,
    within_limit,
)
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import DecisionState
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim
from tests.builders.pods import pod_of_kind as pod
from tests.integration.flows.stage import Stage

NOW = 1_000_000.0
NOTHING = DecisionState(0)


def claim(name: str, *kinds: str, state: ClaimState = ClaimState.INITIALIZED, **fields: object) -> NodeClaim:
    unproven = tuple(pod_kind(pod("any", kind)) for kind in kinds)
    facts = {"node_name": f"node-{name}", "created_at": NOW - 10, **fields}
    return node_claim(cluster="demo", name=name, node_pool="p", node_class="d", state=state, unproven=unproven, **facts)


def left(claims: list[NodeClaim], *pods: Pod, state: DecisionState = NOTHING) -> int:
    return unproven_pod_limit(35, ClusterView(pods=pods), claims, state, NOW).allowed(NOW)


@pytest.mark.parametrize(("most", "hour"), [(35, 60), (1, 2), (7, 12), (36, 62)])
def test_an_hour_is_in_proportion_rounded_up(most: int, hour: int) -> None:
    assert windows(most) == {300.0: most, 3600.0: hour}


def test_nodes_count_while_nothing_has_run_on_them() -> None:
    assert left([claim("x", "a")]) == 34
    assert left([claim("x", "a", state=ClaimState.LAUNCHED, node_name="")]) == 34
    assert left([claim("x")]) == 35, "launched for pods of a proven kind"
    assert left([claim("x", "a", created_at=NOW - 3601)]) == 35
    assert left([claim("x", "a", created_at=NOW - 301)]) == 35, "the hour's 60 are more"
    assert left([claim(f"x{number}", "a", created_at=NOW - 301) for number in range(30)]) == 30
    assert left([claim("x", "a")], pod("other", "b", node="node-x")) == 35, "others have its room"


def test_a_launch_without_an_instance_does_not_count_and_one_that_never_joined_does() -> None:
    assert left([claim("x", "a", state=ClaimState.FAILED, node_name="")]) == 35
    assert left([claim("x", "a", state=ClaimState.FAILED, node_name="", instance_id="i-1")]) == 34


def test_nodes_in_vain_count_after_they_have_gone() -> None:
    noted = DecisionState(0, futile={"gone": NOW - 20, "proven": NOW - 20})
    assert left([claim("proven")], state=noted) == 34


def test_a_kind_is_proven_by_any_node_that_runs_it_or_by_memory() -> None:
    claims = [claim("x", "a"), claim("y")]
    assert left(claims, pod("elsewhere", node="node-y")) == 35
    assert left(claims, pod("elsewhere", node="somebody-elses")) == 35
    assert left(claims, pod("other", "b", node="somebody-elses")) == 34
    assert left(claims, state=DecisionState(0, proven={pod_kind(pod("any")): 1.0})) == 35


@pytest.mark.parametrize(
    "odd",
    [
        pod("refused-by-the-kubelet", node="node-x", phase="Failed"),
        pod("of-a-daemonset", node="node-x", owner_kind="DaemonSet"),
        pod("static", node="node-x", owner_kind="Node"),
    ],
)
def test_pods_that_prove_nothing(odd: Pod) -> None:
    view = ClusterView(pods=(odd,))
    assert running_kinds(view) == frozenset()
    assert left([claim("x", "a")], odd) == 34


def planned(name: str, *pods: Pod) -> NodeClaim:
    references = tuple(PodReference("default", item.metadata.name, item.metadata.uid) for item in pods)
    return node_claim(cluster="demo", name=name, node_pool="p", node_class="d", pods=references)


def test_one_pod_of_a_proven_kind_frees_its_claim() -> None:
    a, b = pod("one", "a"), pod("two", "b")
    claims = [planned("both", a, b), planned("new", b), planned("empty")]
    found = mark_unproven(claims, ClusterView(pods=(a, b)), {pod_kind(a)})
    assert [item.plan.unproven for item in found] == [(), (pod_kind(b),), ()]


def test_pods_that_are_gone_by_now_say_nothing_of_their_claim() -> None:
    here, gone = pod("here", "a"), pod("gone", "b")
    found = mark_unproven([planned("x", here, gone), planned("y", gone)], ClusterView(pods=(here,)), set())
    assert [item.plan.unproven for item in found] == [(pod_kind(here),), ()]


def test_kinds_take_turns_and_those_that_had_nodes_come_last() -> None:
    claims = [claim(f"a-{number}", "a") for number in range(5)] + [claim("b", "b"), claim("free")]
    bound = UnprovenPodLimit(windows(3), tried={pod_kind(pod("any", "a")): 1})
    kept, told = within_limit(claims, bound, ClusterView(), NOW)
    assert [item.name for item in kept] == ["a-0", "a-1", "b", "free"]
    assert told == ()
    nothing = UnprovenPodLimit(windows(3), launched_at=(NOW - 1,) * 3)
    assert [item.name for item in within_limit(claims, nothing, ClusterView(), NOW)[0]] == ["free"]


def test_the_reason_names_the_window_that_is_full_for_longest() -> None:
    old, recent = (NOW - 600,) * 30, (NOW - 100,) * 30
    short = UnprovenPodLimit(windows(35), launched_at=(NOW - 100,) * 35).reason(NOW)
    both = UnprovenPodLimit(windows(30), launched_at=(*old, *recent)).reason(NOW)
    assert short.startswith("35 nodes were launched within 5 minutes ")
    assert both.startswith("60 nodes were launched within 60 minutes ")
    assert both.endswith("1970-01-12T14:36:40Z")


def test_no_more_kinds_are_remembered_than_a_decision_can_read() -> None:
    stage = Stage()
    view = ClusterView(pods=tuple(pod(f"p{number}", f"k{number}", node="node-x") for number in range(130)))
    known = DecisionState(0, proven={f"known-{number}": stage.clock.now() for number in range(995)})
    record_kinds(stage.name, [claim("x")], view, known, stage.context)
    assert len(stage.state.read(stage.name, stage.clock.now()).proven) == 5
    record_kinds(stage.name, [claim("x")], view, DecisionState(0), stage.context)
    assert 100 <= len(stage.state.read(stage.name, stage.clock.now()).proven) <= 105


def test_a_node_that_leaves_without_having_run_a_pod_is_noted_before_its_claim_is_forgotten() -> None:
    stage = Stage()
    at = stage.clock.now() - 10
    claims = [
        claim("leaves", "a", state=ClaimState.DRAINING, created_at=at),
        claim("stays", "a", created_at=at),
        claim("ran", "b", state=ClaimState.DRAINING, created_at=at),
        claim("old", "a", state=ClaimState.DRAINING, created_at=at - 3600),
    ]
    view = ClusterView(pods=(pod("b", "b", node="node-ran"),))
    record_kinds(stage.name, claims, view, DecisionState(0), stage.context)
    assert stage.state.read(stage.name, stage.clock.now()).futile == {"leaves": at}


@pytest.mark.parametrize(
    ("pods", "proven", "expected"),
    [
        ((), (), False),
        ((pod("p"),), (), True),
        ((pod("p"),), ("a",), False),
        ((pod("p"), pod("q", "b")), ("a",), True),
        ((pod("p"), pod("r", node="node-x")), (), False),
        ((pod("p"), pod("q", "b"), pod("r", node="node-x")), (), True),
        ((pod("r", node="node-x"),), (), False),
    ],
)
def test_all_claims_are_needed_only_while_a_pod_of_an_unproven_kind_waits(
    pods: tuple[Pod, ...], proven: tuple[str, ...], expected: bool
) -> None:
    kinds = {pod_kind(pod("any", kind)): NOW for kind in proven}
    assert is_any_unproven(ClusterView(pods=pods), DecisionState(0, proven=kinds)) is expected
