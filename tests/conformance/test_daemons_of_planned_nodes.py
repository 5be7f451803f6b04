"""The DaemonSet pods of a planned node are those of the node that it becomes: its zone, capacity type and labels."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type
from tests.conformance.given import Outcome, daemon_set, given, in_flight, wanted

ZONE, KIND, HOST = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EVERYWHERE = [(kind, zone) for kind in ("spot", "on-demand") for zone in (Z1, Z2, Z3)]
LARGE = fake_type("large", cpu="2", memory="8Gi", offerings=EVERYWHERE, pods="20")
XLARGE = fake_type("xlarge", cpu="4", memory="16Gi", offerings=EVERYWHERE, pods="20")
HUGE = fake_type("huge", cpu="8", memory="32Gi", offerings=EVERYWHERE, pods="20")
ONE, BOTH = [LARGE], [LARGE, XLARGE]


def selecting(**fields: Any) -> list[Any]:
    return [daemon_set("daemon", cpu="900m", **fields)]


def values(outcome: Outcome, key: str) -> set[str]:
    found = wanted(outcome.claim, key)
    assert found is not None
    return set(found.values)


@pytest.mark.parametrize(
    ("key", "selector", "kept"),
    [
        (ZONE, {ZONE: Z1}, {Z2, Z3}),
        (KIND, {KIND: "spot"}, {"on-demand"}),
        ("tier", {"tier": "x"}, {"y"}),
    ],
)
@pytest.mark.parametrize("types", [ONE, BOTH], ids=["one type", "a larger one, too"])
def test_a_node_is_planned_where_the_daemon_does_not_run(
    key: str, selector: dict[str, str], kept: set[str], types: list[Any]
) -> None:
    pools = [pool("default", rule("tier", "In", "x", "y"))]
    outcome = given(pod(cpu="1500m"), pools=pools, types=types, daemon_sets=selecting(selector=selector))
    assert outcome.scheduled
    assert values(outcome, key) == kept
    assert outcome.claim.launch.instance_type == "large"


@pytest.mark.parametrize(
    "term",
    [
        [rule(ZONE, "NotIn", Z2, Z3)],
        [rule("gen", "Gt", "4")],
        [rule("gen", "NotIn", "3")],
        [rule("gen", "In", "5", "7"), rule(ZONE, "In", Z1)],
        [rule("gen", "DoesNotExist"), rule(ZONE, "In", Z1)],
        [rule("absent", "DoesNotExist"), rule("gen", "Lt", "2")],
    ],
    ids=str,
)
def test_any_operator_of_a_daemon_leaves_out_the_nodes_that_it_excludes(term: list[dict[str, Any]]) -> None:
    pools = [pool("default", rule("gen", "In", "3", "5"))]
    outcome = given(pod(cpu="1500m"), pools=pools, types=ONE, daemon_sets=selecting(requires=[term]))
    assert outcome.scheduled


@pytest.mark.parametrize(("team", "fits"), [("red", True), ("blue", False), ("", True)])
def test_a_label_with_any_value_is_that_of_the_pod(team: str, fits: bool) -> None:
    pools = [pool("default", rule("team", "Exists"))]
    waiting = pod(cpu="1500m", selector={"team": team} if team else {})
    outcome = given(waiting, pools=pools, types=ONE, daemon_sets=selecting(selector={"team": "blue"}))
    assert outcome.scheduled is fits


@pytest.mark.parametrize(("gen", "fits"), [("3", True), ("5", True), ("6", False)])
def test_a_daemon_for_greater_numbers_counts_for_them_alone(gen: str, fits: bool) -> None:
    pools = [pool("default", rule("gen", "Exists"))]
    daemons = selecting(requires=[[rule("gen", "Gt", "5")]])
    assert given(pod(cpu="1500m", selector={"gen": gen}), pools=pools, types=ONE, daemon_sets=daemons).scheduled is fits


@pytest.mark.parametrize("field", ["matchFields", "hostname"])
def test_a_daemon_of_one_node_by_name_takes_nothing_of_new_ones(field: str) -> None:
    name = "metadata.name" if field == "matchFields" else HOST
    kind = "matchFields" if field == "matchFields" else "matchExpressions"
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{kind: [rule(name, "In", "n1")]}]}}}
    daemons = selecting(spec={"affinity": affinity})
    small = node("n1", cpu="2", labels={ZONE: Z1})
    outcome = given(*pods(2, cpu="1500m"), nodes=[small], types=ONE, daemon_sets=daemons)
    assert len(outcome.claims) == 2
    elsewhere = given(*pods(2, cpu="1500m"), nodes=[node("n2", cpu="2")], types=ONE, daemon_sets=daemons)
    assert len(elsewhere.claims) == 1


@pytest.mark.parametrize("selector", [{ZONE: Z3}, {ZONE: Z1, KIND: "reserved"}, {KIND: "on-demand", ZONE: Z2}], ids=str)
def test_a_daemon_takes_nothing_of_a_type_that_is_not_sold_where_it_runs(selector: dict[str, str]) -> None:
    sold = fake_type("large", cpu="2", memory="8Gi", offerings=[("on-demand", Z1), ("spot", Z2)], pods="20")
    outcome = given(pod(cpu="1500m"), pools=[pool("default")], types=[sold], daemon_sets=selecting(selector=selector))
    assert outcome.scheduled


@pytest.mark.parametrize("selector", [{ZONE: Z2}, {KIND: "spot"}], ids=str)
def test_a_claim_requests_no_daemon_of_a_place_where_its_smaller_types_are_sold_out(selector: dict[str, str]) -> None:
    elsewhere = [(kind, zone) for kind, zone in EVERYWHERE if {ZONE: zone, KIND: kind}.items() & selector.items()]
    sold = fake_type("large", cpu="2", memory="8Gi", offerings=EVERYWHERE, unavailable=elsewhere, pods="20")
    outcome = given(pod(cpu="1500m"), types=[sold, XLARGE], daemon_sets=selecting(selector=selector))
    assert outcome.claim.instance_types == ("large", "xlarge")
    assert values(outcome, *selector) >= {*selector.values()}
    assert outcome.claim.requests["cpu"] == 1500
    assert outcome.claim.allocatable["cpu"] == 1900


def _priced(item: InstanceType, prices: dict[tuple[str, str], float], usual: float) -> InstanceType:
    def price(offering: Offering) -> Offering:
        return replace(offering, price=prices.get((item.name, offering.zone), usual))

    return replace(item, offerings=tuple(map(price, item.offerings)))


@pytest.mark.parametrize("zone", [Z1, Z2, Z3])
def test_types_stand_by_their_price_where_the_daemon_runs_and_elsewhere(zone: str) -> None:
    dearer = {("large", zone): 0.9, ("xlarge", zone): 4.0}
    types = [_priced(item, dearer, usual) for item, usual in ((LARGE, 1.0), (XLARGE, 2.0), (HUGE, 3.0))]
    outcome = given(pod(cpu="500m"), types=types, daemon_sets=selecting(selector={ZONE: zone}))
    assert values(outcome, ZONE) == {Z1, Z2, Z3}
    assert outcome.claim.instance_types == ("large", "xlarge", "huge")
    assert (outcome.claim.launch.zone, outcome.claim.launch.price) == (zone, 0.9)


def test_a_zone_is_no_reason_to_narrow_a_node_that_holds_its_daemons_anywhere() -> None:
    outcome = given(pod(cpu="500m"), types=BOTH, daemon_sets=selecting(selector={ZONE: Z1}))
    assert values(outcome, ZONE) == {Z1, Z2, Z3}
    assert outcome.claim.instance_types == ("large", "xlarge")


def test_a_pod_of_the_daemons_zone_gets_a_node_that_holds_both() -> None:
    waiting = pod(cpu="1500m", selector={ZONE: Z1})
    outcome = given(waiting, types=BOTH, daemon_sets=selecting(selector={ZONE: Z1}))
    assert outcome.claim.launch.instance_type == "xlarge"
    assert outcome.claim.requests["cpu"] == 2400


def test_daemons_of_each_zone_count_in_theirs_alone() -> None:
    daemons = [daemon_set(zone, cpu="700m", selector={ZONE: zone}) for zone in (Z1, Z2, Z3)]
    outcome = given(pod(cpu="1200m"), types=ONE, daemon_sets=daemons)
    assert outcome.scheduled
    assert outcome.claim.requests["cpu"] == 1900


@pytest.mark.parametrize("number", [2, 40])
def test_spread_pods_keep_out_of_a_zone_whose_daemon_leaves_them_no_room(number: int) -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    waiting = pods(
        number, cpu="1500m", metadata={"labels": {"app": "web"}}, spec={"topologySpreadConstraints": [constraint]}
    )
    outcome = given(*waiting, types=ONE, daemon_sets=selecting(selector={ZONE: Z1}))
    assert outcome.scheduled
    zones = [claim.launch.zone for claim in outcome.claims]
    assert (zones.count(Z1), zones.count(Z2), zones.count(Z3)) == (0, number // 2, number // 2)


def test_many_pods_are_packed_where_the_daemon_does_not_run() -> None:
    outcome = given(*pods(90, cpu="900m"), types=ONE, daemon_sets=selecting(selector={KIND: "spot"}))
    assert len(outcome.claims) == 45
    assert {claim.launch.capacity_type for claim in outcome.claims} == {"on-demand"}


def test_a_claim_in_flight_is_left_what_the_daemons_of_its_zone_leave() -> None:
    daemons = selecting(selector={ZONE: Z1})
    first = given(pod("first", cpu="1000m"), types=ONE, daemon_sets=daemons, pools=[pool("p", rule(ZONE, "In", Z2))])
    later = given(
        pod("first", cpu="1000m"),
        pod("second", cpu="800m"),
        types=ONE,
        daemon_sets=daemons,
        pools=[pool("p", rule(ZONE, "In", Z1, Z2))],
        claims=[in_flight(first.claim)],
    )
    assert not later.claims


@pytest.mark.parametrize("sidecar", [False, True])
def test_pods_in_the_network_of_their_node_take_the_ports_of_their_containers(sidecar: bool) -> None:
    ports = [{"containerPort": 80}, {"containerPort": 443}]
    spec: dict[str, Any] = {"hostNetwork": True}
    if sidecar:
        spec["initContainers"] = [{"name": "proxy", "restartPolicy": "Always", "ports": ports}]
    else:
        spec["containers"] = [{"name": "main", "resources": {"requests": {"cpu": "100m"}}, "ports": ports}]
    assert len(given(*pods(2, cpu="100m", spec=spec), types=BOTH).claims) == 2
    alone = given(pod(cpu="100m", ports=[443]), types=BOTH, daemon_sets=[daemon_set(spec=spec)])
    assert "host port 443" in alone.left("pod").message


def test_a_port_of_a_daemon_is_taken_in_its_zone_alone() -> None:
    daemons = [daemon_set(cpu="10m", ports=[80], selector={ZONE: Z1})]
    outcome = given(pod(cpu="100m", ports=[80]), types=BOTH, daemon_sets=daemons)
    assert values(outcome, ZONE) == {Z2, Z3}


def test_a_port_of_a_daemon_is_taken_on_a_claim_in_flight() -> None:
    first = given(pod("first", cpu="100m"), types=BOTH, pools=[pool("p", rule(ZONE, "In", Z2))])
    for zone, collides in ((Z1, False), (Z2, True)):
        later = given(
            pod("first", cpu="100m"),
            pod("second", cpu="100m", ports=[80]),
            pod("third", cpu="100m", ports=[81]),
            types=BOTH,
            daemon_sets=[daemon_set(ports=[80], selector={ZONE: zone})],
            pools=[pool("p", rule(ZONE, "In", Z1, Z2))],
            claims=[in_flight(first.claim)],
        )
        assert (later.home("second") != first.claim.name) == collides
        assert later.home("third") == first.claim.name


def test_a_port_of_a_daemon_is_taken_where_the_zone_of_a_claim_is_not_settled() -> None:
    first = given(pod("first", cpu="100m"), types=BOTH)
    assert values(first, ZONE) == {Z1, Z2, Z3}
    later = given(
        pod("first", cpu="100m"),
        pod("second", cpu="100m", ports=[80]),
        types=BOTH,
        daemon_sets=[daemon_set(ports=[80], selector={ZONE: Z1})],
        claims=[in_flight(first.claim)],
    )
    assert values(later, ZONE) == {Z2, Z3}


def test_a_port_of_a_daemon_whose_pod_is_still_to_come_is_taken_on_a_node() -> None:
    tainted = [{"key": "gpu", "effect": "NoSchedule"}]
    nodes = [node("plain"), node("tainted", taints=tainted)]
    waiting = pod(cpu="100m", ports=[80], tolerations=[{"key": "gpu", "operator": "Exists"}])
    outcome = given(waiting, nodes=nodes, daemon_sets=[daemon_set(ports=[80])], pools=[])
    assert outcome.home("pod") == "tainted"


def test_pods_that_differ_in_their_network_alone_are_told_apart() -> None:
    containers = [{"name": "main", "resources": {"requests": {"cpu": "100m"}}, "ports": [{"containerPort": 80}]}]
    waiting = [*pods(3, "plain", spec={"containers": containers})]
    waiting += pods(2, "host", spec={"containers": containers, "hostNetwork": True})
    outcome = given(*waiting, types=BOTH)
    assert len(outcome.claims) == 2
    assert outcome.home("host-0") != outcome.home("host-1")
