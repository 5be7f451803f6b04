"""Packing by resources: what fits together on one node, and what no node can hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders.pods import pod, pods
from tests.conformance.catalogues import GPU_A, fake_type, incrementing_types
from tests.conformance.given import given


def container(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


@pytest.mark.parametrize("memory", ["100M", "2000M"])
def test_small_pods_get_the_small_type(memory: str) -> None:
    assert given(pod(memory=memory)).claim.launch.instance_type == "small-instance-type"


def test_five_pods_fill_a_node_of_five_pods() -> None:
    outcome = given(*pods(5, memory="10M"))
    assert outcome.claim.launch.instance_type == "small-instance-type"
    assert len(outcome.claim.pods) == 5


def test_a_large_and_a_small_pod_get_nodes_of_different_types_when_no_type_holds_both() -> None:
    outcome = given(pod("large", cpu="4.5"), pod("small", cpu="1"), types=incrementing_types(5))
    assert outcome.scheduled
    assert outcome.claim_of("large").launch.instance_type == "fake-it-4"
    assert outcome.claim_of("small").launch.instance_type == "fake-it-1"


def test_too_much_memory_is_reported_with_what_is_short() -> None:
    record = given(pod(memory="2Ti")).left("pod")
    assert record.nearest is not None
    assert (record.nearest.instance_type, record.nearest.resource) == ("arm-instance-type", "memory")
    assert record.nearest.short == 2 * 2**40 - (128 * 2**30 - 10 * 2**20)
    assert record.message.startswith("arm-instance-type in pool default: memory short by 1966090Mi: 2097152Mi needed")
    assert "no instance type has enough resources" in record.message


def test_a_cpu_request_without_its_m_gets_a_hint() -> None:
    assert 'was "m" meant?' in given(pod(cpu="1000000")).left("pod").message


def test_init_containers_count_by_their_largest_step() -> None:
    shape = {"containers": [container(cpu="1", memory="1Gi")], "initContainers": [container(cpu="2", memory="1Gi")]}
    assert given(pod(spec=shape)).claim.launch.instance_type == "default-instance-type"
    shape["initContainers"] = [container(memory="1Ti")]
    assert given(pod(spec=shape)).claims == ()


def test_pod_level_resources_replace_the_containers_sum() -> None:
    sidecar = container(cpu="4", memory="2Gi") | {"restartPolicy": "Always"}
    shape = {
        "containers": [container(cpu="5", memory="1Gi")],
        "initContainers": [container(cpu="6", memory="2Gi"), sidecar],
        "resources": {"requests": {"cpu": "9.9", "memory": "3.9Gi"}},
    }
    types = [fake_type("exact", cpu="10", memory="4Gi"), fake_type("large", cpu="20", memory="8Gi")]
    assert given(pod(spec=shape), types=types).claim.launch.instance_type == "exact"


def test_runtime_overhead_is_part_of_the_request() -> None:
    assert (
        given(pod(cpu="1500m", spec={"overhead": {"cpu": "500m"}})).claim.launch.instance_type != "small-instance-type"
    )


def test_one_pod_per_node_where_the_type_says_so() -> None:
    types = [fake_type("single", pods="1")]
    assert len(given(*pods(3), types=types).claims) == 3


def test_an_extended_resource_leaves_only_types_that_have_it() -> None:
    assert given(pod(requests={GPU_A: "1"})).claim.instance_types == ("gpu-vendor-instance-type",)


def test_zero_of_an_unknown_resource_is_nothing() -> None:
    assert given(pod(requests={"example.com/unknown": "0"})).scheduled


def test_pods_of_all_sizes_fill_nodes_without_overflow() -> None:
    outcome = given(
        *pods(40, "a", cpu="700m", memory="1Gi"), *pods(25, "b", cpu="300m", memory="3Gi"), types=incrementing_types(8)
    )
    assert outcome.scheduled
    assert sum(len(claim.pods) for claim in outcome.claims) == 65
    for claim in outcome.claims:
        assert claim.requests["cpu"] <= claim.allocatable["cpu"]
        assert claim.requests["memory"] <= claim.allocatable["memory"]


def test_malformed_quantities_are_reported_and_block_nobody_else() -> None:
    outcome = given(pod(cpu="much"), pod("other"))
    assert "cpu" in outcome.left("pod").message
    assert outcome.home("other")


def test_constraints_that_are_not_kept_yet_are_said_so() -> None:
    record = given(pod(spec={"resourceClaims": [{"name": "gpu"}]})).left("pod")
    assert record.message.startswith("not supported yet: ")
    assert "resource claims" in record.message


@pytest.mark.parametrize(
    "shape",
    [
        {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
            ]
        },
        {"affinity": {"podAffinity": {}, "podAntiAffinity": {}, "nodeAffinity": {}}},
    ],
    ids=["ScheduleAnyway", "empty affinities"],
)
def test_soft_or_empty_constraints_do_not_stop_a_pod(shape: dict[str, Any]) -> None:
    assert given(pod(spec=shape)).scheduled
