"""Gangs in plans: all of what they need, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest
from msgspec.structs import replace

from shiplap.kubernetes.objects import Pod
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.nodeclaim import PodReference
from shiplap.policies.gangs.gang import KnownGangs, PodGroupFacts
from shiplap.records.scheduling_record import SchedulingRecord, decode, encode
from shiplap.scheduling.model.scheduling_plan import Plan, Unschedulable, is_asleep
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot
from shiplap.scheduling.packing.unlaunched_claims import without_claims
from shiplap.scheduling.planner import plan
from tests.builders.buffers import buffer, template
from tests.builders.nodes import node
from tests.builders.pods import pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, fake_type
from tests.conformance.given import daemon_set, in_flight, wanted
from tests.rules import ZONE
from tests.unit.gangs.gang_cases import gang, homes, planned, reasons, snapshot, without_gangs

BEGAN = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""


def test_four_pods_of_eight_gpus_get_nothing_under_a_limit_of_sixteen() -> None:
    types = [fake_type("g6.48xlarge", cpu="192", memory="768Gi", price=13.65, extra={"nvidia.com/gpu": "8"})]
    members = gang(requests={"nvidia.com/gpu": "8"}, ports=[])
    made = planned(*members, pools=[pool("train", limits={"nvidia.com/gpu": "16"})], types=types)
    assert (made.node_claims, made.hourly) == ((), 0.0)
    assert set(reasons(made)) == {item.metadata.name for item in members}
    for message in reasons(made).values():
        assert "nothing is launched for gang default/train: 2 of 4 members would have a place" in message
        assert "short by at least 16 nvidia.com/gpu in all under the limit of NodePool train; g6.48xlarge" in message
        assert "nvidia.com/gpu limit short by 8" in message


@pytest.mark.parametrize(("nodes", "launched"), [(3, 0), (4, 4), (5, 4), (0, 4)])
def test_a_gang_has_all_its_nodes_or_none(nodes: int, launched: int) -> None:
    made = planned(*gang(), nodes=nodes)
    assert len(made.node_claims) == launched
    assert len(made.unschedulable) == 4 - launched


@pytest.mark.parametrize(("nodes", "launched"), [(2, 0), (3, 3), (5, 5), (9, 6)])
def test_more_members_than_needed_get_what_there_is(nodes: int, launched: int) -> None:
    made = planned(*gang(size=6, minimum=3), nodes=nodes)
    assert len(made.node_claims) == launched


def test_the_room_of_a_gang_that_is_left_out_is_given_to_others() -> None:
    made = planned(*gang(), *pods(5, "web", cpu="1", ports=[80]), nodes=3)
    assert len(made.node_claims) == 3
    assert all(name.startswith("web-") for name in homes(made))


def test_members_on_nodes_that_exist_count() -> None:
    running = gang(size=4)[:2]
    waiting = gang(size=4)[2:]
    nodes = [node(f"n{place}") for place in range(2)]
    bound = [
        replace(item, spec=replace(item.spec, node_name=f"n{place}"), status=replace(item.status, conditions=()))
        for place, item in enumerate(running)
    ]
    free = [node(f"n{place}") for place in range(2, 4)]
    assert homes(planned(*bound, *waiting, nodes=2, existing=nodes)) == ["train-2", "train-3"]
    assert homes(planned(*bound, *waiting, nodes=1, existing=nodes)) == []
    made = planned(*bound, *waiting, nodes=1, existing=[*nodes, *free])
    assert sorted(place.name for place in made.existing_nodes) == ["n2", "n3"]


def test_claims_in_flight_count() -> None:
    members = gang()
    first = planned(*members)
    two = tuple(in_flight(claim) for claim in first.node_claims[:2])
    again = planned(*members, nodes=4, claims=two)
    assert len(again.node_claims) == 2
    assert [len(place.pods) for place in again.existing_nodes] == [1, 1]
    short = planned(*members, nodes=3, claims=two)
    assert (short.node_claims, short.existing_nodes) == ((), ())


def test_a_gang_of_one_is_planned_as_a_single_pod() -> None:
    alone = snapshot(*gang(size=4, minimum=1), nodes=3)
    assert plan(alone) == plan(without_gangs(alone))
    assert len(plan(alone).node_claims) == 3


def test_a_gang_elsewhere_changes_nothing_for_other_pods() -> None:
    others = pods(3, "web", cpu="1")
    pools = [pool("web", limits={}), pool("train", labels={"for": "train"}, limits={"nodes": "2"}, weight=1)]
    apart = gang(selector={"for": "train"})
    made, plain = (planned(*waiting, pools=pools) for waiting in ([*others, *apart], others))
    assert homes(made) == homes(plain) == ["web-0", "web-1", "web-2"]
    assert [claim.launch for claim in made.node_claims] == [claim.launch for claim in plain.node_claims]


def _sizes(made: Plan) -> dict[str, int]:
    names = [name.rpartition("-")[0] for name in homes(made)]
    return {name: names.count(name) for name in sorted(set(names))}


def test_of_two_gangs_under_one_limit_one_is_whole() -> None:
    made = planned(*gang("b", created="2026-01-01T00:00:02Z"), *gang("a", created="2026-01-01T00:00:03Z"), nodes=6)
    assert _sizes(made) == {"b": 4}


def test_priority_comes_before_age_and_age_before_names() -> None:
    old, late = "2026-01-01T00:00:02Z", "2026-01-01T00:00:09Z"
    assert _sizes(planned(*gang("a", created=old), *gang("b", created=late, priority=7), nodes=6)) == {"b": 4}
    assert _sizes(planned(*gang("a", created=late), *gang("b", created=old), nodes=6)) == {"b": 4}
    assert _sizes(planned(*gang("b", created=old), *gang("a", created=old), nodes=6)) == {"a": 4}


def test_a_small_gang_has_the_room_that_a_large_one_cannot_use() -> None:
    large, small = gang("large", 8, priority=9), gang("small", 3)
    assert _sizes(planned(*large, *small, nodes=6)) == {"small": 3}


def test_many_gangs_are_told_apart_within_the_bound_of_plans() -> None:
    gangs = [gang(f"g{place}", 2 + place % 3, priority=place) for place in range(20)]
    made = planned(*(item for members in gangs for item in members), nodes=11)
    assert sum(_sizes(made).values()) in (10, 11)
    for name, number in _sizes(made).items():
        assert number == len(gangs[int(name[1:])])
    assert set(_sizes(made)) >= {"g19", "g18", "g17"}


def test_the_order_of_pods_changes_nothing() -> None:
    waiting = [*gang("a"), *gang("b", 3), *pods(3, "web", cpu="1", ports=[80])]
    turned = [*waiting[::-2], *waiting[-2::-2]]
    assert sorted(pod.key for pod in turned) == sorted(pod.key for pod in waiting)
    assert planned(*waiting, nodes=6) == planned(*turned, nodes=6)


def test_members_share_the_cheapest_zone_that_has_room() -> None:
    topology = {"kueue.x-k8s.io/podset-required-topology": ZONE}
    members = gang(annotations=topology)
    types = [
        fake_type("dear", price=2.0, offerings=[("on-demand", Z1)]),
        fake_type("cheap", offerings=[("on-demand", Z2)]),
    ]
    made = planned(*members, types=types)
    assert {claim.launch.zone for claim in made.node_claims} == {Z2}
    split = [fake_type("one", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)])]
    busy = [node("n1", zone=Z2), node("n2", zone=Z2)]
    there = planned(*members, types=split, existing=busy)
    assert {claim.launch.zone for claim in there.node_claims} == {Z2}
    assert len(there.node_claims) == 2
    assert planned(*members, types=split, existing=busy, nodes=1).node_claims == ()


@pytest.mark.parametrize("zone", [Z1, Z2])
def test_members_share_a_dearer_zone_where_pods_lose_their_place_in_a_cheaper_one(zone: str) -> None:
    """The pod beside them selects a zone, and keeps off the gang; without a node for it the plan costs less."""
    away = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"kueue.x-k8s.io/pod-group-name": "train"}}}
    spec = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}}
    types = [fake_type("one", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)])]
    members = gang(annotations={"kueue.x-k8s.io/podset-required-topology": ZONE})
    made = planned(*members, *pods(1, "web", cpu="1", selector={ZONE: zone}, spec=spec), types=types)
    assert made.unschedulable == ()
    assert {claim.launch.zone for claim in made.node_claims} == {Z1, Z2}


def test_members_that_share_a_zone_keep_to_the_nodes_they_select() -> None:
    """The cheaper NodePool is of another team."""
    types = [fake_type(name, price=price, offerings=[("on-demand", Z1)]) for name, price in (("a", 1.0), ("b", 2.0))]
    pools = [pool(name, rule("node.kubernetes.io/instance-type", "In", name), labels={"team": name}) for name in "ab"]
    members = gang(annotations={"kueue.x-k8s.io/podset-required-topology": ZONE}, selector={"team": "b"})
    assert [claim.node_pool for claim in planned(*members, types=types, pools=pools).node_claims] == ["b"] * 4


def test_members_share_the_zone_that_has_room_for_most_of_them() -> None:
    """Three suffice, and cost less than all six."""
    pools = [pool(zone, rule(ZONE, "In", zone), limits={"nodes": most}) for zone, most in ((Z1, "3"), (Z2, "6"))]
    types = [fake_type("one", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)])]
    members = gang(size=6, minimum=3, annotations={"kueue.x-k8s.io/podset-required-topology": ZONE})
    assert len(homes(planned(*members, types=types, pools=pools))) == 6


def test_members_share_the_zone_that_one_of_them_selects() -> None:
    topology = {"kueue.x-k8s.io/podset-required-topology": ZONE}
    members = gang(annotations=topology)
    types = [fake_type("one", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)])]

    def selecting(which: Pod, zone: str) -> Pod:
        return replace(which, spec=replace(which.spec, node_selector={ZONE: zone}))

    for zone in (Z1, Z2):
        made = planned(selecting(members[0], zone), *members[1:], types=types)
        assert [claim.launch.zone for claim in made.node_claims] == [zone] * 4
    torn = planned(selecting(members[0], Z1), selecting(members[1], Z2), *members[2:], types=types)
    assert torn.node_claims == ()
    assert "but select different ones" in reasons(torn)["train-3"]
    apart = planned(*gang("other"), selecting(members[0], Z1), selecting(members[1], Z2), *members[2:], types=types)
    assert homes(apart) == ["other-0", "other-1", "other-2", "other-3"]


def test_members_follow_those_that_run() -> None:
    topology = {"kueue.x-k8s.io/podset-required-topology": ZONE}
    members = gang(annotations=topology)
    bound = replace(
        members[0], spec=replace(members[0].spec, node_name="n"), status=replace(members[0].status, conditions=())
    )
    types = [fake_type("one", price=1.0, offerings=[("on-demand", Z1), ("on-demand", Z2)])]
    made = planned(bound, *members[1:], types=types, existing=[node("n", zone=Z2)])
    assert [claim.launch.zone for claim in made.node_claims] == [Z2] * 3


def test_equal_gangs_that_find_no_room_cost_one_plan() -> None:
    gangs = [gang(f"g{place}", 3) for place in range(120)]
    made = planned(*(item for members in gangs for item in members), nodes=2)
    assert made.node_claims == ()
    assert {message.partition(": ")[2] for message in reasons(made).values()} == {
        "2 of 3 members would have a place: " + next(iter(reasons(made).values())).partition("would have a place: ")[2]
    }


def test_members_that_do_not_exist_are_waited_for() -> None:
    two = gang(created="2026-01-01T00:00:00Z")[:2]
    for after_s, said in (
        (60, "the others are waited for until 2026-01-01T00:05:00Z"),
        (300, "nobody makes the others"),
    ):
        made = planned(*two, known=KnownGangs(300.0), now=BEGAN + after_s)
        assert made.node_claims == ()
        assert reasons(made)["train-0"] == f"nothing is launched for gang default/train: 2 of 4 members exist, {said}"


def test_a_gang_that_runs_does_not_wait_for_what_it_has_lost() -> None:
    first, second, *_ = gang()
    bound = replace(first, spec=replace(first.spec, node_name="n"), status=replace(first.status, conditions=()))
    assert homes(planned(bound, second, existing=[node("n")])) == ["train-1"]


def test_gated_members_wait_without_a_word() -> None:
    gate = {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}
    made = planned(*gang(spec=gate))
    assert (made.unschedulable, len(made.ignored)) == ((), 4)
    some = planned(*gang(spec=gate)[:1], *gang()[1:])
    assert some.node_claims == ()
    assert "scheduling gates hold 1 of its members back" in reasons(some)["train-1"]


def test_nothing_is_launched_after_the_deadline() -> None:
    members = gang(created="2026-01-01T00:00:00Z", annotations={"shiplap.dev/gang-deadline": "30m"})
    assert len(planned(*members, now=BEGAN + 1799).node_claims) == 4
    late = planned(*members, now=BEGAN + 1800)
    assert late.node_claims == ()
    assert "its deadline was 2026-01-01T00:30:00Z" in reasons(late)["train-0"]


def test_no_gang_pushes_out_one_before_it() -> None:
    first, second = gang("first", priority=2), gang("second", 3, priority=1, requests={"memory": "1Gi"})
    made = planned(*first, *second, nodes=5)
    assert _sizes(made) == {"first": 4}
    assert "nothing is launched for gang default/second" in reasons(made)["second-0"]


def test_pods_that_contradict_each_other_are_told() -> None:
    made = planned(*gang(size=2), *gang("more", 2, 3, labels={"kueue.x-k8s.io/pod-group-name": "train"}))
    assert made.node_claims == ()
    assert "its pods say different numbers that are needed together: 2, 3" in reasons(made)["train-0"]


def test_a_pod_group_says_how_many_are_needed() -> None:
    members = pods(4, "train", cpu="1", ports=[80], labels={"scheduling.x-k8s.io/pod-group": "g"})
    assert len(planned(*members, nodes=3).node_claims) == 3
    for minimum, launched in ((1, 3), (3, 3), (4, 0)):
        facts = PodGroupFacts("scheduling.x-k8s.io", "default", "g", minimum)
        assert len(planned(*members, nodes=3, known=KnownGangs(pod_groups=(facts,))).node_claims) == launched
    gone = PodGroupFacts("scheduling.x-k8s.io", "default", "g", problem="there is no such PodGroup")
    assert planned(*members, known=KnownGangs(pod_groups=(gone,))).node_claims == ()


def test_the_priority_of_a_pod_group_comes_before_that_of_its_pods() -> None:
    label = "scheduling.x-k8s.io/pod-group"
    low = pods(2, "low", cpu="1", ports=[80], labels={label: "low"}, priority=-10)
    high = pods(2, "high", cpu="1", ports=[80], labels={label: "high"}, priority=-20)
    facts = [PodGroupFacts("scheduling.x-k8s.io", "default", name, 2) for name in ("low", "high")]
    assert homes(planned(*low, *high, nodes=2, known=KnownGangs(pod_groups=tuple(facts)))) == ["low-0", "low-1"]
    facts[1] = replace(facts[1], priority=-5)
    assert homes(planned(*low, *high, nodes=2, known=KnownGangs(pod_groups=tuple(facts)))) == ["high-0", "high-1"]


def test_one_node_for_all_is_not_supported() -> None:
    made = planned(*gang(annotations={"kueue.x-k8s.io/podset-required-topology": "kubernetes.io/hostname"}))
    assert made.node_claims == ()
    assert "require pod affinity instead" in reasons(made)["train-0"]


class _AllAsleep(PolicyInput, frozen=True):
    """Stands for a feature within which gangs are planned: every pod that waits sleeps."""

    nothing: str = ""

    stage: ClassVar[PlanStage] = PlanStage.ADMISSION
    recorded_as: ClassVar[str] = "asleep"

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        references = (PodReference(pod.metadata.namespace, pod.metadata.name) for pod in snapshot.view.unbound)
        return Plan(unschedulable=tuple(Unschedulable(item, "sleeps: until noon") for item in references))


def test_what_sleeps_says_only_that() -> None:
    made = planned(*gang(), policies=[_AllAsleep()])
    assert set(reasons(made).values()) == {"sleeps: until noon"}
    assert all(map(is_asleep, made.unschedulable))


class _AtMost(PolicyInput, frozen=True):
    """Stands for a feature that refuses claims that are planned, such as a ceiling."""

    claims: int = 0

    stage: ClassVar[PlanStage] = PlanStage.ADMISSION
    recorded_as: ClassVar[str] = "at_most"

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        made = decide(snapshot)
        out = made.node_claims[self.claims :]
        return without_claims(made, out, {claim.name: f"more than {self.claims} nodes" for claim in out})


@pytest.mark.parametrize(("most", "launched"), [(3, 0), (4, 4)])
def test_what_is_refused_after_the_plan_is_short(most: int, launched: int) -> None:
    made = planned(*gang(), policies=[_AtMost(most)])
    assert len(made.node_claims) == launched
    if not launched:
        assert "3 of 4 members would have a place: more than 3 nodes" in reasons(made)["train-3"]


def test_daemons_take_room_from_gangs() -> None:
    daemons = (daemon_set(cpu="500m"),)
    large = gang(cpu="1500m")
    assert len(planned(*large).node_claims) == 4
    short = planned(*large, daemon_sets=daemons)
    assert short.node_claims == ()
    assert "0 of 4 members would have a place" in reasons(short)["train-0"]


def test_members_spread_over_zones_while_they_are_whole() -> None:
    label = {"kueue.x-k8s.io/pod-group-name": "train"}
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": label},
    }
    spread_members = gang(size=3, spec={"topologySpreadConstraints": [spread]})
    claims = planned(*spread_members).node_claims
    assert sorted(len(claim.pods) for claim in claims) == [1, 1, 1]
    assert len({wanted(claim, ZONE) for claim in claims}) == 3
    assert planned(*spread_members, nodes=2).node_claims == ()


def test_a_buffer_gets_the_room_that_a_gang_cannot_use() -> None:
    manifests = Manifests(
        node_pools=(pool(limits={"nodes": "2"}),),
        capacity_buffers=(buffer(replicas=2),),
        pod_templates=(template(cpu="1500m"),),
    )
    made = planned(*gang(), manifests=manifests)
    assert [claim.pods for claim in made.node_claims] == [(), ()]
    assert [state.new for state in made.buffers] == [2]


def test_a_record_of_a_plan_with_gangs_makes_the_same_plan_again() -> None:
    of = snapshot(
        *gang(), *pods(2, "web", cpu="1"), nodes=3, known=KnownGangs(60.0, (PodGroupFacts("a", "b", "c", 2),))
    )
    record = decode(encode(SchedulingRecord(of, plan(of))))
    assert record.snapshot.policies == of.policies
    assert plan(record.snapshot) == record.plan
