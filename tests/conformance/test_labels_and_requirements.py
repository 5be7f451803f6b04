"""Labels, node selectors and required node affinity: which pods a pool can take, and what their nodes look like."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, Z2, Z3, default_types, fake_type, incrementing_types
from tests.conformance.given import given, wanted

ZONE = "topology.kubernetes.io/zone"
ARCH = "kubernetes.io/arch"


def test_a_label_of_the_pool_is_on_the_node() -> None:
    outcome = given(pod(), pools=[pool(labels={"test-key": "test-value"})])
    assert outcome.scheduled
    assert outcome.claim.labels["test-key"] == "test-value"


# What the pool says of `test-key` | what the pod asks for | whether it can be had | the node's label then.
CUSTOM_LABELS: dict[str, tuple[dict[str, Any], dict[str, Any], bool, str | None]] = {
    "undefined, selector": ({}, {"selector": {"test-key": "v"}}, False, None),
    "undefined, Exists": ({}, {"requires": [[rule("test-key", "Exists")]]}, False, None),
    "undefined, NotIn": ({}, {"requires": [[rule("test-key", "NotIn", "v")]]}, True, None),
    "undefined, DoesNotExist": ({}, {"requires": [[rule("test-key", "DoesNotExist")]]}, True, None),
    "other value": ({"rule": rule("test-key", "In", "a")}, {"requires": [[rule("test-key", "In", "b")]]}, False, None),
    "label, In same": ({"label": "v"}, {"requires": [[rule("test-key", "In", "v")]]}, True, "v"),
    "label, NotIn same": ({"label": "v"}, {"requires": [[rule("test-key", "NotIn", "v")]]}, False, None),
    "label, Exists": ({"label": "v"}, {"requires": [[rule("test-key", "Exists")]]}, True, "v"),
    "label, DoesNotExist": ({"label": "v"}, {"requires": [[rule("test-key", "DoesNotExist")]]}, False, None),
    "label, In other": ({"label": "v"}, {"requires": [[rule("test-key", "In", "other")]]}, False, None),
    "label, NotIn other": ({"label": "v"}, {"requires": [[rule("test-key", "NotIn", "other")]]}, True, "v"),
    "pool Exists, pod In": ({"rule": rule("test-key", "Exists")}, {"selector": {"test-key": "mine"}}, True, "mine"),
    "pool In two, pod free": ({"rule": rule("test-key", "In", "b", "a")}, {}, True, "a"),
    "pool Gt, pod free": ({"rule": rule("test-key", "Gt", "7")}, {}, True, "8"),
    "pool Lt, pod free": ({"rule": rule("test-key", "Lt", "7")}, {}, True, "6"),
    "pool NotIn a number": ({"rule": rule("test-key", "NotIn", "0")}, {}, True, "1"),
    "pool DoesNotExist": ({"rule": rule("test-key", "DoesNotExist")}, {}, True, None),
}


@pytest.mark.parametrize(("pool_says", "pod_asks", "placed", "label"), CUSTOM_LABELS.values(), ids=CUSTOM_LABELS.keys())
def test_custom_labels(pool_says: dict[str, Any], pod_asks: dict[str, Any], placed: bool, label: str | None) -> None:
    rules = [pool_says["rule"]] if "rule" in pool_says else []
    pool_labels = {"test-key": pool_says["label"]} if "label" in pool_says else {}
    outcome = given(pod(**pod_asks), pools=[pool("default", *rules, labels=pool_labels)])
    assert outcome.scheduled is placed
    if placed:
        assert outcome.claim.labels.get("test-key") == label
    else:
        assert "incompatible requirements" in outcome.left("pod").message


def test_two_values_of_one_custom_key_need_two_nodes() -> None:
    outcome = given(
        pod("a", selector={"test-key": "a"}),
        pod("b", selector={"test-key": "b"}),
        pools=[pool("default", rule("test-key", "In", "a", "b"))],
    )
    assert outcome.scheduled
    assert outcome.home("a") != outcome.home("b")
    assert outcome.claim_of("a").labels["test-key"] == "a"
    assert outcome.claim_of("b").labels["test-key"] == "b"


def test_the_pools_zone_binds() -> None:
    outcome = given(pod(), pools=[pool("default", rule(ZONE, "In", Z2))])
    assert outcome.claim.launch.zone == Z2
    assert outcome.claim.labels[ZONE] == Z2


@pytest.mark.parametrize("kind", ["selector", "affinity"])
def test_a_pod_cannot_choose_a_node_by_its_name(kind: str) -> None:
    hostname = "kubernetes.io/hostname"
    asks: dict[str, Any] = (
        {"selector": {hostname: "red-node"}}
        if kind == "selector"
        else {"requires": [[rule(hostname, "In", "red-node")]]}
    )
    outcome = given(pod(**asks), pod("free"))
    assert outcome.home("pod") == ""
    assert "restricted" in outcome.left("pod").message
    assert outcome.home("free")


@pytest.mark.parametrize(
    ("operator", "bound", "expected"),
    [
        ("Gt", "8", "arm-instance-type"),
        ("Lt", "8", "small-instance-type"),
        ("Gte", "16", "arm-instance-type"),
        ("Lte", "2", "small-instance-type"),
    ],
)
def test_numbers_on_a_label_of_the_type(operator: str, bound: str, expected: str) -> None:
    outcome = given(pod(), pools=[pool("default", rule("integer", operator, bound))])
    assert outcome.claim.launch.instance_type == expected


ZONES: dict[str, tuple[dict[str, Any], str]] = {
    "NotIn leaves the third": ({"requires": [[rule(ZONE, "NotIn", Z1, Z2, "unknown")]]}, Z3),
    "NotIn leaves none": ({"requires": [[rule(ZONE, "NotIn", Z1, Z2, Z3, "unknown")]]}, ""),
    "In unknown": ({"requires": [[rule(ZONE, "In", "unknown")]]}, ""),
    "selector, requirement and preference agree": (
        {
            "selector": {ZONE: Z3},
            "requires": [[rule(ZONE, "In", Z1, Z2, Z3)]],
            "prefers": [[rule(ZONE, "In", Z1, Z2, Z3)]],
        },
        Z3,
    ),
    "first term impossible": ({"requires": [[rule(ZONE, "In", "invalid")], [rule(ZONE, "In", Z1)]]}, Z1),
    "only term impossible": ({"requires": [[rule(ZONE, "In", "invalid")]]}, ""),
    "terms are tried in order": ({"requires": [[rule(ZONE, "In", Z2)], [rule(ZONE, "In", Z1)]]}, Z2),
    "contradiction within a term": ({"requires": [[rule(ZONE, "In", Z1), rule(ZONE, "In", Z2)]]}, ""),
}


@pytest.mark.parametrize(("asks", "zone"), ZONES.values(), ids=ZONES.keys())
def test_zones(asks: dict[str, Any], zone: str) -> None:
    outcome = given(pod(**asks))
    assert outcome.scheduled is bool(zone)
    if zone:
        assert outcome.claim.launch.zone == zone


@pytest.mark.parametrize(
    "key", ["node-restriction.kubernetes.io/team", "kops.k8s.io/group", "sub.kops.k8s.io/group", "node.k8s.io/x"]
)
def test_labels_of_kubernetes_domains_may_be_declared(key: str) -> None:
    outcome = given(pod(selector={key: "v"}), pools=[pool("default", rule(key, "In", "v"))])
    assert outcome.scheduled
    assert outcome.claim.labels[key] == "v"


@pytest.mark.parametrize(
    "key", ["karpenter.sh/registered", "karpenter.sh/initialized", "sub.karpenter.sh/x", "karpenter.sh/unknown"]
)
def test_labels_of_karpenters_domain_cannot_be_selected(key: str) -> None:
    outcome = given(pod(selector={key: "true"}))
    assert "restricted" in outcome.left("pod").message


def test_the_pool_can_be_selected_by_name() -> None:
    asks = {"karpenter.sh/nodepool": "b"}
    outcome = given(pod(selector=asks), pools=[pool("a", weight=10), pool("b")])
    assert outcome.claim.node_pool == "b"


def test_a_pod_that_stays_off_provisioned_nodes_is_left_alone() -> None:
    outcome = given(pod(requires=[[rule("karpenter.sh/nodepool", "DoesNotExist")]]))
    assert outcome.claims == ()
    assert outcome.plan.unschedulable == ()
    assert "stay off" in outcome.ignored("pod").message


@pytest.mark.parametrize(
    ("older", "value"),
    [
        ("beta.kubernetes.io/arch", "arm64"),
        ("failure-domain.beta.kubernetes.io/zone", Z3),
        ("beta.kubernetes.io/instance-type", "arm-instance-type"),
        ("beta.kubernetes.io/os", "darwin"),
    ],
)
def test_older_spellings_mean_the_stable_labels(older: str, value: str) -> None:
    by_pod = given(pod(selector={older: value}))
    by_pool = given(pod(), pools=[pool("default", rule(older, "In", value))])
    stable = {"arch": ARCH, "zone": ZONE, "instance-type": "node.kubernetes.io/instance-type", "os": "kubernetes.io/os"}
    for outcome in (by_pod, by_pool):
        assert outcome.scheduled
        found = wanted(outcome.claim, stable[older.rpartition("/")[2]])
        assert found is not None
        assert found.values == (value,)


def test_both_bounds_are_written_as_two_requirements() -> None:
    outcome = given(pod(), pools=[pool("default", rule("integer", "Gte", "2"), rule("integer", "Lte", "4"))])
    written = [(entry.operator, entry.values) for entry in outcome.claim.requirements if entry.key == "integer"]
    assert written == [("Gte", ("2",)), ("Lte", ("4",))]


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ([[rule("integer", "Gt", "two")]], "integer value"),
        ([[{"key": "integer", "operator": "Near", "values": ["2"]}]], "unknown operator"),
        ([[rule("karpenter.sh/capacity-type", "In", "free")]], "must be one of on-demand, reserved, spot"),
    ],
    ids=["not a number", "unknown operator", "unknown capacity type"],
)
def test_malformed_requirements_are_reported_and_block_nobody_else(asks: Any, words: str) -> None:
    outcome = given(pod(requires=asks), pod("other"))
    assert words in outcome.left("pod").message
    assert outcome.home("other")


def test_match_fields_are_reported() -> None:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    outcome = given(pod(spec={"affinity": affinity}))
    assert "matchFields" in outcome.left("pod").message


def test_a_label_that_only_some_types_have_is_missing_on_the_others() -> None:
    types = [*incrementing_types(2), fake_type("big", cpu="8", memory="32Gi", pods="20")]
    assert given(pod(selector={"special": "optional"}), types=types).claim.launch.instance_type == "big"
    outcome = given(pod(requires=[[rule("special", "DoesNotExist")]]), types=types)
    assert outcome.claim.launch.instance_type == "fake-it-0"


def test_the_default_catalogue_is_priced_as_the_fake_provider_does() -> None:
    prices = {item.name: item.offerings[0].price for item in default_types()}
    assert prices["small-instance-type"] == pytest.approx(0.2 + 0.1 * 2 * 2**30 / 1e9)


def test_a_pod_that_contradicts_itself_is_reported_and_a_contradictory_term_is_skipped() -> None:
    nothing = [rule("custom", "In", "a"), rule("custom", "DoesNotExist")]
    message = given(pod(requires=[nothing])).left("pod").message
    assert message == "contradicts itself: custom In [a] and custom DoesNotExist"
    assert given(pod(requires=[nothing, [rule(ZONE, "In", Z2)]])).claim.launch.zone == Z2


def test_an_empty_term_matches_no_node() -> None:
    assert not given(pod(requires=[[]])).scheduled
    assert "matches no node" in given(pod(requires=[[]])).left("pod").message


def test_an_empty_term_lifts_nothing_from_the_others() -> None:
    outcome = given(pod(requires=[[], [rule(ZONE, "In", Z2)]]))
    assert outcome.scheduled
    assert outcome.claim.launch.zone == Z2
