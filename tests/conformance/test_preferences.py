"""Preferences: held to like requirements, given up one by one, as Karpenter tests them (scenarios 19 to 35)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, incrementing_types
from tests.conformance.given import given, in_flight

ZONE, HOST, KIND = "topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type"
TYPE = "node.kubernetes.io/instance-type"
WEB = {"app": "web"}


def term(key: str, app: Mapping[str, str] = WEB, weight: int = 1) -> dict[str, Any]:
    return {"weight": weight, "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": dict(app)}}}


def likes(**kinds: list[dict[str, Any]]) -> dict[str, Any]:
    """Preferred terms by kind of affinity, as a part of a pod's spec."""
    return {
        "affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms} for kind, terms in kinds.items()}
    }


def node_like(weight: int, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"weight": weight, "preference": {"matchExpressions": list(rules)}}


def anyway(key: str = ZONE, *, skew: int = 1) -> dict[str, Any]:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": WEB},
    }


def web(number: int, spec: dict[str, Any], name: str = "web", **fields: Any) -> list[Pod]:
    return pods(number, name, metadata={"labels": WEB}, spec=spec, **fields)


def test_a_preference_within_the_requirement_changes_nothing() -> None:
    """Scenario 19."""
    zones = [rule(ZONE, "In", Z1, Z2, Z3)]
    assert given(pod(selector={ZONE: Z3}, requires=[zones], prefers=[zones])).claim.launch.zone == Z3


def test_required_terms_come_one_after_the_other() -> None:
    """Scenario 27."""
    invalid, first = [rule(ZONE, "In", "invalid")], [rule(ZONE, "In", Z1)]
    assert given(pod(requires=[invalid, first])).claim.launch.zone == Z1
    assert not given(pod(requires=[invalid])).scheduled


def test_preferences_that_nothing_meets_are_dropped() -> None:
    """Scenario 29."""
    assert given(pod(prefers=[[rule(ZONE, "In", "invalid")], [rule(TYPE, "In", "invalid")]])).scheduled


def test_the_heaviest_preference_is_held_to_first() -> None:
    wanted = likes(
        nodeAffinity=[
            node_like(1, rule(ZONE, "In", Z1)),
            node_like(100, rule(ZONE, "In", "invalid")),
            node_like(50, rule(ZONE, "In", Z2)),
        ]
    )
    assert given(pod(spec=wanted)).claim.launch.zone == Z2


def test_a_preference_against_the_requirement_is_dropped() -> None:
    """Scenario 31."""
    wanted = pod(requires=[[rule(ZONE, "In", Z3)]], prefers=[[rule(ZONE, "NotIn", Z3)]])
    assert given(wanted).claim.launch.zone == Z3


def test_tainted_nodes_come_after_all_preferences() -> None:
    """Scenario 33."""
    taint = {"key": "soft", "value": "yes", "effect": "PreferNoSchedule"}
    wanted = pod(prefers=[[rule(ZONE, "In", "invalid")], [rule(TYPE, "In", "invalid")]])
    claim = given(wanted, pools=[pool(taints=[taint])]).claim
    assert [entry.key for entry in claim.taints] == ["soft"]


IGNORED = {
    "node affinity": likes(nodeAffinity=[node_like(1, rule(ZONE, "In", Z3))]),
    "spread": {"topologySpreadConstraints": [anyway(HOST)]},
    "pod affinity": likes(podAffinity=[term(ZONE)]),
    "pod anti-affinity": likes(podAntiAffinity=[term(HOST)]),
}


@pytest.mark.parametrize("spec", IGNORED.values(), ids=IGNORED.keys())
def test_the_policy_ignore_drops_them_up_front(spec: dict[str, Any]) -> None:
    """Scenario 35."""
    ignored = given(*web(3, spec), preference_policy="Ignore")
    assert ignored.plan.node_claims == given(*web(3, {})).plan.node_claims


def test_preferred_anti_affinity_is_held_to_as_far_as_it_goes() -> None:
    outcome = given(*web(5, likes(podAntiAffinity=[term(ZONE)])), types=incrementing_types(10))
    assert outcome.scheduled
    assert {claim.launch.zone for claim in outcome.claims} == {Z1, Z2, Z3}


def test_the_heaviest_preferred_anti_affinity_goes_first() -> None:
    """The zone cannot be kept for all, the node can; the preferred zone binds until then."""
    wanted = likes(
        nodeAffinity=[node_like(1, rule(ZONE, "In", Z1))], podAntiAffinity=[term(ZONE, weight=10), term(HOST)]
    )
    outcome = given(*web(6, wanted), types=incrementing_types(10))
    assert outcome.scheduled
    assert [(len(claim.pods), claim.launch.zone) for claim in outcome.claims] == [(1, Z1)] * 6


def test_preferred_affinity_draws_pods_together_while_there_is_room() -> None:
    target = pod("target", cpu="1", selector={ZONE: Z2}, metadata={"labels": {"app": "target"}})
    followers = web(3, likes(podAffinity=[term(ZONE, {"app": "target"})]))
    outcome = given(target, *followers)
    assert {claim.launch.zone for claim in outcome.claims} == {Z2}
    alone = given(*web(3, likes(podAffinity=[term(ZONE, {"app": "nobody"})])))
    assert alone.scheduled


def test_a_soft_spread_is_even_where_it_can_be_and_never_in_the_way() -> None:
    spread = {"topologySpreadConstraints": [anyway()]}
    even = given(*web(6, spread), types=incrementing_types(2))
    assert sorted(claim.launch.zone for claim in even.claims for _ in claim.pods) == [Z1, Z1, Z2, Z2, Z3, Z3]
    full = node("full", pods="0", labels={ZONE: Z3})
    lopsided = given(*web(6, spread), nodes=[full], pools=[pool("default", rule(ZONE, "In", Z1))])
    assert lopsided.scheduled


def test_what_others_demand_outlives_a_preference_that_was_given_up() -> None:
    """A pod gives up its own preferences, not the required anti-affinity of its neighbours."""
    keeper = pod(
        "keeper",
        cpu="2",
        selector={ZONE: Z1},
        spec={
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": ZONE, "labelSelector": {"matchLabels": WEB}}
                    ]
                }
            }
        },
    )
    outcome = given(keeper, *web(1, likes(nodeAffinity=[node_like(1, rule(ZONE, "In", Z1))])))
    assert outcome.scheduled
    assert outcome.claim_of("web-0").launch.zone != Z1


def test_preferred_anti_affinity_of_standing_pods_binds_nobody_else() -> None:
    here = node("here", labels={ZONE: Z1})
    shy = pod("shy", node="here", spec=likes(podAntiAffinity=[term(HOST)]))
    assert given(shy, *web(1, {}), nodes=[here]).home("web-0") == "here"


def test_existing_nodes_are_asked_with_preferences_first() -> None:
    here = node("here", labels={ZONE: Z1})
    wanted = likes(nodeAffinity=[node_like(1, rule(ZONE, "In", Z2))])
    assert given(pod(spec=wanted), nodes=[here]).claim.launch.zone == Z2
    closed = pool("default", rule(ZONE, "In", Z3))
    assert given(pod(spec=wanted), nodes=[here], pools=[closed]).home("pod") == "here"


def test_no_preference_keeps_a_pod_out() -> None:
    """Only the last required term is relaxed, as upstream does; the others still come at the very end."""
    requires = [[rule(ZONE, "In", Z1)], [rule(ZONE, "In", "invalid")]]
    assert given(pod(requires=requires, prefers=[[rule(TYPE, "In", "invalid")]])).claim.launch.zone == Z1
    taint = {"key": "soft", "value": "yes", "effect": "PreferNoSchedule"}
    assert given(pod(requires=requires), pools=[pool(taints=[taint])]).claim.launch.zone == Z1


MALFORMED = {
    "operator": likes(nodeAffinity=[node_like(1, rule(ZONE, "Near", Z1))]),
    "number": likes(nodeAffinity=[node_like(1, rule("integer", "Gt", "many"))]),
    "empty": likes(nodeAffinity=[node_like(1)]),
    "contradiction": likes(nodeAffinity=[node_like(1, rule(ZONE, "In", Z1), rule(ZONE, "In", Z2))]),
    "selector": likes(
        podAffinity=[
            {
                "weight": 1,
                "podAffinityTerm": {
                    "topologyKey": ZONE,
                    "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Near", "values": ["web"]}]},
                },
            }
        ]
    ),
}


@pytest.mark.parametrize("spec", MALFORMED.values(), ids=MALFORMED.keys())
def test_preferences_that_make_no_sense_are_passed_over(spec: dict[str, Any]) -> None:
    assert given(*web(1, spec)).plan.node_claims == given(*web(1, {})).plan.node_claims


def test_a_node_in_flight_for_a_relaxed_pod_is_not_launched_twice() -> None:
    wanted = web(2, likes(nodeAffinity=[node_like(1, rule(ZONE, "In", "invalid"))]))
    flight = [in_flight(claim) for claim in given(*wanted).claims]
    again = given(*wanted, claims=flight)
    assert again.claims == ()
    assert again.scheduled
