"""Topology spread with DoNotSchedule, as Karpenter's suites test it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.manifests.nodeclaim import NodeClaim
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type, incrementing_types
from tests.conformance.given import Outcome, given, in_flight

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
ARCH = "kubernetes.io/arch"
APP = {"app": "web"}
SMALL = [fake_type("small", cpu="2", memory="4Gi", pods="10")]


def spread(key: str = ZONE, *, skew: int = 1, app: Mapping[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": dict(APP if app is None else app)},
        **more,
    }


def apps(number: int, *constraints: Mapping[str, Any], name: str = "web", **fields: Any) -> list[Pod]:
    """Pods of the app, spread by these constraints."""
    labelled = {"labels": APP, **fields.pop("metadata", {})}
    return pods(number, name, metadata=labelled, spec={"topologySpreadConstraints": list(constraints)}, **fields)


def counts(outcome: Outcome, key: str = ZONE, chosen: Mapping[str, str] | None = None) -> list[int]:
    """Return the number of the app's pods in each domain once the plan is carried out, ascending."""
    labels = {n.metadata.name: n.metadata.labels for n in outcome.snapshot.view.nodes}
    flights = {claim.name: claim for claim in (*outcome.snapshot.claims, *outcome.claims)}
    for name, claim in flights.items():
        plan = claim.plan if isinstance(claim, NodeClaim) else claim
        certain = {entry.key: entry.values[0] for entry in plan.requirements if len(entry.values) == 1}
        labels[name] = {HOST: name, **certain, **plan.labels}
    found: dict[str, int] = {}
    for item in outcome.snapshot.view.pods:
        if item.metadata.deletion_timestamp or item.status.phase in ("Failed", "Succeeded"):
            continue
        home = item.spec.node_name or outcome.home(item.metadata.name)
        wanted = APP if chosen is None else chosen
        if home and all(item.metadata.labels.get(k) == v for k, v in wanted.items()) and key in labels.get(home, {}):
            domain = labels[home][key]
            found[domain] = found.get(domain, 0) + 1
    return sorted(found.values())


def running(zone: str, number: int = 1, name: str = "", **fields: Any) -> list[Pod]:
    name = name or f"old-{zone}"
    return pods(number, name, node=f"node-{zone}", metadata={"labels": APP}, **fields)


def full(zone: str, **fields: Any) -> Any:
    """A node without room."""
    return node(f"node-{zone}", pods="0", labels={ZONE: zone}, **fields)


def test_an_unknown_topology_key_is_not_scheduled() -> None:
    """Scenario 87."""
    outcome = given(*apps(2, spread("example.com/nowhere")))
    assert "unsatisfiable topology constraint" in outcome.left("web-0").message


@pytest.mark.parametrize(
    "selector",
    [{"matchLabels": APP}, {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}],
)
def test_zones_are_filled_evenly(selector: dict[str, Any]) -> None:
    """Scenario 89."""
    outcome = given(*apps(4, spread(labelSelector=selector)))
    assert outcome.scheduled
    assert counts(outcome) == [1, 1, 2]


def test_existing_pods_in_a_zone_no_pool_reaches_hold_the_others_down() -> None:
    """Scenario 91."""
    waiting = apps(6, spread(), cpu="1100m")
    outcome = given(*waiting, *running(Z3), nodes=[full(Z3)], pools=[pool("default", rule(ZONE, "In", Z1, Z2))])
    assert counts(outcome) == [1, 2, 2]
    assert len(outcome.plan.unschedulable) == 2


def test_zones_with_fewer_pods_are_filled_first() -> None:
    """Scenario 93."""
    outcome = given(*apps(3, spread()), *running(Z1, 3), nodes=[full(Z1)])
    assert counts(outcome) == [1, 2, 3]


def test_which_pods_are_counted() -> None:
    """Scenario 95."""
    nodes = [full(Z1), full(Z2), node("bare", pods="0")]
    others = [
        pod("unlabelled", node=f"node-{Z1}"),
        pod("homeless", node="bare", metadata={"labels": APP}),
        pod("elsewhere", node=f"node-{Z1}", metadata={"labels": APP, "namespace": "other"}),
        pod("ending", node=f"node-{Z1}", metadata={"labels": APP, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        pod("failed", node=f"node-{Z1}", metadata={"labels": APP}, status={"phase": "Failed"}),
        pod("done", node=f"node-{Z1}", metadata={"labels": APP}, status={"phase": "Succeeded"}),
    ]
    outcome = given(*apps(3, spread()), *running(Z1), *running(Z2, 2), *others, nodes=nodes)
    assert sorted(outcome.claim_of(f"web-{n}").launch.zone for n in range(3)) == [Z1, Z3, Z3]


# minDomains, zones of the pool, pods | counts
MIN_DOMAINS: dict[str, tuple[int, Sequence[str], int, list[int]]] = {
    "fewer zones than asked": (3, (Z1, Z2), 3, [1, 1]),
    "as many": (3, (Z1, Z2, Z3), 11, [3, 4, 4]),
    "more": (2, (Z1, Z2, Z3), 11, [3, 4, 4]),
}


@pytest.mark.parametrize(("least", "zones", "number", "expected"), MIN_DOMAINS.values(), ids=MIN_DOMAINS.keys())
def test_min_domains(least: int, zones: Sequence[str], number: int, expected: list[int]) -> None:
    """Scenario 97."""
    outcome = given(*apps(number, spread(minDomains=least)), pools=[pool("default", rule(ZONE, "In", *zones))])
    assert counts(outcome) == expected


def test_two_apps_over_hostnames_share_nodes_unless_they_differ_in_arch() -> None:
    """Scenario 99."""

    def app(name: str, **fields: Any) -> list[Pod]:
        labels = {"app": name}
        constraint = spread(HOST, app=labels)
        return pods(2, name, metadata={"labels": labels}, spec={"topologySpreadConstraints": [constraint]}, **fields)

    assert len(given(*app("a"), *app("b")).claims) == 2
    apart = given(*app("a", selector={ARCH: "amd64"}), *app("b", selector={ARCH: "arm64"}))
    assert len(apart.claims) == 4


@pytest.mark.parametrize(("selector", "expected"), [({ZONE: Z2}, [1, 5]), ({}, [1, 2])], ids=["filtered", "all"])
def test_only_nodes_the_pods_could_use_are_compared(selector: dict[str, str], expected: list[int]) -> None:
    """Scenario 101."""
    here = node(f"node-{Z1}", pods="0", labels={ZONE: Z1, KIND: "on-demand"})
    spot = pool("default", rule(KIND, "In", "spot"))
    outcome = given(*apps(5, spread(KIND), selector=selector), *running(Z1), nodes=[here], pools=[spot])
    assert counts(outcome, KIND) == expected


def test_a_custom_label_gives_a_ratio_of_capacity_types() -> None:
    """Scenario 103."""
    key = "capacity.spread.4-1"
    pools = [
        pool("spot", rule(KIND, "In", "spot"), rule(key, "In", "2", "3", "4", "5")),
        pool("on-demand", rule(KIND, "In", "on-demand"), rule(key, "In", "1")),
    ]
    outcome = given(*apps(20, spread(key)), pools=pools)
    assert counts(outcome, key) == [4, 4, 4, 4, 4]
    held = dict.fromkeys(("spot", "on-demand"), 0)
    for claim in outcome.claims:
        held[claim.launch.capacity_type] += len(claim.pods)
    assert held == {"spot": 16, "on-demand": 4}


@pytest.mark.parametrize(("labelled", "nodes"), [(True, 2), (False, 4)], ids=["present", "absent"])
def test_match_label_keys_tell_revisions_apart(labelled: bool, nodes: int) -> None:
    """Scenario 105."""
    waiting = [
        item
        for value in ("a", "b")
        for item in apps(
            2,
            spread(HOST, matchLabelKeys=["revision"]),
            name=value,
            metadata={"labels": {**APP, **({"revision": value} if labelled else {})}},
        )
    ]
    outcome = given(*waiting, types=incrementing_types(10))
    assert outcome.scheduled
    assert len(outcome.claims) == nodes


def test_taints_are_honoured_where_asked() -> None:
    """Scenario 107."""
    key = "example.com/rack"
    taint = [{"key": "taint", "value": value, "effect": "NoSchedule"} for value in ("one", "two")]
    pools = [
        pool("one", rule(key, "In", "foo", "bar"), taints=taint[:1]),
        pool("two", rule(key, "In", "foo", "baz"), taints=taint[1:]),
    ]
    honest = spread(key, nodeTaintsPolicy="Honor")
    waiting = [
        *apps(2, honest, cpu="2", name="first", tolerations=[{"key": "taint", "value": "one"}]),
        *apps(4, honest, cpu="1", name="second", tolerations=[{"key": "taint", "value": "two"}]),
    ]
    assert counts(given(*waiting, pools=pools), key) == [1, 2, 3]


# Groups of pods (number, zones they ask for), each planned after the ones before | counts
RESTRICTED: dict[str, tuple[list[tuple[int, Sequence[str]]], list[int]]] = {
    "one zone each": ([(5, (Z1,)), (10, (Z2,))], [5, 10]),
    "two zones": ([(10, (Z1, Z2))], [5, 5]),
    "improves although still uneven": ([(6, (Z1, Z2)), (1, (Z2, Z3)), (5, ())], [4, 4, 4]),
}


@pytest.mark.parametrize(("steps", "expected"), RESTRICTED.values(), ids=RESTRICTED.keys())
def test_pods_restricted_to_zones(steps: list[tuple[int, Sequence[str]]], expected: list[int]) -> None:
    """Scenario 109."""
    waiting: list[Pod] = []
    for step, (number, zones) in enumerate(steps):
        requires = [[rule(ZONE, "In", *zones)]] if zones else []
        # Larger ones go first.
        waiting += apps(number, spread(), name=f"step{step}", cpu=f"{900 - 100 * step}m", requires=requires)
    outcome = given(*waiting)
    assert outcome.scheduled
    assert counts(outcome) == expected


def test_preferred_zones_do_not_limit() -> None:
    """Scenario 109, last case."""
    assert counts(given(*apps(6, spread(), prefers=[[rule(ZONE, "In", Z1, Z2)]]))) == [2, 2, 2]


def test_zones_and_hostnames_at_once() -> None:
    outcome = given(*apps(10, spread(), spread(HOST, skew=3)), types=incrementing_types(10))
    assert outcome.scheduled
    assert counts(outcome) == [3, 3, 4]
    assert max(counts(outcome, HOST)) <= 3


def test_zones_and_capacity_types_at_once() -> None:
    outcome = given(*apps(11, spread(), spread(KIND, skew=2)))
    assert outcome.scheduled
    assert counts(outcome) == [3, 4, 4]
    low, high = counts(outcome, KIND)
    assert high - low <= 2


def test_no_combination_is_closed_by_an_easier_one() -> None:
    """There is no spot in the third zone, so its on-demand nodes must not be kept from it by those of other zones."""
    outcome = given(*apps(60, spread(), spread(KIND), cpu="100m"), types=incrementing_types(20))
    assert outcome.scheduled
    assert counts(outcome) == [20, 20, 20]
    assert counts(outcome, KIND) == [30, 30]


def test_zones_hostnames_capacity_types_and_a_label_at_once() -> None:
    rack = "example.com/rack"
    constraints = [spread(), spread(KIND, skew=2), spread(HOST, skew=2), spread(rack)]
    racks = pool("default", rule(rack, "In", "a", "b"))
    outcome = given(*apps(24, *constraints, cpu="100m"), types=incrementing_types(20), pools=[racks])
    assert outcome.scheduled
    assert counts(outcome) == [8, 8, 8]
    assert counts(outcome, rack) == [12, 12]
    low, high = counts(outcome, KIND)
    assert high - low <= 2
    assert max(counts(outcome, HOST)) <= 2


@pytest.mark.parametrize("number", [10, 1000])
def test_many_pods_end_as_even_as_few(number: int) -> None:
    """Pods that rise level at once, around zones of different height and with room on a node."""
    here = node(f"node-{Z1}", cpu="16", memory="32Gi", labels={ZONE: Z1})
    waiting = apps(number, spread(skew=2), cpu="100m")
    outcome = given(*waiting, *running(Z2, 5), nodes=[here, full(Z2)], types=incrementing_types(50))
    assert outcome.scheduled
    low, _, high = counts(outcome)
    assert high - low <= (2 if number > 10 else 3)


def test_many_pods_stop_where_a_zone_is_full() -> None:
    """A zone that exists but takes no pod holds the others at its count and the skew."""
    closed = pool("default", rule(ZONE, "In", Z1, Z2))
    outcome = given(*apps(500, spread(skew=3), cpu="100m"), nodes=[full(Z3)], pools=[closed])
    assert counts(outcome) == [3, 3]
    assert len(outcome.plan.unschedulable) == 494


def test_many_pods_stay_even_when_limits_run_out() -> None:
    limited = pool(limits={"cpu": "16"})
    outcome = given(*apps(300, spread(), cpu="100m"), pools=[limited], types=incrementing_types(4))
    assert outcome.plan.unschedulable
    low, _, high = counts(outcome)
    assert high - low <= 1
    capacity = {item.name: item.capacity["cpu"] for item in incrementing_types(4)}
    assert sum(max(capacity[name] for name in claim.instance_types) for claim in outcome.claims) <= 16_000


def test_pods_planned_while_nodes_are_in_flight() -> None:
    """Scenario 75, zones."""
    first = apps(4, spread())
    types = incrementing_types(2)
    flight = [in_flight(claim) for claim in given(*first, types=types).claims]
    outcome = given(*first, *apps(5, spread(), name="more"), claims=flight, types=types)
    assert outcome.claims == ()
    assert counts(outcome) == [3, 3, 3]


def test_hostnames_planned_while_nodes_are_in_flight() -> None:
    """Scenario 75, hostnames."""
    first = apps(4, spread(HOST))
    flight = [in_flight(claim) for claim in given(*first).claims]
    outcome = given(*first, *apps(5, spread(HOST), name="more"), claims=flight)
    assert len(outcome.claims) == 5
    assert counts(outcome, HOST) == [1] * 9


def test_a_zone_no_pool_can_launch_in_holds_nothing_down() -> None:
    """Better than upstream: limitation 27."""
    spent = pool("spent", rule(ZONE, "In", Z3), limits={"cpu": "0"})
    outcome = given(*apps(6, spread()), pools=[pool("default", rule(ZONE, "In", Z1, Z2)), spent])
    assert outcome.scheduled
    assert counts(outcome) == [3, 3]


def test_pods_on_cordoned_nodes_count() -> None:
    outcome = given(*apps(2, spread()), *running(Z1), nodes=[node(f"node-{Z1}", labels={ZONE: Z1}, cordoned=True)])
    assert {outcome.claim_of(f"web-{n}").launch.zone for n in range(2)} == {Z2, Z3}


def test_existing_room_is_used_as_far_as_the_skew_allows() -> None:
    here = node(f"node-{Z1}", cpu="16", memory="32Gi", labels={ZONE: Z1})
    outcome = given(*apps(6, spread(skew=2), cpu="100m"), nodes=[here])
    assert outcome.scheduled
    homes = [outcome.home(f"web-{n}") for n in range(6)]
    assert homes.count(f"node-{Z1}") >= 2
    low, *_, high = counts(outcome)
    assert high - low <= 2


def test_pods_that_are_only_counted_go_where_there_is_room() -> None:
    here = node("here", cpu="4", labels={ZONE: Z1})
    outcome = given(*pods(3, "plain", cpu="1", metadata={"labels": APP}), *apps(2, spread(), cpu="500m"), nodes=[here])
    assert {outcome.home(f"plain-{n}") for n in range(3)} == {"here"}
    assert {outcome.claim_of(f"web-{n}").launch.zone for n in range(2)} == {Z2, Z3}


@pytest.mark.parametrize("selector", [None, {"matchLabels": {"app": "other"}}], ids=["none", "of others"])
def test_pods_that_their_constraint_does_not_count_need_not_be_apart(selector: dict[str, Any] | None) -> None:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    outcome = given(*apps(4, constraint | ({"labelSelector": selector} if selector else {})))
    assert len(outcome.claim.pods) == 4


def test_pods_that_their_constraint_does_not_count_go_where_it_allows() -> None:
    """Two pods of the other app stand in each zone but one, which is the only one they may join."""
    others = [
        pod(f"other-{zone}-{n}", node=f"node-{zone}", metadata={"labels": {"app": "other"}})
        for zone in (Z1, Z2)
        for n in range(2)
    ]
    outcome = given(*apps(3, spread(app={"app": "other"})), *others, nodes=[full(Z1), full(Z2)])
    assert counts(outcome) == [3]
    assert outcome.claim.launch.zone == Z3


def test_a_malformed_selector_is_said_so() -> None:
    bad = spread(labelSelector={"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]})
    outcome = given(*apps(1, bad), pod("fine"))
    assert "Near" in outcome.left("web-0").message
    assert outcome.home("fine")


NAMED = [[rule(ZONE, "In", zone)] for zone in (Z2, Z3)]


@pytest.mark.parametrize("number", [2, 5, 60])
@pytest.mark.parametrize("hard", [True, False])
def test_the_zones_of_all_terms_of_node_affinity_are_domains(hard: bool, number: int) -> None:
    """Not those of the first term alone, as in Karpenter; kube-scheduler compares nodes that meet any term."""
    rules = spread(whenUnsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway")
    outcome = given(*apps(number, rules, requires=NAMED, cpu="100m"), types=SMALL)
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z2, Z3}
    assert counts(outcome) == [number // 2, number - number // 2]


def test_the_zones_of_all_terms_are_domains_beside_nodes_that_exist() -> None:
    nodes = [node("free", cpu="16", memory="32Gi", labels={ZONE: Z2}), full(Z1)]
    outcome = given(*apps(4, spread(), requires=NAMED), *running(Z1), nodes=nodes)
    assert outcome.scheduled
    assert counts(outcome) == [1, 2, 2]


@pytest.mark.parametrize("number", [2, 6])
def test_terms_that_differ_in_more_than_the_zone_have_all_their_domains(number: int) -> None:
    requires = [[rule(ZONE, "In", Z1), rule(KIND, "In", "spot")], [rule(ZONE, "In", Z2), rule(KIND, "In", "on-demand")]]
    outcome = given(*apps(number, spread(), requires=requires))
    assert outcome.scheduled
    assert {(claim.launch.zone, claim.launch.capacity_type) for claim in outcome.claims} == {
        (Z1, "spot"),
        (Z2, "on-demand"),
    }
    assert counts(outcome) == [number // 2] * 2


def test_pods_of_one_first_term_do_not_share_the_domains_of_the_others() -> None:
    more = apps(2, spread(app={"app": "more"}), name="more", requires=NAMED[:1], metadata={"labels": {"app": "more"}})
    outcome = given(*apps(2, spread(), requires=NAMED), *more)
    assert outcome.scheduled
    assert {outcome.claim_of(f"more-{n}").launch.zone for n in range(2)} == {Z2}
    assert {outcome.claim_of(f"web-{n}").launch.zone for n in range(2)} == {Z2, Z3}


def test_a_zone_that_a_limit_closes_on_the_way_goes_on_holding_down_a_spread() -> None:
    """One node may be launched in the first two zones together; after it the second zone can get none for now."""
    spread = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    # A preference leaves the pods to the packer, one step at a time.
    preferred = [{"weight": 1, "preference": {"matchExpressions": [rule("example.com/rack", "Exists")]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    result = given(
        *pods(
            3,
            cpu="1500m",
            metadata={"labels": {"app": "web"}},
            spec={"topologySpreadConstraints": [spread], "affinity": affinity},
        ),
        pools=[
            pool("one", rule(ZONE, "In", Z1, Z2), limits={"nodes": "1"}),
            pool("many", rule(ZONE, "In", Z3)),
        ],
        types=[fake_type("small", cpu="2", offerings=[("on-demand", zone) for zone in (Z1, Z2, Z3)])],
    )
    assert sorted(claim.launch.zone for claim in result.claims) == [Z1, Z3]
    assert len(result.plan.unschedulable) == 1


@pytest.mark.parametrize("number", [3, 12])
def test_a_taint_that_only_repels_closes_no_zone(number: int) -> None:
    """kube-scheduler counts the domains of nodes with such taints, whatever a constraint honours."""
    here = pool("here", rule(ZONE, "In", Z3))
    repelling = pool("repelling", taints=[{"key": "soft", "effect": "PreferNoSchedule"}])
    assert counts(given(*apps(number, spread()), pools=[here, repelling])) == [number // 3] * 3


def counted_by_all(number: int, **fields: Any) -> list[Pod]:
    """Pods of the app without a spread of their own."""
    return pods(number, "counted", metadata={"labels": APP}, **fields)


def highest_above_lowest(outcome: Outcome, key: str) -> int:
    """The pods of the fullest domain that has a spread pod, above those of the emptiest; of hostnames, above none."""
    found: dict[str, list[str]] = {}
    for claim in outcome.claims:
        found.setdefault(claim.launch.zone if key == ZONE else claim.name, []).extend(held.name for held in claim.pods)
    highest = max(len(names) for names in found.values() if any(name.startswith("web") for name in names))
    return highest - (0 if key == HOST else min(map(len, found.values())))


@pytest.mark.parametrize("cpu", ["50m", "1900m"])
@pytest.mark.parametrize("prefers", [(), [[rule(KIND, "In", "spot")]]])
@pytest.mark.parametrize(("number", "key", "skew"), [(3, ZONE, 1), (60, ZONE, 2), (4, HOST, 2), (60, HOST, 2)])
def test_pods_that_are_only_counted_leave_the_spread_pods_bindable(
    number: int, key: str, skew: int, prefers: Any, cpu: str
) -> None:
    """If all of them bind first, each spread pod can still be bound where it is planned."""
    counted = counted_by_all(4, cpu=cpu, prefers=prefers)
    outcome = given(*apps(number, spread(key, skew=skew), cpu="100m"), *counted, types=SMALL)
    assert outcome.scheduled
    assert highest_above_lowest(outcome, key) <= skew


def test_a_spread_that_does_not_count_its_own_pods_reckons_with_those_that_it_counts() -> None:
    """With two domains of the three that it wants, the lowest count is 0: there must be no two pods in the zone."""
    follower = pod("follower", cpu="1", spec={"topologySpreadConstraints": [spread(minDomains=4)]})
    counted = counted_by_all(2, cpu="500m")
    outcome = given(follower, *counted, types=[fake_type("large", cpu="8", memory="16Gi", pods="20")])
    shared = outcome.claim_of("follower")
    assert sum(held.name.startswith("counted") for held in shared.pods) <= 1


@pytest.mark.parametrize("cpu", ["50m", "900m"])
def test_pods_that_are_only_counted_come_first_on_nodes_that_exist(cpu: str) -> None:
    """The node has room for all. The others may bind there first, and leave no place to the pod of the spread."""
    follower = pod("follower", cpu="500m", spec={"topologySpreadConstraints": [spread(HOST)]})
    outcome = given(follower, *counted_by_all(4, cpu=cpu), nodes=[node("here", cpu="16")], types=SMALL)
    assert outcome.scheduled
    assert outcome.home("counted-0") == outcome.home("counted-3") == "here"
    assert outcome.home("follower") != "here"


def unbindable_last(outcome: Outcome) -> list[str]:
    """The spreads of placed pods that would not let them bind where they are after all others, by zone or by node."""
    waiting = {item.metadata.name: item for item in outcome.snapshot.view.pods}
    homes = {held.name: (claim.launch.zone, claim.name) for claim in outcome.claims for held in claim.pods}
    found = []
    for name, home in homes.items():
        for rule_ in waiting[name].spec.topology_spread_constraints:
            place = 0 if rule_.topology_key == ZONE else 1
            assert rule_.label_selector is not None
            app = rule_.label_selector.match_labels["app"]
            here = Counter(
                where[place] for other, where in homes.items() if waiting[other].metadata.labels["app"] == app
            )
            lowest = min(here[where[place]] for where in homes.values()) if place == 0 else 0
            if here[home[place]] - lowest > rule_.max_skew:
                found.append(f"{name} over {rule_.topology_key}: {dict(here)}")
    return found


def counting(name: str, number: int, *constraints: tuple[str, str, int], **fields: Any) -> list[Pod]:
    """Pods of an app, each spread by a label, the app that it counts, and the skew."""
    spreads = [spread(key, skew=skew, app={"app": app}) for key, app, skew in constraints]
    labelled = {"labels": {"app": name}}
    return pods(number, name, metadata=labelled, spec={"topologySpreadConstraints": spreads}, **fields)


SPOT = [[rule(KIND, "In", "spot")]]
"""A preference: the pods that have it are placed one by one."""


@pytest.mark.parametrize("key", [ZONE, HOST])
@pytest.mark.parametrize("sizes", [("1500m", "100m"), ("100m", "1500m"), ("500m", "100m")])
@pytest.mark.parametrize("prefers", [((), ()), ((), SPOT), (SPOT, ()), (SPOT, SPOT)])
class TestSpreadsThatCountOtherPods:
    """kube-scheduler may bind the pods that a spread counts before those that it binds."""

    types = (fake_type("large", cpu="8", memory="16Gi", pods="20"), *SMALL)

    def judge(self, *waiting: Pod) -> None:
        outcome = given(*waiting, types=self.types)
        assert outcome.scheduled
        assert unbindable_last(outcome) == []

    def test_a_row_of_apps_each_of_which_counts_the_next(self, key: str, sizes: Any, prefers: Any) -> None:
        first = counting("first", 4, (key, "second", 2), cpu=sizes[0], prefers=prefers[0])
        second = counting("second", 4, (key, "third", 2), cpu=sizes[1], prefers=prefers[1])
        third = counting("third", 6, (key, "third", 1), cpu="500m")
        self.judge(*first, *second, *third)

    def test_counted_pods_have_a_level_spread_of_their_own(self, key: str, sizes: Any, prefers: Any) -> None:
        level = counting("level", 7, (ZONE, "level", 2), cpu=sizes[0], prefers=prefers[0])
        self.judge(*counting("web", 5, (key, "level", 1), cpu=sizes[1], prefers=prefers[1]), *level)

    def test_two_apps_count_each_other(self, key: str, sizes: Any, prefers: Any) -> None:
        """No order puts the counted pods first, so a packing whose spreads they have made uneven is not taken."""
        one = counting("one", 6, (key, "other", 1), cpu=sizes[0], prefers=prefers[0])
        self.judge(*one, *counting("other", 3, (key, "one", 2), cpu=sizes[1], prefers=prefers[1]))


def test_nodes_that_lack_a_label_of_another_spread_are_not_looked_at() -> None:
    """kube-scheduler counts no pods there, and their zones are none of the domains."""
    both = (spread(), spread(KIND, skew=5))
    only_here = [fake_type("small", cpu="2", memory="4Gi", offerings=(("on-demand", Z1),))]
    crowded = node("crowded", labels={ZONE: Z1})
    old = pods(2, "old", metadata={"labels": APP}, node="crowded")
    assert given(*apps(1, *both, cpu="1"), *old, nodes=[crowded], types=only_here).scheduled
    assert not given(
        *apps(1, spread()), *old, nodes=[crowded, node("empty", labels={ZONE: Z2})], types=only_here
    ).claims
    elsewhere = node("elsewhere", cpu="0", labels={ZONE: Z2})
    assert given(*apps(3, *both, cpu="1"), nodes=[elsewhere], types=only_here).scheduled
    assert len(given(*apps(3, spread(), cpu="1"), nodes=[elsewhere], types=only_here).plan.unschedulable) == 2


def test_zones_of_nodepools_that_lack_a_label_of_another_spread_are_no_domains() -> None:
    pools = [pool("a", rule(ZONE, "In", Z1), labels={"team": "blue"}), pool("b", rule(ZONE, "In", Z2))]
    both = given(*apps(3, spread(), spread("team", skew=5)), pools=pools, types=SMALL)
    assert both.scheduled
    assert {claim.node_pool for claim in both.claims} == {"a"}
    labelled = [pools[0], pool("b", rule(ZONE, "In", Z2), labels={"team": "red"})]
    assert counts(given(*apps(3, spread(), spread("team", skew=5)), pools=labelled, types=SMALL)) == [1, 2]
