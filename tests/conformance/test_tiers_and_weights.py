"""Flex first, anything else as fallback: written as an ordered list in one pool, or as two weighted pools."""

from __future__ import annotations

import pytest

from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.given import given
from tests.conformance.real_types import FAMILY, FLEX, flex_first, real_types, without_offerings

BOTH_WAYS = pytest.mark.parametrize("ordered", [True, False], ids=["ordered list", "weighted pools"])


@BOTH_WAYS
def test_flex_is_launched_while_it_is_available(ordered: bool) -> None:
    outcome = given(*pods(30, cpu="500m", memory="600Mi"), pools=flex_first(ordered=ordered), types=real_types())
    assert outcome.scheduled
    for claim in outcome.claims:
        assert all(name.startswith("c7i-flex.") for name in claim.instance_types)
        assert claim.tier == 0
        assert claim.reasons == ()


@BOTH_WAYS
def test_the_fallback_is_launched_when_no_flex_offering_is_left(ordered: bool) -> None:
    gone = without_offerings(real_types(), lambda name: name.startswith("c7i-flex."))
    outcome = given(*pods(30, cpu="500m", memory="600Mi"), pools=flex_first(ordered=ordered), types=gone)
    assert outcome.scheduled
    for claim in outcome.claims:
        assert not any(name.startswith("c7i-flex.") for name in claim.instance_types)
        assert len(claim.reasons) == 1
        reason = claim.reasons[0]
        # An ordered pool still has other types, so this tier lacks offerings; a pool of only flex has nothing left.
        assert "filtered out all available instance types" in reason
        assert ("c7i-flex" in reason) if ordered else reason.startswith("pool flex:")
    if ordered:
        assert {claim.tier for claim in outcome.claims} == {1}
    else:
        assert {claim.node_pool for claim in outcome.claims} == {"any"}


@BOTH_WAYS
def test_flex_is_launched_again_when_its_offerings_return(ordered: bool) -> None:
    pools = flex_first(ordered=ordered)
    gone = without_offerings(real_types(), lambda name: name.startswith("c7i-flex."))
    assert not given(pod(cpu="1"), pools=pools, types=gone).claim.launch.instance_type.startswith("c7i-flex.")
    assert given(pod(cpu="1"), pools=pools, types=real_types()).claim.launch.instance_type.startswith("c7i-flex.")


@BOTH_WAYS
def test_a_pod_too_large_for_flex_does_not_take_the_small_ones_along(ordered: bool) -> None:
    outcome = given(
        pod("large", cpu="4", memory="40Gi"),
        *pods(20, "small", cpu="1", memory="1Gi"),
        pools=flex_first(ordered=ordered),
        types=real_types(),
    )
    assert outcome.scheduled
    fallback = outcome.claim_of("large")
    assert not fallback.launch.instance_type.startswith("c7i-flex.")
    assert "c7i-flex.2xlarge" in fallback.reasons[0]
    assert "memory short by" in fallback.reasons[0]
    assert all(
        claim.launch.instance_type.startswith("c7i-flex.") for claim in outcome.claims if claim.name != fallback.name
    )
    alone = given(pod("large", cpu="4", memory="40Gi"), pools=flex_first(ordered=ordered), types=real_types()).claim
    assert fallback.launch == alone.launch


def test_a_list_with_a_catch_all_is_two_tiers_not_any_and_not_nothing() -> None:
    claims = given(
        pod("flex"),
        pod("other", selector={FLEX: "false"}),
        pools=flex_first(ordered=True),
        types=real_types(),
    )
    assert claims.claim_of("flex").tier == 0
    assert claims.claim_of("other").tier == 1


def test_globs_stand_for_the_values_of_the_catalogue() -> None:
    claim = given(pod(), pools=[pool("default", rule(FAMILY, "In", "c7i*"), limits={})], types=real_types()).claim
    assert {name.partition(".")[0] for name in claim.instance_types} == {"c7i", "c7i-flex"}


@BOTH_WAYS
def test_selecting_flex_false_never_gets_flex_and_true_nothing_else(ordered: bool) -> None:
    outcome = given(
        *pods(5, "plain", cpu="1", selector={FLEX: "false"}),
        *pods(5, "flex", cpu="1", selector={FLEX: "true"}),
        pools=flex_first(ordered=ordered),
        types=real_types(),
    )
    for n in range(5):
        assert all("flex" not in name for name in outcome.claim_of(f"plain-{n}").instance_types)
        assert all("flex" in name for name in outcome.claim_of(f"flex-{n}").instance_types)
    gone = without_offerings(real_types(), lambda name: name.startswith("c7i-flex."))
    without = given(pod(selector={FLEX: "true", FAMILY: "c7i-flex"}), pools=flex_first(ordered=ordered), types=gone)
    assert without.claims == ()


def test_a_cpu_limit_on_the_flex_pool_sends_the_rest_to_the_other() -> None:
    flex, anything = flex_first(ordered=False)
    limited = pool("flex", rule(FAMILY, "In", "c7i-flex"), weight=100, limits={"cpu": "4"})
    outcome = given(*pods(10, cpu="1500m", ports=[80]), pools=[limited, anything], types=real_types())
    assert outcome.scheduled
    assert flex.spec.weight > anything.spec.weight
    by_pool = [claim.node_pool for claim in outcome.claims]
    assert by_pool.count("flex") == 2
    assert by_pool.count("any") == 8
    reason = next(claim.reasons[0] for claim in outcome.claims if claim.node_pool == "any")
    assert "exceed limits" in reason
    assert "cpu 0 of 4 left" in reason


def test_a_pod_that_just_misses_a_flex_large_gets_the_next_size() -> None:
    pools = [pool("flex", rule(FAMILY, "In", "c7i-flex"), limits={})]
    assert given(pod(memory="3114Mi"), pools=pools, types=real_types()).claim.instance_types[0] == "c7i-flex.large"
    claim = given(pod(memory="3200Mi"), pools=pools, types=real_types()).claim
    assert claim.launch.instance_type == "c7i-flex.xlarge"
    assert claim.allocatable["memory"] == 6584 * 2**20
