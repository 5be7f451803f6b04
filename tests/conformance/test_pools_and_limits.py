"""NodePools: weights, limits, pools that take no part, and pools that can launch nothing."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pod, pods
from tests.builders.pools import pool, rule
from tests.conformance.catalogues import Z1, default_types, fake_type, incrementing_types
from tests.conformance.given import given, in_flight

HOST_PORT = [80]
"""Pods with one host port need a node each, which makes counting nodes easy."""


def test_limit_on_nodes_is_exact_within_one_decision_and_over_several() -> None:
    pools = [pool(limits={"nodes": "2"})]
    waiting = pods(5, ports=HOST_PORT)
    first = given(*waiting, pools=pools)
    assert len(first.claims) == 2
    assert len(first.plan.unschedulable) == 3
    assert 'node limits have been exhausted for nodepool "default"' in first.plan.unschedulable[0].message
    again = given(*waiting, pools=pools, claims=[in_flight(claim) for claim in first.claims])
    assert again.claims == ()
    nodes = [node(f"n{n}", pool="default", cpu="0") for n in range(3)]
    assert given(pod(), pools=pools, nodes=nodes).claims == ()


@pytest.mark.parametrize("number", [1, 3, 10])
def test_limits_are_charged_with_what_may_be_launched_and_never_exceeded(number: int) -> None:
    types = incrementing_types(10)
    outcome = given(*pods(20, cpu="900m", ports=HOST_PORT), pools=[pool(limits={"cpu": str(number)})], types=types)
    cpu = {item.name: item.capacity["cpu"] for item in types}
    assert len(outcome.claims) == number
    assert sum(max(cpu[name] for name in claim.instance_types) for claim in outcome.claims) <= number * 1000
    assert len(outcome.plan.unschedulable) == 20 - number
    message = outcome.plan.unschedulable[0].message
    assert f'exceed limits for nodepool "default" (cpu 0 of {number} left)' in message


def test_claims_keep_larger_types_while_the_limit_allows_them() -> None:
    claim = given(pod(cpu="900m"), pools=[pool(limits={"cpu": "4"})], types=incrementing_types(10)).claim
    assert claim.instance_types == ("fake-it-0", "fake-it-1", "fake-it-2", "fake-it-3")


def test_lists_that_keep_min_values_are_shortened_as_well() -> None:
    """Two types of the least size are enough for minValues: a limit has room for two such nodes, not for wider ones."""
    types = [fake_type(f"{family}-{cpu}", cpu=str(cpu), price=cpu) for family in ("a", "b") for cpu in (2, 4, 8)]
    pools = [pool("default", rule("node.kubernetes.io/instance-type", "Exists", min_values=2), limits={"cpu": "4"})]
    outcome = given(*pods(3, cpu="1", ports=HOST_PORT), pools=pools, types=types)
    assert [claim.instance_types for claim in outcome.claims] == [("a-2", "b-2")] * 2
    assert len(outcome.plan.unschedulable) == 1
    assert not outcome.plan.unsettled


@pytest.mark.parametrize(("limit", "unsettled"), [("8", True), ("5", False)])
def test_a_plan_is_unsettled_while_its_lists_hold_the_room_of_a_pod(limit: str, unsettled: bool) -> None:
    """minValues needs a type of 4 vCPUs on each list; a node of 2 leaves room for another pair."""
    types = [fake_type(f"a-{cpu}", cpu=str(cpu), price=cpu) for cpu in (2, 4)]
    pools = [pool("default", rule("node.kubernetes.io/instance-type", "Exists", min_values=2), limits={"cpu": limit})]
    outcome = given(*pods(3, cpu="1", ports=HOST_PORT), pools=pools, types=types)
    assert len(outcome.plan.unschedulable) == (1 if unsettled else 2)
    assert outcome.plan.unsettled is unsettled


@pytest.mark.parametrize(
    ("state", "opened"), [(ClaimState.DISRUPTING, 0), (ClaimState.DRAINING, 1), (ClaimState.TERMINATING, 1)]
)
def test_a_node_that_a_command_may_give_back_uses_up_limits(state: ClaimState, opened: int) -> None:
    old = node("old", pool="default", cpu="500m", capacity={"cpu": "4"})
    claim = node_claim(cluster="test", name="c", node_pool="default", node_class="x", state=state, node_name="old")
    outcome = given(pod(cpu="2500m"), pools=[pool(limits={"cpu": "6"})], nodes=[old], claims=[claim])
    assert len(outcome.claims) == opened


def test_existing_and_starting_nodes_use_up_limits() -> None:
    pools = [pool(limits={"cpu": "6"})]
    existing = node("old", pool="default", cpu="500m", capacity={"cpu": "4"})
    outcome = given(pod(cpu="1500m"), pools=pools, nodes=[existing])
    assert outcome.claim.instance_types == ("small-instance-type",)
    assert given(pod(cpu="2500m"), pools=pools, nodes=[existing]).claims == ()
    leaving = node("old", pool="default", cpu="500m", capacity={"cpu": "4"}, deleting=True)
    assert given(pod(cpu="2500m"), pools=pools, nodes=[leaving]).claims
    first, second = pod("first", cpu="1500m", ports=HOST_PORT), pod("second", cpu="1500m", ports=HOST_PORT)
    claim = given(first, pools=pools, types=incrementing_types(4)).claim
    assert claim.instance_types[-1] == "fake-it-3"
    outcome = given(first, second, pools=pools, types=incrementing_types(4), claims=[in_flight(claim)])
    assert outcome.claim.instance_types == ("fake-it-1",)


def test_extended_resources_can_be_limited() -> None:
    gpu = "fake.com/vendor-a"
    outcome = given(*pods(3, requests={gpu: "2"}), pools=[pool(limits={gpu: "4"})], types=default_types())
    assert len(outcome.claims) == 2
    assert len(outcome.plan.unschedulable) == 1
    assert (
        given(pod(), pools=[pool(limits={gpu: "0"})]).claim.instance_types
        == (
            "single-pod-instance-type",
            "small-instance-type",
            "default-instance-type",
            "arm-instance-type",
        )
        or given(pod(), pools=[pool(limits={gpu: "0"})]).scheduled
    )


def test_the_heavier_pool_goes_first_and_the_lighter_takes_what_is_over_its_limit() -> None:
    heavy, light = pool("heavy", weight=50, limits={"cpu": "2"}), pool("light", weight=1)
    outcome = given(*pods(2, cpu="1500m"), pools=[light, heavy])
    assert sorted(claim.node_pool for claim in outcome.claims) == ["heavy", "light"]
    fallback = next(claim for claim in outcome.claims if claim.node_pool == "light")
    assert len(fallback.reasons) == 1
    assert fallback.reasons[0].startswith('pool heavy: all available instance types exceed limits for nodepool "heavy"')


def test_equal_weights_go_by_name_last_first() -> None:
    assert given(pod(), pools=[pool("a"), pool("b")]).claim.node_pool == "b"


def test_a_pod_that_only_a_lighter_pool_can_take_does_not_draw_the_others_there() -> None:
    heavy = pool("heavy", rule("kubernetes.io/arch", "In", "amd64"), weight=50)
    light = pool("light")
    outcome = given(pod("large", cpu="10"), *pods(4, "small", cpu="3"), pools=[heavy, light])
    assert outcome.scheduled
    assert outcome.claim_of("large").node_pool == "light"
    # One small pod uses room of the large node that is paid for anyway; nothing makes that node larger.
    assert outcome.claim_of("large").launch.instance_type == "arm-instance-type"
    assert {outcome.claim_of(f"small-{n}").node_pool for n in range(4)} == {"heavy", "light"}


def test_pools_that_take_no_part() -> None:
    deleting, static, dynamic = pool("gone", deleting=True), pool("static", replicas=0), pool("dynamic")
    assert given(pod(), pools=[deleting, static, dynamic]).claim.node_pool == "dynamic"
    record = given(pod(), pools=[deleting, static]).left("pod")
    assert record.message.startswith("no dynamic nodepools found")
    assert given(pod(), pools=[]).left("pod").message.startswith("no dynamic nodepools found")


NOTHING_LEFT: dict[str, list[dict[str, Any]]] = {
    "type": [rule("node.kubernetes.io/instance-type", "In", "no-such-type")],
    "arch": [rule("kubernetes.io/arch", "In", "riscv")],
    "zone": [rule("topology.kubernetes.io/zone", "In", "no-such-zone")],
    "two architectures": [rule("kubernetes.io/arch", "In", "amd64"), rule("kubernetes.io/arch", "In", "arm64")],
}


@pytest.mark.parametrize("rules", NOTHING_LEFT.values(), ids=NOTHING_LEFT.keys())
def test_a_pool_that_excludes_everything_says_so_to_every_pod(rules: list[dict[str, Any]]) -> None:
    outcome = given(*pods(3), pools=[pool("default", *rules)])
    assert len(outcome.plan.unschedulable) == 3
    for record in outcome.plan.unschedulable:
        assert "nodepool requirements filtered out all available instance types" in record.message


def test_a_pool_without_its_node_class_says_so_and_others_serve() -> None:
    lost = pool("lost", node_class="missing", weight=10)
    outcome = given(pod(), pools=[lost, pool("default")])
    assert outcome.claim.node_pool == "default"
    assert "EC2NodeClass missing is not ready" in outcome.claim.reasons[0]
    assert "EC2NodeClass missing is not ready" in given(pod(), pools=[lost]).left("pod").message


def test_every_pools_reason_is_in_the_message() -> None:
    pools = [
        pool("tainted", taints=[{"key": "k", "effect": "NoSchedule"}]),
        pool("elsewhere", rule("topology.kubernetes.io/zone", "In", "test-zone-2")),
        pool("tiny", rule("node.kubernetes.io/instance-type", "In", "small-instance-type")),
    ]
    message = given(pod(cpu="3", selector={"topology.kubernetes.io/zone": Z1}), pools=pools).left("pod").message
    assert message.startswith("small-instance-type in pool tiny: cpu short by 1100m: 3 needed, 1900m allocatable")
    assert "pool tainted: did not tolerate taint k:NoSchedule" in message
    assert "pool elsewhere: incompatible requirements, topology.kubernetes.io/zone In" in message


def test_priority_decides_who_gets_the_last_room() -> None:
    pools = [pool(limits={"cpu": "4"})]
    types = [fake_type("four", cpu="4")]
    outcome = given(pod("large", cpu="3"), pod("vital", cpu="1", priority=100), pools=pools, types=types)
    assert outcome.home("vital")
    assert outcome.home("large") == ""
    everyone = given(pod("large", cpu="3"), pod("vital", cpu="1", priority=100), types=types)
    plain = given(pod("large", cpu="3"), pod("vital", cpu="1"), types=types)
    assert [claim.pods for claim in everyone.claims] == [claim.pods for claim in plain.claims]


def test_pods_for_few_types_do_not_lose_a_limit_to_large_ones_that_have_room_beside_them() -> None:
    """The large ones come first by size and by price, onto nodes without room for the others."""
    gpu = "fake.com/vendor-a"
    types = [
        fake_type("plain", cpu="16", memory="32Gi", pods="50", price=0.32),
        fake_type("fast", cpu="8", memory="32Gi", pods="50", price=0.19, extra={gpu: "2"}),
    ]
    large, fast = pods(5, "large", cpu="4"), pods(4, "fast", cpu="900m", requests={gpu: "1"})
    outcome = given(*large, *fast, pools=[pool(limits={"cpu": "32"})], types=types)
    assert [entry.pod.name for entry in outcome.plan.unschedulable] == []
    important = [replace(item, spec=replace(item.spec, priority=9)) for item in large]
    alone, beside = (
        given(*important, *others, pools=[pool(limits={"cpu": "24"})], types=types).plan.unschedulable
        for others in ((), fast)
    )
    assert len(alone) == sum(entry.pod.name.startswith("large") for entry in beside) > 0


def test_a_pod_nothing_can_hold_does_not_change_the_plan_of_others() -> None:
    others = [*pods(4, "a", cpu="1"), *pods(4, "b", cpu="500m", priority=5)]
    plain = given(*others)
    with_giant = given(*others, pod("giant", cpu="999", priority=1000))
    assert with_giant.plan.node_claims == plain.plan.node_claims
