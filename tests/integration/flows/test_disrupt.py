"""The disrupt flow on the stage: two looks, replacement first, removal, undoing, and dying at any moment."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from shiplap.disruption import standstill
from shiplap.disruption.commands import Decision
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.node_history import FIRST_BACKOFF_S
from shiplap.disruption.progress import READY_S
from shiplap.errors import StoreError
from shiplap.flows.context import FlowContext
from shiplap.flows.disrupt.disruption_round import DisruptionReport
from shiplap.flows.disrupt.entry import handle
from shiplap.flows.function_install import WarmMemory
from shiplap.flows.live_settings import ManifestState
from shiplap.flows.messages import Timer
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.records.disruption_record import decided_again, is_disruption, read
from shiplap.settings import ClusterSettings, Settings
from tests.integration.flows.disrupted import Disrupted, kinds, oversized
from tests.integration.flows.leaving import warning
from tests.thoroughness import moments


def test_an_oversized_node_is_replaced_by_a_smaller_one() -> None:
    stage = oversized()
    assert kinds(stage) == ["m6i.2xlarge"]
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large"]
    assert stage.pending() == 0
    assert stage.state.commands(stage.name) == ()
    assert stage.tainted() == []


def test_nothing_happens_at_the_first_look() -> None:
    stage = oversized()
    report = stage.disrupt()
    assert (report.begun, report.proposed) == ((), 1)
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    stage.clock.advance(60)
    assert len(stage.disrupt().begun) == 1


def test_the_second_look_comes_by_itself_and_only_once() -> None:
    stage = oversized()
    stage.timers.reminders.clear()
    stage.disrupt()
    assert [(item.step, item.delay_s) for item in stage.timers.reminders] == [("disruption", 15)]
    stage.clock.advance(15)
    stage.attend_timers()
    assert len(stage.bus.of_type("DisruptionDue")) == 1
    assert len(stage.disrupt().begun) == 1


def test_a_proposal_that_is_no_news_is_looked_at_by_the_minute() -> None:
    stage = oversized()
    stage.disrupt()
    stage.timers.reminders.clear()
    stage.clock.advance(5)
    assert stage.disrupt().proposed == 1
    assert stage.timers.reminders == []


def test_closed_nodes_are_looked_at_again_after_seconds() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.timers.reminders.clear()
    assert stage.disrupt().begun
    assert ("disruption", 5) in [(item.step, item.delay_s) for item in stage.timers.reminders]


def test_a_replacement_that_is_ready_is_told_of_at_once() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    stage.sweep()
    stage.bus.events.clear()
    stage.timers.reminders.clear()
    stage.join()
    stage.attend()
    assert [event.detail["cluster"] for event in stage.bus.of_type("DisruptionDue")] == [stage.name]


def test_a_node_that_replaces_nothing_is_of_no_interest() -> None:
    stage = oversized()
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    assert stage.bus.of_type("DisruptionDue") == []


def test_a_timer_of_disruption_visits_no_claim() -> None:
    stage = oversized()
    report = stage.attend(Timer(stage.name, "*", "disruption"))
    assert (report.registered, report.ended) == ((), ())
    assert len(stage.bus.of_type("DisruptionDue")) == 1


def test_drift_is_looked_for_when_a_spec_has_stood_long_enough() -> None:
    stage = oversized()
    stage.disrupt()
    stage.timers.reminders.clear()
    stage.clock.advance(5)
    stage.manifest_state = ManifestState(unsettled_pools=("general",), settles_at=stage.clock.now() + 40)
    stage.disrupt()
    assert [(item.step, item.delay_s) for item in stage.timers.reminders] == [("disruption", 41)]


def test_the_old_node_stays_until_the_new_one_is_initialized() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    for _ in range(3):
        stage.sweep()
        stage.attend(*stage.due())
        stage.clock.advance(60)
        stage.disrupt()
    assert kinds(stage) == ["m6i.2xlarge", "m6i.large"]
    states = {claim.state for claim in stage.claims()}
    assert states == {ClaimState.DISRUPTING, ClaimState.LAUNCHED}
    assert len(stage.tainted()) == 1
    assert all(item["metadata"].get("deletionTimestamp") is None for item in stage.server.list("pods").items)


def test_while_a_command_waits_nothing_more_is_launched_for_the_pods_it_moves() -> None:
    """Another pod takes the room of the replacement, which is not Ready yet."""
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    stage.sweep()
    stage.join(ready=False)
    stage.attend(*stage.due())
    (new,) = (instance for instance in stage.compute.alive() if instance.instance_type == "m6i.large")
    stage.add_pods(1, cpu="1500m", prefix="early")
    stage.server.bind("early-000", new.private_dns)
    for _ in range(3):
        stage.clock.advance(60)
        assert stage.sweep().launched == ()
    assert kinds(stage) == ["m6i.2xlarge", "m6i.large"]
    for item in stage.server.list("nodes").items:
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        stage.server.patch("nodes", item["metadata"]["name"], {"status": ready}, subresource="status")
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large", "m6i.large"], "it has room when its node has gone"
    assert stage.pending() == 0


def test_a_command_whose_replacement_never_comes_is_undone() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    stage.sweep()
    stage.broken.update(instance.id for instance in stage.compute.alive() if instance.instance_type == "m6i.large")
    stage.clock.advance(60)
    stage.disrupt()
    assert len(stage.tainted()) == 1
    stage.clock.advance(READY_S)
    report = stage.disrupt()
    assert len(report.undone) == 1
    assert stage.tainted() == []
    (old,) = (claim for claim in stage.claims() if claim.known_instance.type == "m6i.2xlarge")
    assert old.state is ClaimState.INITIALIZED


def test_a_command_waits_for_as_long_as_an_instance_may_take_to_join() -> None:
    """Nodes that take longer than most would never be replaced."""
    stage = oversized()
    stage.settings = msgspec.structs.replace(stage.settings, join_timeout_s=3600)
    stage.disrupt()
    stage.clock.advance(60)
    stage.disrupt()
    stage.sweep()
    stage.clock.advance(READY_S)
    assert stage.disrupt().undone == ()
    assert len(stage.tainted()) == 1
    stage.clock.advance(3600 - READY_S)
    assert len(stage.disrupt().undone) == 1
    assert stage.tainted() == []


def test_after_a_command_was_given_up_its_node_rests_longer_each_time() -> None:
    stage = oversized()
    stage.broken |= {f"i-{number:017x}" for number in range(2, 100)}
    begun = []
    for minute in range(16 * 60):
        begun += [minute] * len(stage.disrupt().begun)
        stage.around()
    gaps = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert gaps[0] >= (READY_S + FIRST_BACKOFF_S) // 60
    assert gaps == sorted(gaps)
    assert len(begun) <= 8
    assert stage.tainted() == []
    assert kinds(stage) == ["m6i.2xlarge"]


def test_two_functions_at_once_begin_one_command_and_undo_none() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    others: list[DisruptionReport] = []
    for effect in ("cluster.nodes", "state.commands", "state.claims"):
        stage.faults.on("after", effect, lambda: others.append(stage.disrupt()))
    own = stage.disrupt()
    assert [len(report.begun) for report in (own, *others)].count(1) == 1
    assert [report.undone for report in (own, *others)] == [()] * 4
    stage.minutes(12)
    assert kinds(stage) == ["m6i.large"]
    assert len(stage.compute.launches) == 2


def test_a_node_that_is_interrupted_meanwhile_stays_closed() -> None:
    stage = oversized()
    (claim,) = stage.claims()

    def interrupted() -> None:
        stage.interrupt(warning(stage, claim.instance_id))
        stage.attend_timers()

    stage.faults.on("after", "state.claims", interrupted)
    stage.disrupt()
    assert stage.tainted() == [claim.node_name]


def test_subnets_without_addresses_are_no_drift_of_the_nodes_in_them() -> None:
    stage = oversized()
    stage.add_pods(4, cpu="1200m", memory="2Gi", prefix="more")  # worth its node
    stage.bind()
    stage.run_pods()
    zones = {claim.known_instance.zone for claim in stage.claims()}
    stage.compute.subnets = tuple(
        msgspec.structs.replace(item, free_ips=0) if item.zone in zones else item for item in stage.compute.subnets
    )
    stage.clock.advance(2 * 3600)
    for _ in range(3):
        stage.clock.advance(60)
        report = stage.disrupt()
        assert (report.begun, report.proposed) == ((), 0)


def test_an_empty_node_goes_without_a_replacement() -> None:
    stage = oversized()
    stage.server.delete("pods", "web-000", grace_s=0)
    stage.minutes(6)
    assert kinds(stage) == []
    assert len(stage.launched) == 1


def test_a_budget_of_none_keeps_everything() -> None:
    stage = oversized(budget="0")
    stage.minutes(5)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert stage.state.commands(stage.name) == ()


def test_disruption_can_be_switched_off() -> None:
    stage = oversized(enabled=False)
    stage.minutes(5)
    assert kinds(stage) == ["m6i.2xlarge"]


def test_a_taint_that_a_dead_function_left_behind_is_taken_away() -> None:
    stage = oversized(budget="0")
    (name,) = (item["metadata"]["name"] for item in stage.server.list("nodes").items)
    stage.server.patch("nodes", name, {"spec": {"taints": [{"key": labels.DISRUPTED_TAINT, "effect": "NoSchedule"}]}})
    stage.disrupt()
    assert stage.tainted() == []


def test_a_decision_made_meanwhile_leaves_the_proposal_for_the_next_minute() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    read = stage.state.read

    def overtaken(cluster: str, now: float) -> object:
        known = read(cluster, now)
        stage.state.read = read  # type: ignore[method-assign]
        stage.add_pods(1, cpu="7", memory="2Gi", prefix="urgent")
        stage.schedule()
        return known

    stage.state.read = overtaken  # type: ignore[method-assign, assignment]
    assert stage.disrupt().begun == ()
    assert stage.state.commands(stage.name) == ()


@pytest.mark.parametrize("minute", range(7))
def test_the_function_may_die_before_and_after_every_effect(minute: int) -> None:
    """In any of the minutes that a replacement takes; the following ones bring the same end whatever is left behind."""
    for point in moments(200, minute):
        stage = oversized()
        stage.minutes(minute)
        stage.faults.clear()
        stage.faults.crash_at(point)
        died = stage.dies(stage.disrupt)
        stage.faults.clear()
        stage.around()
        stage.minutes(20)
        assert kinds(stage) == ["m6i.large"], (minute, point)
        assert stage.pending() == 0
        assert stage.tainted() == []
        assert stage.state.commands(stage.name) == ()
        if not died:
            return
    raise AssertionError("the invocation has no end")


def test_a_decision_that_begins_something_is_recorded_and_can_be_made_again() -> None:
    stage = oversized()
    stage.recorder.records.clear()
    stage.disrupt()
    assert stage.recorder.records == {}
    stage.clock.advance(60)
    (command,) = stage.disrupt().begun
    ((name, document),) = stage.recorder.records.items()
    assert is_disruption(name)
    found = read(document, name)
    assert found.record is not None
    assert decided_again(found.record) == found.written
    assert [claim.instance_type for claim in found.outline.claims] == ["m6i.large"]
    assert found.outline.removed == stage.state.commands(stage.name)[0].nodes
    assert stage.state.commands(stage.name)[0].name == command


def test_a_decision_holds_whether_or_not_it_can_be_recorded() -> None:
    stage = oversized()
    stage.disrupt()
    stage.clock.advance(60)
    stage.faults.on("before", "recorder.record", StoreError("bucket is gone"))
    assert len(stage.disrupt().begun) == 1
    assert stage.meter.counts["DecisionsNotRecorded"] == 1


def test_the_function_does_not_decide_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function's knowledge of a cluster outlives an invocation."""
    decided: list[str] = []

    def decide(snapshot: DisruptionSnapshot, _: DecisionClock) -> Decision:
        decided.append(snapshot.scheduling.cluster)
        return Decision()

    monkeypatch.setattr(standstill, "decide", decide)
    stage = oversized()
    install = Deployed(stage)
    numbers = []
    for _ in range(4):
        stage.clock.advance(5)
        handle({"cluster": stage.name}, Invocation(), install)  # type: ignore[arg-type]
        numbers.append(len(decided))
    assert numbers == [1, 2, 2, 2], "after the first look its nodes have a history"
    handle({"cluster": stage.name}, Invocation(), Deployed(stage))  # type: ignore[arg-type]
    assert len(decided) == 3


class Invocation:
    aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


class Deployed:
    """As much of an install as the disrupt function asks for one cluster."""

    def __init__(self, stage: Disrupted) -> None:
        self.warm = WarmMemory()
        self.clock, self.meter, self.memory = stage.clock, stage.meter, stage.memory
        self.executor = None
        self.served = Settings((stage.settings,))
        self._context = stage.context

    def context(self, _: ClusterSettings) -> FlowContext:
        return self._context

    @contextmanager
    def reporting(self, _: str) -> Iterator[None]:
        yield
