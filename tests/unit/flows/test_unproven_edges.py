"""Tests when a plan could lead to a launch at all, and what limits of AMIs and kinds of pods leave at the edges."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.flows.planning.futile_launches import pod_kind
from shiplap.flows.planning.unproven import (
    FIVE_MINUTES_S,
    RENEW_S,
    SHRINKS,
    UnprovenPodLimit,
    are_amis_full,
    counts_as_unproven,
    has_room_for,
    limits_of_amis,
    mark_unproven,
    record_kinds,
    running_kinds,
    unproven_pod_limit,
    windows,
    within_ami_limits,
    within_limit,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.readiness.joins import AmiJoins, JoinHistory, JoinRecord
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import LEAVING, ClaimState, NodeClaim, PodReference
from shiplap.ports import FUTILE_FOR_S, DecisionState, Refusals
from shiplap.scheduling.model.snapshot import ClusterView
from tests.builders.claims import node_claim, with_fields
from tests.builders.pods import pod_of_kind as pod
from tests.integration.flows.stage import Stage

NOW = 1_000_000.0
FULL = (NOW - 1.0,) * 60


def of(kind: str) -> str:
    return pod_kind(pod("any", kind))


def kind(name: str, ami: str, *, verified: bool = False) -> InstanceType:
    return InstanceType(name=name, requirements=(), capacity={}, overhead={}, offerings=(), ami=ami, verified=verified)


def joins(*records: AmiJoins) -> JoinHistory:
    return JoinHistory(amis=records)


@pytest.mark.parametrize(
    ("history", "limits"),
    [
        (joins(), {"ami-1": 200, "ami-2": 200}),
        (joins(AmiJoins("ami-1", JoinRecord(joined_at=5.0))), {"ami-2": 200}),
        (joins(AmiJoins("ami-1", JoinRecord(failures=1))), {"ami-1": 200 // SHRINKS, "ami-2": 200}),
        (joins(AmiJoins("ami-1", JoinRecord(failures=2))), {"ami-1": 2, "ami-2": 200}),
        (joins(AmiJoins("ami-1", JoinRecord(failures=3))), {"ami-1": 1, "ami-2": 200}),
        (joins(AmiJoins("ami-1", JoinRecord(failures=5000))), {"ami-1": 1, "ami-2": 200}),
        (joins(AmiJoins("ami-9", JoinRecord(failures=1))), {"ami-1": 200, "ami-2": 200}),
    ],
)
def test_each_failure_in_a_row_makes_the_first_batch_of_an_ami_smaller(
    history: JoinHistory, limits: dict[str, int]
) -> None:
    sold = [kind("a", "ami-1"), kind("b", "ami-2"), kind("c", ""), kind("d", "ami-3", verified=True)]
    found = limits_of_amis(history, sold, 200)
    assert found == limits
    assert list(found) == sorted(found)


def test_one_verified_type_proves_its_ami() -> None:
    assert limits_of_amis(joins(), [kind("a", "ami-1"), kind("b", "ami-1", verified=True)], 200) == {}


def flying(state: ClaimState, ami: str) -> NodeClaim:
    return node_claim(name="f", state=state, instance_id="i-1" if ami else "", ami=ami)


@pytest.mark.parametrize(
    ("claims", "limits", "full"),
    [
        ([flying(ClaimState.LAUNCHED, "ami-1")], {"ami-1": 1}, True),
        ([flying(ClaimState.LAUNCHED, "ami-1")], {"ami-1": 2}, False),
        ([flying(ClaimState.LAUNCHED, "ami-1")] * 2, {"ami-1": 1}, True),
        ([flying(ClaimState.LAUNCHING, "")], {"ami-1": 1}, False),
        ([flying(ClaimState.REGISTERED, "ami-1")], {"ami-1": 1}, False),
        ([flying(ClaimState.LAUNCHED, "ami-1")], {}, False),
    ],
)
def test_an_ami_is_full_when_as_many_nodes_are_on_their_way_as_it_may_have(
    claims: list[NodeClaim], limits: dict[str, int], full: bool
) -> None:
    assert are_amis_full([kind("a", "ami-1")], claims, limits) is full
    assert not are_amis_full([kind("a", "ami-1"), kind("b", "ami-2")], claims, limits)
    assert not are_amis_full([], claims, limits)


def test_without_limits_all_groups_are_launched_and_types_are_not_looked_up() -> None:
    groups = [[node_claim(name="a")], [node_claim(name="b")]]

    def never(_: NodeClaim) -> dict[str, InstanceType]:
        raise AssertionError

    assert within_ami_limits(groups, [], {}, never) == groups


def test_more_than_the_limit_on_their_way_leaves_nothing() -> None:
    groups = [[node_claim(name="a", instance_types=("new",))]]
    over = [flying(ClaimState.LAUNCHED, "ami-1")] * 3
    assert within_ami_limits(groups, over, {"ami-1": 2}, lambda _: {"new": kind("new", "ami-1")}) == []
    assert within_ami_limits(groups, over, {"ami-1": 4}, lambda _: {"new": kind("new", "ami-1")}) == groups
    assert within_ami_limits(groups, over, {"ami-1": 2}, lambda _: {}) == groups  # it is of no ami that is known


def ending(name: str = "n") -> Node:
    return msgspec.convert({"metadata": {"name": name, "deletionTimestamp": rfc3339(NOW)}}, Node)


@pytest.mark.parametrize(
    ("pods", "bound", "claims", "nodes", "room"),
    [
        ([pod("p")], UnprovenPodLimit(windows(35)), [], (), True),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL), [], (), False),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL, proven={of("a")}), [], (), True),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL, proven={of("b")}), [], (), False),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL), [node_claim(name="c", state=ClaimState.DRAINING)], (), True),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL), [node_claim(name="c", state=ClaimState.LAUNCHED)], (), False),
        ([pod("p")], UnprovenPodLimit(windows(35), FULL), [], (ending(),), True),
        # What is left of the hour is for the first node of each kind.
        ([pod("p")], UnprovenPodLimit(windows(35), (NOW - 400,) * 55), [], (), True),
        ([pod("p")], UnprovenPodLimit(windows(35), (NOW - 400,) * 55, tried={of("a"): 1}), [], (), False),
        ([pod("p"), pod("q", "b")], UnprovenPodLimit(windows(35), (NOW - 400,) * 55, tried={of("a"): 1}), [], (), True),
    ],
)
def test_when_a_plan_could_lead_to_a_launch(
    pods: list[Any], bound: UnprovenPodLimit, claims: list[NodeClaim], nodes: tuple[Node, ...], room: bool
) -> None:
    assert has_room_for(ClusterView(pods=tuple(pods), nodes=nodes), claims, bound, NOW) is room


@pytest.mark.parametrize(
    ("ages_s", "first", "further"),
    [
        ([], 35, 35),
        ([10.0] * 34, 1, 1),
        ([FIVE_MINUTES_S] * 35, 25, 15),  # a sixth of the hour's 60 is for first nodes
        ([FIVE_MINUTES_S - 1] * 35, 0, 0),
        ([400.0] * 50, 10, 0),
        ([400.0] * 49, 11, 1),
        ([400.0] * 60, 0, 0),
        ([FUTILE_FOR_S] * 60, 35, 35),
    ],
)
def test_a_part_of_the_hour_is_for_the_first_node_of_each_kind(ages_s: list[float], first: int, further: int) -> None:
    bound = UnprovenPodLimit(windows(35), tuple(sorted(NOW - age for age in ages_s)))
    assert (bound.allowed(NOW), bound.allowed(NOW, is_first=False)) == (first, further)


def wants(name: str, *kinds: str, pods: tuple[PodReference, ...] = ()) -> NodeClaim:
    return node_claim(name=name, unproven=tuple(map(of, kinds)), pods=pods)


def test_of_kinds_with_as_many_nodes_the_one_whose_pods_wait_longest_is_first() -> None:
    def waiting(name: str, created: str) -> Any:
        made = pod(name, name)
        return replace(made, metadata=replace(made.metadata, uid=name, creation_timestamp=created))

    view = ClusterView(pods=(waiting("new", "2026-01-02T00:00:00Z"), waiting("old", "2026-01-01T00:00:00Z")))
    claims = [wants(name, name, pods=(PodReference("default", name, name),)) for name in ("new", "old")]
    one = UnprovenPodLimit(windows(35), (NOW - 1.0,) * 34)
    kept, told = within_limit(claims, one, view, NOW)
    assert [item.name for item in kept] == ["old"]
    assert [item.pod.name for item in told] == ["new"]
    assert told[0].message.startswith("35 nodes were launched within 5 minutes")


def test_a_claim_of_several_kinds_counts_as_the_one_with_fewest_nodes() -> None:
    bound = UnprovenPodLimit(windows(35), (NOW - 1.0,) * 34, tried={of("a"): 2, of("c"): 1})
    kept, _ = within_limit([wants("c", "c"), wants("ab", "a", "b")], bound, ClusterView(), NOW)
    assert [item.name for item in kept] == ["ab"]


CLAIM = node_claim(name="c", cluster="demo", state=ClaimState.INITIALIZED, node_name="n", unproven=(of("a"),))


@pytest.mark.parametrize(
    ("item", "pods", "proven", "counts"),
    [
        (CLAIM, [], set(), True),
        (with_fields(CLAIM, unproven=()), [], set(), False),
        (CLAIM, [], {of("a")}, False),
        (with_fields(CLAIM, unproven=(of("a"), of("b"))), [], {of("b")}, False),
        (CLAIM, [pod("x", "z", node="n")], set(), False),
        (CLAIM, [pod("x", "z", node="other")], set(), True),
        (CLAIM, [pod("x", "z", node="n", phase="Failed")], set(), True),
        (CLAIM, [pod("x", "z", node="n", owner_kind="DaemonSet")], set(), True),
        (with_fields(CLAIM, state=ClaimState.FAILED), [], set(), False),
        (with_fields(CLAIM, state=ClaimState.FAILED, instance_id="i-1"), [], set(), True),
    ],
)
def test_which_nodes_count_as_tries(item: NodeClaim, pods: list[Any], proven: set[str], counts: bool) -> None:
    assert counts_as_unproven(item, ClusterView(pods=tuple(pods)), proven) is counts


def test_a_kind_runs_where_other_nodes_might_have_taken_its_pod() -> None:
    pods = (
        pod("a", "a", node="n"),
        pod("b", "b", node="n", phase="Failed"),
        pod("c", "c", node="n", owner_kind="DaemonSet"),
        pod("d", "d"),
    )
    assert running_kinds(ClusterView(pods=pods)) == {of("a")}


@pytest.mark.parametrize(("age_s", "renewed"), [(RENEW_S - 1, False), (RENEW_S, True)])
def test_what_runs_is_written_down_once_a_day(age_s: float, renewed: bool) -> None:
    stage = Stage()
    now = stage.clock.now()
    state = DecisionState(0, proven={of("a"): now - age_s})
    record_kinds("demo", [], ClusterView(pods=(pod("p", "a", node="n"),)), state, stage.context)
    assert stage.state.read("demo", now).proven == ({of("a"): now} if renewed else {})
    idle = Stage()
    record_kinds("demo", [], ClusterView(), state, idle.context)
    assert idle.faults.points == []


@pytest.mark.parametrize(
    ("state", "noted", "created_ago_s", "written"),
    [
        *((item, False, 10.0, True) for item in sorted(LEAVING)),
        (ClaimState.INITIALIZED, False, 10.0, False),
        (ClaimState.DRAINING, True, 10.0, False),
        (ClaimState.DRAINING, False, FUTILE_FOR_S, False),
        (ClaimState.DRAINING, False, FUTILE_FOR_S - 1, True),
    ],
)
def test_a_node_that_leaves_untried_is_noted_once_while_it_counts(
    state: ClaimState, noted: bool, created_ago_s: float, written: bool
) -> None:
    stage = Stage()
    created_at = stage.clock.now() - created_ago_s
    known = DecisionState(0, futile={"c": created_at} if noted else {})
    record_kinds("demo", [with_fields(CLAIM, state=state, created_at=created_at)], ClusterView(), known, stage.context)
    found = stage.state.read("demo", stage.clock.now() - created_ago_s).futile
    assert found == ({"c": created_at} if written else {})


def test_refusals_without_a_kind_tell_of_none() -> None:

    state = DecisionState(
        0, refused={"u": Refusals(("x",), NOW, 1, NOW, ""), "v": Refusals(("y",), NOW, 1, NOW, of("a"))}
    )
    assert dict(unproven_pod_limit(35, ClusterView(), [], state, NOW).tried) == {of("a"): 1}


# First nodes of kinds, and further ones


def launching(name: str, *kinds: str) -> NodeClaim:
    """A planned claim for one pod of each kind."""
    pods = tuple(PodReference("default", f"{name}-{kind}", f"uid-{name}-{kind}") for kind in kinds)
    return node_claim(cluster="demo", name=name, pods=pods, unproven=tuple(map(of, kinds)))


USED = (NOW - 600.0,) * 50
"""What further nodes of kinds may be within an hour: the last ten of sixty are for first ones."""


@pytest.mark.parametrize(
    ("planned", "tried", "kept"),
    [
        ([launching("x", "a"), launching("y", "b")], {"a": 1}, ["y"]),
        ([launching("x", "a"), launching("y", "a")], {}, ["x"]),
        ([launching("x", "a", "b")], {"a": 5}, ["x"]),
        ([launching("x", "a", "b")], {"a": 5, "b": 1}, []),
        ([launching("x", "a", "b"), launching("y", "b"), launching("z", "c")], {}, ["x", "z"]),
    ],
    ids=["another kind", "two of a kind", "one kind is new", "neither is new", "a kind that was just tried"],
)
def test_the_last_nodes_of_an_hour_are_first_ones_of_their_kinds(
    planned: list[NodeClaim], tried: dict[str, int], kept: list[str]
) -> None:
    bound = UnprovenPodLimit(windows(35), launched_at=USED, tried={of(name): count for name, count in tried.items()})
    found, told = within_limit(planned, bound, ClusterView(), NOW)
    assert [claim.name for claim in found] == kept
    late = [claim for claim in planned if claim.name not in kept]
    assert [item.pod for item in told] == [pod for claim in late for pod in claim.plan.pods]
    number = 50 + len(kept)
    assert all(item.message.startswith(f"{number} nodes were launched within 60 minutes ") for item in told)


def test_of_pods_that_came_too_late_each_is_told_what_keeps_its_node() -> None:
    bound = UnprovenPodLimit(windows(35), launched_at=(NOW - 600.0,) * 60, tried={of("a"): 1})
    _, told = within_limit([launching("x", "a"), launching("y", "b")], bound, ClusterView(), NOW)
    assert [item.pod.name for item in told] == ["x-a", "y-b"]
    assert {item.message[:2] for item in told} == {"60"}


@pytest.mark.parametrize(
    ("launched_ago_s", "number"),
    [([10.0] * 35 + [4000.0], 35), ([10.0] * 35 + [300.0], 35), ([10.0] * 35 + [299.0], 36), ([10.0] * 36, 36)],
)
def test_a_reason_counts_what_was_launched_within_its_window(launched_ago_s: list[float], number: int) -> None:
    launched_at = tuple(sorted(NOW - ago for ago in launched_ago_s))
    said = UnprovenPodLimit(windows(35), launched_at=launched_at).reason(NOW)
    assert said.startswith(f"{number} nodes were launched within 5 minutes ")


def counted(*claims: NodeClaim, state: DecisionState | None = None) -> UnprovenPodLimit:
    return unproven_pod_limit(35, ClusterView(), claims, state or DecisionState(0), NOW)


def test_nodes_in_vain_and_those_that_are_there_count_once_each() -> None:
    noted = DecisionState(0, futile={"x": NOW - 70, "gone": NOW - 80, "gone-too": NOW - 60})
    there = replace(launching("x", "a"), state=ClaimState.INITIALIZED, created_at=NOW - 70)
    assert counted(there, state=noted).launched_at == (NOW - 80, NOW - 70, NOW - 60)


@pytest.mark.parametrize(("ago_s", "counts"), [(FUTILE_FOR_S - 1, True), (FUTILE_FOR_S, False)])
def test_a_node_counts_for_an_hour_with_all_its_kinds(ago_s: float, counts: bool) -> None:
    known = DecisionState(0, refused={"uid": Refusals(("c",), NOW, 1, NOW, of("a")), "other": Refusals(("d",), NOW)})
    there = replace(launching("x", "a", "b"), state=ClaimState.INITIALIZED, created_at=NOW - ago_s)
    found = counted(there, state=known)
    assert found.launched_at == ((NOW - ago_s,) if counts else ())
    assert dict(found.tried) == ({of("a"): 2, of("b"): 1} if counts else {of("a"): 1})


@pytest.mark.parametrize("namespace", ["default", "other", ""])
def test_pods_of_claims_are_found_in_their_namespaces(namespace: str) -> None:
    waiting = pod("p")
    waiting = replace(waiting, metadata=replace(waiting.metadata, namespace=namespace))
    claim = node_claim(cluster="demo", name="x", pods=(PodReference(namespace or "default", "p", "uid-p"),))
    (found,) = mark_unproven([claim], ClusterView(pods=(waiting,)), set())
    assert found.plan.unproven == (pod_kind(waiting),)


@pytest.mark.parametrize(("launched", "has_room"), [(49, True), (50, True), (59, True), (60, False)])
def test_a_new_kind_has_room_as_long_as_one_node_may_be_launched(launched: int, has_room: bool) -> None:
    bound = UnprovenPodLimit(windows(35), launched_at=(NOW - 600.0,) * launched)
    assert has_room_for(ClusterView(pods=(pod("p"),)), (), bound, NOW) is has_room


@pytest.mark.parametrize(("known", "noted"), [(999, 1), (1000, 0), (1001, 0)])
def test_no_kind_more_is_remembered_than_a_decision_can_read(known: int, noted: int) -> None:
    stage = Stage()
    proven = {f"known-{number}": stage.clock.now() for number in range(known)}
    view = ClusterView(pods=(pod("p", "a", node="n"), pod("q", "b", node="n")))
    record_kinds(stage.name, (), view, DecisionState(0, proven=proven), stage.context)
    assert len(stage.state.read(stage.name, stage.clock.now()).proven) == noted
