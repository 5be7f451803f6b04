"""Tests a round's knowledge of offerings: which rest, how many claims may launch on them, who is told what."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from msgspec import structs

from shiplap.cluster.watcher import ChangeBatch
from shiplap.errors import ClusterError
from shiplap.flows.planning.offering_market import OfferingMarket, unavailable_in_group, unavailable_offerings
from shiplap.flows.pod_events import MOST_PODS, publish_for_pods, publish_unschedulable
from shiplap.flows.watch.watch import hints_of
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, ResolvedNodeClass, Subnet
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.unavailability import ANY, LAUNCH_BUDGET
from shiplap.instances.readiness.joins import node_class_scope
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, ObjectMeta, Pod
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference, PreferredSpot
from shiplap.ports import DecisionState, FleetOverride, OfferingFailure, UnavailableOffering
from shiplap.scheduling.model.scheduling_plan import Unschedulable
from tests.builders.claims import node_claim, node_claims
from tests.conformance.catalogues import fake_type
from tests.integration.flows.stage import Stage

NOW = 1_700_000_000.0
claims = partial(node_claims, cluster="demo")
CLASS = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec())


def failed(name: str, zone: str = "a", kind: str = "on-demand", failures: int = 1) -> UnavailableOffering:
    return UnavailableOffering(name, zone, kind, NOW + 100, failures)


def sold(*names: str, zones: str = "a", kind: str = "on-demand", reservation: str = "") -> dict[str, InstanceType]:
    offerings = tuple(Offering(zone, kind, 1.0, reservation_id=reservation) for zone in zones)
    return {name: structs.replace(fake_type(name), offerings=offerings) for name in names}


def allowed(
    recovering: Sequence[UnavailableOffering],
    *groups: tuple[Sequence[NodeClaim], dict[str, InstanceType]],
    resting: Sequence[UnavailableOffering] = (),
    in_flight: Sequence[NodeClaim] = (),
) -> list[int]:
    """Return the number of claims of each group that may be launched."""
    state = DecisionState(0, claims=tuple(in_flight), unavailable=tuple(resting), recovering=tuple(recovering))
    kept = OfferingMarket(state).within_budget([group for group, _ in groups], [types for _, types in groups])
    assert all(list(some) == list(group[: len(some)]) for some, (group, _) in zip(kept, groups, strict=True))
    return [len(some) for some in kept]


def test_what_failed_is_asked_for_half_as_much_each_time() -> None:
    many = claims(200, "m")
    for failures, number in ((1, 50), (2, 25), (7, 1), (20, 1)):
        assert allowed([failed("m", failures=failures)], (many, sold("m"))) == [number]
    assert LAUNCH_BUDGET == 100


def test_a_launch_that_may_be_something_else_is_not_bounded() -> None:
    many = claims(200, "m", "n")
    assert allowed([failed("m")], (many, sold("m", "n"))) == [200]
    assert allowed([failed("m")], (claims(200, "m"), sold("m", zones="ab"))) == [200], "another zone"
    assert allowed([failed("m")], (many, sold("m"))) == [50], "the other is not sold any more"


def test_launches_share_what_is_left_of_an_offering() -> None:
    one, two = (claims(30, "m"), sold("m")), (claims(30, "m"), sold("m"))
    assert allowed([failed("m")], one, two) == [30, 20]
    assert allowed([failed("m"), failed("n", failures=2)], (claims(60, "m", "n"), sold("m", "n")), two) == [50, 0]
    assert allowed([failed("m", "a"), failed("m", "b", failures=2)], (claims(90, "m"), sold("m", zones="ab"))) == [50]


def test_what_is_left_of_an_offering_is_shared_domain_by_domain() -> None:
    """The first launch is all of one rack; without turns it would take the whole budget."""
    one, two = (
        [replace_plan(claim, labels={"example.com/rack": rack}, pods=refs(2)) for claim in claims(40, "m")]
        for rack in ("one", "two")
    )
    assert allowed([failed("m")], (one, sold("m")), (two, sold("m"))) == [25, 25]
    assert allowed([failed("m")], (one[:10], sold("m")), (two, sold("m"))) == [10, 40]
    assert allowed([failed("m", failures=7)], (one, sold("m")), (two, sold("m"))) == [1, 0]


def test_a_request_for_all_or_nothing_is_kept_whole_and_counts_as_one() -> None:
    of_gangs = [
        [structs.replace(claim, launch=structs.replace(claim.launch, atomic=gang)) for claim in claims(8, "m")]
        for gang in ("default/one", "default/two")
    ]
    one, two = ((gang, sold("m")) for gang in of_gangs)
    assert allowed([failed("m", failures=7)], one, two) == [8, 0]
    assert allowed([failed("m", failures=5)], one, two, (claims(8, "m"), sold("m"))) == [8, 8, 1]


def replace_plan(claim: NodeClaim, **fields: Any) -> NodeClaim:
    return structs.replace(claim, plan=structs.replace(claim.plan, **fields))


def test_a_reservation_that_failed_is_counted_by_its_id() -> None:
    held = sold("m", kind="reserved", reservation="cr-1")
    assert allowed([failed("cr-1", kind="reserved", failures=3)], (claims(90, "m"), held)) == [12]
    assert allowed([failed("m", kind="reserved", failures=3)], (claims(90, "m"), held)) == [90]


def test_what_rests_is_no_way_out() -> None:
    many = (claims(90, "m", "n"), sold("m", "n"))
    assert allowed([failed("m")], many, resting=[failed("n")]) == [50]


def test_what_is_not_available_is_no_way_out() -> None:
    gone = Offering("b", "on-demand", 1.0, available=False)
    types = {"m": structs.replace(fake_type("m"), offerings=(Offering("a", "on-demand", 1.0), gone))}
    assert allowed([failed("m")], (claims(90, "m"), types)) == [50]


def test_of_a_class_whose_instances_ended_there_is_one_claim_at_a_time() -> None:
    scope = node_class_scope("demo", CLASS)
    suspect = [failed(scope, ANY, ANY)]
    group = (claims(5, "m"), sold("m"))
    other = (claims(5, "m", node_class="other"), sold("m"))
    assert allowed(suspect, group, other, group) == [1, 5, 0]
    assert allowed([], group, resting=suspect) == [1]
    for state, number in ((ClaimState.LAUNCHED, 0), (ClaimState.LAUNCHING, 0), (ClaimState.REGISTERED, 1)):
        assert allowed(suspect, group, in_flight=claims(1, "m", state=state)) == [number]
    market = OfferingMarket(DecisionState(0, unavailable=tuple(suspect)))
    assert market.is_node_class_unavailable("demo", CLASS)
    assert not market.is_node_class_unavailable("other", CLASS)
    edited = structs.replace(CLASS, spec=EC2NodeClassSpec(ami_family="Bottlerocket"))
    assert not market.is_node_class_unavailable("demo", edited)


@pytest.mark.parametrize(
    ("resting", "group", "rests"),
    [
        (("m5.large", "a", "spot"), "", True),
        (("m5.large", "b", "spot"), "", False),
        (("m5.large", "a", "on-demand"), "", False),
        (("quota:standard", ANY, "spot"), "", True),
        (("quota:standard", ANY, "on-demand"), "", False),
        (("quota:g", ANY, "spot"), "", False),
        ((ANY, ANY, "spot"), "", True),
        (("group/m5.large", "a", "spot"), "", False),
        (("group/m5.large", "a", "spot"), "group", True),
        (("group/m5.large", "a", "spot"), "other", False),
        (("group/*", "a", ANY), "group", True),
        (("group/*", "b", ANY), "group", False),
    ],
)
def test_an_offering_rests_by_itself_with_its_quota_with_its_capacity_type_or_in_its_group(
    resting: tuple[str, str, str], group: str, rests: bool
) -> None:
    known = [UnavailableOffering(*resting, NOW)]
    market = OfferingMarket(DecisionState(0, unavailable=tuple(known)))
    own = ("m5.large", "a", "spot")
    assert market.is_unavailable(*own, group) is rests
    catalog = Catalog(region="r", types=(), zones={"m5.large": ("a", "b")}, prices={})
    found = unavailable_in_group(group, known, catalog) if group else unavailable_offerings(known, catalog)
    assert (own in found) is rests


def test_what_has_just_failed_rests_for_the_rest_of_the_round() -> None:
    market = OfferingMarket(DecisionState(0))
    assert not market.is_unavailable("m5.large", "a", "spot")
    market.learn([OfferingFailure("m5.large", "a", "spot", "code")])
    assert market.is_unavailable("m5.large", "a", "spot")


def test_an_offering_that_gives_again_is_relieved_once() -> None:
    offerings = (failed("m"), failed("cr-1", kind="reserved"), failed("n"))
    market = OfferingMarket(DecisionState(0, recovering=offerings))
    bought: dict[str, Any] = {"instance_type": "m", "zone": "a"}
    given = [
        node_claim(name="a", capacity_type="on-demand", **bought),
        node_claim(name="b", capacity_type="reserved", labels={labels.RESERVATION_ID: "cr-1"}, **bought),
        node_claim(name="c", capacity_type="spot", **bought),
    ]
    assert market.proven(given) == [offerings[1], offerings[0]]
    assert market.proven(given) == []


SUBNETS = (Subnet("s-a", "a", free_ips=100), Subnet("s-a2", "a", free_ips=50), Subnet("s-b", "b", free_ips=20))


def resolved(*held: CapacityReservation) -> ResolvedNodeClass:
    made = ResolvedNodeClass("default", "AL2023", (), SUBNETS, ("sg",), "profile", "https://e", "Q0E=", "10.0.0.0/16")
    return structs.replace(made, capacity_reservations=held)


def override(zone: str, max_pods: int, name: str = "m") -> FleetOverride:
    return FleetOverride(1.0, name, zone, "ami", max_pods, "h")


def test_a_launch_reserves_as_many_addresses_as_its_smallest_node_may_hold_in_each_zone() -> None:
    market = OfferingMarket(DecisionState(0, addresses={"s-b": 3}))
    wanted = [override("a", 29), override("a", 8, "n"), override("b", 0), override("z", 5)]
    assert OfferingMarket(DecisionState(0)).reserve(wanted[::-1], resolved(), 3) == {"s-a": 24, "s-b": 3}
    assert market.reserve(wanted, resolved(), 3) == {"s-a": 24, "s-b": 3}
    assert market.reserve(wanted[:1], resolved(), 2) == {"s-a": 58}
    left = {subnet.id: subnet.free_ips for subnet in market.open(resolved()).subnets}
    assert (left["s-a"], left["s-b"]) == (100 - 24 - 58, 20 - 3 - 3)


def test_what_other_clusters_take_of_a_reservation_is_not_there_and_what_own_claims_take_is() -> None:
    own = node_claim(name="c", token="mine")
    taken = {"cr-1": {"mine": 2, "theirs": 3}, "cr-2": {"theirs": 9}}
    market = OfferingMarket(DecisionState(0, claims=(own,), reserved=taken))
    held = [CapacityReservation(name, "m", "a", available=5) for name in ("cr-1", "cr-2", "cr-3")]
    opened = market.open(resolved(*held)).capacity_reservations
    assert {item.id: item.available for item in opened} == {"cr-1": 2, "cr-2": 0, "cr-3": 5}


FAMILIES = tuple(f"m{number:02}.large/{zone}" for number in range(9) for zone in "ab")


def preferring(**fields: Any) -> NodeClaim:
    return node_claim(name="c", preferred_spot=PreferredSpot(FAMILIES, **fields))


def test_a_claim_that_prefers_no_spot_asks_for_all_of_it() -> None:
    assert OfferingMarket(DecisionState(0)).preferred([node_claim(name="c")]) == ()


@pytest.mark.parametrize(
    ("fields", "number", "launched", "left_out"),
    [
        ({}, 1, [("m00.large", "a")] * 9, []),
        ({"bounded": FAMILIES[:1], "most": 1}, 1, [], []),
        ({"bounded": FAMILIES[:1], "most": 1}, 2, [], FAMILIES[:1]),
        ({"bounded": FAMILIES[:2], "most": 2}, 1, [("m00.large", "a")] * 2, FAMILIES[:1]),
        ({"bounded": FAMILIES[:2], "most": 3}, 1, [("m00.large", "a")] * 2, []),
        ({"bounded": FAMILIES[:1], "most": 3}, 1, [("m00.large", "b"), ("m01.large", "a")] * 3, []),
        ({"bounded": FAMILIES[:1], "most": 3, "held": {FAMILIES[0]: 2}}, 1, [("m00.large", "a")], FAMILIES[:1]),
    ],
    ids=["unbounded", "one", "two at once", "has two", "may have three", "others", "held and launched"],
)
def test_what_a_round_has_launched_counts_for_what_it_prefers_next(
    fields: dict[str, Any], number: int, launched: list[tuple[str, str]], left_out: Sequence[str]
) -> None:
    market = OfferingMarket(DecisionState(0))
    for name, zone in launched:
        market.count_launched([node_claim(name="x", instance_type=name, zone=zone, capacity_type="spot")])
    asked = market.preferred([preferring(**fields)] * number)
    assert asked == tuple(key for key in FAMILIES if key not in left_out)


# What users are told


def refs(number: int) -> tuple[PodReference, ...]:
    return tuple(PodReference("d", f"p{place:03}", f"uid-{place:03}") for place in range(number))


def told(stage: Stage) -> list[str]:
    return sorted(event.involved_object.name for event in stage.cluster.view().events)


def test_pods_of_a_claim_that_came_to_nothing_are_told_ten_of_them() -> None:
    stage = Stage()
    claim = node_claim(cluster=stage.name, name="c", pods=refs(12))
    publish_for_pods(claim, "no node came of it", stage.context)
    assert len(stage.server.list("events").items) == 10
    (first, *_) = sorted(stage.server.list("events").items, key=lambda item: item["involvedObject"]["name"])
    assert first["involvedObject"] == {
        "kind": "Pod",
        "namespace": "d",
        "name": "p000",
        "uid": "uid-000",
        "apiVersion": "v1",
    }
    assert (first["reason"], first["type"], first["message"]) == ("FailedScheduling", "Warning", "no node came of it")
    assert first["source"] == {"component": "shiplap"}
    assert first["reportingComponent"] == "shiplap"


def test_long_messages_are_cut_where_the_api_server_would_refuse_them() -> None:
    stage = Stage()
    publish_unschedulable(stage.name, (Unschedulable(refs(1)[0], "x" * 1025),), stage.context)
    (event,) = stage.server.list("events").items
    assert event["message"] == "x" * 1024


def test_of_many_pods_others_are_told_each_minute() -> None:
    named = []
    for minute in range(3):
        stage = Stage()
        stage.clock.advance(minute * 60 - stage.clock.now() % 60 + 60 * 60)
        turn = int(stage.clock.now() // 60)
        publish_unschedulable(
            stage.name, tuple(Unschedulable(ref, "no") for ref in refs(MOST_PODS + 10)), stage.context
        )
        names = {item["involvedObject"]["name"] for item in stage.server.list("events").items}
        start = turn * MOST_PODS % (MOST_PODS + 10)
        assert names == {f"p{(start + place) % 60:03}" for place in range(MOST_PODS)}
        named.append(names)
    assert len(set().union(*named)) == 60
    stage = Stage()
    publish_unschedulable(stage.name, tuple(Unschedulable(ref, "no") for ref in refs(MOST_PODS)), stage.context)
    assert len(stage.server.list("events").items) == MOST_PODS == 50


def test_an_api_server_that_refuses_is_asked_once() -> None:
    stage = Stage()
    stage.faults.on("before", "cluster.publish", ClusterError("refused"))
    publish_unschedulable(stage.name, tuple(Unschedulable(ref, "no") for ref in refs(3)), stage.context)
    assert (stage.server.list("events").items, stage.meter.counts) == ([], {"PodEventsNotPublished": 1})
    other = Stage()
    other.faults.on("before", "cluster.publish", ClusterError("refused"))
    publish_for_pods(node_claim(cluster=other.name, name="c", pods=refs(3)), "no", other.context)
    assert (other.server.list("events").items, other.meter.counts) == ([], {"PodEventsNotPublished": 1})


# What a watch tells


def seen(kind: type[Any], name: str, version: str) -> Any:
    meta = {"name": name, "namespace": "d", "uid": f"uid-{name}", "resourceVersion": version}
    return msgspec.convert({"metadata": meta, "spec": {"providerID": "aws:///a/i-1"} if kind is Node else {}}, kind)


def test_one_hint_is_told_for_all_pods_and_one_for_each_node() -> None:
    pods = (seen(Pod, "p", "99"), seen(Pod, "q", "100"))
    node = seen(Node, "n", "7")
    hints = hints_of("demo", ChangeBatch(pods, joined=(node,), ready=(node,), room_taken=True), NOW)
    assert [(hint.detail_type, hint.source, hint.detail["id"]) for hint in hints] == [
        ("PodPending", "shiplap.watch", "demo/pods/100"),
        ("PodPending", "shiplap.watch", f"demo/room/{NOW:.3f}"),
        ("NodeJoined", "shiplap.watch", "demo/n/7"),
        ("NodeReady", "shiplap.watch", "demo/n/7"),
    ]
    assert hints[0].detail["pods"] == [["d", "p", "uid-p"], ["d", "q", "uid-q"]]
    assert hints_of("demo", ChangeBatch(), NOW) == []
