"""Tests the requests of a pod to a node, by Kubernetes' rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.pod_requests import pod_requests

MI = 2**20
GI = 2**30


def container(requests: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    limits = more.pop("limits", {})
    return {"name": "c", "resources": {"requests": requests or {}, "limits": limits}, **more}


def requests_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, int]:
    return pod_requests(msgspec.convert({"spec": spec, "status": status or {}}, Pod))


def init(cpu: str, **more: Any) -> dict[str, Any]:
    return container({"cpu": cpu}, **more)


def sidecar(cpu: str) -> dict[str, Any]:
    return init(cpu, restartPolicy="Always")


def test_one_container() -> None:
    assert requests_of({"containers": [container({"cpu": "250m", "memory": "64Mi"})]}) == {
        "cpu": 250,
        "memory": 64 * MI,
        "pods": 1,
    }


def test_a_pod_that_asks_for_nothing_still_is_a_pod() -> None:
    assert requests_of({"containers": [{}]}) == {"pods": 1}
    assert requests_of({}) == {"pods": 1}


def test_containers_add_up() -> None:
    spec = {"containers": [container({"cpu": "1"}), container({"cpu": "500m", "memory": "1Gi"}), container()]}
    assert requests_of(spec) == {"cpu": 1500, "memory": GI, "pods": 1}


def test_a_limit_stands_in_for_a_request() -> None:
    limits = {"cpu": "2", "memory": "1Gi", "example.com/gpu": "1"}
    expected = {"cpu": 1000, "memory": GI, "example.com/gpu": 1, "pods": 1}
    assert requests_of({"containers": [container({"cpu": "1"}, limits=limits)]}) == expected
    assert requests_of({"containers": [container({"cpu": "1"}, limits=limits), container()]}) == expected


def test_zero_amounts_ask_for_nothing() -> None:
    assert requests_of({"containers": [container({"cpu": "0", "example.com/gpu": 0})]}) == {"pods": 1}


@pytest.mark.parametrize(
    ("inits", "cpu"),
    [
        ([init("500m")], 1000),
        ([init("2")], 2000),
        ([init("2"), init("3")], 3000),
        ([sidecar("500m")], 1500),
        ([sidecar("1"), init("2")], 3000),  # the init container runs beside the sidecar before it
        ([init("2"), sidecar("500m")], 2000),  # and alone when the sidecar comes later
        ([sidecar("1"), init("100m"), sidecar("1")], 3000),
        ([sidecar("1"), init("4"), sidecar("1")], 5000),
    ],
)
def test_init_containers_and_sidecars(inits: list[dict[str, Any]], cpu: int) -> None:
    assert requests_of({"containers": [container({"cpu": "1"})], "initContainers": inits})["cpu"] == cpu


def test_each_resource_has_its_own_largest_step() -> None:
    spec = {
        "containers": [container({"cpu": "1", "memory": "1Gi"})],
        "initContainers": [container({"cpu": "2", "memory": "512Mi"}), container({"example.com/x": "1"})],
    }
    assert requests_of(spec) == {"cpu": 2000, "memory": GI, "example.com/x": 1, "pods": 1}


def test_overhead_comes_on_top() -> None:
    spec = {
        "containers": [container({"cpu": "1"})],
        "initContainers": [init("2")],
        "overhead": {"cpu": "250m", "memory": "120Mi"},
    }
    assert requests_of(spec) == {"cpu": 2250, "memory": 120 * MI, "pods": 1}


def test_pod_level_requests_replace_the_sum_of_the_containers() -> None:
    spec = {
        "resources": {"requests": {"cpu": "9900m", "memory": "3.9Gi"}},
        "containers": [container({"cpu": "5", "memory": "1Gi", "ephemeral-storage": "1Gi"})],
        "initContainers": [container({"cpu": "6", "memory": "2Gi"}), sidecar("4")],
    }
    assert requests_of(spec) == {"cpu": 9900, "memory": 4187593114, "ephemeral-storage": GI, "pods": 1}


def test_pod_level_limits_count_for_what_no_container_asks_for() -> None:
    spec = {"resources": {"limits": {"cpu": "4", "memory": "8Gi"}}, "containers": [container({"cpu": "1"})]}
    assert requests_of(spec) == {"cpu": 1000, "memory": 8 * GI, "pods": 1}


def test_a_resize_under_way_counts_the_larger_of_wanted_and_held() -> None:
    spec = {"containers": [container({"cpu": "1", "memory": "1Gi"})]}
    allocated = {"allocatedResources": {"cpu": "2", "memory": "512Mi"}}
    held = {"containerStatuses": [{"name": "c", **allocated, "resources": {"requests": {"cpu": "1"}}}]}
    assert requests_of(spec, held) == {"cpu": 2000, "memory": GI, "pods": 1}
    assert requests_of(spec, {"containerStatuses": [{"name": "c", **allocated}]}) == {
        "cpu": 2000,
        "memory": GI,
        "pods": 1,
    }
    running = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    assert requests_of(spec, running) == {"cpu": 3000, "memory": GI, "pods": 1}
    assert (
        requests_of(spec, {"containerStatuses": [{"name": "other", "resources": {"requests": {"cpu": "9"}}}]})["cpu"]
        == 1000
    )


def test_a_sidecar_can_be_resized_too() -> None:
    spec = {"containers": [container({"cpu": "1"})], "initContainers": [sidecar("1")]}
    status = {"initContainerStatuses": [{"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {}}]}
    assert requests_of(spec, status)["cpu"] == 3000


def test_an_init_container_can_be_resized_too() -> None:
    spec = {"containers": [container({"cpu": "1"})], "initContainers": [sidecar("1"), init("2", name="once")]}
    held = {"name": "once", "allocatedResources": {"cpu": "5"}, "resources": {"requests": {"cpu": "9"}}}
    assert requests_of(spec, {"initContainerStatuses": [held]})["cpu"] == 10000
    refused = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    spec["initContainers"][1] = init("20", name="once")
    assert requests_of(spec, {"initContainerStatuses": [held]})["cpu"] == 21000
    assert requests_of(spec, {"initContainerStatuses": [held], "conditions": [refused]})["cpu"] == 10000


def test_two_containers_that_swap_resources_count_with_what_each_held_or_wants() -> None:
    """From 1.37 on, kube-scheduler counts the larger sum instead, which is never more."""
    spec = {"containers": [{**container({"cpu": "3"}), "name": "up"}, {**container({"cpu": "1"}), "name": "down"}]}
    held = [("up", "1"), ("down", "3")]
    status = [{"name": name, "resources": {"requests": {"cpu": cpu}}} for name, cpu in held]
    assert requests_of(spec, {"containerStatuses": status})["cpu"] == 6000


def test_pod_level_resources_can_be_resized_too() -> None:
    spec = {"resources": {"requests": {"cpu": "1"}}, "containers": [container({"memory": "1Gi"})]}
    status = {"allocatedResources": {"cpu": "2", "memory": "4Gi"}, "resources": {"requests": {"cpu": "3"}}}
    assert requests_of(spec, status) == {"cpu": 3000, "memory": GI, "pods": 1}
    del status["resources"]
    assert requests_of(spec, status) == {"cpu": 1000, "memory": GI, "pods": 1}


@pytest.mark.parametrize(("reason", "cpu"), [("Infeasible", 2000), ("Deferred", 8000)])
def test_a_resize_that_the_kubelet_cannot_carry_out_does_not_count(reason: str, cpu: int) -> None:
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    held = {"name": "c", "allocatedResources": {"cpu": "2"}, "resources": {"requests": {"cpu": "1"}}}
    status = {"conditions": [{"type": "Ready", "status": "True"}, condition], "containerStatuses": [held]}
    assert requests_of({"containers": [container({"cpu": "8"})]}, status)["cpu"] == cpu

    pod_level = {"resources": {"requests": {"cpu": "8"}}, "containers": [container()]}
    assert requests_of(pod_level, {"conditions": [condition], **held})["cpu"] == cpu
    del held["resources"]
    assert requests_of({"containers": [container({"cpu": "8"})]}, status)["cpu"] == 8000, "nothing runs yet"


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [container({"cpu": "much"})]},
        {"containers": [container(limits={"cpu": "much"})]},
        {"containers": [container(), container({"cpu": "much"})]},
        {"containers": [container()], "overhead": {"cpu": "much"}},
        {"containers": [container()], "resources": {"requests": {"cpu": "much"}}},
    ],
)
def test_malformed_quantities_are_named(spec: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^cpu: 'much' is not a quantity"):
        requests_of(spec)
