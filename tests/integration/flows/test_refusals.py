"""A pod that no node of its own ever takes costs a few nodes, not one a minute; a broken AMI, a small batch."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.flows.planning.futile_launches import FIRST_PAUSE_S, FREE, LONGEST_PAUSE_S
from tests.builders.pools import family_pool
from tests.integration.flows.besieged import TOLERATED, Besieged, launched_within, own_toleration
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.stage import Stage

pytestmark = pytest.mark.thorough


def besieged(pods: int = 1) -> Besieged:
    stage = Besieged()
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    return stage


def test_a_pod_that_every_node_refuses_costs_a_few_nodes_and_says_why() -> None:
    stage = besieged()
    stage.minutes(12)
    first = len(stage.compute.launches)
    assert FREE <= first <= FREE + 1
    assert any("runs on none of them" in message for message in stage.events())
    held = stage.sweep()
    assert (held.launched, held.unschedulable) == ((), 1), "it counts as long as it waits"
    stage.minutes(12 * 60)
    assert len(stage.compute.launches) <= FREE + 2 + 12, "hourly at last"
    assert len(stage.compute.alive()) <= 1


def test_a_pod_is_served_within_the_hour_after_what_kept_it_off_has_gone() -> None:
    """A taint that lasted for three hours must not keep a pod waiting for a week."""
    stage = besieged()
    stage.minutes(180)
    stage.hostile = False
    stage.minutes(int(LONGEST_PAUSE_S / 60) + 5)
    assert stage.pending() == 0


# A crowd


@pytest.mark.parametrize("kinds", [1, 25])
def test_a_crowd_that_every_node_refuses_is_tried_with_few_nodes(kinds: int) -> None:
    """After its first batch, about which nothing could be known, at most 35 in five minutes and 60 in an hour."""
    stage = Besieged()
    for kind in range(kinds):
        own = [own_toleration(kind)]
        stage.add_pods(500 // kinds, cpu="1200m", memory="2Gi", prefix=f"kind-{kind:02d}", tolerations=own)
    stage.minutes(1)
    first = len(stage.compute.launches)
    began = stage.clock.now()
    stage.minutes(2 * 60)
    assert launched_within(stage, 300, began) <= 35
    assert launched_within(stage, 3600, began) <= 60
    within_hour = sum(item.launched_at < began + 3540 for item in stage.compute.launches)
    assert within_hour <= max(first, 60)
    stage.hostile = False
    stage.minutes(75)
    assert stage.pending() == 0


def test_pods_that_come_back_under_other_uids_are_no_news() -> None:
    """Somebody deletes the pods every three minutes, and their controller creates them again, alike."""
    stage = Besieged()
    for minute in range(0, 90, 3):
        for pod in stage.waiting():
            stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
        stage.add_pods(50, cpu="1200m", memory="2Gi", prefix=f"created-{minute:02d}")
        stage.minutes(3)
    assert launched_within(stage, 300) <= 35
    assert launched_within(stage, 3600) <= 60
    stage.hostile = False
    for _ in range(75):
        stage.minutes(1)
        if stage.pending() < 50:
            break
    stage.minutes(5)
    assert stage.pending() == 0, "all of them as soon as one is"


def test_pods_whose_nodes_are_taken_are_never_slowed_by_others() -> None:
    """A thousand nodes in five minutes, beside a crowd that a hostile taint keeps off its nodes."""
    stage = Besieged()
    stage.settings = msgspec.structs.replace(stage.settings, unproven_nodes=2000)
    stage.add_pods(200, cpu="1200m", memory="2Gi", prefix="kept-off")
    stage.minutes(6)
    began = stage.clock.now()
    for minute in range(5):
        stage.add_pods(200, cpu="6", memory="2Gi", prefix=f"good-{minute}", tolerations=[TOLERATED])
        stage.prove_pending_kinds("good")
        stage.around()
        assert {pod["metadata"]["name"][:8] for pod in stage.waiting()} == {"kept-off"}, "served within the minute"
    homes = {pod["spec"].get("nodeName") for pod in stage.server.list("pods").items} - {None, ""}
    assert len(homes) == 1000
    launched = sum(item.launched_at >= began for item in stage.compute.launches)
    assert 1000 - 35 <= launched <= 1000 + 35
    assert launched_within(stage, 300, began) >= 950


def test_a_node_that_has_just_become_complete_is_waited_for_before_another_is_launched() -> None:
    stage = besieged()
    stage.settings = msgspec.structs.replace(stage.settings, placement="none")
    stage.schedule()
    stage.join()
    stage.attend()
    stage.attend()
    stage.taint()
    for _ in range(4):
        stage.schedule()
        stage.clock.advance(10)
    assert len(stage.compute.launches) == 1
    stage.clock.advance(10)
    stage.schedule()
    assert len(stage.compute.launches) == 2, "the 45 seconds are over"


def test_pauses_grow_between_the_last_tries() -> None:
    stage = besieged()
    stage.minutes(150)
    times = [instance.launched_at for instance in stage.compute.launches]
    gaps = [later - earlier for earlier, later in zip(times[FREE - 1 :], times[FREE:], strict=False)]
    assert gaps[0] >= FIRST_PAUSE_S
    assert gaps[1] >= 2 * FIRST_PAUSE_S


def test_other_pods_are_served_meanwhile_and_the_pod_as_soon_as_the_neighbour_relents() -> None:
    stage = besieged()
    stage.minutes(12)
    stage.hostile = False
    stage.add_pods(2, cpu="1200m", memory="2Gi", prefix="new")
    stage.minutes(3)
    assert stage.pending() == 0


class Refusing(Disrupted):
    """kube-scheduler leaves pods alone, for reasons of its own, and says nothing."""

    def bind(self) -> int:
        return 0


def test_a_node_that_is_refused_in_silence_is_not_kept_for_ever() -> None:
    stage = Refusing()
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.minutes(55)
    assert len(stage.compute.launches) == len(stage.compute.alive()) == 1  # a scheduler may be down for a while
    stage.minutes(20)
    assert len(stage.compute.launches) == 2
    stage.minutes(24 * 60)
    assert len(stage.compute.launches) <= FREE + 2 + 24
    assert len(stage.compute.alive()) <= 1
    assert stage.pending() == 1


def test_a_node_whose_room_others_took_does_not_count() -> None:
    stage = Disrupted()
    stage.add_pods(1, cpu="1200m", memory="2Gi")
    stage.schedule()
    stage.add_pods(1, cpu="1200m", memory="2Gi", prefix="a-thief")  # first by name, so it is bound first
    for _ in range(3):
        stage.join()
        stage.attend()
        stage.bind()
        stage.clock.advance(60)
        stage.sweep()
    assert stage.state.read(stage.name, stage.clock.now()).refused == {}


def test_a_scheduler_that_is_slow_makes_one_mark_per_node() -> None:
    stage = besieged(3)
    stage.sweep()
    stage.join()
    stage.attend()
    for _ in range(4):
        stage.clock.advance(60)
        stage.sweep()
    marks = stage.state.read(stage.name, stage.clock.now()).refused
    assert {len(item.claims) for item in marks.values()} == {1}
    assert len(stage.compute.launches) == 1
    stage.bind()
    assert stage.pending() == 0


# An AMI that no node has joined with

ONE_SIZE = (family_pool("any", ("m6i",), sizes=("large",)),)


def burst(most: int, pods: int = 12) -> Stage:
    """Each pod needs a node of its own."""
    stage = Stage(ONE_SIZE)
    stage.settings = msgspec.structs.replace(stage.settings, unproven_nodes=most)
    stage.add_pods(pods, cpu="1200m", memory="2Gi")
    return stage


def test_the_first_batch_of_an_ami_is_bounded_and_one_node_that_joins_opens_it() -> None:
    stage = burst(5)
    report = stage.schedule()
    assert (len(report.launched), report.rounds, report.unfinished) == (5, 1, "")
    assert stage.meter.counts["ClaimsWithoutProof"] == 7
    assert len(stage.schedule().launched) == 0
    assert stage.meter.counts["PlansWithoutProof"] == 1
    assert stage.meter.counts["ClaimsWithoutProof"] == 7, "there is no use in planning before a node has joined"
    stage.clock.advance(60)
    stage.join(stage.compute.launches[0])
    stage.attend()
    stage.bind()
    assert len(stage.sweep().launched) == 7


def test_a_first_batch_wide_enough_is_launched_at_once() -> None:
    stage = burst(100)
    assert len(stage.schedule().launched) == 12


def test_an_ami_that_failed_gets_smaller_batches() -> None:
    stage = burst(20, pods=30)
    stage.broken |= {f"i-{number:017x}" for number in range(1, 100)}
    counts = []
    for _ in range(40):
        before = len(stage.compute.launches)
        stage.sweep()
        counts.append(len(stage.compute.launches) - before)
        stage.attend_timers()
        stage.clock.advance(60)
    assert [count for count in counts if count][:2] == [20, 2]


def test_what_was_learned_of_an_ami_anywhere_is_proof() -> None:
    first = burst(100, pods=1)
    first.play_on()
    beside = Stage(ONE_SIZE, beside=first)
    beside.settings = msgspec.structs.replace(beside.settings, unproven_nodes=1)
    beside.add_pods(4, cpu="1200m", memory="2Gi")
    assert len(beside.schedule().launched) == 4
