"""Estimated prices: near the listed ones, and in an order that makes sense."""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec
import pytest

from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType, GpuDeviceInfo, GpuInfo
from shiplap.instances.offerings.estimated_prices import features, on_demand
from tests.unit.instances.given_instances import catalog, kind


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("m5.large", 0.096),
        ("m5.xlarge", 0.192),
        ("c5.large", 0.085),
        ("r5a.8xlarge", 1.808),
        ("r5a.12xlarge", 2.712),
        ("t3.large", 0.0832),
        ("t4g.small", 0.0168),
        ("c7i-flex.large", 0.08479),
        ("m7a.4xlarge", 0.92736),
        ("c6g.large", 0.068),
        ("p5.48xlarge", 55.04),
    ],
)
def test_near_the_listed_price(name: str, listed: float) -> None:
    assert on_demand(kind(name)) == pytest.approx(listed, rel=0.06)


def test_every_type_costs_something() -> None:
    assert min(on_demand(each) for each in catalog().types) > 0.003


def hardware(each: Ec2InstanceType) -> tuple[float, ...]:
    store, gpu = each.instance_storage_info, each.gpu_info
    return (
        each.v_cpu_info.default_v_cpus,
        each.memory_info.size_in_mi_b,
        store.total_size_in_gb if store else 0,
        gpu.total_gpu_memory_in_mi_b if gpu else 0,
        sum(device.count for device in each.neuron_info.neuron_devices) if each.neuron_info else 0,
    )


def test_more_hardware_of_a_family_never_costs_less() -> None:
    families = defaultdict(list)
    for each in catalog().types:
        families[each.instance_type.partition(".")[0]].append(each)
    for members in families.values():
        for less, more in itertools.permutations(members, 2):
            if all(a <= b for a, b in zip(hardware(less), hardware(more), strict=True)):
                assert on_demand(less) <= on_demand(more), (less.instance_type, more.instance_type)


def test_flex_is_five_per_cent_cheaper_than_its_base() -> None:
    checked = 0
    by_name = {each.instance_type: each for each in catalog().types}
    for name, each in by_name.items():
        base = by_name.get(name.replace("-flex", ""))
        if "-flex." in name and base is not None and hardware(base) == hardware(each):
            assert on_demand(each) == pytest.approx(0.95 * on_demand(base), rel=1e-3)
            checked += 1
    assert checked > 20


def test_a_gpu_nobody_priced_still_costs() -> None:
    plain = kind("m5.large")
    gpu = GpuInfo((GpuDeviceInfo(name="X1", manufacturer="NVIDIA", count=1),), total_gpu_memory_in_mi_b=1024)
    assert on_demand(msgspec.structs.replace(plain, gpu_info=gpu)) == pytest.approx(on_demand(plain) + 0.04)


def test_a_generation_nobody_priced_costs_what_the_newest_known_does() -> None:
    plain = kind("m8i.large")
    assert features(msgspec.structs.replace(plain, instance_type="m12i.large")) == features(plain)
