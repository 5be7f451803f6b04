"""Emptying nodes beyond interruptions: budgets and grace periods against a deadline, volumes, many nodes at once."""

from __future__ import annotations

import msgspec

from shiplap.errors import ObjectNotFound
from shiplap.flows.claim_updates import DRAIN
from shiplap.flows.lifecycle.drain import HEAD_START_S, MOST_EVICTIONS, NODES_PER_ROUND, ROUND_S
from shiplap.flows.messages import NodeSeen, Timer, rfc3339
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from tests.integration.flows.guards import guard
from tests.integration.flows.leaving import (
    ONLY_LARGE,
    claim_now,
    evicted,
    first,
    scheduled_change,
    seconds_pass,
    serving,
    warning,
)
from tests.integration.flows.stage import Stage


def limited(grace: str) -> tuple[NodePool, ...]:
    """One pool whose nodes are given so long to be emptied."""
    (plain,) = ONLY_LARGE
    claim = msgspec.structs.replace(plain.spec.template.spec, termination_grace_period=grace)
    template = msgspec.structs.replace(plain.spec.template, spec=claim)
    return (msgspec.structs.replace(plain, spec=msgspec.structs.replace(plain.spec, template=template)),)


def leave(stage: Stage) -> NodeClaim:
    """The first node is to be emptied without haste, as far as its pool allows that."""
    claim, instance = first(stage)
    stage.interrupt(scheduled_change(stage, instance.id))
    return claim


def minutes(stage: Stage, count: int) -> None:
    for _ in range(count):
        for _ in range(12):
            seconds_pass(stage, 5)
        stage.sweep()
        stage.attend_timers()


def test_a_budget_holds_until_the_last_moment_of_a_deadline_and_not_longer() -> None:
    stage = serving(pools=limited("10m"))
    guard(stage)
    claim = leave(stage)
    assert claim_now(stage, claim).deadline_at == stage.clock.now() + 600
    minutes(stage, 9)
    assert evicted(stage) == []
    seconds_pass(stage, 20)  # its thirty seconds and ten to spare are left
    assert evicted(stage) == ["web-000"]
    assert stage.meter.counts["EvictionsForbidden"] >= 1
    assert stage.meter.counts["PodsDeleted"] == 1
    assert stage.server.get("pods", "web-000")["metadata"]["deletionGracePeriodSeconds"] == 30
    minutes(stage, 1)
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_without_a_deadline_a_budget_holds_for_ever_and_nothing_is_deleted() -> None:
    stage = serving()
    guard(stage)
    claim = leave(stage)
    minutes(stage, 30)
    assert (evicted(stage), claim_now(stage, claim).state) == ([], ClaimState.DRAINING)
    assert "PodsDeleted" not in stage.meter.counts


def test_a_pod_that_was_given_too_long_has_its_time_cut() -> None:
    stage = serving()
    claim, instance = first(stage)
    pod = stage.server.get("pods", "web-000")
    stage.server.replace("pods", {**pod, "spec": {**pod["spec"], "terminationGracePeriodSeconds": 6000}}, "default")
    stage.server.delete("pods", "web-000")
    stage.interrupt(warning(stage, instance.id))
    stage.attend_timers()
    assert stage.server.get("pods", "web-000")["metadata"]["deletionGracePeriodSeconds"] == 120
    assert claim_now(stage, claim).state is ClaimState.DRAINING


def test_a_pod_that_ends_while_it_is_deleted_is_no_error() -> None:
    stage = serving(pools=limited("1m"))
    guard(stage)
    leave(stage)
    stage.faults.on("before", "cluster.delete_pod", ObjectNotFound("gone", status=404))
    seconds_pass(stage, 20)
    assert stage.meter.counts["EvictionsForbidden"] >= 1


def test_a_spot_warning_leaves_no_more_time_than_the_pool_does() -> None:
    stage = serving(pools=limited("1m"))
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    assert claim_now(stage, claim).deadline_at == stage.clock.now() + 60


def attach(stage: Stage, node: str) -> None:
    spec = {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": "pv-1"}}
    stage.server.create("volumeattachments", {"metadata": {"name": "csi-1"}, "spec": spec})


def test_an_empty_node_waits_for_its_volumes_to_be_detached() -> None:
    stage = serving()
    claim = leave(stage)
    attach(stage, claim.node_name)
    stage.server.delete("pods", "web-000", grace_s=0)
    minutes(stage, 2)
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    assert stage.meter.counts["VolumesAwaited"] >= 2
    stage.server.delete("volumeattachments", "csi-1")
    minutes(stage, 1)
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_volumes_are_listed_once_for_all_nodes_of_a_round() -> None:
    stage = serving(3)
    claims = stage.claims()
    for claim in claims:
        stage.interrupt(scheduled_change(stage, claim.instance_id))
    attach(stage, claims[0].node_name)
    for number in range(3):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    rounds = [Timer(stage.name, claim.name, DRAIN) for claim in claims]
    stage.attend(*rounds)
    stage.faults.clear()
    stage.attend(*rounds)
    assert [claim_now(stage, claim).state for claim in claims] == [ClaimState.DRAINING, *[ClaimState.GONE] * 2]
    assert stage.faults.points.count("before cluster.volume_attachments") == 1
    assert stage.faults.points.count("before cluster.volume_claims") == 0


def test_volumes_are_not_awaited_past_the_deadline_or_from_a_silent_kubelet() -> None:
    stage = serving(2)
    late, silent = stage.claims()
    for name in ("web-000", "web-001"):
        stage.server.delete("pods", name, grace_s=0)
    attach(stage, late.node_name)
    stage.interrupt(warning(stage, late.instance_id))
    seconds_pass(stage, 60)
    assert claim_now(stage, late).state is ClaimState.DRAINING
    for _ in range(13):
        seconds_pass(stage, 5)
    assert claim_now(stage, late).state is ClaimState.GONE
    stage.server.patch("volumeattachments", "csi-1", {"spec": {"nodeName": silent.node_name}})
    conditions = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    stage.server.patch("nodes", silent.node_name, conditions, subresource="status")
    stage.interrupt(scheduled_change(stage, silent.instance_id))
    stage.attend_timers()
    seconds_pass(stage, ROUND_S)
    assert claim_now(stage, silent).state is ClaimState.GONE


def test_a_pod_that_came_while_its_node_was_closed_is_not_ended_with_it() -> None:
    stage = serving()
    claim, _ = first(stage)
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.interrupt(scheduled_change(stage, claim.instance_id))

    def binds() -> None:
        stage.add_pods(1, prefix="late")
        stage.server.bind("late-000", claim.node_name, "default")

    stage.faults.on("after", "cluster.pods_on", binds)
    stage.attend_timers()
    seconds_pass(stage, HEAD_START_S)
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    assert evicted(stage) == ["late-000"]


def test_a_round_comes_when_the_protection_of_a_pod_ends() -> None:
    stage = serving()
    (claim,) = stage.claims()
    note = {"metadata": {"annotations": {"karpenter.sh/do-not-disrupt": "50s"}}}
    status = {"status": {"startTime": rfc3339(stage.clock.now())}}
    stage.server.patch("pods", "web-000", note, "default")
    stage.server.patch("pods", "web-000", status, "default", subresource="status")
    stage.interrupt(scheduled_change(stage, claim.instance_id))
    stage.clock.advance(HEAD_START_S + 1)
    stage.attend_timers()
    assert evicted(stage) == []
    assert [item.delay_s for item in stage.timers.reminders] == [50 - HEAD_START_S - 1]
    stage.clock.advance(50 - HEAD_START_S - 1)
    stage.attend_timers()
    assert evicted(stage) == ["web-000"]


def test_many_nodes_share_the_requests_of_few() -> None:
    stage = serving(2 * NODES_PER_ROUND + 1)
    claims = stage.claims()
    for claim in claims:
        stage.interrupt(warning(stage, claim.instance_id))
    stage.attend_timers()
    waits = sorted({item.delay_s for item in stage.timers.reminders})
    assert waits == [3 * ROUND_S]
    assert len(stage.timers.reminders) == len(claims)


def test_what_is_known_of_claims_is_read_once_for_all_nodes_of_an_invocation() -> None:
    stage = serving(20)
    for claim in stage.claims():
        stage.interrupt(scheduled_change(stage, claim.instance_id))
    stage.clock.advance(20)
    stage.faults.clear()
    stage.attend_timers()
    assert stage.faults.points.count("before state.read") == 1


def test_evictions_that_nothing_presses_come_in_portions() -> None:
    stage = serving(MOST_EVICTIONS + 20)
    for claim in stage.claims():
        stage.interrupt(scheduled_change(stage, claim.instance_id))
    stage.clock.advance(20)
    stage.attend_timers()
    assert len(evicted(stage)) == MOST_EVICTIONS
    stage.attend(*(Timer(stage.name, claim.name, "drain") for claim in stage.claims()))
    assert len(evicted(stage)) == MOST_EVICTIONS + 20


def test_nodes_that_join_are_attended_before_those_that_are_emptied() -> None:
    stage = serving()
    leave(stage)
    assert len(stage.schedule().launched) == 1
    stage.join()
    stage.clock.advance(10)
    stage.faults.clear()
    hints = [*stage.due()]
    joined = stage.compute.launches[-1]
    stage.attend(*hints, NodeSeen(stage.name, joined.private_dns, joined.provider_id))
    points = [point for point in stage.faults.points if point.startswith("after ")]
    assert points.index("after capacity.observe") < points.index("after cluster.pods_on")
    assert evicted(stage) == ["web-000"]  # for its new node has become ready in the same invocation


def test_a_pod_that_several_budgets_cover_is_deleted_at_the_last_moment_and_not_before() -> None:
    """The API server refuses its eviction for good, with an error of its own."""
    stage = serving(pools=limited("10m"))
    guard(stage)
    several = {"metadata": {"name": "more"}, "spec": {"minAvailable": 1, "selector": {}}}
    stage.server.create("poddisruptionbudgets", several)
    leave(stage)
    minutes(stage, 9)
    assert evicted(stage) == []
    assert stage.meter.counts["EvictionsForbidden"] >= 1
    seconds_pass(stage, 20)
    assert evicted(stage) == ["web-000"]
    assert stage.meter.counts["PodsDeleted"] == 1


def test_pods_that_a_budget_refuses_leave_evictions_for_other_workloads() -> None:
    """More pods than one invocation evicts are refused, on nodes and with names that come first."""
    stage = serving(MOST_EVICTIONS + 20)
    guarded = [f"web-{place:03}" for place in range(MOST_EVICTIONS + 10)]
    owner = {"kind": "ReplicaSet", "name": "web", "uid": "of-all-of-them", "controller": True}
    for name in guarded:
        change = {"metadata": {"labels": {"guarded": "yes"}, "ownerReferences": [owner]}}
        stage.server.patch("pods", name, change)
    guard(stage, {"matchLabels": {"guarded": "yes"}})
    for claim in stage.claims():
        stage.interrupt(scheduled_change(stage, claim.instance_id))
    stage.clock.advance(20)
    stage.attend_timers()
    assert len(evicted(stage)) == 10
    assert not set(guarded).intersection(evicted(stage))


def test_an_odd_status_of_a_budget_is_waited_for_as_a_budget_is() -> None:
    """The API server answers 403 then, which else says that a role lacks something."""
    stage = serving()
    guard(stage, status={"observedGeneration": 1, "disruptionsAllowed": -1})
    claim = leave(stage)
    minutes(stage, 2)
    assert (evicted(stage), claim_now(stage, claim).state) == ([], ClaimState.DRAINING)
    assert stage.meter.counts["EvictionsForbidden"] >= 1
