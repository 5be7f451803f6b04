"""Deadlines are learned from nodes that joined; what never joins is not launched for ever."""

from __future__ import annotations

import pytest

from shiplap.errors import ClusterUnreachable, StoreThrottled
from shiplap.instances.readiness.joins import AMI_FAILURES, FIRST_PAUSE_S, LONGEST_INITIALIZE_S
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pools import family_pool
from tests.integration.flows.stage import Stage

ONE_TYPE = (family_pool("any", ("m6i",), sizes=("large",)),)


def joined(seconds: float, nodes: int = 5) -> Stage:
    """Nodes of one pool have joined, each so long after its launch."""
    stage = Stage(ONE_TYPE)
    stage.add_pods(nodes, cpu="1200m", memory="2Gi")
    stage.schedule()
    stage.clock.advance(seconds)
    stage.join()
    stage.attend()
    stage.bind()
    return stage


def test_times_are_noted_at_registration_and_initialisation() -> None:
    stage = joined(70)
    times = stage.joins.read(stage.name).times("any")
    assert times.register_s == (70.0,) * 5
    assert times.initialize_s == (0.0,) * 5


def test_nodes_that_join_together_are_noted_together() -> None:
    """All of them are in one item, for which invocations would wait in a row."""
    stage = Stage(ONE_TYPE)
    stage.add_pods(12, cpu="1200m", memory="2Gi")
    stage.schedule()
    stage.join()
    stage.faults.clear()
    report = stage.attend()
    assert len(report.initialized) == 12
    notes = [point for point in stage.faults.points if point.startswith("after joins.")]
    assert notes == ["after joins.joined", "after joins.initialized"]
    assert len(stage.joins.read(stage.name).times("any").register_s) == 12


def test_what_was_noted_before_a_failure_is_written() -> None:
    stage = Stage(ONE_TYPE)
    stage.add_pods(2, cpu="1200m", memory="2Gi")
    stage.schedule()
    stage.join()
    stage.faults.on("before", "cluster.patch_node", ClusterUnreachable("no route"), nth=3)
    with pytest.raises(ClusterUnreachable):
        stage.attend()
    assert len(stage.joins.read(stage.name).times("any").initialize_s) == 1


def test_the_next_node_is_waited_for_as_long_as_was_learned() -> None:
    stage = joined(120)
    stage.timers.reminders.clear()
    stage.add_pods(1, cpu="1200m", memory="2Gi", prefix="next")
    stage.schedule()
    (claim,) = (claim for claim in stage.claims() if claim.state is ClaimState.LAUNCHED)
    assert claim.deadline_at == stage.clock.now() + 240
    assert [item.delay_s for item in stage.timers.reminders if item.claim == claim.name] == [240]
    stage.clock.advance(240)
    stage.attend_timers()
    assert stage.meter.counts["NodesNotJoined"] == 1


def test_without_history_the_setting_holds() -> None:
    stage = Stage(ONE_TYPE)
    stage.add_pods(1)
    stage.faults.on("before", "joins.read", StoreThrottled("slow down"))
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.deadline_at == stage.clock.now() + 900
    assert stage.meter.counts["JoinsNotRead"] == 1


def never(stage: Stage, minutes: int) -> None:
    """Time passes, and no instance ever becomes a node."""
    for _ in range(minutes):
        stage.broken |= {instance.id for instance in stage.compute.alive()}
        stage.sweep()
        stage.attend_timers()
        stage.clock.advance(60)


def test_an_ami_that_never_joins_is_not_launched_for_ever() -> None:
    stage = Stage((family_pool("any", ("m6i", "c7i", "r6i", "c7i-flex")),))
    stage.add_pods(1)
    never(stage, 16 * AMI_FAILURES + 8)
    launched = len(stage.compute.launches)
    assert launched == AMI_FAILURES
    never(stage, 5)
    assert len(stage.compute.launches) == launched  # it pauses
    assert {value for value, _ in stage.meter.seen["TypesBarred"]} == {1}, "the AMI alone"
    stage.clock.advance(FIRST_PAUSE_S)
    never(stage, 3)
    assert len(stage.compute.launches) == launched + 1  # one try
    stage.broken.clear()
    stage.join()
    stage.attend()
    stage.bind()
    assert stage.pending() == 0
    stage.add_pods(40, prefix="more")
    stage.schedule()
    assert len(stage.compute.launches) > launched + 2  # the AMI is good again


def test_a_type_that_never_joins_is_tried_less_and_less_often() -> None:
    stage = joined(30)  # the AMI is good
    failing = "m6i.large"
    stage.add_pods(1, cpu="1200m", memory="2Gi", prefix="next")
    never(stage, 40)
    assert len(stage.compute.launches) == 5 + 3  # two tries, and one after a pause
    assert {instance.instance_type for instance in stage.compute.launches} == {failing}
    (barred,) = stage.joins.read(stage.name).amis
    assert barred.types[failing].failures == 3


def test_many_nodes_that_fail_together_are_one_failure() -> None:
    stage = Stage(ONE_TYPE)
    stage.add_pods(9, cpu="1200m", memory="2Gi")
    never(stage, 16)
    stage.broken.clear()
    stage.play_on()
    assert len(stage.compute.launches) == 18


def test_a_note_that_cannot_be_written_holds_up_nothing() -> None:
    stage = Stage(ONE_TYPE)
    stage.add_pods(1)
    stage.schedule()
    stage.join()
    stage.faults.on("before", "joins.joined", StoreThrottled("slow down"))
    stage.attend()
    assert stage.claims()[0].state is ClaimState.INITIALIZED
    assert stage.meter.counts["JoinsNotRecorded"] == 1


def test_a_node_that_never_becomes_complete_is_left_without_haste() -> None:
    stage = Stage(ONE_TYPE)
    stage.add_pods(1)
    stage.schedule()
    stage.join(ready=False)
    stage.attend()
    (claim,) = stage.claims()
    assert claim.state is ClaimState.REGISTERED
    stage.clock.advance(LONGEST_INITIALIZE_S - 1)
    stage.attend()
    assert stage.claims()[0].state is ClaimState.REGISTERED
    stage.clock.advance(1)
    stage.attend()
    known = stage.state.claim(stage.name, claim.name)
    assert known is not None
    assert (known.state, known.failure, known.deadline_at) == (ClaimState.DRAINING, "NodeIncomplete", 0.0)
    assert stage.meter.counts["NodesNotInitialized"] == 1
    assert stage.joins.read(stage.name).amis[0].all.failures == 1
