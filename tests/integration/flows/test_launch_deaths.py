"""Instances that end before they become nodes: EC2's reason is told and learned, and nothing is launched in a loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec
import pytest

from shiplap.errors import AwsError, AwsThrottled
from shiplap.flows import claim_events
from shiplap.flows.messages import Timer
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap_lab.fakes.faults import Crash
from tests.integration.flows.leaving import STATE, warning
from tests.integration.flows.stage import CLUSTER, Stage

KEY = ("Client.InternalError", "configuration")
NO_CAPACITY = ("Server.InsufficientInstanceCapacity", "capacity")
NO_STORAGE = ("Client.VolumeLimitExceeded", "quota")
SHUTDOWN = ("Client.UserInitiatedShutdown", "transient")


def launched(stage: Stage, pods: int = 1) -> tuple[NodeClaim, ...]:
    stage.add_pods(pods, cpu="1500m")
    stage.schedule()
    claims = stage.claims()
    assert {claim.state for claim in claims} == {ClaimState.LAUNCHED}
    return claims


def dies(stage: Stage, instance: Instance, reason: tuple[str, str]) -> None:
    """EC2 ends an instance and says so by an event."""
    stage.compute.lose(instance.id, *reason)
    stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))


def all_die(stage: Stage, reason: tuple[str, str]) -> None:
    for instance in stage.compute.alive():
        dies(stage, instance, reason)
    stage.attend_timers()


def failed(stage: Stage) -> list[NodeClaim]:
    return [claim for claim in stage.claims() if claim.state is ClaimState.FAILED]


def told_pods(stage: Stage) -> list[str]:
    return [event["message"] for event in stage.server.list("events").items]


def test_a_key_that_ec2_may_not_use_stops_the_node_class_and_says_what_to_do() -> None:
    stage = Stage()
    launched(stage)
    all_die(stage, KEY)
    (claim,) = failed(stage)
    assert "ended before it joined: Client.InternalError" in claim.failure
    assert "volumeKeys" in claim.failure
    (event,) = stage.bus.of_type(claim_events.FAILED)
    assert event.detail["reason"] == claim.failure
    assert any("volumeKeys" in message for message in told_pods(stage))
    report = stage.schedule()
    assert report.launched == ()
    assert len(stage.compute.launches) == 1
    assert report.unschedulable == 1
    (waiting,) = (message for message in told_pods(stage) if "is not ready" in message)
    assert "its instances end at once: Client.InternalError" in waiting
    assert "volumeKeys" in waiting


def test_instances_that_always_end_at_once_are_launched_less_and_less_often_and_one_at_a_time() -> None:
    """A day on which EC2 may not use the key: without a rest, an instance for each pod every few seconds."""
    stage = Stage()
    launched(stage, pods=8)
    first = len(stage.compute.launches)
    all_die(stage, KEY)
    minutes: list[int] = []
    for minute in range(24 * 60):
        stage.clock.advance(60)
        stage.sweep()
        minutes += [minute] * len(stage.compute.alive())
        all_die(stage, KEY)
    assert first > 1
    pauses = [later - earlier for earlier, later in itertools.pairwise(minutes)]
    assert min(pauses) >= 3
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 59
    assert len(stage.compute.launches) - first <= 24 + 5


def test_claims_that_were_planned_before_it_was_known_are_not_launched_any_more() -> None:
    stage = Stage()
    launched(stage)
    stage.add_pods(3, cpu="1500m", prefix="late")
    stage.faults.on("after", "state.commit", Crash())
    assert stage.dies(stage.schedule)
    assert ClaimState.PLANNED in {claim.state for claim in stage.claims()}
    all_die(stage, KEY)
    stage.clock.advance(61)
    stage.sweep()
    assert len(stage.compute.launches) == 1
    assert {claim.state for claim in stage.claims()} == {ClaimState.FAILED}


def test_a_node_class_that_is_changed_is_launched_from_at_once_by_one_node_and_then_by_all() -> None:
    stage = Stage()
    launched(stage, pods=8)
    wanted = len(stage.compute.launches)
    all_die(stage, KEY)
    (node_class,) = stage.settings.manifests.node_classes
    mended = msgspec.structs.replace(node_class, spec=msgspec.structs.replace(node_class.spec, tags={"mended": "true"}))
    manifests = Manifests(node_pools=stage.settings.manifests.node_pools, node_classes=(mended,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    assert len(stage.schedule().launched) == 1
    assert stage.schedule().launched == ()  # until that one has joined
    stage.play_on()
    assert len(stage.compute.alive()) >= wanted - 1


@pytest.mark.parametrize("reason", [NO_CAPACITY, NO_STORAGE])
def test_other_reasons_leave_alone_what_a_refused_launch_would(reason: tuple[str, str]) -> None:
    stage = Stage()
    (claim,) = launched(stage)
    all_die(stage, reason)
    (resting,) = stage.state.read(CLUSTER, stage.clock.now()).unavailable
    offering = (claim.known_instance.type, claim.known_instance.zone, claim.known_instance.capacity_type)
    assert resting.scope == (offering if reason is NO_CAPACITY else ("*", "*", claim.known_instance.capacity_type))
    assert resting.code == reason[0]
    if reason is NO_CAPACITY:
        (again,) = stage.schedule().launched
        taken = {
            item.name: (item.known_instance.type, item.known_instance.zone, item.known_instance.capacity_type)
            for item in stage.claims()
        }
        assert taken[again] != offering


def test_an_instance_that_a_person_ends_is_replaced_at_once_and_counts_as_one_that_did_not_join() -> None:
    stage = Stage()
    launched(stage)
    all_die(stage, SHUTDOWN)
    assert stage.state.read(CLUSTER, stage.clock.now()).unavailable == ()
    assert stage.meter.counts["NodesNotJoined"] == 1
    assert len(stage.schedule().launched) == 1


def test_pods_are_not_planned_again_before_it_is_known_why() -> None:
    stage = Stage()
    launched(stage)
    (instance,) = stage.compute.alive()
    dies(stage, instance, KEY)
    assert stage.bus.of_type("PodPending") == []
    stage.attend_timers()
    assert len(stage.bus.of_type("PodPending")) == 1


def test_an_event_that_describing_does_not_show_yet_is_waited_for() -> None:
    stage = Stage()
    launched(stage)
    (instance,) = stage.compute.alive()
    stage.interrupt(warning(stage, instance.id, STATE, state="shutting-down"))
    stage.attend_timers()  # EC2 still shows it running
    assert [claim.state for claim in stage.claims()] == [ClaimState.LAUNCHED]
    stage.compute.lose(instance.id, *KEY)
    stage.clock.advance(121)
    stage.sweep()
    stage.attend_timers()
    assert "Client.InternalError" in failed(stage)[0].failure


def test_a_node_that_has_joined_is_not_opened_to_pods_when_its_instance_has_ended() -> None:
    stage = Stage()
    launched(stage)
    (instance,) = stage.compute.alive()
    stage.join(instance)
    dies(stage, instance, ("Server.InternalError", "unknown"))
    stage.attend_timers()
    assert "Server.InternalError" in failed(stage)[0].failure


def test_an_end_that_ec2_does_not_explain_is_waited_for_no_longer_than_describing_lags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of an instance that was about to leave anyway: its claim is Terminating by then."""
    stage = Stage(spot=True)
    (claim,) = launched(stage)
    stage.interrupt(warning(stage, claim.instance_id))
    dies(stage, stage.compute.alive()[0], KEY)
    monkeypatch.setattr(stage.compute, "ended", lambda *_: None)
    stage.attend(Timer(CLUSTER, claim.name, "terminate"))
    assert stage.state.claim(CLUSTER, claim.name).state is ClaimState.TERMINATING  # type: ignore[union-attr]
    stage.clock.advance(120)
    stage.attend(Timer(CLUSTER, claim.name, "terminate"))
    (known,) = failed(stage)
    assert known.failure == f"its instance {claim.instance_id} ended before it joined"


def test_without_an_event_a_timer_finds_it() -> None:
    stage = Stage()
    (claim,) = launched(stage)
    stage.compute.lose(claim.instance_id, *KEY)
    stage.attend(Timer(CLUSTER, claim.name, "join"))
    assert "Client.InternalError" in failed(stage)[0].failure


def test_the_same_death_told_often_counts_once() -> None:
    stage = Stage()
    (claim,) = launched(stage)
    stage.compute.lose(claim.instance_id, *KEY)
    for state in ("shutting-down", "terminated", "terminated"):
        stage.interrupt(warning(stage, claim.instance_id, STATE, state=state))
        stage.attend(Timer(CLUSTER, claim.name, "ended"))
    (resting,) = stage.state.read(CLUSTER, stage.clock.now()).unavailable
    assert resting.failures == 1
    assert len(stage.bus.of_type(claim_events.FAILED)) == 1


def _points(act: Callable[[Stage], None]) -> list[str]:
    stage = Stage()
    launched(stage)
    stage.faults.clear()
    act(stage)
    return list(stage.faults.points)


def _life(stage: Stage) -> None:
    all_die(stage, KEY)


@pytest.mark.parametrize("number", range(len(_points(_life))))
def test_a_function_that_dies_on_the_way_leaves_no_loop_and_no_claim_behind(number: int) -> None:
    stage = Stage()
    launched(stage)
    stage.faults.clear()
    stage.faults.crash_at(number)
    stage.dies(lambda: _life(stage))
    stage.faults.clear()
    for instance in stage.compute.alive():  # the event comes again
        stage.compute.lose(instance.id, *KEY)
    for _ in range(5):
        stage.clock.advance(30)
        stage.sweep()
        stage.attend_timers()
    assert len(stage.compute.launches) == 1
    assert "Client.InternalError" in failed(stage)[0].failure
    (resting,) = stage.state.read(CLUSTER, stage.clock.now()).unavailable
    assert (resting.code, resting.failures) == ("Client.InternalError", 1)


@pytest.mark.parametrize("error", [AwsThrottled("slow", code="RequestLimitExceeded"), AwsError("no answer")])
def test_when_ec2_does_not_say_why_the_claim_waits(error: AwsError) -> None:
    stage = Stage()
    launched(stage)
    (instance,) = stage.compute.alive()
    stage.faults.on("before", "compute.ended", error)
    stage.compute.lose(instance.id, *KEY)
    stage.interrupt(warning(stage, instance.id, STATE, state="terminated"))
    with pytest.raises(type(error)):
        stage.attend_timers()
    assert [claim.state for claim in stage.claims()] == [ClaimState.LAUNCHED]
    stage.clock.advance(121)
    stage.sweep()
    stage.attend_timers()
    assert "Client.InternalError" in failed(stage)[0].failure


def test_instances_of_one_batch_are_ended_by_one_request() -> None:
    stage = Stage()
    claims = launched(stage, pods=8)
    stage.clock.advance(1000)
    stage.faults.clear()
    stage.attend(*(Timer(CLUSTER, claim.name, "join") for claim in claims))
    assert stage.compute.alive() == ()
    assert len(claims) > 1
    assert sum(point == "before compute.terminate" for point in stage.faults.points) == 1


@pytest.mark.parametrize(("pods", "batch"), [(6, 2), (8, 3)])
def test_an_instance_that_cannot_be_ended_keeps_no_other_of_its_batch_from_it(
    pods: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage()
    claims = launched(stage, pods)
    assert len(claims) == batch
    stage.clock.advance(1000)
    protected = claims[0].instance_id
    terminate = stage.compute.terminate

    def refusing(cluster: str, *instance_ids: str) -> None:
        terminate(cluster, *(name for name in instance_ids if name != protected))
        if protected in instance_ids:
            raise AwsError("termination protection", code="OperationNotPermitted")

    monkeypatch.setattr(stage.compute, "terminate", refusing)
    with pytest.raises(AwsError, match="termination protection"):
        stage.attend(*(Timer(CLUSTER, claim.name, "join") for claim in claims))
    assert [instance.id for instance in stage.compute.alive()] == [protected]
    assert [claim.name for claim in stage.claims()] == [claims[0].name]
