"""Checks and invariants must be able to fail: each is shown one world that keeps it and one that breaks it."""

import msgspec
import pytest

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import DisruptionCommand
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.instances.catalog.type_catalog import Observation as Observed
from shiplap.kubernetes.objects import Event, ObjectReference
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from shiplap_lab.checks.expectations import unmet
from shiplap_lab.checks.observation import ClusterObservation, PodDeletion, RegionObservation
from shiplap_lab.checks.observed_facts import UNSEEN, ObservedFacts
from shiplap_lab.dev import dev_report
from shiplap_lab.judge.promises import Promise
from shiplap_lab.scenarios.scenario import Expectation, load
from shiplap_lab.simulation.campaign import run_seed
from shiplap_lab.simulation.mutants import MUTANTS, planted
from tests.builders.claims import with_fields
from tests.builders.nodes import node
from tests.builders.pods import pod
from tests.unit.lab.played_claims import CLAIM

GIB = 2**30


INSTANCE = Instance(
    "i-1", "c7i-flex.large", "us-east-1a", "on-demand", "ami-1", "running", 11.5, "c", "claim-a", "flex"
)


def world(**changes: object) -> RegionObservation:
    seen = ClusterObservation(
        "c",
        (pod("web-0", memory="1Gi", node="node-a"),),
        (node("node-a", pods="29", instance_type="m5.large"),),
        (),
        (CLAIM,),
        (INSTANCE,),
    )
    return RegionObservation((msgspec.structs.replace(seen, **changes),))


def replaced(**changes: object) -> NodeClaim:
    return with_fields(CLAIM, **changes)


def judged(*seen: RegionObservation, may_wait: frozenset[str] = frozenset(), every_s: float = 1.0) -> dict[str, bool]:
    """Return the verdicts of `shiplap lab dev` after these observations."""
    prices = {"c7i-flex.large": 0.08, "m5.large": 0.1}
    facts = ObservedFacts({}, 0.0, lambda kind, *_: prices[kind], {}, most_nodes_per_pod=2)
    for number, observation in enumerate(seen):
        facts.see(observation, 20.0 + number * every_s)
    facts.judge.must_rest([pod.key for pod in seen[-1].pending(may_wait)])
    return facts.verdicts()


def test_a_sound_world_keeps_every_promise() -> None:
    assert all(judged(world()).values())
    assert len(judged(world())) == len(Promise) - len(UNSEEN)
    assert not judged(world()).keys() & {
        str(unseen) for unseen in (Promise.TOLD, Promise.AT_ONCE, Promise.CEILINGS, Promise.COMMITMENTS, Promise.ASLEEP)
    }, "nothing tells the judge what these bound"


SECOND = msgspec.structs.replace(INSTANCE, id="i-2", claim="b", launch="second")
LESS = node("node-a", pods="29", instance_type="m5.large", provider_id="aws:///zone/i-1")
ALSO_LESS = node("node-b", pods="29", instance_type="m5.large", provider_id="aws:///zone/i-2")
BIG = replaced(requests={"memory": 5 * GIB})
FIRST_MISS = world(claims=(BIG,), instances=(INSTANCE,), nodes=(LESS,))


def second_miss(**changes: object) -> RegionObservation:
    """Another node has less than its claim requests."""
    again = with_fields(BIG, name="b", instance_id="i-2", token="second", **changes)
    return world(claims=(BIG, again), instances=(INSTANCE, SECOND), nodes=(LESS, ALSO_LESS))


@pytest.mark.parametrize(
    ("again", "kept"),
    [
        (second_miss(pods=()), False),
        (second_miss(ami="ami-2"), False),
        (second_miss(ami="ami-2", requests={"cpu": 1_000_000}), True),
        (second_miss(ami="ami-2", pods=()), True),
    ],
)
def test_no_type_misses_twice_and_no_pod_misses_a_resource_twice(again: RegionObservation, *, kept: bool) -> None:
    assert judged(FIRST_MISS, again)["nothing misses twice"] == kept


def test_claims_of_a_type_that_was_known_repeat_no_miss_that_was_not_known_yet() -> None:
    """An earlier node of the type had enough; two were planned before the first of them showed less."""
    enough = with_fields(CLAIM, name="c", instance_id="i-3", token="third", requests={"memory": GIB}, pods=())
    third = msgspec.structs.replace(INSTANCE, id="i-3", claim="c", launch="third")
    shown = node("node-c", pods="29", instance_type="m5.large", provider_id="aws:///zone/i-3")
    before = world(claims=(enough,), instances=(third,), nodes=(shown,), pods=())
    planned = second_miss(pods=()).clusters[0]
    both = world(
        claims=(enough, *planned.claims), instances=(third, *planned.instances), nodes=(shown, *planned.nodes), pods=()
    )
    assert judged(before, both)["nothing misses twice"]
    assert not judged(second_miss(pods=()))["nothing misses twice"], "a type that nobody knows is tried once"


def test_a_node_that_has_less_than_all_of_its_type_before_it_repeats_no_miss() -> None:
    """The first one missed; the next was planned by what that one has, and has still less. A third repeats it."""
    least = node("node-c", memory="3Gi", pods="29", instance_type="m5.large", provider_id="aws:///zone/i-2")
    three_and_a_half = {"memory": 7 * GIB // 2}
    fitting = with_fields(BIG, name="b", instance_id="i-2", token="second", requests=three_and_a_half, pods=())
    second = world(claims=(BIG, fitting), instances=(INSTANCE, SECOND), nodes=(LESS, least))
    assert judged(FIRST_MISS, second)["nothing misses twice"]
    machine = msgspec.structs.replace(INSTANCE, id="i-3", claim="c", launch="third")
    again = with_fields(fitting, name="c", instance_id="i-3", token="third")
    third = world(
        claims=(BIG, fitting, again),
        instances=(INSTANCE, SECOND, machine),
        nodes=(
            LESS,
            least,
            node("node-d", memory="3Gi", pods="29", instance_type="m5.large", provider_id="aws:///zone/i-3"),
        ),
    )
    assert not judged(FIRST_MISS, second, third)["nothing misses twice"]


@pytest.mark.parametrize(("resource", "kept"), [("cpu", True), ("pods", True), ("memory", False)])
def test_claims_planned_by_what_ec2_states_repeat_a_miss_only_once_it_is_known(resource: str, *, kept: bool) -> None:
    """Two nodes of a type that none had shown were planned at once and had a little less CPU than EC2 states."""
    requests = {resource: 10**12}
    first, second = replaced(requests=requests), second_miss(pods=(), requests=requests).clusters[0].claims[1]
    alone = world(claims=(first,), instances=(INSTANCE,), nodes=(LESS,))
    both = world(claims=(first, second), instances=(INSTANCE, SECOND), nodes=(LESS, ALSO_LESS))
    assert judged(both)["nothing misses twice"] == kept
    assert not judged(alone, both)["nothing misses twice"]


@pytest.mark.parametrize(
    ("promise", "broken"),
    [
        ("all comes to rest", world(pods=(pod("web-0", memory="1Gi"),))),
        ("a claim is written before its instance exists", world(claims=())),
        ("all comes to rest", world(claims=(replaced(state=ClaimState.GONE),))),
        (
            "never more instances than claims",
            world(instances=(INSTANCE, msgspec.structs.replace(INSTANCE, id="i-2", state="terminated"))),
        ),
        ("a claim is written before its instance exists", world(claims=(replaced(created_at=12.0),))),
        ("no node holds more than it has", world(pods=(pod("web-0", memory="5Gi", node="node-a"),))),
        ("every message can be read", msgspec.structs.replace(world(), dead_letters=1)),
        ("money spent equals the ledger", world(claims=(replaced(hourly=0.01),))),
        ("only what leaves is ended", world(instances=(msgspec.structs.replace(INSTANCE, state="shutting-down"),))),
        (
            "nothing is emptied that is not ours",
            world(deletions=(PodDeletion(pod("x", memory="1Gi", node="foreign"), forced=False),)),
        ),
        (
            "budgets of pods are kept",
            world(deletions=(PodDeletion(pod("web-0", memory="1Gi", node="node-a"), forced=True),)),
        ),
    ],
)
def test_each_promise_can_be_seen_broken(promise: str, broken: RegionObservation) -> None:
    assert judged(broken)[promise] is False


@pytest.mark.parametrize(
    ("promise", "observed", "mutant"),
    [
        ("no instance unaccounted for", [world(claims=(replaced(state=ClaimState.GONE),))] * 2, "forgets garbage"),
        (
            "all comes to rest",
            [world(pods=(pod("web-0", memory="1Gi", node="node-a"), pod("left-0", memory="1Gi")))] * 2,
            "leaves nodes cordoned",
        ),
        ("nothing misses twice", [FIRST_MISS, second_miss()], "does not learn"),
    ],
)
def test_one_checker_finds_a_defect_in_both_plays(promise: str, observed: list[RegionObservation], mutant: str) -> None:
    """A node without a claim, a pod that is left waiting although there is room, a second miss."""
    assert judged(*observed, every_s=1000.0)[promise] is False
    with planted(mutant):
        outcome = run_seed(load(MUTANTS[mutant].scenarios[0]), 0)
    assert outcome.violations[0].promise == promise


def test_states_between_two_observations_are_filled_in() -> None:
    planned = world(claims=(replaced(state=ClaimState.PLANNED, instance_id="", node_name=""),), instances=())
    ended = world(
        claims=(replaced(state=ClaimState.GONE, failure="Underutilized"),),
        instances=(msgspec.structs.replace(INSTANCE, state="terminated"),),
        nodes=(),
        pods=(),
    )
    assert all(judged(planned, world(), ended).values())
    assert judged(ended, world())["nothing is written over what was not read"] is False


def test_an_instance_that_was_launched_while_others_were_read_is_no_defect() -> None:
    early = world(instances=())
    assert all(judged(early, world()).values())
    assert judged(early, early)["a claim's instance exists"] is False


def test_a_command_that_is_no_longer_listed_is_over() -> None:
    command = DisruptionCommand(
        cluster="c",
        name="drop",
        reason=Reason.EMPTY,
        method=Method.EMPTINESS,
        targets=("claim-a",),
        nodes=("node-a",),
        created_at=15.0,
    )
    assert judged(world(), world(commands=(command,)))["all comes to rest"] is False
    assert judged(world(), world(commands=(command,)), world())["all comes to rest"] is True


def test_a_pod_may_wait_where_the_scenario_says_so() -> None:
    waiting = world(pods=(pod("web-0", memory="1Gi"),))
    assert judged(waiting, may_wait=frozenset({"c/default/web-0"}))["all comes to rest"]


def told(message: str) -> Event:
    return Event(involved_object=ObjectReference(kind="Pod", namespace="default", name="web-0"), message=message)


LEARNED = LearnedCapacity(
    "ami-1", "m5.large", "h", (Observed("ami-1", "m5.large", "h", {"memory": GIB}, {}, 1.0, "c", "n"),)
)


@pytest.mark.parametrize(
    ("expectation", "met", "broken"),
    [
        (Expectation("x", pods="web"), world(), world(pods=(pod("web-0", memory="1Gi"),))),
        (Expectation("x", pods="web"), world(), world(pods=())),
        (Expectation("x", pods="web", node_pool="flex"), world(), world(claims=(replaced(node_pool="other"),))),
        (Expectation("x", pods="web", node_pool="flex"), world(), world(claims=())),
        (Expectation("x", pods="web", tier=0), world(), world(claims=(replaced(tier=1),))),
        (
            Expectation("x", pods="web", instance_types=("c7i-flex.*",)),
            world(),
            world(claims=(replaced(pods="29", instance_type="m5.large"),)),
        ),
        (Expectation("x", pods="web", amis=("ami-1",)), world(), world(claims=(replaced(ami="ami-2"),))),
        (
            Expectation("x", pods="web", nodes=1),
            world(),
            world(pods=(pod("web-0", memory="1Gi", node="node-a"), pod("web-1", memory="1Gi", node="node-b"))),
        ),
        (Expectation("x", pods="web", pod_capacity=29), world(), world(nodes=())),
        (Expectation("x", launches=1), world(), world(claims=())),
        (Expectation("x", misses=0), world(), world(claims=(replaced(missed=True),))),
        (
            Expectation("x", pods="web", unschedulable="short by 1Mi"),
            world(pods=(pod("web-0", memory="1Gi"),), events=(told("memory short by 1Mi"),)),
            world(pods=(pod("web-0", memory="1Gi"),), events=(told("something else"),)),
        ),
        (Expectation("x", pods="web", held_back=True), world(pods=(pod("web-0", memory="1Gi"),)), world()),
        (
            Expectation("x", learned={"ami-1/m5.large": "1Gi"}),
            msgspec.structs.replace(world(), learned=(LEARNED,)),
            world(),
        ),
        (Expectation("x", untouched=("node-a",)), world(), world(nodes=())),
        (
            Expectation("x", untouched=("node-a",)),
            world(),
            world(nodes=(node("node-a", pods="29", instance_type="m5.large", cordoned=True),)),
        ),
    ],
)
def test_each_expectation_can_be_met_and_missed(
    expectation: Expectation, met: RegionObservation, broken: RegionObservation
) -> None:
    assert unmet(expectation, met, "c") == ()
    assert unmet(expectation, broken, "c")


def test_the_report_counts_what_was_seen() -> None:
    result = dev_report.summarize("demo", world(), {"kept": True})
    assert (result.pods, result.bound, result.launches, result.misses, result.hourly) == (1, 1, 1, 0, 0.08)
    assert result.event_to_launch_seconds.p50 == 2.5
    assert set(msgspec.to_builtins(result)) == {
        "scenario", "pods", "bound", "nodes", "misses", "launches", "hourly", "eventToLaunchSeconds", "invariants",
    }  # fmt: skip
    assert list(msgspec.to_builtins(result)["nodes"][0]) == [
        "name", "instanceType", "zone", "capacityType", "nodePool", "tier", "pods", "ami", "hourly",
    ]  # fmt: skip
