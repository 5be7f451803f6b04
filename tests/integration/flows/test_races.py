"""Messages lost, doubled, late and out of order; schedulers that decide at the same time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from msgspec import structs

from shiplap.errors import AwsError, EpochMoved, NodeClassNotReady
from shiplap.flows.claim_updates import GRACE_S
from shiplap.flows.messages import NodeSeen, PodsPending, Sweep, Timer
from shiplap.flows.schedule import schedule as schedule_module
from shiplap.manifests.nodeclaim import ClaimState
from shiplap.ports import FleetResult, OfferingFailure
from tests.builders.pools import family_pool
from tests.integration.flows.stage import CLUSTER, ZONES, Stage, share


def lonely_cost() -> int:
    """Return the number of nodes that one scheduler alone launches for the pods of these tests."""
    stage = Stage()
    stage.add_pods(9)
    stage.schedule()
    return len(stage.compute.launches)


@pytest.mark.parametrize("effect", ["state.read", "cluster.view", "state.commit"])
def test_two_schedulers_at_once_launch_one_set_of_nodes(effect: str) -> None:
    stage = Stage()
    stage.add_pods(9)
    stage.faults.on("before", effect, stage.schedule)
    report = stage.schedule()
    assert len(stage.compute.launches) == lonely_cost()
    assert report.launched == ()
    stage.play_on()
    assert len(stage.compute.launches) == lonely_cost()


def test_the_loser_of_a_race_is_told_and_plans_again_what_the_winner_left() -> None:
    stage = Stage()
    stage.add_pods(3)

    def rival() -> None:
        stage.schedule()
        stage.add_pods(6, prefix="late")

    stage.faults.on("before", "state.commit", rival)
    report = stage.schedule()
    assert stage.meter.counts["EpochsMoved"] == 1
    assert report.rounds == 2
    assert report.unfinished == ""
    placed = Counter(pod.uid for claim in stage.claims() for pod in claim.plan.pods)
    assert max(placed.values()) == 1
    stage.play_on()
    assert stage.pending() == 0


def test_a_scheduler_that_loses_every_race_gives_up_in_the_end() -> None:
    stage = Stage()
    stage.add_pods(1)
    for number in range(schedule_module.MAX_ROUNDS):
        stage.faults.on("before", "state.commit", EpochMoved(CLUSTER, number), nth=number + 1)
    report = stage.schedule()
    assert report.unfinished == f"not done after {schedule_module.MAX_ROUNDS} rounds"
    assert report.launched == ()


def test_a_slow_scheduler_whose_claims_were_taken_over_launches_nothing_twice() -> None:
    stage = Stage()
    stage.add_pods(9)

    def paused() -> None:
        stage.clock.advance(100)
        stage.sweep()

    stage.faults.on("after", "state.commit", paused)
    stage.schedule()
    assert len(stage.compute.launches) == lonely_cost()
    assert stage.meter.counts["ClaimsLost"] >= 1
    stage.play_on()
    assert len(stage.compute.launches) == lonely_cost()


def test_a_scheduler_overtaken_during_its_launch_shares_the_instance() -> None:
    stage = Stage()
    stage.add_pods(1)

    def paused() -> None:
        stage.clock.advance(100)
        stage.sweep()

    stage.faults.on("before", "compute.launch", paused)
    stage.schedule()
    assert len(stage.compute.launches) == 1
    (claim,) = stage.claims()
    assert claim.state is ClaimState.LAUNCHED
    stage.play_on()


def test_every_message_lost_costs_only_time() -> None:
    stage = Stage()
    stage.add_pods(9)
    for _ in range(20):  # nothing but the sweep and what it reminds of
        stage.timers.reminders.clear()
        stage.sweep()
        stage.join()
        stage.attend(*stage.due()) if stage.timers.reminders else None
        stage.bind()
        stage.clock.advance(60)
    assert stage.quiet(), stage.summary()
    assert len(stage.compute.launches) == lonely_cost()


def test_every_message_doubled_changes_nothing() -> None:
    stage = Stage()
    stage.add_pods(9)
    hint = PodsPending(CLUSTER, stage.clock.now())
    stage.schedule(hint, hint)
    stage.schedule(hint)
    stage.join()
    nodes = [NodeSeen(CLUSTER, node.metadata.name, node.spec.provider_id) for node in stage.cluster.nodes()]
    timers = [Timer(CLUSTER, claim.name, "join") for claim in stage.claims()]
    for _ in range(2):
        stage.attend(*nodes, *nodes, *timers, *timers)
    stage.bind()
    assert stage.quiet(), stage.summary()
    assert len(stage.compute.launches) == lonely_cost()
    assert len(stage.capacity.all()) == len({(c.known_instance.ami, c.known_instance.type) for c in stage.claims()})


def test_timers_and_nodes_in_any_order_come_to_the_same_end() -> None:
    stage = Stage()
    stage.add_pods(3)
    stage.attend(NodeSeen(CLUSTER, "ip-10-0-0-1.internal", "aws:///eu-west-1a/i-00000000000000001"))
    stage.schedule()
    names = [claim.name for claim in stage.claims()]
    stage.attend(*(Timer(CLUSTER, name, "garbage") for name in names))
    stage.attend(*(Timer(CLUSTER, name, "initialize") for name in names), Timer(CLUSTER, "never-was", "join"))
    assert len(stage.compute.alive()) == len(stage.compute.launches) == len(names)
    stage.play_on()
    late = [Timer(CLUSTER, name, "join") for name in names]
    stage.clock.advance(86_400)
    stage.attend(*late)
    assert len(stage.compute.alive()) == len(names)
    assert stage.quiet()


def test_hints_of_long_ago_about_pods_that_run_launch_nothing() -> None:
    stage = Stage()
    stage.add_pods(3)
    stage.schedule()
    stage.play_on()
    before = len(stage.compute.launches)
    assert stage.schedule(PodsPending(CLUSTER, 1.0), Sweep(CLUSTER)).launched == ()
    assert len(stage.compute.launches) == before


def test_describing_that_lags_never_makes_a_second_instance() -> None:
    stage = Stage()
    stage.compute.describe_lag_s = 100
    stage.add_pods(9)
    stage.faults.crash_at(_point(stage, "after compute.launch"))
    assert stage.dies(stage.schedule)
    stage.faults.clear()
    stage.clock.advance(61)
    stage.schedule()  # the claim is resumed, its instance is not described yet: the token answers
    stage.play_on()
    assert len(stage.compute.launches) == lonely_cost()


def test_a_token_that_comes_back_with_other_parameters_waits_for_its_instance() -> None:
    stage = Stage((family_pool("any", ("m6i",)),))
    stage.compute.describe_lag_s = 100
    stage.add_pods(1)
    stage.faults.crash_at(_point(stage, "after compute.launch"))
    assert stage.dies(stage.schedule)
    stage.faults.clear()
    stage.clock.advance(61)
    for zone in ZONES[1:]:  # the same launch today would ask for less
        failure = OfferingFailure("m6i.large", zone, "on-demand", "InsufficientInstanceCapacity")
        stage.state.mark_unavailable([failure], stage.clock.now())
    report = stage.schedule()
    assert report.unfinished == "launches are pending"
    assert len(stage.compute.launches) == 1
    stage.clock.advance(60)
    stage.schedule()
    (claim,) = stage.claims()
    assert claim.instance_id == stage.compute.launches[0].id
    stage.play_on()
    assert len(stage.compute.launches) == 1


def test_a_launch_that_was_answered_with_nothing_is_planned_again_after_the_grace_and_not_asked_for_before() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    for zone in ZONES[:2]:
        stage.compute.capacity["m6i.large", zone, "on-demand"] = 0
    stage.compute.answers = [lambda _: FleetResult()]  # the answer gets lost
    stage.add_pods(1)
    stage.faults.crash_at(_point(stage, "after compute.launch"))
    assert stage.dies(stage.schedule)
    stage.faults.clear()
    stage.clock.advance(61)
    for zone in ZONES[:1]:
        failure = OfferingFailure("m6i.large", zone, "on-demand", "InsufficientInstanceCapacity")
        stage.state.mark_unavailable([failure], stage.clock.now())
    assert stage.schedule().unfinished == "launches are pending"
    for _ in range(2):
        stage.clock.advance(GRACE_S / 2 - 1)
        assert stage.schedule().launched == ()
    assert stage.faults.points.count("before compute.launch") == 1
    stage.clock.advance(2)
    report = stage.schedule()
    assert (len(report.failed), len(report.launched)) == (1, 1)
    stage.play_on()
    assert [instance.zone for instance in stage.compute.launches] == [ZONES[2]]


def test_an_instance_that_shows_after_the_token_was_refused_is_adopted_and_the_rest_given_up() -> None:
    stage = Stage((family_pool("any", ("m6i",), sizes=("large",)),))
    stage.add_pods(2, cpu="1200m")
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    stage.schedule()
    first, second = stage.compute.alive()
    stage.compute.hide(first.id, 90)
    stage.compute.lose(second.id)
    stage.faults.on("before", "compute.launch", AwsError("used before", code="IdempotentParameterMismatch"))
    assert stage.schedule().unfinished == "launches are pending"
    stage.clock.advance(91)
    assert len(stage.schedule().launched) == 1
    stage.clock.advance(GRACE_S - 90)
    report = stage.schedule()
    assert (len(report.failed), len(report.launched)) == (1, 1)
    stage.play_on()
    assert len(stage.compute.launches) == 3


def test_a_refusal_after_an_attempt_without_an_answer_waits_for_its_instance() -> None:
    stage = Stage()
    stage.compute.describe_lag_s = 100
    stage.add_pods(1)
    stage.faults.crash_at(_point(stage, "after compute.launch"))
    assert stage.dies(stage.schedule)
    stage.faults.clear()
    stage.clock.advance(61)
    refusal = NodeClassNotReady("launch templates cannot be made", code="InvalidParameterValue")
    stage.faults.on("before", "compute.launch", refusal)
    assert stage.schedule().failed == ()
    assert len(stage.compute.launches) == 1
    stage.clock.advance(60)
    stage.schedule()
    assert stage.claims()[0].instance_id == stage.compute.launches[0].id
    stage.play_on()
    assert len(stage.compute.launches) == 1


def _point(stage: Stage, name: str) -> int:
    """The number of the first point of this name in an undisturbed schedule of the same pods."""
    rehearsal = Stage(stage.settings.manifests.node_pools)
    rehearsal.add_pods(stage.pending())
    rehearsal.faults.clear()
    rehearsal.schedule()
    stage.faults.clear()
    return rehearsal.faults.points.index(name)


def two_clusters(families: Sequence[str] = ("m6i", "r6i")) -> tuple[Stage, Stage]:
    """Two clusters of one account, each with a pod that fits a type's estimate but not what its nodes really have."""
    pools = (family_pool("any", families, sizes=("large",)),)
    here = Stage(pools, true_memory=share(0.88))
    there = Stage(pools, true_memory=share(0.88), beside=here)
    kind = here.types["m6i.large"]
    real = here.true_capacity(kind.name)["memory"] - kind.overhead["memory"]
    for stage in (here, there):
        stage.add_pods(1, cpu="1200m", memory=str((kind.allocatable["memory"] + real) // 2))
    return here, there


def test_an_estimate_is_explored_by_one_cluster_at_a_time() -> None:
    here, there = two_clusters()
    here.schedule()
    there.schedule()
    assert [instance.instance_type for instance in here.compute.launches] == ["m6i.large"]
    assert [instance.instance_type for instance in there.compute.launches] == ["r6i.large"]


def test_a_lease_that_another_cluster_took_first_leaves_the_rest_of_the_launch_list() -> None:
    here, there = two_clusters()
    there.faults.on("before", "capacity.acquire_pilot", here.schedule)
    assert len(there.schedule().launched) == 1
    assert [instance.instance_type for instance in there.compute.launches] == ["r6i.large"]
    assert [instance.instance_type for instance in here.compute.launches] == ["m6i.large"]


def test_a_claim_that_gets_none_of_its_leases_fails_and_is_planned_again() -> None:
    here, there = two_clusters(("m6i",))
    there.faults.on("before", "capacity.acquire_pilot", here.schedule)
    report = there.schedule()
    assert (len(report.failed), report.launched, report.unschedulable) == (1, (), 1)
    assert there.compute.launches == []


def test_what_was_learned_between_a_plan_and_its_lease_is_heeded() -> None:
    here, there = two_clusters()

    def pilot_from_launch_to_report() -> None:
        here.schedule()
        here.join()
        here.attend()

    there.faults.on("before", "capacity.acquire_pilot", pilot_from_launch_to_report)
    there.schedule()
    assert here.meter.counts["NodeClaimsMissed"] == 1
    assert [instance.instance_type for instance in there.compute.launches] == ["r6i.large"]


def test_a_pilot_that_takes_long_to_join_keeps_its_lease_as_long_as_it_is_swept() -> None:
    here, there = two_clusters()
    here.settings = structs.replace(here.settings, join_timeout_s=3600)
    here.schedule()
    for _ in range(20):
        here.clock.advance(60)
        here.sweep()
    there.schedule()
    assert [instance.instance_type for instance in there.compute.launches] == ["r6i.large"]


def test_a_pod_that_missed_while_it_was_planned_is_not_launched_on_an_estimate() -> None:
    here, _ = two_clusters()
    uid = "uid-web-000"
    here.faults.on("after", "state.commit", lambda: here.state.mark_missed(CLUSTER, [uid], here.clock.now()))
    assert len(here.schedule().launched) == 1
    assert [instance.instance_type for instance in here.compute.launches] == ["r6i.large"]


def test_leases_of_types_that_were_not_launched_are_given_back_at_once() -> None:
    here, _ = two_clusters()
    here.schedule()
    (instance,) = here.compute.launches
    kind = here.types[instance.instance_type]
    held = here.capacity.pilots([instance.ami], here.clock.now())
    assert held == {f"{instance.ami}/{kind.name}#{kind.kubelet_hash}"}
    here.join()
    here.attend()
    assert here.capacity.pilots([instance.ami], here.clock.now()) == frozenset()
