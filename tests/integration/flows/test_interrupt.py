"""AWS takes instances away: replacements come first, nodes are emptied against the clock, and twice is like once."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.errors import ClusterDenied, ConditionFailed, ObjectConflict, StoreThrottled
from shiplap.flows import claim_events
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.messages import Timer
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pools import pool
from tests.integration.flows.leaving import (
    ONLY_LARGE,
    REBALANCE,
    STATE,
    claim_now,
    evicted,
    first,
    kubelets_end_pods,
    play_out,
    scheduled_change,
    seconds_pass,
    serving,
    warning,
)
from tests.integration.flows.stage import Stage


def test_the_replacement_is_launched_before_any_pod_is_evicted() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, **{"instance-action": "terminate"}))
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    assert claim_now(stage, claim).deadline_at == stage.clock.now() + 120
    (hint,) = stage.bus.of_type("PodPending")
    assert hint.detail["reason"] == "SpotInterruption"
    stage.attend_timers()  # before anybody has planned
    node = stage.server.get("nodes", claim.node_name)
    assert {"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"} in node["spec"]["taints"]
    assert labels.EXCLUDE_BALANCERS in node["metadata"]["labels"]
    assert evicted(stage) == []
    (replacement,) = stage.schedule().launched
    assert stage.schedule().launched == ()  # one is enough
    for _ in range(8):
        seconds_pass(stage, 5)
        assert evicted(stage) == []  # the pod stays until its new node is ready
    stage.join()
    stage.attend()
    assert next(c for c in stage.claims() if c.name == replacement).state is ClaimState.INITIALIZED
    seconds_pass(stage, 5)
    assert evicted(stage) == ["web-000"]
    assert stage.compute.instance(stage.name, claim.instance_id) is not None
    kubelets_end_pods(stage)
    seconds_pass(stage, 5)
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert stage.compute.instance(stage.name, claim.instance_id) is None
    stage.bind()
    assert stage.pending() == 0
    assert stage.schedule().launched == ()
    assert stage.meter.counts["PodsEvicted"] == 1


def test_the_offering_is_left_alone_and_the_replacement_comes_from_another() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    (lost,) = stage.state.read(stage.name, stage.clock.now()).unavailable
    assert (lost.instance_type, lost.zone, lost.capacity_type) == (
        claim.known_instance.type,
        claim.known_instance.zone,
        "spot",
    )
    stage.schedule()
    replacement = stage.compute.launches[-1]
    assert (replacement.instance_type, replacement.zone) != (lost.instance_type, lost.zone)


def test_a_pod_leaves_in_time_even_if_its_new_node_is_not_ready() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.attend_timers()
    stage.schedule()
    for _ in range(15):
        seconds_pass(stage, 5)
        assert evicted(stage) == []
    seconds_pass(stage, 5)  # 80 s: thirty for the pod and ten to spare are left
    assert evicted(stage) == ["web-000"]
    for _ in range(7):
        seconds_pass(stage, 5)
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    seconds_pass(stage, 5)
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_the_same_event_twice_has_one_effect() -> None:
    stage = serving()
    claim, instance = first(stage)
    body = warning(stage, instance.id)
    stage.interrupt(body)
    known = claim_now(stage, claim)
    stage.interrupt(body)
    assert claim_now(stage, claim) == known
    assert len(stage.bus.of_type(claim_events.INTERRUPTED)) == 1
    assert stage.meter.counts["NodesInterrupted"] == 1
    assert len({item.detail["id"] for item in stage.bus.of_type("PodPending")}) == 1
    play_out(stage)
    assert len(stage.compute.launches) == 2


def test_late_and_unordered_events_change_nothing() -> None:
    stage = serving()
    claim, instance = first(stage)
    body = warning(stage, instance.id)
    stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))
    assert claim_now(stage, claim).state is ClaimState.TERMINATING
    for late in (body, warning(stage, instance.id, STATE, state="shutting-down"), body):
        stage.interrupt(late)
        assert claim_now(stage, claim).state is ClaimState.TERMINATING
    play_out(stage)
    gone = claim_now(stage, claim)
    stage.interrupt(body)
    stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))
    assert claim_now(stage, claim) == gone
    assert len(stage.compute.launches) == 2


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_an_instance_that_stopped_is_ended_at_once_and_its_pods_are_planned(state: str) -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, STATE, state=state))
    assert len(stage.schedule().launched) == 1
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.GONE
    (told,) = stage.bus.of_type(claim_events.TERMINATED)
    assert told.detail["reason"] in ("InstanceStopped", "InstanceTerminated")


@pytest.mark.parametrize("told", [True, False], ids=["told by EC2", "found by the sweep"])
def test_pods_of_an_instance_that_ended_are_evicted_at_once_but_for_those_of_daemonsets(told: bool) -> None:
    """Kubernetes would collect them when their Node has been gone for 40 seconds."""
    stage = serving(2)
    claim, instance = first(stage)
    node = claim_now(stage, claim).node_name
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "agent", "controller": True}
    agent = {"metadata": {"name": "agent", "ownerReferences": [owner]}, "spec": {"nodeName": node}}
    stage.server.create("pods", agent, "default")
    other = next(known for known in stage.claims() if known.name != claim.name)
    if told:
        stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))
    else:
        stage.compute.lose(instance.id)
        stage.clock.advance(GRACE_S)
        silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
        stage.server.patch("nodes", node, silent, subresource="status")
        stage.attend()
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert evicted(stage) == ["web-000"]
    assert claim_now(stage, other).state is ClaimState.INITIALIZED


def test_pods_that_are_left_when_an_instance_ends_in_the_midst_of_its_drain_are_evicted() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(scheduled_change(stage, instance.id))
    stage.attend_timers()
    assert evicted(stage) == []
    stage.compute.lose(instance.id)
    stage.clock.advance(GRACE_S)
    silent = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    stage.server.patch("nodes", claim_now(stage, claim).node_name, silent, subresource="status")
    stage.attend()
    assert (evicted(stage), claim_now(stage, claim).state) == (["web-000"], ClaimState.GONE)


def test_an_instance_that_ended_is_over_whatever_its_cluster_says() -> None:
    stage = serving(2)
    claims = stage.claims()
    for claim in claims:
        stage.interrupt(warning(stage, claim.instance_id, STATE, state="terminated"))
    stage.faults.on("before", "cluster.pods_on", ClusterDenied("forbidden", status=403))
    stage.attend_timers()
    assert {claim_now(stage, claim).state for claim in claims} == {ClaimState.GONE}
    assert evicted(stage) == []


@pytest.mark.parametrize("state", ["pending", "running"])
def test_an_instance_that_runs_is_no_news(state: str) -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, STATE, state=state))
    assert claim_now(stage, claim) == claim
    assert stage.bus.events == []


def test_a_draining_instance_that_goes_early_ends_at_once() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.interrupt(warning(stage, instance.id, STATE, state="shutting-down"))
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_a_rebalance_recommendation_is_told_and_ignored() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, REBALANCE))
    assert claim_now(stage, claim) == claim
    assert stage.meter.counts["RebalanceRecommendations"] == 1
    (told,) = stage.bus.of_type(claim_events.INTERRUPTED)
    assert (told.detail["kind"], told.detail["deadline"]) == ("RebalanceRecommendation", "")


def test_a_second_recommendation_is_another_event_and_a_repetition_is_the_same() -> None:
    """A listener drops what it has the id of."""
    stage = serving()
    _, instance = first(stage)
    early = warning(stage, instance.id, REBALANCE)
    stage.clock.advance(600)
    for event in (early, early, warning(stage, instance.id, REBALANCE)):
        stage.interrupt(event)
    ids = [told.detail["id"] for told in stage.bus.of_type(claim_events.INTERRUPTED)]
    assert ids[0] == ids[1] != ids[2]


def test_a_scheduled_change_empties_nodes_without_a_clock() -> None:
    stage = serving(2)
    claims = stage.claims()
    stage.interrupt(scheduled_change(stage, *(claim.instance_id for claim in claims), "i-0ffffffffffffffff"))
    assert [(c.state, c.deadline_at) for c in stage.claims()] == [(ClaimState.DRAINING, 0.0)] * 2
    assert stage.state.read(stage.name, stage.clock.now()).unavailable == ()
    assert len(stage.schedule().launched) == 2
    for _ in range(5):
        seconds_pass(stage, 60)
        stage.sweep()
    assert evicted(stage) == []  # the new nodes have not joined yet
    play_out(stage)
    assert {claim_now(stage, claim).state for claim in claims} == {ClaimState.GONE}


def test_a_drain_without_a_clock_begins_to_evict_without_waiting_for_the_sweep() -> None:
    stage = serving()
    _, instance = first(stage)
    stage.interrupt(scheduled_change(stage, instance.id))
    stage.attend_timers()
    seconds_pass(stage, 10)
    assert evicted(stage) == ["web-000"]
    assert stage.timers.reminders == []  # the sweep sends the next


def test_many_mixed_events_leave_no_node_behind() -> None:
    stage = serving(12)
    before = stage.claims()
    for number, claim in enumerate(before):
        bodies = (
            warning(stage, claim.instance_id),
            warning(stage, claim.instance_id, STATE, state="terminated"),
            scheduled_change(stage, claim.instance_id),
            warning(stage, f"i-f{number:016x}"),
        )
        for offset in range(4):
            stage.interrupt(bodies[(number + offset) % 4])
    play_out(stage)
    assert {claim_now(stage, claim).state for claim in before} == {ClaimState.GONE}
    assert (len(stage.compute.alive()), len(stage.compute.launches)) == (12, 24)
    assert stage.meter.counts["NodesInterrupted"] >= 12
    assert stage.meter.counts["InstancesNotOurs"] == 12


def test_a_scheduled_change_waits_no_longer_than_the_pool_allows() -> None:
    stage = serving(pools=(pool("any", grace="1h"),))
    claim, instance = first(stage)
    stage.interrupt(scheduled_change(stage, instance.id))
    assert claim_now(stage, claim).deadline_at == stage.clock.now() + 3600


def test_evictions_that_cannot_be_answered_are_tried_again() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.clock.advance(10)
    stage.faults.on("before", "cluster.evict", ObjectConflict("another pod of that name", status=409))
    stage.attend_timers()  # the pod has moved on
    assert evicted(stage) == []
    stage.faults.on("before", "cluster.evict", ClusterDenied("forbidden", status=403))
    stage.clock.advance(5)
    with pytest.raises(ClusterDenied):
        stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    stage.sweep()
    stage.join()
    stage.attend()
    stage.attend_timers()
    assert evicted(stage) == ["web-000"]


def test_a_pod_with_little_time_is_given_what_is_left() -> None:
    stage = serving()
    _, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.clock.advance(100)
    stage.attend_timers()
    pod = stage.server.get("pods", "web-000", "default")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 20


def test_a_cluster_that_is_not_configured_any_more_is_counted() -> None:
    stage = serving()
    claim, instance = first(stage)
    body = warning(stage, instance.id)
    stage.settings = msgspec.structs.replace(stage.settings, name="another")
    stage.interrupt(body)
    assert claim_now(stage, claim) == claim
    assert stage.meter.counts["UnknownClusters"] == 1


def test_a_spot_warning_shortens_a_drain_that_had_time() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(scheduled_change(stage, instance.id))
    began = stage.clock.now()
    stage.clock.advance(30)
    stage.interrupt(warning(stage, instance.id))
    stage.interrupt(scheduled_change(stage, instance.id))
    known = claim_now(stage, claim)
    assert (known.changed_at, known.deadline_at) == (began, began + 150)
    assert known.failure == "SpotInterruption"
    assert len(stage.bus.of_type(claim_events.INTERRUPTED)) == 2


def test_a_warning_that_comes_late_leaves_as_much_less_time() -> None:
    """EC2 counts from when it warned, however long the message took."""
    stage = serving()
    claim, instance = first(stage)
    body, warned_at = warning(stage, instance.id), stage.clock.now()
    stage.clock.advance(45)
    stage.interrupt(body)
    assert claim_now(stage, claim).deadline_at == warned_at + 120


def test_a_later_warning_gives_no_more_time() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    deadline_at = claim_now(stage, claim).deadline_at
    stage.clock.advance(30)
    stage.interrupt(warning(stage, instance.id))
    assert claim_now(stage, claim).deadline_at == deadline_at


def running(stage: Stage, name: str) -> None:
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    stage.server.patch("pods", name, {"status": status}, subresource="status")


def test_a_disruption_budget_blocks_and_then_allows() -> None:
    stage = serving()
    claim, instance = first(stage)
    running(stage, "web-000")
    budget = {"minAvailable": 1, "selector": {}}
    stage.server.create("poddisruptionbudgets", {"metadata": {"name": "all"}, "spec": budget})
    stage.interrupt(warning(stage, instance.id))
    stage.attend_timers()
    stage.schedule()
    stage.join()
    stage.attend()
    seconds_pass(stage, 15)
    assert evicted(stage) == []
    assert stage.meter.counts["EvictionsForbidden"] == 1
    stage.server.delete("poddisruptionbudgets", "all", "default")
    seconds_pass(stage, 5)
    assert evicted(stage) == ["web-000"]
    assert claim_now(stage, claim).state is ClaimState.DRAINING


def test_pods_that_tolerate_it_stay_and_a_node_with_nothing_else_is_empty() -> None:
    stage = serving()
    claim, instance = first(stage)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "1", "controller": True}
    spec = {"containers": [{"name": "main"}], "tolerations": [{"operator": "Exists"}]}
    stage.server.create("pods", {"metadata": {"name": "agent", "ownerReferences": [owner]}, "spec": spec})
    stage.server.bind("agent", claim.node_name, "default")
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.interrupt(warning(stage, instance.id))
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.DRAINING  # it has just been closed
    seconds_pass(stage, 5)
    assert evicted(stage) == []
    assert claim_now(stage, claim).state is ClaimState.GONE


def test_a_node_that_has_not_joined_is_given_up_and_replaced() -> None:
    stage = Stage(ONLY_LARGE, spot=True)
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.schedule()
    (claim,) = stage.claims()
    stage.interrupt(warning(stage, claim.instance_id))
    assert len(stage.schedule().launched) == 1
    stage.attend_timers()
    assert claim_now(stage, claim).state is ClaimState.GONE
    play_out(stage)
    assert len(stage.compute.launches) == 2


def test_instances_of_others_are_none_of_our_business() -> None:
    stage = serving()
    before = stage.claims()
    stage.interrupt(warning(stage, "i-0123456789abcdef0"))
    assert stage.claims() == before
    assert stage.meter.counts["InstancesNotOurs"] == 1
    assert stage.bus.events == []


def test_a_claim_that_moves_meanwhile_is_read_again() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.faults.on("before", "state.advance", ConditionFailed("somebody else"))
    stage.interrupt(warning(stage, instance.id))
    assert claim_now(stage, claim).state is ClaimState.DRAINING
    assert stage.meter.counts["NodesInterrupted"] == 1


def test_a_store_that_throttles_leaves_the_message_for_later() -> None:
    stage = serving()
    _, instance = first(stage)
    stage.faults.on("before", "state.mark_unavailable", StoreThrottled("slow down"))
    with pytest.raises(StoreThrottled):
        stage.interrupt(warning(stage, instance.id))


def points() -> int:
    stage = serving()
    stage.interrupt(warning(stage, first(stage)[1].id))
    return len(stage.faults.points)


@pytest.mark.parametrize("redelivered", [True, False])
@pytest.mark.parametrize("number", range(points()))
def test_whatever_dies_is_finished(number: int, redelivered: bool) -> None:
    stage = serving()
    claim, instance = first(stage)
    body = warning(stage, instance.id)
    stage.faults.crash_at(number)
    assert stage.dies(lambda: stage.interrupt(body))
    stage.faults.clear()
    stage.timers.reminders.clear()
    marked = claim_now(stage, claim).state is ClaimState.DRAINING
    if redelivered or not marked:
        stage.interrupt(body)
    play_out(stage)
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert len(stage.compute.launches) == 2
    assert len(stage.compute.alive()) == 1


def drain_points() -> int:
    stage = serving()
    stage.interrupt(warning(stage, first(stage)[1].id))
    stage.schedule()
    stage.join()
    stage.attend()
    stage.faults.clear()
    seconds_pass(stage, 15)
    kubelets_end_pods(stage)
    seconds_pass(stage, 5)
    return len(stage.faults.points)


@pytest.mark.parametrize("number", range(drain_points()))
def test_a_round_that_dies_is_made_again(number: int) -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id))
    stage.schedule()
    stage.join()
    stage.attend()
    stage.faults.clear()
    stage.faults.crash_at(number)

    def rounds() -> None:
        seconds_pass(stage, 15)
        kubelets_end_pods(stage)
        seconds_pass(stage, 5)

    assert stage.dies(rounds)
    stage.faults.clear()
    stage.timers.reminders.clear()
    play_out(stage)
    assert claim_now(stage, claim).state is ClaimState.GONE
    assert len(stage.compute.launches) == 2
    assert len(stage.compute.alive()) == 1


def test_word_of_the_end_of_an_instance_that_is_being_ended_completes_its_claim_at_once() -> None:
    stage = serving()
    claim, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, STATE, state="shutting-down"))
    stage.due()
    stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))
    assert stage.due() == [Timer(stage.name, claim.name, "terminate")]


def test_a_warning_of_a_node_that_is_being_ended_sets_no_timer() -> None:
    stage = serving()
    _, instance = first(stage)
    stage.interrupt(warning(stage, instance.id, STATE, state="shutting-down"))
    stage.due()
    stage.interrupt(warning(stage, instance.id))
    assert stage.due() == []
