"""Kinds of pods that no node has run cost few nodes together, the first batch included, unless a cluster opts out."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.pools import family_pool
from tests.integration.flows.besieged import TOLERATED, Besieged, launched_within, own_toleration
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.stage import ZONES, Stage

pytestmark = pytest.mark.thorough

ONE_SIZE = (family_pool("any", ("m6i",), sizes=("large",)),)
SIX_TO_A_NODE, ONE_TO_A_NODE = "1200m", "5"


def bounded(stage: Stage, most: int = 35) -> None:
    stage.settings = msgspec.structs.replace(stage.settings, unproven_pod_nodes=most, unproven_nodes=2000)


def besieged(most: int | None = None) -> Besieged:
    """With the settings of a cluster that says nothing, or with a bound that AMIs do not hide."""
    stage = Besieged()
    if most is not None:
        bounded(stage, most)
    return stage


def assert_bounded(stage: Stage, in_five_minutes: int = 35, in_an_hour: int = 60) -> None:
    assert 0 < launched_within(stage, 300) <= in_five_minutes
    assert launched_within(stage, 3600) <= in_an_hour


# What no node takes


@pytest.mark.parametrize("most", [None, 35])
@pytest.mark.parametrize("cpu", [SIX_TO_A_NODE, ONE_TO_A_NODE])
def test_the_first_batch_of_a_crowd_is_within_the_bound(cpu: str, most: int | None) -> None:
    stage = besieged(most)
    stage.add_pods(500, cpu=cpu, memory="2Gi")
    stage.minutes(75)
    assert_bounded(stage)


def test_a_crowd_is_served_once_what_kept_it_off_has_gone() -> None:
    stage = besieged()
    stage.add_pods(300, cpu=SIX_TO_A_NODE, memory="2Gi")
    stage.minutes(20)
    stage.hostile = False
    stage.minutes(70)
    assert stage.pending() == 0


def test_the_hour_is_in_proportion_to_the_five_minutes() -> None:
    stage = besieged(7)
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi")
    stage.minutes(75)
    assert_bounded(stage, 7, 12)


@pytest.mark.parametrize("most", [None, 35])
def test_other_kinds_every_minute_do_not_get_a_batch_each(most: int | None) -> None:
    stage = besieged(most)
    for minute in range(75):
        stage.add_pods(
            3, cpu=ONE_TO_A_NODE, memory="2Gi", prefix=f"m{minute:02d}", tolerations=[own_toleration(minute)]
        )
        stage.minutes(1)
    assert_bounded(stage)
    assert launched_within(stage, 3600) > 35, "every five minutes there is room again, while the hour has any"


def test_pods_that_go_before_their_nodes_are_judged_count_all_the_same() -> None:
    stage = besieged()
    for minute in range(75):
        for pod in stage.waiting():
            stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
        stage.add_pods(
            20, cpu=ONE_TO_A_NODE, memory="2Gi", prefix=f"m{minute:02d}", tolerations=[own_toleration(minute)]
        )
        stage.minutes(1)
    assert_bounded(stage)


def test_pods_hear_in_numbers_why_they_wait() -> None:
    stage = besieged()
    stage.add_pods(50, cpu=ONE_TO_A_NODE, memory="2Gi")
    report = stage.sweep()
    assert (len(report.launched), report.unschedulable, report.unfinished) == (35, 15, "")
    assert stage.meter.counts["ClaimsOfUnprovenPods"] == 15
    [message] = set(stage.events())
    assert "35 nodes were launched within 5 minutes for pods of which no node has run any" in message
    assert "unprovenPodNodes: 35" in message
    assert message.endswith("or after 2023-11-14T22:18:20Z")


def test_a_hint_does_not_plan_for_pods_that_would_wait_again() -> None:
    stage = besieged()
    stage.add_pods(50, cpu=ONE_TO_A_NODE, memory="2Gi")
    stage.sweep()
    assert stage.schedule().launched == ()
    assert stage.meter.counts["PlansOfUnprovenPods"] == 1
    stage.add_pods(1, prefix="proven", cpu=ONE_TO_A_NODE, memory="2Gi", tolerations=[own_toleration(1)])
    assert stage.schedule().launched == (), "another new kind waits, too"
    assert stage.meter.counts["PlansOfUnprovenPods"] == 2
    assert stage.meter.counts["ClaimsOfUnprovenPods"] == 15, "those of the sweep: no plan was made since"


# What nodes do take


def test_a_good_class_launches_a_thousand_nodes_beside_a_hostile_taint() -> None:
    stage = besieged()
    stage.add_pods(200, cpu=SIX_TO_A_NODE, memory="2Gi", prefix="kept-off")
    stage.add_pods(1, cpu="6", memory="2Gi", prefix="good", tolerations=[TOLERATED])
    stage.minutes(6)
    began = stage.clock.now()
    for minute in range(5):
        stage.add_pods(200, cpu="6", memory="2Gi", prefix=f"good-{minute}", tolerations=[TOLERATED])
        stage.around()
        assert {pod["metadata"]["name"][:8] for pod in stage.waiting()} == {"kept-off"}, "served within the minute"
    assert launched_within(stage, 300, began) >= 1000


def test_a_new_kind_that_comes_with_a_crowd_gets_its_first_node_with_the_first_batch() -> None:
    stage = besieged()
    stage.add_pods(500, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="a-crowd")
    stage.add_pods(1, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="z-good", tolerations=[TOLERATED])
    assert len(stage.sweep().launched) == 35
    assert any(pod.name.startswith("z-good") for claim in stage.claims() for pod in claim.plan.pods)


def test_a_new_kind_gets_its_first_node_within_five_minutes_of_a_crowd_that_used_up_its_own() -> None:
    """Ten of the hour's sixty nodes are only launched as the first of their kind."""
    stage = besieged()
    stage.add_pods(500, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="a-crowd")
    stage.minutes(20)
    assert len(stage.compute.launches) == 50
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="good", tolerations=[TOLERATED])
    stage.minutes(6)
    assert {pod["metadata"]["name"].rpartition("-")[0] for pod in stage.waiting()} == {"a-crowd"}


def test_newer_kinds_do_not_keep_an_old_one_from_its_first_node() -> None:
    """Kinds come faster than the hour's bound allows first nodes; who has waited longest is next."""
    stage = besieged()
    for minute in range(30):
        stage.add_pods(
            3, cpu=ONE_TO_A_NODE, memory="2Gi", prefix=f"a{minute:02d}", tolerations=[own_toleration(minute)]
        )
        if minute == 25:
            stage.add_pods(1, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="z-good", tolerations=[TOLERATED])
        stage.minutes(1)
    for minute in range(30, 100):
        stage.add_pods(
            1, cpu=ONE_TO_A_NODE, memory="2Gi", prefix=f"a{minute:02d}", tolerations=[own_toleration(minute)]
        )
        stage.minutes(1)
    assert not any(pod["metadata"]["name"].startswith("z-good") for pod in stage.waiting())
    assert_bounded(stage, in_an_hour=60 + 1)  # a node that runs a pod does not count


def test_a_kind_that_runs_on_nodes_of_others_is_not_slowed() -> None:
    """A cluster that had node groups before: its workloads are proven from the first look on."""
    stage = Disrupted()
    stage.server.create("nodes", {"metadata": {"name": "theirs"}, "spec": {"providerID": "aws:///eu-west-1a/i-0abc"}})
    stage.add_pods(1, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="before")
    stage.server.bind("before-000", "theirs", "default")
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi")
    assert len(stage.schedule().launched) == 100


def honest(nodes: int = 300, most: int | None = None) -> Disrupted:
    stage = Disrupted()
    if most is not None:
        bounded(stage, most)
    stage.add_pods(nodes, cpu=ONE_TO_A_NODE, memory="2Gi")
    return stage


def minutes_until_served(stage: Disrupted) -> int:
    for minute in range(1, 30):
        stage.minutes(1)
        if not stage.pending():
            return minute
    raise AssertionError(stage.summary())


def test_an_honest_burst_is_one_sweep_later() -> None:
    """Its first nodes are taken within the minute here; the next sweep sees that."""
    assert minutes_until_served(honest(most=0)) == 1
    bound = honest()
    assert minutes_until_served(bound) == 2
    assert len(bound.compute.launches) == 300


def test_a_burst_of_pods_that_run_already_is_not_slowed() -> None:
    stage = honest(nodes=1)
    stage.minutes(2)
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="more")
    assert len(stage.schedule().launched) == 100


def end_all(stage: Disrupted) -> None:
    for pod in stage.server.list("pods").items:
        stage.server.delete("pods", pod["metadata"]["name"], grace_s=0)
    stage.minutes(15)
    assert not stage.compute.alive()


def test_a_burst_after_everything_has_gone_is_not_slowed_for_days() -> None:
    stage = honest(nodes=1)
    stage.minutes(2)
    end_all(stage)
    stage.clock.advance(13 * 24 * 3600)
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="again")
    assert len(stage.schedule().launched) == 100
    stage.minutes(2)
    end_all(stage)
    stage.clock.advance(15 * 24 * 3600)
    stage.add_pods(100, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="late")
    assert len(stage.schedule().launched) == 35


def test_what_runs_for_long_stays_remembered() -> None:
    stage = honest(nodes=1)
    for _ in range(20):
        stage.minutes(2)
        stage.clock.advance(24 * 3600)
    noted = stage.state.read(stage.name, stage.clock.now()).proven
    assert [stage.clock.now() - at < 2 * 24 * 3600 for at in noted.values()] == [True]


def test_nothing_is_remembered_where_nothing_is_bounded() -> None:
    stage = honest(nodes=2, most=0)
    stage.minutes(3)
    assert stage.state.read(stage.name, stage.clock.now()).proven == {}
    assert {claim.plan.unproven for claim in stage.claims()} == {()}


def test_pods_of_a_node_that_leaves_are_planned_for_at_once() -> None:
    """They have run, so their kind is proven, however full the bound is."""
    stage = honest(nodes=1)
    stage.minutes(2)
    stage.add_pods(50, cpu=ONE_TO_A_NODE, memory="2Gi", prefix="new", tolerations=[own_toleration(1)])
    assert len(stage.schedule().launched) == 35
    [old] = [claim for claim in stage.claims() if claim.state is ClaimState.INITIALIZED]
    stage.state.advance(old, ClaimState.DRAINING, changed_at=stage.clock.now())
    assert len(stage.schedule().launched) == 1


def test_launches_that_got_no_instance_do_not_count() -> None:
    stage = Stage(ONE_SIZE)
    bounded(stage, 5)
    stage.add_pods(5, cpu=SIX_TO_A_NODE, memory="2Gi")
    stage.compute.capacity.update({("m6i.large", zone, "on-demand"): 0 for zone in ZONES})
    assert len(stage.schedule().failed) == 5
    stage.compute.capacity.clear()
    stage.clock.advance(240)
    assert len(stage.schedule().launched) == 5
