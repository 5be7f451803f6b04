"""Tests the memory of nodes between decisions."""

from __future__ import annotations

import pytest

from shiplap.disruption.disruption_snapshot import NodeHistory
from shiplap.disruption.node_history import (
    backoff_until,
    observe_nodes,
    with_drift,
    with_moves,
    with_undone,
)
from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.pods import pod
from tests.conformance.disruptions import Standing, standing


def look(known: tuple[NodeHistory, ...], now: float, *pods: Pod, node: Standing | None = None) -> NodeHistory:
    item = node or standing("a")
    claims = (item.claim,) if item.claim is not None else ()
    (history,) = observe_nodes(known, ClusterView(pods=pods, nodes=(item.node,)), claims, now)
    return history


def test_a_node_seen_first_counts_as_changed_now() -> None:
    assert look((), 500.0, pod("p", node="a")).last_pod_event_at == 500.0


@pytest.mark.parametrize(("state", "since"), [(ClaimState.INITIALIZED, 300.0), (ClaimState.DISRUPTING, 500.0)])
def test_a_node_seen_first_is_initialised_since_its_claim_says_so(state: ClaimState, since: float) -> None:
    assert look((), 500.0, node=standing("a", state=state, made={"changed_at": 300.0})).initialized_at == since


def test_pods_that_stay_change_nothing() -> None:
    first = look((), 500.0, pod("p", node="a"), pod("q", node="a"))
    assert look((first,), 900.0, pod("q", node="a"), pod("p", node="a")) == first


def test_a_pod_that_comes_or_goes_is_an_event() -> None:
    first = look((), 500.0, pod("p", node="a"))
    assert look((first,), 900.0).last_pod_event_at == 900.0
    assert look((first,), 900.0, pod("p", node="a"), pod("q", node="a")).last_pod_event_at == 900.0


def test_daemons_are_no_event() -> None:
    first = look((), 500.0)
    assert look((first,), 900.0, pod("agent", node="a", owner="agent")) == first


def test_nodes_that_are_not_initialised_or_not_ours_are_not_remembered() -> None:
    for item in (standing("a", initialized=False), standing("a", claimed=False)):
        claims = (item.claim,) if item.claim is not None else ()
        assert observe_nodes((), ClusterView(nodes=(item.node,)), claims, 1.0) == ()


def test_a_node_that_is_not_remembered_hides_none_behind_it() -> None:
    items = (standing("a", initialized=False), standing("b", claimed=False), standing("c"))
    claims = tuple(item.claim for item in items if item.claim is not None)
    seen = observe_nodes((), ClusterView(nodes=tuple(item.node for item in items)), claims, 1.0)
    assert [history.node for history in seen] == ["c"]


def test_a_node_being_disrupted_keeps_what_is_known() -> None:
    first = look((), 500.0, pod("p", node="a"))
    assert look((first,), 900.0, pod("p", node="a"), node=standing("a", state=ClaimState.DISRUPTING)) == first


def test_drift_is_dated_once_and_forgotten_when_it_ends() -> None:
    known = (NodeHistory("a"), NodeHistory("b", drifted_at=5.0), NodeHistory("c", drifted_at=6.0))
    assert [item.drifted_at for item in with_drift(known, {"a", "b"}, 9.0)] == [9.0, 5.0, 0.0]


def test_moved_pods_are_dated() -> None:
    assert [item.moved_in_at for item in with_moves((NodeHistory("a"), NodeHistory("b")), {"b"}, 9.0)] == [0.0, 9.0]


@pytest.mark.parametrize(("hint", "moved"), [("test/7/disruption", True), ("test/pods/7", False), ("", False)])
def test_pods_are_moved_onto_a_replacement(hint: str, moved: bool) -> None:
    item = standing("a", made={"event_id": hint, "changed_at": 700.0})
    first = look((), 900.0, node=item)
    assert first.moved_in_at == (700.0 if moved else 0.0)
    assert look((first,), 990.0, pod("p", node="a"), node=item).moved_in_at == first.moved_in_at


def test_a_node_rests_twice_as_long_each_time_until_it_is_forgiven() -> None:
    known = (NodeHistory("a"), NodeHistory("b"))
    rests = []
    for _ in range(8):
        known = with_undone(known, {"a"}, 1000.0)
        rests.append(backoff_until(known[0]) - 1000.0)
    assert rests[:3] == [900.0, 1800.0, 3600.0]
    assert rests[-1] == 4 * 3600.0
    assert backoff_until(known[1]) == 0.0
    assert with_undone(known, {"a"}, 1000.0 + 24 * 3600.0 - 1)[0].undone == 9
    assert with_undone(known, {"a"}, 1000.0 + 24 * 3600.0)[0].undone == 1
    long_ago = with_undone((NodeHistory("a", undone_at=1e9, undone=3),), {"a"}, 1e9 + 60)
    assert (long_ago[0].undone, long_ago[0].undone_at) == (4, 1e9 + 60), "whatever the time is"


def test_nothing_is_said_of_a_node_that_is_new() -> None:
    new = NodeHistory("n")
    assert (new.last_pod_event_at, new.initialized_at, new.drifted_at, new.moved_in_at) == (0.0, 0.0, 0.0, 0.0)
    assert (new.undone_at, new.undone, new.said_to_drift, new.said_to_stay) == (0.0, 0, "", False)
