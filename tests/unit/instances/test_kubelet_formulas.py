"""Expressions in kubelet settings, worked out for real instance types."""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.capacity.estimate import overhead_fraction
from shiplap.instances.capacity.kubelet_settings import KubeletSettings, Threshold, kubelet_hash, with_formula_values
from shiplap.instances.catalog.type_catalog import InstanceType
from tests.builders.node_classes import node_class
from tests.unit.instances.given_instances import GIB, MIB, yields


def made(
    name: str = "m5.large", family: str = "AL2023", setting: CapacitySetting | None = None, **kubelet: Any
) -> InstanceType:
    return yields(name, node_class(family=family, kubelet=kubelet), setting)


@pytest.mark.parametrize(
    ("text", "pods"),
    [
        ("max_pods - 9", 20),
        ("min(max_pods, 8)", 8),
        ("default_enis * (ips_per_eni - 1) + 2", 29),
        ("((default_enis-1)*(ips_per_eni-1))+2", 20),
        ("vcpus * 5", 10),
        ("double(vcpus) * 2.9", 5),
        ("instance_type.startsWith('m5.') ? 17 : 11", 17),
        ("0", 0),
        ("vcpus - 2", 0),
    ],
)
def test_max_pods_of_m5_large(text: str, pods: int) -> None:
    assert made(maxPods=text).capacity["pods"] == pods


def test_max_pods_is_cut_to_the_addresses_there_are() -> None:
    plain = CapacitySetting(cni=VpcCni())
    assert made(setting=plain, maxPods="max_pods * 10").capacity["pods"] == 29


def test_pods_per_core_lowers_what_the_expression_says() -> None:
    assert made(maxPods="20", podsPerCore=4).capacity["pods"] == 8
    assert made(maxPods="max_pods", podsPerCore=4).capacity["pods"] == 8


def test_reserved_amounts_have_karpenters_units_and_rounding() -> None:
    found = made(
        kubeReserved={
            "cpu": "vcpus * 30 + 1",
            "memory": "max_pods * 11 + 255",
            "ephemeral-storage": "vcpus",
            "pid": "9",
        },
        systemReserved={"cpu": "100m", "memory": "memory_mib / 100"},
    )
    assert found.kubelet_values == (
        ("kubeReserved", "cpu", "70m"),
        ("kubeReserved", "ephemeral-storage", "2Gi"),
        ("kubeReserved", "memory", "576Mi"),
        ("systemReserved", "memory", "96Mi"),
    )
    assert found.overhead["cpu"] == 70 + 100
    assert found.overhead["memory"] == (576 + 96 + 100) * MIB
    assert found.overhead["ephemeral-storage"] == 2 * GIB + 2 * GIB


def test_reserved_amounts_see_the_number_of_pods_in_force() -> None:
    found = made(maxPods="max_pods - 19", kubeReserved={"memory": "max_pods * 16"})
    assert found.kubelet_values == (("kubeReserved", "memory", "160Mi"),)


def test_process_ids_are_told_to_the_kubelet_and_taken_from_no_resource() -> None:
    found = made(kubeReserved={"cpu": "vcpus - 2", "pid": "vcpus * 100"})
    assert found.kubelet_values == (("kubeReserved", "cpu", "0m"), ("kubeReserved", "pid", "200"))
    assert found.overhead == {**made().overhead, "cpu": 0}


def test_a_number_of_pods_has_32_bits() -> None:
    assert made(family="Windows2022", maxPods="vcpus * 0 + 2147483647").capacity["pods"] == 2**31 - 1
    with pytest.raises(InvalidInput, match="2147483648 is not from 0 to 2147483647"):
        made(family="Windows2022", maxPods="vcpus * 0 + 2147483648")


def test_eviction_thresholds() -> None:
    found = made(
        evictionHard={
            "memory.available": "memory_mib / 20",
            "nodefs.available": "vcpus",
            "pid.available": "vcpus * 10",
        },
        evictionSoft={"imagefs.available": "vcpus", "memory.available": "memory_mib / 2"},
        evictionSoftGracePeriod={"imagefs.available": "1m", "memory.available": "1m"},
    )
    assert found.kubelet_values == (
        ("evictionHard", "memory.available", "416Mi"),
        ("evictionHard", "nodefs.available", "2Gi"),
        ("evictionHard", "pid.available", "20"),
        ("evictionSoft", "imagefs.available", "2Gi"),
        ("evictionSoft", "memory.available", "4096Mi"),
    )
    assert found.overhead["memory"] == (255 + 29 * 11 + 416) * MIB, "soft thresholds do not matter"
    assert found.overhead["ephemeral-storage"] == GIB + 2 * GIB
    assert "memory" not in found.overhead_fraction


@pytest.mark.parametrize(
    ("kubelet", "field", "reason"),
    [
        ({"maxPods": "10 / (vcpus - 2)"}, "spec.kubelet.maxPods", "m5.large: division by zero"),
        ({"maxPods": "vcpus - 3"}, "spec.kubelet.maxPods", "-1 is not from 0 to"),
        ({"maxPods": "vcpus * 2000000000"}, "spec.kubelet.maxPods", "is not from 0 to"),
        ({"kubeReserved": {"cpu": "vcpus - 3"}}, "spec.kubelet.kubeReserved.cpu", "is negative"),
        ({"systemReserved": {"memory": "1 / (vcpus - 2)"}}, "spec.kubelet.systemReserved.memory", "division by zero"),
    ],
)
def test_what_cannot_be_worked_out_names_field_and_type(kubelet: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason) as caught:
        made(**kubelet)
    assert caught.value.field == field


def test_types_that_come_to_other_values_learn_apart() -> None:
    one, other = node_class(kubelet={"kubeReserved": {"cpu": "vcpus"}}), (("kubeReserved", "cpu", "20m"),)
    assert kubelet_hash(one, 29, other) != kubelet_hash(one, 29, (("kubeReserved", "cpu", "10m"),))
    assert made(kubeReserved={"cpu": "vcpus"}).kubelet_hash == made(kubeReserved={"cpu": "10m"}).kubelet_hash


def test_values_take_the_places_of_their_formulas() -> None:
    written = {"maxPods": "vcpus", "kubeReserved": {"cpu": "vcpus", "memory": "1Gi"}, "cpuCFSQuota": False}
    assert with_formula_values(written, (("kubeReserved", "cpu", "10m"),)) == {
        "kubeReserved": {"cpu": "10m", "memory": "1Gi"},
        "cpuCFSQuota": False,
    }
    assert with_formula_values({"maxPods": 5}, ()) == {"maxPods": 5}


@pytest.mark.parametrize(
    ("percent", "share"), [(0.0, None), (0.5, 0.005), (1.0, 0.01), (99.0, 0.99), (100.0, None), (None, None)]
)
def test_a_threshold_in_per_cent_grows_with_the_memory_unless_it_is_nothing_or_all(
    percent: float | None, share: float | None
) -> None:
    settings = KubeletSettings(eviction={"memory": Threshold(5, percent), "ephemeral-storage": Threshold(7)})
    assert overhead_fraction(settings) == ({} if share is None else {"memory": pytest.approx(share)})
