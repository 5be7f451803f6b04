"""Required pod affinity and anti-affinity, as Karpenter's suites test them; better where one plan can settle more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from shiplap.kubernetes.objects import Pod
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2, Z3, fake_type, incrementing_types
from tests.conformance.given import given, in_flight, namespace

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
KIND = "karpenter.sh/capacity-type"
WEB, TARGET = {"app": "web"}, {"app": "target"}


def term(key: str, app: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": dict(app)}, **more}


def near(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def away(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}}


def labelled(labels: Mapping[str, str], **more: Any) -> dict[str, Any]:
    return {"labels": dict(labels), **more}


def web(number: int, spec: dict[str, Any], name: str = "web", **fields: Any) -> list[Pod]:
    return pods(number, name, metadata=labelled(WEB), spec=spec, **fields)


def test_empty_affinity_is_none() -> None:
    """Scenario 113."""
    assert given(pod(spec={"affinity": {"podAffinity": {}, "podAntiAffinity": {}}})).scheduled


def test_followers_of_each_other_share_a_node() -> None:
    """Scenario 115, three pods."""
    outcome = given(*web(3, near(term(HOST, WEB))))
    assert outcome.scheduled
    assert len(outcome.claims) == 1


def test_followers_that_do_not_fit_one_node_are_left() -> None:
    """Scenario 115, ten pods."""
    types = [fake_type("five", cpu="16", memory="32Gi", pods="5")]
    waiting = web(10, near(term(HOST, WEB)))
    first = given(*waiting, types=types)
    assert len(first.claim.pods) == 5
    assert len(first.plan.unschedulable) == 5
    again = given(*waiting, types=types, claims=[in_flight(first.claim)])
    assert again.claims == ()
    assert len(again.plan.unschedulable) == 5


def test_followers_of_a_pod_on_a_cordoned_node_start_nowhere_else() -> None:
    running = pod("old", node="here", metadata=labelled(WEB))
    outcome = given(running, *web(1, near(term(HOST, WEB))), nodes=[node("here", cordoned=True)])
    assert "pod affinity" in outcome.left("web-0").message


def both(attracted: Mapping[str, Any], repelled: Mapping[str, Any]) -> dict[str, Any]:
    return {"affinity": near(attracted)["affinity"] | away(repelled)["affinity"]}


@pytest.mark.parametrize("number", [2, 40])
def test_followers_that_keep_apart_in_the_domain_they_must_share_are_one(number: int) -> None:
    """kube-scheduler binds the first; whichever it is, the others must be in its zone, which it closes to them."""
    outcome = given(*web(number, both(term(ZONE, WEB), term(ZONE, WEB))))
    assert len(outcome.claim.pods) == 1
    assert len(outcome.plan.unschedulable) == number - 1


def test_followers_that_keep_apart_on_nodes_share_a_zone() -> None:
    outcome = given(*web(3, both(term(ZONE, WEB), term(HOST, WEB))))
    assert outcome.scheduled
    assert len(outcome.claims) == 3
    assert len({claim.launch.zone for claim in outcome.claims}) == 1


def test_pods_that_keep_apart_join_others_in_each_zone() -> None:
    """Their series has begun in two zones, so that each zone takes one of them."""
    tagged = labelled(WEB | {"part": "x"})
    targets = [pod(f"old-{zone}", node=f"n-{zone}", metadata=labelled(WEB)) for zone in (Z1, Z2)]
    nodes = [node(f"n-{zone}", pods="0", labels={ZONE: zone}) for zone in (Z1, Z2)]
    waiting = pods(3, "web", metadata=tagged, spec=both(term(ZONE, WEB), term(ZONE, {"part": "x"})))
    outcome = given(*targets, *waiting, nodes=nodes)
    assert sorted(claim.launch.zone for claim in outcome.claims) == [Z1, Z2]
    assert len(outcome.plan.unschedulable) == 1


def test_followers_in_a_zone() -> None:
    """Scenario 117."""
    assert len(given(*web(3, near(term(ZONE, WEB)))).claims) == 1
    outcome = given(*web(3, near(term(ZONE, WEB)), selector={ZONE: Z3}))
    assert outcome.claim.launch.zone == Z3


@pytest.mark.parametrize("larger", ["target", "web"])
def test_pods_that_stay_away_get_another_node(larger: str) -> None:
    """Scenario 119."""
    sizes = {name: "500m" if name == larger else "100m" for name in ("target", "web")}
    outcome = given(
        pod("target", cpu=sizes["target"], metadata=labelled(TARGET)),
        *web(1, away(term(HOST, TARGET)), cpu=sizes["web"]),
        types=incrementing_types(4),
    )
    assert outcome.scheduled
    assert outcome.home("target") != outcome.home("web-0")


@pytest.mark.parametrize("preferred", [False, True])
def test_others_respect_what_pods_stay_away_from(preferred: bool) -> None:
    """Scenario 121, in one batch."""
    keepers = [
        pod(f"keeper-{zone}", cpu="2", selector={ZONE: zone}, spec={} if preferred else away(term(ZONE, TARGET)))
        for zone in (Z1, Z2, Z3)
    ]
    outcome = given(*keepers, pod("plain", cpu="1", metadata=labelled(TARGET)))
    assert bool(outcome.home("plain")) is preferred
    if not preferred:
        assert f"anti-affinity of other pods over {ZONE}" in outcome.left("plain").message


def test_others_respect_what_pods_on_nodes_stay_away_from() -> None:
    """Scenario 121, against nodes."""
    nodes = [node(f"node-{zone}", labels={ZONE: zone}) for zone in (Z1, Z2)]
    keepers = [pod(f"keeper-{zone}", node=f"node-{zone}", spec=away(term(ZONE, TARGET))) for zone in (Z1, Z2)]
    outcome = given(*keepers, pod("plain", metadata=labelled(TARGET)), nodes=nodes)
    assert outcome.claim.launch.zone == Z3


def test_zonal_anti_affinity_is_settled_in_one_plan() -> None:
    """Scenario 123, in one batch instead of three."""
    outcome = given(*web(4, away(term(ZONE, WEB))))
    assert sorted(claim.launch.zone for claim in outcome.claims) == [Z1, Z2, Z3]
    assert len(outcome.plan.unschedulable) == 1


@pytest.mark.parametrize("selector", [{}, {ZONE: Z1}], ids=["anywhere", "pinned"])
@pytest.mark.parametrize("target_cpu", ["2", "10m"], ids=["larger", "smaller"])
def test_affinity_to_a_pod_of_the_same_batch(selector: dict[str, str], target_cpu: str) -> None:
    """Scenario 125, in one batch instead of two."""
    outcome = given(
        pod("target", cpu=target_cpu, metadata=labelled(TARGET), selector=selector),
        *web(10, near(term(ZONE, TARGET)), cpu="500m"),
    )
    assert outcome.scheduled
    assert len({claim.launch.zone for claim in outcome.claims}) == 1


def test_affinity_to_nobody_is_left() -> None:
    outcome = given(*web(1, near(term(ZONE, TARGET))))
    assert "pod affinity" in outcome.left("web-0").message


BOTH = {"app": "target", "tier": "db"}
DB = {"tier": "db"}


def test_several_terms_are_met_by_one_pod() -> None:
    """kube-scheduler counts a pod only if all required terms select it, so two pods that each meet one do not help."""
    apart = [
        pod("target", cpu="2", selector={ZONE: Z1}, metadata=labelled(TARGET)),
        pod("db", cpu="1", selector={ZONE: Z1}, metadata=labelled(DB)),
    ]
    wanted = web(1, near(term(ZONE, TARGET), term(ZONE, DB)), cpu="100m")
    assert "pod affinity" in given(*apart, *wanted).left("web-0").message
    outcome = given(pod("both", cpu="2", selector={ZONE: Z2}, metadata=labelled(BOTH)), *apart, *wanted)
    assert outcome.claim_of("web-0").launch.zone == Z2


def test_terms_over_several_labels_are_met_on_one_node() -> None:
    """The zone of one node and the capacity type of another do not add up."""
    nodes = [
        node("first", cpu="1", labels={ZONE: Z1, KIND: "spot"}),
        node("second", cpu="1", labels={ZONE: Z2, KIND: "on-demand"}),
    ]
    standing = [pod("one", cpu="1", node="first", metadata=labelled(TARGET))]
    outcome = given(*standing, *web(2, near(term(ZONE, TARGET), term(KIND, TARGET)), cpu="500m"), nodes=nodes)
    assert {(claim.launch.zone, claim.launch.capacity_type) for claim in outcome.claims} == {(Z1, "spot")}


def test_self_affinity_with_several_terms_starts_once() -> None:
    outcome = given(*web(3, near(term(ZONE, WEB), term(HOST, WEB))))
    assert outcome.scheduled
    assert len(outcome.claims) == 1
    over = given(*web(6, near(term(ZONE, WEB), term(KIND, WEB)), cpu="900m"))
    assert over.scheduled
    assert len({(claim.launch.zone, claim.launch.capacity_type) for claim in over.claims}) == 1
    torn = given(*web(3, near(term(ZONE, WEB), term(HOST, TARGET))))
    assert len(torn.plan.unschedulable) == 3


def test_chains_of_affinity_are_settled_in_one_plan() -> None:
    """Each pod follows the one before it, whatever the order of their sizes."""
    names = ["a", "b", "c", "d"]
    for sizes in (names, list(reversed(names))):
        waiting = [
            pod(
                name,
                cpu=f"{1 + sizes.index(name)}",
                metadata=labelled({"app": name}),
                spec=near(term(ZONE, {"app": before})) if before else {},
            )
            for before, name in zip(["", *names], names, strict=False)
        ]
        outcome = given(*waiting, types=incrementing_types(20))
        assert outcome.scheduled
        assert len({claim.launch.zone for claim in outcome.claims}) == 1


def test_nobody_follows_a_pod_that_its_spread_leaves_out() -> None:
    """Both jobs share a zone, so that the spread of web, which counts them, lets web bind in no order that is sure."""
    job = {"app": "job"}
    spread = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": job},
    }
    outcome = given(
        *web(1, {**near(term(ZONE, job)), "topologySpreadConstraints": [spread]}, cpu="1500m"),
        pod("follower", cpu="600m", metadata=labelled(TARGET), spec=near(term(ZONE, WEB))),
        pod("last", cpu="550m", spec=near(term(ZONE, TARGET))),
        *pods(2, "job", cpu="500m", metadata=labelled(job), spec=near(term(ZONE, job))),
    )
    assert [entry.pod.name for entry in outcome.plan.unschedulable] == ["follower", "last", "web-0"]
    assert sorted(entry.name for claim in outcome.claims for entry in claim.pods) == ["job-0", "job-1"]


# namespaces and namespaceSelector of the term | whether a target in another namespace is found
NAMESPACES: dict[str, tuple[dict[str, Any], bool]] = {
    "own only": ({}, False),
    "listed": ({"namespaces": ["other"]}, True),
    "listed, not it": ({"namespaces": ["third"]}, False),
    "all": ({"namespaceSelector": {}}, True),
    "by name": ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "other"}}}, True),
    "by another name": ({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "third"}}}, False),
}


@pytest.mark.parametrize(("more", "found"), NAMESPACES.values(), ids=NAMESPACES.keys())
def test_namespaces(more: dict[str, Any], found: bool) -> None:
    """Scenario 127."""
    target = pod("target", cpu="1", metadata=labelled(TARGET, namespace="other"))
    assert bool(given(target, *web(1, near(term(ZONE, TARGET, **more)))).home("web-0")) is found


def test_namespaces_by_labels_nobody_knows() -> None:
    unknown = term(ZONE, TARGET, namespaceSelector={"matchLabels": {"team": "a"}})
    target = pod("target", cpu="1", selector={ZONE: Z1}, metadata=labelled(TARGET, namespace="other"))
    assert "namespaceSelector" in given(target, *web(1, near(unknown))).left("web-0").message
    assert given(target, *web(1, away(unknown))).claim_of("web-0").launch.zone != Z1


BY_LABEL = {"matchLabels": {"team": "a"}}
UNLIKE = {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}


@pytest.mark.parametrize(
    ("selector", "teams", "found"),
    [(BY_LABEL, {"team": "a"}, True), (BY_LABEL, {"team": "b"}, False), (BY_LABEL, {}, False), (UNLIKE, {}, True)],
)
def test_namespaces_by_their_labels(selector: dict[str, Any], teams: dict[str, str], found: bool) -> None:
    around = [namespace("default"), namespace("other", **teams)]
    wanted = term(ZONE, TARGET, namespaceSelector=selector)
    target = pod("target", cpu="1", selector={ZONE: Z1}, metadata=labelled(TARGET, namespace="other"))
    assert bool(given(target, *web(1, near(wanted)), around=around).home("web-0")) is found
    apart = given(target, *web(1, away(wanted)), around=around)
    assert (apart.claim_of("web-0").launch.zone != Z1) is found


def test_listed_namespaces_are_joined_with_those_selected() -> None:
    around = [namespace("other", team="a"), namespace("third")]
    for home in ("other", "third"):
        wanted = term(ZONE, TARGET, namespaces=["third"], namespaceSelector=BY_LABEL)
        target = pod("target", cpu="1", metadata=labelled(TARGET, namespace=home))
        assert given(target, *web(1, near(wanted)), around=around).home("web-0")


def test_match_label_keys_narrow_the_term() -> None:
    def revision(name: str) -> list[Pod]:
        spec = away(term(HOST, WEB, matchLabelKeys=["revision"]))
        return pods(2, name, metadata=labelled({**WEB, "revision": name}), spec=spec)

    outcome = given(*revision("a"), *revision("b"), types=incrementing_types(4))
    assert outcome.scheduled
    assert len(outcome.claims) == 2


def test_mismatch_label_keys_turn_it_around() -> None:
    spec = away(term(HOST, {}, mismatchLabelKeys=["tenant"]))
    waiting = [item for name in ("a", "b") for item in pods(2, name, metadata=labelled({"tenant": name}), spec=spec)]
    outcome = given(*waiting, types=incrementing_types(4))
    assert outcome.scheduled
    assert [{entry.name[0] for entry in claim.pods} for claim in outcome.claims] in ([{"a"}, {"b"}], [{"b"}, {"a"}])


def test_pools_without_the_label_take_pods_that_are_only_counted() -> None:
    far = pool("default")
    keeper = web(1, away(term("example.com/rack", TARGET)))
    outcome = given(pod("target", metadata=labelled(TARGET)), *keeper, pools=[far])
    assert outcome.scheduled
