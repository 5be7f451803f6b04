"""Sleep on the stage: a rehearsal, nights in which nodes leave and pods wait, wakes, and functions that die."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.disruption.commands import Reason
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap.errors import StoreError
from shiplap.kubernetes.labels import EXCLUDE_BALANCERS
from shiplap.manifests.nodeclaim import FINAL, ClaimState
from shiplap.manifests.shiplap_annotations import SLEEP
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import UNKNOWN_JOIN_S, SleepNotes, sleep_digest
from shiplap.records.disruption_record import DisruptionRecord, decided_again, is_disruption, read
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.leaving import warning
from tests.integration.flows.sleep_stage import sleep_of
from tests.thoroughness import moments

PENDING = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
NIGHT_S, DAY_S = 12 * 3600, 24 * 3600
EVENING_S = 18 * 3600


class Sleepy(Disrupted):
    """Two nodes of a pool that sleeps from 19:00 to 07:00 UTC, and controllers that make their pods anew.

    The stage begins at 18:55 of a day; `rehearsed` says whether a window was rehearsed before.
    """

    def __init__(self, *, rehearsed: bool = True, most: int = 5, when: str = "daily 19:00-07:00 UTC") -> None:
        super().__init__(budget="100%")
        self.settings = msgspec.structs.replace(
            self.settings, policies=chosen(SleepSettings(("default",), most, (WindowSettings(when),)))
        )
        self.clock.advance((EVENING_S - self.clock.now()) % DAY_S)
        self.opens_at = self.clock.now() + 3600
        self.replicas = {f"web-{number}": "0" for number in range(4)}
        self.controllers()
        self.play_on()
        self.run_pods()
        sleep = self.settings.policy(SleepSettings)
        if rehearsed and sleep is not None:
            digest = sleep_digest(sleep, self.settings.manifests.node_pools)
            sleep_of(self).save(self.name, SleepNotes(digest, {"0": 1}), self.clock.now())
        self.clock.advance(self.opens_at - 300 - self.clock.now())
        self.faults.clear()
        self.evicted: list[str] = []

    def narrow(self, when: str) -> None:
        """Annotate all NodePools."""
        manifests = self.settings.manifests
        pools = tuple(
            msgspec.structs.replace(
                pool,
                metadata=msgspec.structs.replace(pool.metadata, annotations={**pool.metadata.annotations, SLEEP: when}),
            )
            for pool in manifests.node_pools
        )
        self.settings = msgspec.structs.replace(
            self.settings, manifests=msgspec.structs.replace(manifests, node_pools=pools)
        )

    def controllers(self) -> None:
        """Make pods anew that are gone, in the place of those that the stage makes, which nobody owns."""
        for item in self.server.list("pods").items:
            if item["metadata"]["name"].startswith("again-"):
                self.server.delete("pods", item["metadata"]["name"], grace_s=0)
        present = {item["metadata"]["name"] for item in self.server.list("pods").items}
        for name in sorted(self.replicas.keys() - present):
            self.replicas[name] = str(int(self.replicas[name]) + 1)
            self.server.create(
                "pods",
                {
                    "metadata": {
                        "name": name,
                        "uid": f"uid-{name}-{self.replicas[name]}",
                        "ownerReferences": [{"kind": "StatefulSet", "name": "web", "uid": "1", "controller": True}],
                    },
                    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1200m"}}}]},
                    "status": {"phase": "Pending", "conditions": [PENDING]},
                },
            )

    def minutes(self, number: int) -> None:
        for _ in range(number):
            self.disrupt()
            self.around()
            self.controllers()

    def until(self, moment: float) -> None:
        self.minutes(max(0, int((moment - self.clock.now()) // 60)))

    @property
    def nodes(self) -> int:
        return len(self.compute.alive())

    @property
    def reasons(self) -> set[str]:
        return {claim.failure for claim in self.claims() if claim.state is not ClaimState.FAILED} - {""}


def test_pods_that_sleep_are_not_counted_among_those_that_fit_nowhere() -> None:
    stage = Sleepy()
    stage.until(stage.opens_at)
    stage.minutes(8)
    stage.add_pods(1, cpu="4000", prefix="huge")
    stage.server.patch("pods", "huge-000", {"spec": {"priority": 2_000_000_000}})  # critical pods never sleep
    assert stage.sweep().unschedulable == stage.meter.counts["PodsUnschedulable"] == 1, "beside four that sleep"


def test_nodes_leave_at_night_pods_wait_and_all_is_back_when_the_window_ends() -> None:
    stage = Sleepy()
    assert stage.nodes >= 1
    before = stage.nodes

    stage.until(stage.opens_at)
    assert stage.nodes == before
    stage.minutes(8)
    assert stage.nodes == 0
    assert stage.pending() == 4
    assert stage.meter.counts["PodsAsleep"] > 0
    assert "PodsUnschedulable" not in stage.meter.counts
    (message,) = {
        event["message"] for event in stage.server.list("events").items if event["reason"] == "FailedScheduling"
    }
    assert message.startswith("sleeps: NodePool default sleeps until ")

    wakes_at = stage.opens_at + NIGHT_S - UNKNOWN_JOIN_S - 60
    stage.until(wakes_at - 60)
    assert stage.nodes == 0
    stage.until(stage.opens_at + NIGHT_S)
    assert stage.pending() == 0
    assert stage.nodes >= 1


def test_decisions_of_the_night_are_recorded_and_replay() -> None:
    stage = Sleepy()
    stage.until(stage.opens_at + 300)

    records = [read(document, name) for name, document in stage.recorder.records.items() if is_disruption(name)]
    taken = [item for item in records if item.outline.removed]

    assert taken
    for item in taken:
        assert item.record is not None
        assert decided_again(item.record) == item.written


def test_the_first_window_after_a_change_is_a_rehearsal() -> None:
    stage = Sleepy(rehearsed=False)
    before = stage.nodes

    stage.until(stage.opens_at + 1800)
    assert stage.nodes == before
    assert stage.pending() == 0
    events = [item for item in stage.server.list("events").items if item["reason"] == "SleepRehearsal"]
    assert len(events) == before
    assert "this node would leave now" in events[0]["message"]
    assert stage.meter.counts["NodesRehearsed"] > 0

    stage.clock.advance(NIGHT_S)
    stage.until(stage.opens_at + 86_400 + 600)
    assert stage.nodes == 0


def test_a_pool_that_an_annotation_narrows_rehearses_and_sleeps_in_its_own_hours() -> None:
    stage = Sleepy(rehearsed=False)
    stage.narrow("daily 19:30-05:00 UTC")
    before = stage.nodes

    stage.until(stage.opens_at + 3600)
    assert stage.nodes == before
    assert stage.meter.counts["NodesRehearsed"] > 0

    stage.clock.advance(NIGHT_S)
    stage.until(stage.opens_at + DAY_S + 1800 - 60)
    assert stage.nodes == before
    stage.until(stage.opens_at + DAY_S + 1800 + 600)
    assert stage.nodes == 0


def test_a_person_wakes_the_cluster_within_a_minute() -> None:
    stage = Sleepy()
    stage.until(stage.opens_at + 600)
    assert stage.nodes == 0

    sleep_of(stage).wake(stage.name, int(stage.clock.now()), 0)
    stage.sweep()
    assert stage.nodes >= 1
    stage.minutes(3)
    assert stage.pending() == 0
    stage.minutes(30)
    assert stage.pending() == 0


def test_a_wake_undoes_what_has_not_begun_to_leave() -> None:
    stage = Sleepy()
    stage.until(stage.opens_at + 60)
    before = stage.nodes
    while not stage.state.commands(stage.name):
        stage.disrupt()
        stage.clock.advance(20)
    sleep_of(stage).wake(stage.name, int(stage.clock.now()), 0)
    stage.minutes(3)

    assert stage.state.commands(stage.name) == ()
    assert stage.nodes == before
    assert stage.tainted() == []
    assert stage.meter.counts["NodesSpared"] >= 1


class Draining(Sleepy):
    """A night in which all nodes have just been closed and begin to be emptied."""

    def __init__(self) -> None:
        super().__init__()
        self.until(self.opens_at + 60)
        self.before = sorted(item["metadata"]["name"] for item in self.server.list("nodes").items)
        while ClaimState.DRAINING not in {claim.state for claim in self.claims()}:
            self.disrupt()
            self.clock.advance(20)
        self.attend()
        self.faults.clear()

    def wake(self) -> None:
        sleep_of(self).wake(self.name, int(self.clock.now()), 0)

    def around(self) -> None:
        """As ever; pods that were evicted are made anew and bound at once."""
        super().around()
        self.controllers()
        self.bind()
        self.run_pods()

    def closed(self) -> list[str]:
        """Nodes that keep new pods off, or that load balancers have let go of."""
        items = self.server.list("nodes").items
        let_go = [item["metadata"]["name"] for item in items if EXCLUDE_BALANCERS in item["metadata"]["labels"]]
        return sorted({*self.tainted(), *let_go})

    def is_as_before(self) -> bool:
        """True if all nodes are in service, no other nodes have come, and no command is under way."""
        states = {claim.state for claim in self.claims() if claim.state not in FINAL}
        nodes = sorted(item["metadata"]["name"] for item in self.server.list("nodes").items)
        still = states == {ClaimState.INITIALIZED} and nodes == self.before
        return still and not self.closed() and not self.state.commands(self.name)


def test_a_wake_ends_a_drain_that_has_begun() -> None:
    stage = Draining()
    assert stage.closed() == stage.before
    stage.wake()
    stage.attend()  # before the sweep: else pods that were evicted get a node of their own first
    back = [claim for claim in stage.claims() if claim.state is ClaimState.INITIALIZED]
    assert len(back) >= len(stage.before)
    assert all((claim.failure, claim.deadline_at) == ("", 0.0) for claim in back)
    assert stage.clock.now() in {claim.changed_at for claim in back}
    stage.around()

    assert stage.closed() == []
    assert stage.meter.counts["NodesAwakeAgain"] == len(stage.before)
    stage.minutes(2)
    assert stage.is_as_before()
    assert stage.pending() == 0
    assert stage.reasons == set()
    stage.minutes(10)
    assert stage.is_as_before()


@pytest.mark.parametrize("function", ["lifecycle", "disrupt"])
def test_a_wake_ends_a_drain_wherever_functions_die(function: str) -> None:
    for point in moments(200):
        stage = Draining()
        stage.wake()
        if function == "disrupt":
            stage.attend()
        stage.faults.clear()
        stage.faults.crash_at(point)
        died = stage.dies(stage.disrupt if function == "disrupt" else stage.attend)
        stage.faults.clear()
        stage.around()
        stage.minutes(4)
        assert stage.is_as_before(), point
        assert stage.pending() == 0, point
        if not died:
            return
    raise AssertionError("the invocation has no end")


def test_a_command_that_gives_up_a_node_is_counted_as_the_one_that_it_was() -> None:
    stage = Draining()
    first = next(claim for claim in stage.claims() if claim.state is ClaimState.DRAINING)
    stage.state.advance(first, ClaimState.INITIALIZED, failure="", deadline_at=0.0)
    begun = stage.meter.counts["CommandsRemoving"]
    (before,) = stage.state.commands(stage.name)
    stage.disrupt()
    (after,) = stage.state.commands(stage.name)

    assert set(before.targets) - set(after.targets) == {first.name}
    assert stage.meter.counts["CommandsRemoving"] == begun


def test_nodes_come_back_one_by_one_and_others_have_gone() -> None:
    stage = Draining()
    going = [claim for claim in stage.claims() if claim.state is ClaimState.DRAINING]
    ended = going[0]
    stage.compute.lose(ended.instance_id)
    stage.cloud_controller()
    stage.attend()
    stage.wake()
    stage.around()
    stage.minutes(4)
    assert Reason.ASLEEP not in {command.reason for command in stage.state.commands(stage.name)}
    assert stage.pending() == 0


@pytest.mark.parametrize("what", ["off", "unread", "window"])
def test_a_drain_ends_when_nothing_sleeps_any_more(what: str) -> None:
    stage = Draining()
    if what == "off":
        stage.settings = msgspec.structs.replace(stage.settings, policies=())
    elif what == "unread":

        def broken(*_: object) -> None:
            raise StoreError("it is not there")

        sleep_of(stage).read = broken  # type: ignore[assignment,method-assign]
    else:
        stage.clock.advance(NIGHT_S)
    stage.attend()
    stage.around()
    stage.minutes(3)
    assert stage.is_as_before()
    assert stage.meter.counts["NodesAwakeAgain"] == len(stage.before)


def test_a_node_that_spot_takes_back_is_not_called_back() -> None:
    stage = Draining()
    (claim, *_) = [claim for claim in stage.claims() if claim.state is ClaimState.DRAINING]
    sooner = stage.state.advance(claim, ClaimState.DRAINING, deadline_at=stage.clock.now() + 60)
    stage.interrupt(warning(stage, claim.instance_id))
    stage.wake()
    stage.attend()
    after = stage.state.claim(stage.name, claim.name)
    assert after is not None
    assert (after.state, after.failure) == (ClaimState.DRAINING, "SpotInterruption")
    assert after.deadline_at == sooner.deadline_at


def test_no_more_nodes_leave_in_one_night_than_shiplap_yaml_allows() -> None:
    stage = Sleepy(most=1)
    stage.replicas |= {f"more-{number}": "0" for number in range(20)}
    stage.controllers()
    stage.play_on()
    stage.run_pods()
    assert stage.nodes >= 2

    stage.until(stage.opens_at + 3600)
    assert sleep_of(stage).read(stage.name).taken == 1
    records = [read(document, name).record for name, document in stage.recorder.records.items() if is_disruption(name)]
    commands = [item for record in records if isinstance(record, DisruptionRecord) for item in record.decision.commands]
    assert sum(len(item.nodes) for item in commands if item.reason is Reason.ASLEEP) == 1
    assert stage.meter.counts["NodesKeptAwake"] > 0


@pytest.mark.parametrize("effect", ["read", "save"])
def test_what_cannot_be_remembered_keeps_nodes(effect: str) -> None:
    stage = Sleepy()
    before = stage.nodes

    def broken(*_: object) -> None:
        raise StoreError("it is not there")

    setattr(sleep_of(stage), effect, broken)

    stage.until(stage.opens_at + 1200)

    assert stage.nodes == before
    assert stage.pending() == 0


def test_doubts_are_counted_and_keep_everything_awake() -> None:
    stage = Sleepy(when="daily 00:00-24:00 UTC")
    before = stage.nodes
    stage.minutes(10)

    assert stage.nodes == before
    assert stage.meter.counts["SleepInDoubt"] > 0


def test_a_night_is_slept_wherever_the_disrupt_function_dies() -> None:
    """In the minute that begins the command; the next ones are as of any other."""
    for point in moments(200):
        stage = Sleepy()
        stage.until(stage.opens_at + 60)
        stage.faults.clear()
        stage.faults.crash_at(point)
        died = stage.dies(stage.disrupt)
        stage.faults.clear()
        stage.around()
        stage.controllers()
        stage.minutes(6)
        assert stage.nodes == 0, point
        assert stage.pending() == 4
        assert stage.state.commands(stage.name) == ()
        assert sleep_of(stage).read(stage.name).taken >= 1
        if not died:
            return
    raise AssertionError("the invocation has no end")


def test_nothing_is_read_or_written_without_settings_or_by_day() -> None:
    stage = Sleepy()
    stage.minutes(3)
    assert not [point for point in stage.faults.points if " sleep." in point]
    for change in ({"policies": ()}, {"disruption": DisruptionSettings(enabled=False)}):
        off = Sleepy()
        off.settings = msgspec.structs.replace(off.settings, **change)
        off.until(off.opens_at + 600)
        assert not [point for point in off.faults.points if " sleep." in point]
        assert off.pending() == 0
        assert off.nodes > 0
        assert Reason.ASLEEP not in off.reasons
