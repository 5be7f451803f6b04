"""Tests the conclusions from nodes without their pods: nodes in vain, pods that wait, and for how long."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.flows.planning.futile_launches import (
    FIRST_PAUSE_S,
    FREE,
    IN_VAIN_S,
    LONGEST_PAUSE_S,
    MOST_IN_WINDOW,
    MOST_MARKS,
    MOST_NAMES,
    PATIENCE_S,
    HeldBackPods,
    allowance,
    hold_back,
    judge_nodes,
    may_be_held,
    pod_kind,
    record_refusals,
    refused,
    waiting_pods,
    without_held_pods,
)
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Node,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
)
from shiplap.kubernetes.taints import DISRUPTED
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import FUTILE_FOR_S, DecisionState, Refusals
from shiplap.scheduling.model.planned_pods import needs_room_elsewhere
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pod_of_kind
from tests.integration.flows.stage import CLUSTER, Stage

NOW = 1_000_000.0
pod = partial(pod_of_kind, phase="Pending")


def claim(
    name: str, *pods: str, state: ClaimState = ClaimState.INITIALIZED, ago_s: float = 600.0, **fields: Any
) -> NodeClaim:
    """A claim launched for pods; complete for `ago_s` seconds, and created a minute before that."""
    refs = tuple(PodReference("default", item, f"uid-{item}") for item in pods)
    known = {"node_name": f"node-{name}", "changed_at": NOW - ago_s, "created_at": NOW - ago_s - 60, "pods": refs}
    return node_claim(cluster=CLUSTER, name=name, state=state, **known | fields)


def view(*pods: Pod, nodes: tuple[Node, ...] = ()) -> ClusterView:
    return ClusterView(pods=pods, nodes=nodes)


def names(claims: tuple[NodeClaim, ...]) -> list[str]:
    return [item.name for item in claims]


# Which nodes are in vain


@pytest.mark.parametrize(
    ("ago_s", "futile", "unjudged"),
    [(PATIENCE_S - 1, [], ["x"]), (PATIENCE_S, ["x"], []), (PATIENCE_S + 1, ["x"], [])],
)
def test_a_complete_node_is_in_vain_once_its_pod_has_waited_long_enough(
    ago_s: float, futile: list[str], unjudged: list[str]
) -> None:
    found = judge_nodes([claim("x", "p", ago_s=ago_s)], view(pod("p")), NOW)
    assert (names(found.futile), names(found.unjudged)) == (futile, unjudged)


@pytest.mark.parametrize(
    ("state", "judged"),
    [
        (ClaimState.LAUNCHED, False),
        (ClaimState.REGISTERED, False),
        (ClaimState.DISRUPTING, True),
        (ClaimState.DRAINING, True),
        (ClaimState.TERMINATING, True),
    ],
)
def test_nodes_that_have_been_complete_are_judged_at_once_and_others_never(state: ClaimState, judged: bool) -> None:
    found = judge_nodes([claim("x", "p", state=state, ago_s=1)], view(pod("p")), NOW)
    assert (names(found.futile), found.unjudged) == (["x"] if judged else [], ())
    assert (refused([claim("x", "p", state=state, ago_s=1)], view(pod("p")), {}, NOW) != {}) == judged


@pytest.mark.parametrize(
    "others",
    [
        [pod("p", node="node-x")],
        [pod("p", deleting=True)],
        [pod("p", phase="Failed")],
        [pod("p"), pod("other", node="node-x")],
        [],
    ],
    ids=["it runs there", "it ends", "it has ended", "others have its room", "it is gone"],
)
def test_a_node_is_not_in_vain_without_a_pod_that_waits_for_it(others: list[Pod]) -> None:
    found = judge_nodes([claim("x", "p")], view(*others), NOW)
    assert found.futile == found.unjudged == ()
    assert refused([claim("x", "p")], view(*others), {}, NOW) == {}


def test_nodes_that_tell_nothing_hide_none_that_do() -> None:
    """A node that is young, one whose pod has gone, one that others took, and pods that may still come to theirs."""
    old, moving = drained(*(pod(f"m{number}") for number in range(5)))
    waiting = [pod(f"w{number}") for number in range(5)]
    claims = [
        old,
        claim("a", "p", created_at=NOW - 9000, ago_s=1),
        claim("b", "gone", created_at=NOW - 8000),
        claim("c", "p", created_at=NOW - 7000),
        claim("d", "p", *(item.metadata.name for item in (*moving, *waiting)), created_at=NOW - 6000),
    ]
    seen = view(pod("p"), pod("other", node="node-c"), *moving, *waiting, nodes=(node("node-d"),))
    found = refused(claims, seen, {}, NOW)
    assert {uid: item.claims for uid, item in found.items()} == dict.fromkeys(
        ["uid-p", *(item.metadata.uid for item in waiting)], ("d",)
    )


def test_a_pod_is_noted_beside_siblings_that_run_on_its_nodes_and_only_it_pauses() -> None:
    """Each of three nodes took one of its two pods and not the other: no node is in vain, and the pod still waits."""
    claims = [claim(name, "p", f"q{name}", ago_s=600 + 100 * place) for place, name in enumerate("xyz")]
    siblings = [pod(f"q{name}", node=f"node-{name}", phase="Running") for name in "xyz"]
    seen = view(pod("p"), pod("r"), *siblings, nodes=tuple(node(f"node-{name}") for name in "xyz"))
    assert judge_nodes(claims, seen, NOW).futile == ()
    noted = refused(claims, seen, {}, NOW)
    assert {uid: item.claims for uid, item in noted.items()} == {"uid-p": ("z", "y", "x")}
    held = hold_back(seen, claims, noted, {}, NOW + 1)
    assert [item.pod.name for item in held.unschedulable] == ["p"]
    assert "3 nodes were launched for it, and it runs on none of them (z, y, x)" in held.unschedulable[0].message
    assert {item.metadata.name for item in held.view.unbound} == {"r"}, "a pod like it goes on: younger nodes took some"


def test_nodes_launched_in_the_same_moment_are_named_in_their_order() -> None:
    claims = [claim(name, "p") for name in "bca"]
    assert refused(claims, view(pod("p")), {}, NOW)["uid-p"].claims == ("a", "b", "c")


@pytest.mark.parametrize("fields", [{"missed": True}, {"node_name": ""}])
def test_a_node_that_turned_out_too_small_or_never_came_is_not_in_vain(fields: dict[str, Any]) -> None:
    """Nor does it hide those that are looked at after it."""
    claims = [claim("a", "p", **fields), claim("b", "p")]
    assert names(judge_nodes(claims, view(pod("p")), NOW).futile) == ["b"]
    assert refused(claims, view(pod("p")), {}, NOW)["uid-p"].claims == ("b",)


def test_daemons_and_pods_that_end_leave_a_node_empty() -> None:
    others = [pod("d", node="node-x", owner_kind="DaemonSet"), pod("e", node="node-x", deleting=True)]
    assert names(judge_nodes([claim("x", "p")], view(pod("p"), *others), NOW).futile) == ["x"]


def test_one_pod_that_runs_where_it_should_is_enough_and_tells_when_its_kind_was_last_taken() -> None:
    claims = [claim(name, "p", "q", ago_s=ago_s) for name, ago_s in (("x", 600), ("y", 300), ("z", 900))]
    on = [pod(f"q{name}", "b", node=f"node-{name}", metadata={"uid": "uid-q"}) for name in "xyz"]
    found = judge_nodes(claims, view(pod("p"), *on), NOW)
    assert found.futile == ()
    assert found.taken_at == {pod_kind(on[0]): NOW - 360}
    assert judge_nodes(claims, view(*on), NOW).taken_at == {}, "nobody waits"


def test_pods_are_of_one_kind_if_what_they_ask_of_a_node_is_the_same() -> None:
    one = pod("p")
    assert pod_kind(one) == pod_kind(pod("q", node="n", phase="Running"))
    others = [
        pod("p", "b"),
        pod("p", tolerations=[{"operator": "Exists"}]),
        Pod(metadata=ObjectMeta(name="p", namespace="other"), spec=one.spec),
        Pod(metadata=one.metadata, spec=PodSpec(node_selector={"kind": "a"}, scheduler_name="own")),
    ]
    selected = [PodSpec(node_selector=dict(items)) for items in (("a1", "b2"), ("b2", "a1"))]
    assert len({pod_kind(Pod(metadata=one.metadata, spec=spec)) for spec in selected}) == 1
    kinds = {pod_kind(item) for item in (one, *others)}
    assert len(kinds) == 5
    named = PodSpec(node_selector={"kind": "a"}, scheduler_name="default-scheduler")
    assert pod_kind(Pod(metadata=one.metadata, spec=named)) == pod_kind(one)


# What is noted of a pod


def test_each_node_in_vain_is_noted_once_for_each_of_its_pods_the_oldest_first() -> None:
    claims = [claim("b", "p", "q", ago_s=300), claim("a", "p", ago_s=200), claim("c", "p", ago_s=400)]
    found = refused(claims, view(pod("p"), pod("q"), pod("r")), {}, NOW)
    assert {uid: item.claims for uid, item in found.items()} == {"uid-p": ("c", "b", "a"), "uid-q": ("b",)}
    assert found["uid-p"] == Refusals(("c", "b", "a"), NOW, 3, NOW - 260, pod_kind(pod("p")))
    assert refused(claims, view(pod("p"), pod("q")), found, NOW) == {}


def test_nodes_launched_together_are_one_try() -> None:
    claims = [claim(name, "p", created_at=NOW - 500) for name in "abc"]
    assert refused(claims, view(pod("p")), {}, NOW)["uid-p"].tries == 1


def test_tries_go_on_from_what_is_known_of_all_pods_of_the_kind() -> None:
    kind = pod_kind(pod("p"))
    known = {
        "uid-q": Refusals(("x",), NOW - 100, 4, NOW - 2000, kind),
        "uid-gone": Refusals(("y",), NOW - 50, 6, NOW - 900, kind),
        "uid-old": Refusals(("z",), NOW - FUTILE_FOR_S, 9, NOW - 9000, kind),
    }
    claims = [claim("n", "p", ago_s=100), claim("before", "p", ago_s=1000)]
    found = refused(claims, view(pod("p"), pod("q")), known, NOW)
    assert found == {"uid-p": Refusals(("before", "n"), NOW, 7, NOW - 160, kind)}


def test_only_so_many_names_are_remembered_the_newest_ones() -> None:
    claims = [claim(f"c{number}", "p", ago_s=1000 - number) for number in range(MOST_NAMES + 2)]
    known = {"uid-p": Refusals(("old",), NOW - 5000)}
    assert refused(claims[:2], view(pod("p")), known, NOW)["uid-p"].claims == ("old", "c0", "c1")
    found = refused(claims, view(pod("p")), known, NOW)
    assert found["uid-p"].claims == tuple(f"c{number}" for number in range(2, MOST_NAMES + 2))
    assert len(found["uid-p"].claims) == MOST_NAMES == 8


def test_a_pod_without_a_uid_is_not_spoken_of() -> None:
    for own in (claim("x", "p"), claim("x", pods=(PodReference("default", "p", ""),))):
        assert refused([own], view(pod("p", metadata={"uid": ""})), {}, NOW) == {}
    assert hold_back(view(pod("p", metadata={"uid": ""})), [claim("x", "p")], {}, {}, NOW) == HeldBackPods(
        view(pod("p", metadata={"uid": ""}))
    )


def test_what_is_noted_is_written_and_counted() -> None:
    stage = Stage()
    stage.clock.advance(NOW - stage.clock.now())
    claims = [claim("x", "p", "q"), claim("y", "p"), claim("old", "p", ago_s=FUTILE_FOR_S), claim("noted", "p")]
    state = DecisionState(0, futile={"noted": NOW - 660})
    after = record_refusals(CLUSTER, claims, view(pod("p"), pod("q")), state, stage.context)
    read = stage.state.read(CLUSTER, NOW)
    assert sorted(after) == sorted(read.refused) == ["uid-p", "uid-q"]
    assert read.refused["uid-q"] == after["uid-q"]
    assert read.futile == {"x": NOW - 660, "y": NOW - 660}
    assert (stage.meter.counts["NodesInVain"], stage.meter.counts["PodsRefused"]) == (2, 2)


def test_nothing_is_written_or_counted_when_nothing_is_in_vain() -> None:
    stage = Stage()
    stage.clock.advance(NOW - stage.clock.now())
    known = {"uid-r": Refusals(("z",), NOW - 10)}
    after = record_refusals(CLUSTER, [], view(pod("p")), DecisionState(0, refused=known), stage.context)
    assert (after, stage.meter.counts) == (known, {})


def test_a_sweep_marks_only_so_many_nodes_and_pods() -> None:
    stage = Stage()
    stage.clock.advance(NOW - stage.clock.now())
    number = MOST_MARKS + 5
    claims = [claim(f"c{place:03}", f"p{place:03}") for place in range(number)]
    pods = [pod(f"p{place:03}") for place in range(number)]
    after = record_refusals(CLUSTER, claims, view(*pods), DecisionState(0), stage.context)
    read = stage.state.read(CLUSTER, NOW)
    assert len(after) == number
    assert len(read.refused) == len(read.futile) == MOST_MARKS == stage.meter.counts["NodesInVain"] == 100


# Whether another node is launched


def held(found: HeldBackPods) -> list[str]:
    """Names of the pods that are left out."""
    return sorted(set("pqrs") - {item.metadata.name for item in found.view.pods})


def tried(number: int, ago_s: float, **fields: Any) -> Refusals:
    kind = pod_kind(pod("p"))
    return Refusals(
        tuple(f"c{place}" for place in range(number)), NOW - ago_s, number, NOW - ago_s - 700, kind, **fields
    )


@pytest.mark.parametrize(
    ("number", "pause_s"),
    [
        (FREE - 1, 0.0),
        (FREE, FIRST_PAUSE_S),
        (FREE + 1, 2 * FIRST_PAUSE_S),
        (FREE + 2, LONGEST_PAUSE_S),
        (FREE + 20, LONGEST_PAUSE_S),
    ],
)
def test_after_a_few_nodes_in_vain_the_pause_doubles_up_to_an_hour(number: int, pause_s: float) -> None:
    for ago_s, waits in ((pause_s - 1, True), (pause_s, False)):
        if ago_s < 0:
            continue
        known = {"uid-p": tried(number, ago_s)}
        # Taken once since: then the pod alone is meant, not its kind.
        taken = [claim("t", "q", ago_s=-61)]
        seen = view(pod("p"), pod("q", node="node-t", phase="Running"))
        found = hold_back(seen, taken, known, {}, NOW)
        assert ("p" in held(found)) == waits
        assert (found.paused == {"uid-p"}) == waits
        if waits:
            (said,) = found.unschedulable
            assert f"{number} nodes were launched for it" in said.message
            assert f"(c{number - 3}, c{number - 2}, c{number - 1})" in said.message
            assert rfc3339(NOW - ago_s + pause_s) in said.message
    assert (FREE, FIRST_PAUSE_S, LONGEST_PAUSE_S) == (3, 900.0, 3600.0)


def test_of_a_kind_that_no_node_takes_a_new_pod_may_be_tried_and_the_others_wait() -> None:
    known = {"uid-p": tried(FREE, 10), "uid-q": tried(FREE, 20)}
    found = hold_back(view(*map(pod, "pqr")), [], known, {}, NOW)
    assert held(found) == ["p", "q", "s"]
    assert [item.pod.name for item in found.unschedulable] == ["p", "q"]
    assert all("the next node is launched after" in item.message for item in found.unschedulable)
    assert found.paused == {"uid-p", "uid-q"}


def test_when_the_pause_is_over_a_few_pods_are_tried_those_that_wait_longest_first() -> None:
    known = {f"uid-{name}": tried(FREE, FIRST_PAUSE_S + number) for number, name in enumerate("pqrs")}
    found = hold_back(view(*map(pod, "pqrs")), [], known, {}, NOW)
    assert held(found) == ["p"]
    assert "one try at a time is made" in found.unschedulable[0].message
    assert found.paused == frozenset()


def test_while_a_node_for_one_of_a_kind_is_on_its_way_none_of_the_others_is_tried() -> None:
    known = {f"uid-{name}": tried(FREE, FIRST_PAUSE_S) for name in "pqr"}
    coming = claim("n", "r", state=ClaimState.LAUNCHED, ago_s=5)
    found = hold_back(view(*map(pod, "pqr")), [coming], known, {}, NOW)
    assert held(found) == ["p", "q", "r", "s"]
    assert [item.pod.name for item in found.unschedulable] == ["p", "q"], "the third one has its node coming"
    assert hold_back(view(*map(pod, "pqr")), [], known, {}, NOW).unschedulable == ()


def test_a_pod_that_may_stand_for_one_that_was_deleted_is_no_news() -> None:
    departed = {"uid-gone": tried(FREE, 10)}
    found = hold_back(view(pod("p")), [], departed, {}, NOW)
    assert (held(found)[:1], found.paused) == (["p"], {"uid-p"})
    few = {"uid-gone": tried(FREE - 1, 10)}
    assert held(hold_back(view(pod("p")), [], few, {}, NOW)) == ["q", "r", "s"]
    past = {"uid-gone": tried(FREE, FUTILE_FOR_S)}
    assert held(hold_back(view(pod("p")), [], past, {}, NOW)) == ["q", "r", "s"]


def test_the_last_three_nodes_are_named_to_users() -> None:
    known = {"uid-p": tried(FREE + 2, 10)}
    (told,) = hold_back(view(pod("p")), [], known, {}, NOW).unschedulable
    assert "(c2, c3, c4)" in told.message
    alone = {"uid-p": replace(known["uid-p"], launched_at=NOW - 7000)}
    taken = claim("t", "r", created_at=NOW - 100)
    seen = view(pod("p"), pod("r", node="node-t", phase="Running"))
    (told,) = hold_back(seen, [taken], alone, {}, NOW).unschedulable
    assert told.message.startswith("5 nodes were launched for it, and it runs on none of them (c2, c3, c4)")


def test_pods_of_a_kind_are_told_of_the_nodes_that_were_in_vain_last() -> None:
    known = {"uid-p": tried(FREE, 20), "uid-q": replace(tried(FREE, 10), claims=("x", "y", "z"))}
    told = hold_back(view(pod("p"), pod("q")), [], known, {}, NOW).unschedulable
    assert ["(x, y, z)" in item.message for item in told] == [True, True]


def test_other_kinds_go_on() -> None:
    known = {"uid-p": tried(FREE, 10)}
    assert held(hold_back(view(pod("p"), pod("q", "b")), [], known, {}, NOW)) == ["p", "r", "s"]


@pytest.mark.parametrize(
    ("created_ago_s", "suspected"), [(711.0, "for it or for pods like it"), (710.0, "for it,"), (660.0, "for it,")]
)
def test_a_node_that_took_one_of_the_kind_since_ends_the_suspicion(created_ago_s: float, suspected: str) -> None:
    """The last node in vain was launched 710 s ago: one of the same launch that was taken clears the kind."""
    taken = claim("t", "r", created_at=NOW - created_ago_s)
    seen = view(pod("p"), pod("r", node="node-t", phase="Running"))
    found = hold_back(seen, [taken], {"uid-p": tried(FREE, 10)}, {}, NOW)
    assert suspected in found.unschedulable[0].message


def test_a_pod_whose_complete_node_is_closed_gets_no_other_before_it_is_judged() -> None:
    young = claim("n", "p", ago_s=5)
    closed = [node("node-n", cordoned=True), node("node-n", taints=(Taint("k", "NoSchedule", "v"),))]
    for there in closed:
        found = hold_back(view(pod("p"), nodes=(there,)), [young], {}, {}, NOW)
        assert (held(found)[0], found.unschedulable) == ("p", ())
    gone = hold_back(view(pod("p")), [young], {}, {}, NOW)
    assert held(gone)[0] == "p"
    tolerant = pod("p", tolerations=[{"key": "k", "operator": "Exists"}])
    for item, there in ((pod("p"), node("node-n")), (tolerant, closed[1])):
        assert held(hold_back(view(item, nodes=(there,)), [young], {}, {}, NOW)) == ["q", "r", "s"]


def test_a_pod_that_is_nominated_to_a_node_that_exists_is_never_left_out() -> None:
    known = {"uid-p": tried(FREE, 10), "uid-q": tried(FREE, 10)}
    seen = view(pod("p", nominated="node-n"), pod("q", nominated="node-x"), nodes=(node("node-n"),))
    found = hold_back(seen, [], known, {}, NOW)
    assert held(found) == ["q", "r", "s"]
    assert [item.pod.name for item in found.unschedulable] == ["q"]


def test_the_cluster_launches_no_more_suspect_nodes_than_its_windows_allow() -> None:
    known = {f"uid-{name}": tried(FREE, FIRST_PAUSE_S) for name in "pqr"}
    gone = {f"n{number}": NOW - 10 for number in range(MOST_IN_WINDOW[300.0] - 2)}
    found = hold_back(view(*map(pod, "pqr")), [], known, gone, NOW)
    assert held(found) == ["r", "s"]
    full = {f"n{number}": NOW - 10 for number in range(MOST_IN_WINDOW[300.0])}
    assert held(hold_back(view(*map(pod, "pqr")), [], known, full, NOW)) == ["p", "q", "r", "s"]


@pytest.mark.parametrize(
    ("ages_s", "left"),
    [
        ([], 35),
        ([299.0] * 35, 0),
        ([300.0] * 35, 25),
        ([299.0] * 34 + [3599.0] * 25, 1),
        ([3599.0] * 60, 0),
        ([3600.0] * 60, 35),
        ([1.0] * 80, 0),
    ],
)
def test_windows_bound_how_many_nodes_more_there_are(ages_s: list[float], left: int) -> None:
    assert allowance([NOW - age for age in ages_s], NOW) == left


# Which pods keep a node


def test_a_pod_that_waits_in_vain_for_an_hour_keeps_no_node_any_more() -> None:
    waiting = view(pod("p"), pod("q", node="node-x", phase="Running"))
    for ago_s, keeps in ((IN_VAIN_S - 1, True), (IN_VAIN_S, False)):
        known = {"uid-p": Refusals(("c",), NOW - ago_s, 1, NOW - ago_s)}
        assert (without_held_pods(waiting, [], known, NOW).pods == waiting.pods) == keeps
    gone = {"uid-q": Refusals(("c",), NOW - IN_VAIN_S, 1, NOW)}
    assert without_held_pods(waiting, [], gone, NOW).pods == waiting.pods, "it runs by now"


def test_a_pod_for_which_no_node_is_launched_now_keeps_none() -> None:
    assert without_held_pods(view(pod("p")), [], {"uid-p": tried(FREE, 10)}, NOW).pods == ()


def test_all_claims_are_looked_at_only_if_a_pod_waits_and_something_is_known_or_a_node_is_empty() -> None:
    empty = node("node-n", labels={labels.INITIALIZED: "true", labels.NODE_CLAIM: "c"})
    waiting = view(pod("p"), nodes=(empty,))
    assert may_be_held(waiting, (), {}, {})
    assert not may_be_held(view(nodes=(empty,)), (), {}, {})
    assert not may_be_held(view(pod("p"), pod("q", node="node-n"), nodes=(empty,)), (), {}, {})
    assert may_be_held(view(pod("p"), pod("q", node="node-n", owner_kind="DaemonSet"), nodes=(empty,)), (), {}, {})
    assert not may_be_held(view(pod("p"), nodes=(node("node-n", labels={labels.NODE_CLAIM: "c"}),)), (), {}, {})
    assert not may_be_held(view(pod("p"), nodes=(node("node-n", labels={labels.INITIALIZED: "true"}),)), (), {}, {})
    other = node("node-m", labels={labels.INITIALIZED: "true", labels.NODE_CLAIM: "d"})
    assert may_be_held(view(pod("p"), pod("q", node="node-n"), nodes=(empty, other)), (), {}, {})
    assert may_be_held(view(pod("p")), (), {"uid-x": tried(1, 1)}, {})
    assert may_be_held(view(pod("p")), (), {}, {"n": NOW})
    assert not may_be_held(view(), (), {"uid-x": tried(1, 1)}, {"n": NOW})


# Pods of nodes that are being drained

FOREIGN = Taint("k", "NoSchedule", "v")


def drained(*pods: Pod, state: ClaimState = ClaimState.DRAINING, **fields: Any) -> tuple[NodeClaim, tuple[Pod, ...]]:
    """A node that is to go, and pods that run on it until they may be evicted."""
    there = tuple(pod(item.metadata.name, node="node-old", phase="Running") for item in pods)
    return claim("old", *(item.metadata.name for item in pods), state=state, **fields), there


@pytest.mark.parametrize(
    ("there", "in_vain"),
    [
        (node("node-x", taints=(FOREIGN,)), True),
        (node("node-x", cordoned=True), True),
        (node("node-x"), False),
        (node("node-x", taints=(DISRUPTED,)), False),
        (node("node-y"), False),
    ],
)
def test_a_node_for_a_pod_not_evicted_yet_is_in_vain_only_if_others_closed_it(there: Node, in_vain: bool) -> None:
    old, pods = drained(pod("p"))
    claims = [old, claim("x", "p")]
    assert names(judge_nodes(claims, view(*pods, nodes=(there,)), NOW).futile) == (["x"] if in_vain else [])
    found = refused(claims, view(*pods, nodes=(there,)), {}, NOW)
    assert {uid: item.claims for uid, item in found.items()} == ({"uid-p": ("x",)} if in_vain else {})


@pytest.mark.parametrize("state", [ClaimState.INITIALIZED, ClaimState.DISRUPTING])
def test_pods_of_a_node_that_may_stay_do_not_wait(state: ClaimState) -> None:
    old, pods = drained(pod("p"), state=state)
    assert refused([old, claim("x", "p")], view(*pods, nodes=(node("node-x", taints=(FOREIGN,)),)), {}, NOW) == {}


def test_pods_of_a_deleted_node_wait_but_not_those_that_must_not_be_disrupted() -> None:
    _, pods = drained(pod("p"), pod("q"))
    kept = replace(pods[1], metadata=replace(pods[1].metadata, annotations={labels.DO_NOT_DISRUPT: "true"}))
    gone = node("node-old", deleting=True)
    others = [pod("r", node="node-stays", phase="Running"), pod("s", deleting=True), pod("t", phase="Failed")]
    nodes = (gone, node("node-stays"))
    assert set(waiting_pods(view(pods[0], kept, *others, nodes=nodes), (), NOW)) == {"uid-p"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_on_a_node_that_leaves_do_not_wait(phase: str) -> None:
    old, (running, ended) = drained(pod("p"), pod("q"))
    over = replace(ended, status=replace(ended.status, phase=phase))
    assert set(waiting_pods(view(running, over), (old,), NOW)) == {"uid-p"}


def test_after_nodes_in_vain_none_is_launched_for_a_pod_that_is_not_evicted_yet() -> None:
    """It stays in the view as a pod that needs no room elsewhere, and its node is not launched every minute."""
    old, pods = drained(pod("p"))
    found = hold_back(view(*pods), [old], {"uid-p": tried(FREE, 10)}, {}, NOW)
    (left,) = found.view.pods
    assert left.spec == pods[0].spec
    assert not needs_room_elsewhere(left, NOW)
    assert [item.pod.name for item in found.unschedulable] == ["p"]
    assert not needs_room_elsewhere(without_held_pods(view(*pods), [old], {"uid-p": tried(FREE, 10)}, NOW).pods[0], NOW)
    later = hold_back(view(*pods), [old], {"uid-p": tried(FREE, FIRST_PAUSE_S)}, {}, NOW)
    assert later.view.pods == pods


def test_a_pod_not_evicted_yet_gets_no_other_node_before_its_closed_one_is_judged() -> None:
    old, pods = drained(pod("p"))
    seen = view(*pods, nodes=(node("node-x", taints=(FOREIGN,)),))
    found = hold_back(seen, [old, claim("x", "p", ago_s=5)], {}, {}, NOW)
    assert not needs_room_elsewhere(found.view.pods[0], NOW)
    assert found.unschedulable == ()


def test_all_claims_are_looked_at_for_pods_that_are_not_evicted_yet() -> None:
    old, pods = drained(pod("p"))
    assert may_be_held(view(*pods), (old,), {"uid-p": tried(1, 1)}, {})
    assert not may_be_held(view(*pods), (), {"uid-p": tried(1, 1)}, {})
    assert not may_be_held(view(), (old,), {"uid-p": tried(1, 1)}, {})


def test_a_few_failures_of_pods_that_are_gone_hold_back_none_of_those_that_came() -> None:
    few = {"uid-gone": tried(FREE - 1, 10)}
    assert held(hold_back(view(*map(pod, "pqrs")), [], few, {}, NOW)) == []


def of_kind(kind: str, number: int) -> Refusals:
    return Refusals(("c1", "c2", "c3"), NOW - FIRST_PAUSE_S - number, FREE, NOW - 9000, pod_kind(pod("x", kind)))


@pytest.mark.parametrize("names", [{"a": "pqr", "b": "stu"}, {"b": "pqr", "a": "stu"}])
def test_kinds_share_what_the_windows_leave_the_one_that_has_waited_longest_first(names: dict[str, str]) -> None:
    """Of four nodes more the older kind gets three and the younger one; equally old ones come by kind."""
    pods = [pod(name, kind) for kind, some in names.items() for name in some]
    gone = {f"n{number}": NOW - 10 for number in range(MOST_IN_WINDOW[300.0] - 4)}
    kinds = sorted("ab", key=lambda kind: pod_kind(pod("x", kind)))
    for ages, first in (({"a": 5, "b": 1}, "a"), ({"a": 1, "b": 5}, "b"), ({"a": 3, "b": 3}, kinds[0])):
        known = {f"uid-{name}": of_kind(kind, ages[kind]) for kind, some in names.items() for name in some}
        left = {item.metadata.name for item in hold_back(view(*pods), [], known, gone, NOW).view.pods}
        second = "ab".replace(first, "")
        assert left == {*names[first], names[second][0]}


def test_equally_old_pods_of_a_kind_are_tried_by_name() -> None:
    known = {f"uid-{name}": of_kind("a", 1) for name in "pqrs"}
    assert held(hold_back(view(*map(pod, "srqp")), [], known, {}, NOW)) == ["s"]
    swapped = [pod(name, metadata={"uid": f"uid-{uid}"}) for name, uid in zip("pqrs", "srqp", strict=True)]
    assert held(hold_back(view(*swapped), [], known, {}, NOW)) == ["s"]


def test_no_other_node_is_tried_for_a_kind_while_one_is_complete_and_not_judged_yet() -> None:
    """Its pod has been noted before, and the pause is over."""
    known = {f"uid-{name}": of_kind("a", 1) for name in "pqrs"}
    young = claim("n", "p", ago_s=PATIENCE_S - 1)
    found = hold_back(view(*map(pod, "pqrs"), nodes=(node("node-n"),)), [young], known, {}, NOW)
    assert held(found) == ["p", "q", "r", "s"]


@pytest.mark.parametrize(("kind", "left"), [("a", 1), ("c", FREE)])
def test_nodes_on_their_way_count_against_the_windows_if_they_are_for_suspects(kind: str, left: int) -> None:
    """34 nodes are coming for pods of a kind that no node takes, or of another one; 35 are allowed."""
    others = [pod(f"x{number:02}", kind) for number in range(34)]
    coming = [claim(f"n{number:02}", f"x{number:02}", state=ClaimState.LAUNCHED, ago_s=5) for number in range(34)]
    known = {f"uid-{name}": of_kind("b", 1) for name in "pqr"} | ({"uid-x00": of_kind("a", 1)} if kind == "a" else {})
    found = hold_back(view(*(pod(name, "b") for name in "pqr"), *others), coming, known, {}, NOW)
    assert len({item.metadata.name for item in found.view.pods} & set("pqr")) == left


def test_a_pod_without_a_namespace_is_told_of_in_the_default_one() -> None:
    bare = Pod(
        metadata=ObjectMeta(name="p", namespace="", uid="uid-p"),
        spec=PodSpec(),
        status=PodStatus(phase="Pending"),
    )
    other = Pod(
        metadata=ObjectMeta(name="q", namespace="n", uid="uid-q"),
        spec=PodSpec(),
        status=PodStatus(phase="Pending"),
    )
    known = {
        item.metadata.uid: Refusals(("c",) * FREE, NOW - 10, FREE, NOW - 900, pod_kind(item)) for item in (bare, other)
    }
    found = hold_back(view(bare, other), [], known, {}, NOW)
    assert sorted(item.pod.namespace for item in found.unschedulable) == ["default", "n"]


@pytest.mark.parametrize(("ago_s", "noted"), [(PATIENCE_S - 0.5, False), (PATIENCE_S, True)])
def test_a_pod_is_noted_when_its_complete_node_has_had_its_time(ago_s: float, noted: bool) -> None:
    found = refused([claim("x", "p", ago_s=ago_s)], view(pod("p")), {}, NOW)
    assert list(found) == (["uid-p"] if noted else [])


@pytest.mark.parametrize(("created_ago_s", "marked"), [(FUTILE_FOR_S - 1, True), (FUTILE_FOR_S, False)])
def test_a_node_in_vain_of_long_ago_is_not_marked(created_ago_s: float, marked: bool) -> None:
    stage = Stage()
    now = stage.clock.now()
    old = claim("x", "p", changed_at=now - 600, created_at=now - created_ago_s)
    record_refusals(CLUSTER, [old], view(pod("p")), DecisionState(0), stage.context)
    assert (stage.state.read(CLUSTER, now).futile == {"x": now - created_ago_s}) is marked
    assert stage.meter.counts.get("NodesInVain") == (1.0 if marked else None)


@pytest.mark.parametrize(("ago_s", "counts"), [(FUTILE_FOR_S - 1, True), (FUTILE_FOR_S, False)])
def test_what_was_noted_of_pods_that_are_gone_counts_for_an_hour(ago_s: float, counts: bool) -> None:
    """A pod of their kind is then the next try, not the first."""
    like = pod_kind(pod("new"))
    gone = Refusals(("a", "b", "c", "d"), NOW - ago_s, FREE + 1, NOW - ago_s, like)
    held = hold_back(view(pod("new")), [], {"uid-old": gone}, {}, NOW)
    assert (held.unschedulable != ()) is (counts and gone.at + 2 * FIRST_PAUSE_S > NOW)
    found = refused([claim("x", "new")], view(pod("new")), {"uid-old": gone}, NOW)
    assert found["uid-new"].number == (FREE + 2 if counts else 1)


@pytest.mark.parametrize(("ago_s", "kept"), [(IN_VAIN_S - 1, True), (IN_VAIN_S, False)])
def test_a_pod_keeps_its_node_for_an_hour_of_waiting_on_it_in_vain(ago_s: float, kept: bool) -> None:
    known = {"uid-p": Refusals(("x",), NOW - ago_s, 1, NOW - ago_s, "")}
    seen = view(pod("p"), pod("bound", node="node-x"))
    left = without_held_pods(seen, [], known, NOW)
    assert [item.metadata.name for item in left.pods] == (["p", "bound"] if kept else ["bound"])


def test_a_first_refusal_counts_from_when_it_was_noted_where_older_releases_wrote_it() -> None:
    """Items of those lack when the claim was launched."""
    known = {"uid-p": Refusals(("x",), NOW - 100)}
    young = claim("y", "q", created_at=NOW - 50)
    found = refused([young], view(pod("p"), pod("q")), known, NOW)
    assert found["uid-q"].number == 2
    old = claim("y", "q", created_at=NOW - 200)
    assert refused([old], view(pod("p"), pod("q")), known, NOW)["uid-q"].number == 1
