"""Maintenance that AWS announces for many instances at once: their nodes leave in turn, in time."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from shiplap.flows.interrupt.interrupt import URGENT_S
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import InstanceProblem
from tests.integration.flows.leaving import ONLY_LARGE, scheduled_change, serving
from tests.integration.flows.stage import Stage

WEEK_S = 7 * 24 * 3600.0


def allowing(*budgets: dict[str, object]) -> tuple[NodePool, ...]:
    (plain,) = ONLY_LARGE
    body = msgspec.to_builtins(plain)
    body["spec"]["disruption"] = {"budgets": list(budgets)}
    return (msgspec.convert(body, NodePool),)


def announced(stage: Stage, in_s: float | None = WEEK_S) -> None:
    stage.interrupt(scheduled_change(stage, *(claim.instance_id for claim in stage.claims()), in_s=in_s))


def leaving(stage: Stage) -> int:
    return sum(claim.state in (ClaimState.DRAINING, ClaimState.TERMINATING) for claim in stage.claims())


def test_as_many_leave_at_once_as_budgets_allow_and_all_in_the_end() -> None:
    stage = serving(6, pools=allowing({"nodes": "2"}))
    before = {claim.instance_id for claim in stage.claims()}
    announced(stage)
    announced(stage)
    assert (leaving(stage), stage.meter.counts["ScheduledChanges"]) == (0, 6)
    most = 0
    for _ in range(60):
        stage.sweep()
        most = max(most, leaving(stage))
        stage.join()
        stage.attend()
        stage.attend(*stage.due())
        for item in stage.server.list("pods").items:
            if item["metadata"].get("deletionTimestamp"):
                stage.server.delete("pods", item["metadata"]["name"], grace_s=0)
        lost = 6 - len(stage.server.list("pods").items)
        stage.add_pods(lost, cpu="1200m", memory="2Gi", prefix=f"at-{stage.clock.now():.0f}")
        stage.bind()
        stage.clock.advance(60)
        if not before & {instance.id for instance in stage.compute.alive()}:
            break
    assert not before & {instance.id for instance in stage.compute.alive()}
    assert most == 2


@pytest.mark.parametrize(
    ("budgets", "gone"),
    [
        ([{"nodes": "0"}], 0),
        ([{"nodes": "0", "reasons": ["Underutilized"]}], 4),
        ([{"nodes": "0", "reasons": ["Drifted"]}], 0),
        ([{"nodes": "50%"}], 2),
    ],
)
def test_budgets_count_as_for_drift(budgets: Sequence[dict[str, object]], gone: int) -> None:
    stage = serving(4, pools=allowing(*budgets))
    announced(stage)
    stage.sweep()
    assert leaving(stage) == gone
    assert stage.meter.counts.get("ScheduledChangesWaiting", 0) == 4 - gone


@pytest.mark.parametrize("in_s", [None, URGENT_S - 60, -60.0])
def test_what_is_near_or_of_an_unknown_time_does_not_wait(in_s: float | None) -> None:
    stage = serving(4, pools=allowing({"nodes": "0"}))
    announced(stage, in_s)
    assert leaving(stage) == 4


def test_what_waited_too_long_leaves_whatever_budgets_say() -> None:
    stage = serving(4, pools=allowing({"nodes": "0"}))
    announced(stage)
    stage.clock.advance(WEEK_S - URGENT_S - 60)
    stage.sweep()
    assert leaving(stage) == 0
    stage.clock.advance(120)
    stage.sweep()
    assert leaving(stage) == 4


def test_what_ec2_tells_when_it_is_asked_has_a_time_as_well_and_the_earliest_goes_first() -> None:
    stage = serving(3, pools=allowing({"nodes": "1"}))
    claims = stage.claims()
    for days, claim in zip((3, 1, 2), claims, strict=True):
        due_at = stage.clock.now() + days * 24 * 3600
        stage.health.ailments.add(InstanceProblem(claim.instance_id, "event", due_at=due_at))
    stage.sweep()
    assert [claim.state for claim in stage.claims()] == [
        ClaimState.INITIALIZED,
        ClaimState.DRAINING,
        ClaimState.INITIALIZED,
    ]


def test_of_several_changes_of_one_instance_the_earliest_counts() -> None:
    stage = serving(1, pools=allowing({"nodes": "0"}))
    (claim,) = stage.claims()
    for in_s in (WEEK_S, URGENT_S - 60, 2 * WEEK_S):
        problem = InstanceProblem(claim.instance_id, "event", due_at=stage.clock.now() + in_s)
        stage.health.ailments.add(problem)
    stage.sweep()
    assert leaving(stage) == 1


@pytest.mark.parametrize(("told_s", "stay"), [(WEEK_S, True), (None, True), (2 * WEEK_S, False)])
def test_nodes_whose_change_is_called_off_stay(told_s: float | None, stay: bool) -> None:
    """Unless the one that is closed is another one, of another time."""
    stage = serving(4, pools=allowing({"nodes": "0"}))
    announced(stage)
    ids = [claim.instance_id for claim in stage.claims()]
    for _ in range(2):
        stage.interrupt(scheduled_change(stage, *ids, in_s=told_s, status="closed"))
    stage.clock.advance(WEEK_S - URGENT_S + 60)
    stage.sweep()
    assert leaving(stage) == (0 if stay else 4)
    assert stage.meter.counts.get("ScheduledChangesCalledOff", 0) == (4 if stay else 0)
    assert stage.claims()[0].change_at == 0 or not stay


def test_a_node_that_leaves_already_is_not_called_back() -> None:
    stage = serving(1)
    announced(stage, in_s=60.0)
    assert leaving(stage) == 1
    stage.interrupt(scheduled_change(stage, stage.claims()[0].instance_id, status="closed"))
    assert leaving(stage) == 1
