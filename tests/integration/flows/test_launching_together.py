"""Claims that want the same, launched by one request: one write before it, one after it, each instance given once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from shiplap.errors import AwsError, AwsThrottled
from shiplap.flows import claim_events
from shiplap.flows.messages import Timer
from shiplap.flows.planning.planned_launches import alike, launches, with_token
from shiplap.instances.catalog.resolved_nodeclass import Ami
from shiplap.kubernetes.objects import Taint
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import COMMIT_GROUP, FleetRequest, FleetResult, OfferingFailure
from tests.builders.claims import node_claim, with_fields
from tests.builders.pools import family_pool
from tests.integration.flows.crowds import ONLY_LARGE, assert_each_has_its_own, crowd
from tests.integration.flows.stage import ZONES, Stage


def calls(stage: Stage, effect: str) -> int:
    return stage.faults.points.count(f"before {effect}")


def test_claims_that_want_the_same_are_one_fleet_and_two_writes() -> None:
    stage = crowd(20)
    assert len(stage.schedule().launched) == 20
    assert calls(stage, "compute.launch") == 1
    assert calls(stage, "state.advance_all") == 2
    assert calls(stage, "state.advance") == 0
    assert len({claim.launch.token for claim in stage.claims()}) == 1
    assert {claim.launch.together for claim in stage.claims()} == {20}
    assert_each_has_its_own(stage)


def test_instances_are_named_after_the_launch_and_the_rest_by_sweeps() -> None:
    stage = crowd(35)
    stage.schedule()
    assert sum(bool(instance.claim) for instance in stage.compute.alive()) == 25
    stage.sweep()
    holders = {claim.instance_id: claim.name for claim in stage.claims()}
    assert {instance.id: instance.claim for instance in stage.compute.alive()} == holders
    named = calls(stage, "compute.name")
    stage.sweep()
    assert calls(stage, "compute.name") == named


@pytest.mark.parametrize("tags", [{}, {"Name": "ours"}])
def test_a_name_that_the_node_class_gives_stays(monkeypatch: pytest.MonkeyPatch, tags: dict[str, str]) -> None:
    stage, kept = crowd(2), list[bool]()
    monkeypatch.setattr(stage.compute, "name", lambda _, *, keeps_name: kept.append(keeps_name))
    manifests = stage.settings.manifests
    (node_class,) = manifests.node_classes
    tagged = msgspec.structs.replace(node_class, spec=msgspec.structs.replace(node_class.spec, tags=tags))
    manifests = msgspec.structs.replace(manifests, node_classes=(tagged,))
    stage.settings = msgspec.structs.replace(stage.settings, manifests=manifests)
    stage.schedule()
    assert kept == [bool(tags)] * 2


@pytest.mark.parametrize(("pods", "requests"), [(1, 0), (2, 2)])
def test_an_instance_that_is_launched_alone_has_its_name_from_the_launch(pods: int, requests: int) -> None:
    stage = crowd(pods)
    stage.schedule()
    assert calls(stage, "compute.name") == requests
    assert all(instance.claim for instance in stage.compute.alive())


def test_nodes_are_listed_once_for_all_claims_that_have_none_yet() -> None:
    stage = crowd(3)
    stage.schedule()
    stage.faults.clear()
    stage.attend(*(Timer(stage.name, claim.name, "join") for claim in stage.claims()))
    assert calls(stage, "cluster.nodes") == 1


def test_names_that_ec2_refuses_cost_nothing_but_names() -> None:
    stage = crowd(3)
    stage.faults.on("before", "compute.name", AwsThrottled("slow down"))
    assert len(stage.schedule().launched) == 3
    assert stage.meter.counts["InstancesNotNamed"] == 1
    stage.clock.advance(500)  # long enough for what has no claim to be garbage
    stage.sweep()
    assert "InstancesWithoutClaim" not in stage.meter.counts
    stage.play_on()
    assert len(stage.compute.launches) == 3


def test_a_partial_fleet_is_counted_exactly_and_the_rest_planned_again_at_once() -> None:
    stage = Stage()
    stage.add_pods(9, cpu="7000m")
    for zone in ZONES:
        stage.compute.capacity["c7i-flex.2xlarge", zone, "on-demand"] = 2
    report = stage.schedule()
    assert (len(report.launched), len(report.failed), report.unfinished) == (9, 3, "")
    told = [event.detail["claim"] for event in stage.bus.of_type(claim_events.FAILED)]
    assert sorted(told) == sorted(claim.name for claim in stage.claims() if claim.state is ClaimState.FAILED)
    kinds = [instance.instance_type for instance in stage.compute.alive()]
    assert kinds.count("c7i-flex.2xlarge") == 6
    assert len(kinds) == 9
    assert calls(stage, "compute.launch") == 2
    assert_each_has_its_own(stage)
    stage.play_on()


def test_a_round_that_gets_nothing_asks_for_half_as_much_next_time() -> None:
    def dry(zone: str) -> Callable[[FleetRequest], FleetResult]:
        failure = OfferingFailure("m6i.large", zone, "on-demand", "InsufficientInstanceCapacity")
        return lambda _: FleetResult((), (failure,))

    stage = crowd(9)
    stage.compute.answers = [dry(zone) for zone in ZONES[:2]]
    stage.schedule()
    assert [request.count for request in stage.compute.requests] == [9, 4, 2, 7]
    assert_each_has_its_own(stage)
    alone = crowd(1)
    alone.compute.answers = [dry(zone) for zone in ZONES[:2]]
    alone.schedule()
    assert [request.count for request in alone.compute.requests] == [1, 1, 1]


def test_what_the_process_remembers_of_a_node_class_will_do_for_a_first_launch() -> None:
    stage = crowd(1)
    stage.compute.remembered["default"] = (Ami("ami-known", "known", "2026-01-01T00:00:00Z"),)
    stage.schedule()
    assert [instance.ami for instance in stage.compute.launches] == ["ami-known"]


def test_claims_are_booked_at_the_price_of_their_instances_and_not_of_the_plan() -> None:
    stage = Stage((family_pool("any", ("c7i", "m6i"), sizes=("large",)),))
    for zone in ZONES:
        stage.compute.capacity["c7i.large", zone, "on-demand"] = 0
    stage.add_pods(2, cpu="1200m", memory="1Gi")
    stage.schedule()
    booked = {claim.known_instance.type: claim.hourly for claim in stage.claims() if claim.instance_id}
    assert booked == {"m6i.large": stage.types["m6i.large"].offerings[0].price}


def test_instances_of_a_launch_nobody_wrote_down_are_garbage_in_the_end() -> None:
    stage = crowd(3)
    stage.schedule()
    stage.join()
    stage.attend()
    stage.bind()
    lost = msgspec.structs.replace(stage.compute.alive()[0], id="i-lost", claim="", launch="other")
    stage.compute.add(lost)
    stage.clock.advance(121)
    stage.sweep()
    stage.attend_timers()
    assert "i-lost" not in {instance.id for instance in stage.compute.alive()}
    assert stage.meter.counts["GarbageTerminated"] == 1
    assert len(stage.compute.alive()) == 3


def test_what_can_be_seen_of_a_launch_is_adopted_and_the_rest_waited_for() -> None:
    stage = crowd(3)
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    assert stage.schedule().unfinished
    hidden = stage.compute.alive()[1]
    stage.compute.hide(hidden.id, 30)
    stage.faults.on("before", "compute.launch", AwsError("used before", code="IdempotentParameterMismatch"))
    stage.schedule()
    states = sorted(claim.state for claim in stage.claims())
    assert states == ["Launched", "Launched", "Launching"]
    stage.clock.advance(60)
    stage.schedule()
    assert_each_has_its_own(stage)
    stage.play_on()
    assert len(stage.compute.launches) == 3


def test_two_functions_that_resume_one_launch_give_each_instance_once() -> None:
    stage = crowd(3)
    stage.faults.on("after", "compute.launch", AwsError("connection reset"))
    stage.schedule()
    stage.compute.hide(stage.compute.alive()[0].id, 1)

    def rival() -> None:  # sees the third instance, too
        stage.clock.advance(2)
        stage.schedule()

    stage.faults.on("before", "state.advance_all", rival)
    stage.schedule()
    assert_each_has_its_own(stage)
    stage.play_on()
    assert len(stage.compute.launches) == 3


def test_templates_that_cannot_be_swept_are_left_for_the_next_sweep() -> None:
    stage = crowd(1)
    stage.schedule()
    stage.faults.on("before", "compute.sweep_templates", AwsThrottled("slow down"))
    stage.sweep()
    assert stage.meter.counts["LaunchTemplatesNotSwept"] == 1
    stage.play_on()
    stage.compute.lose(stage.compute.alive()[0].id)
    stage.clock.advance(25 * 3600)
    stage.sweep()
    assert stage.meter.counts["LaunchTemplatesDeleted"] == 1


def test_a_pools_own_strategy_reaches_its_fleets() -> None:
    plain = ONLY_LARGE[0]
    metadata = msgspec.structs.replace(plain.metadata, annotations={"shiplap.dev/allocation-strategy": "prioritized"})
    stage = Stage((msgspec.structs.replace(plain, metadata=metadata),))
    stage.add_pods(1)
    stage.schedule()
    assert [request.strategy for request in stage.compute.requests] == ["prioritized"]


CLAIM = node_claim(name="c", cluster="c", node_pool="p", node_class="d", instance_types=("m",))


def names(groups: list[list[NodeClaim]]) -> list[list[str]]:
    return [[item.name for item in group] for group in groups]


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"a": "b"}},
        {"tier": 1},
        {"node_pool": "another"},
        {"node_class": "another"},
        {"annotations": {"a": "b"}},
        {"requirements": ({"key": "a", "operator": "Exists"},)},
        {"taints": (Taint("a", "NoSchedule"),)},
        {"startup_taints": (Taint("a", "NoSchedule"),)},
        {"instance_types": ("n",)},
        {"relies_on_estimate": ("m",)},
        {"requests": {"vpc.amazonaws.com/efa": 1}},
        {"requests": {"eks.amazonaws.com/nitro-sandbox": 1}},
    ],
)
def test_what_a_node_or_ec2_is_told_differently_is_launched_apart(changes: dict[str, object]) -> None:
    assert names(launches([with_fields(CLAIM, name="a"), with_fields(CLAIM, name="b", **changes), CLAIM])) == [
        ["a", "c"],
        ["b"],
    ]


def test_pilots_are_launched_by_themselves() -> None:
    pilots = [with_fields(CLAIM, name=name, relies_on_estimate=("m",)) for name in "ab"]
    assert names(launches(pilots)) == [["a"], ["b"]]


def test_no_launch_is_larger_than_one_write() -> None:
    groups = launches([with_fields(CLAIM, name=f"n{number:03d}") for number in range(COMMIT_GROUP + 1)])
    assert [len(group) for group in groups] == [COMMIT_GROUP, 1]
    heavy = [with_fields(CLAIM, name=name, reasons=("x" * 1400000,)) for name in "abc"]
    assert names(launches(heavy)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
    ("other", "epoch", "install"),
    [
        ({}, 8, "shiplap"),
        ({}, 7, "another"),
        ({"cluster": "d"}, 7, "shiplap"),
        ({"name": "b"}, 7, "shiplap"),
        ({"created_at": 2.0}, 7, "shiplap"),
    ],
    ids=["epoch", "install", "cluster", "name", "time"],
)
def test_no_two_launches_have_the_same_token(other: dict[str, object], epoch: int, install: str) -> None:
    """A table may be restored from a backup, so that an epoch comes twice; and installs share an account."""
    first = with_fields(CLAIM, name="a", created_at=1.0)
    (one, two) = with_token([first, with_fields(CLAIM, name="z", created_at=1.0)], 7, "shiplap")
    (repeated,) = with_token([first], 7, "shiplap")
    (apart,) = with_token([with_fields(first, **other)], epoch, install)
    assert one.launch.token == two.launch.token == repeated.launch.token != apart.launch.token
    assert len(one.launch.token) == 32


def test_what_is_asked_for_is_enough_for_any_of_the_claims() -> None:
    wanted = alike(
        [
            with_fields(CLAIM, name="a", requests={"cpu": 2, "memory": 1}),
            with_fields(CLAIM, name="b", requests={"cpu": 1, "gpu": 1}),
        ]
    )
    assert wanted.plan.requests == {"cpu": 2, "memory": 1, "gpu": 1}


def test_what_is_asked_for_is_cheap_enough_for_each_of_the_claims() -> None:
    wanted = alike(
        [
            with_fields(CLAIM, name="a", most_hourly=0.3),
            with_fields(CLAIM, name="b", most_hourly=0.1),
            with_fields(CLAIM, most_hourly=0.2),
        ]
    )
    assert wanted.most_hourly == 0.1
