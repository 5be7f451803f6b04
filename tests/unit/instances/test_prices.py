"""Estimated prices: near the listed ones, and in an order that makes sense."""

from __future__ import annotations

import itertools
from collections import defaultdict

import msgspec
import pytest

from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType, GpuDeviceInfo, GpuInfo, NeuronDeviceInfo, NeuronInfo
from shiplap.instances.offerings.estimated_prices import USD_PER_HOUR, features, on_demand
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


# What AWS lists for Linux in us-east-1, by what the type is made of. The model has one price per GiB and per vCPU of a
# maker's generation, so types of twice or half the usual memory show both.
LISTED = {
    "r5a.large": 0.113,
    "c5a.large": 0.077,
    "r6a.large": 0.1134,
    "c6a.large": 0.0765,
    "r7a.large": 0.15215,
    "c7a.large": 0.10264,
    "r8a.large": 0.15976,
    "c8a.large": 0.10777,
    "r6g.large": 0.1008,
    "c6g.large": 0.068,
    "r7g.large": 0.1071,
    "c7g.large": 0.0725,
    "r8g.large": 0.11782,
    "c8g.large": 0.07976,
    "r4.large": 0.133,
    "c4.large": 0.1,
    "r5.large": 0.126,
    "c5.large": 0.085,
    "r6i.large": 0.126,
    "c6i.large": 0.085,
    "r7i.large": 0.1323,
    "c7i.large": 0.08925,
    "r8i.large": 0.13892,
    "c8i.large": 0.09371,
    "t3.large": 0.0832,
    "t3a.large": 0.0752,
    "t4g.large": 0.0672,
    "m6in.large": 0.13923,
    "r6in.large": 0.17433,
    "m6id.large": 0.11865,
    "d3en.xlarge": 0.526,
    "x1.16xlarge": 6.669,
    "x2iedn.xlarge": 0.83363,
    "g5.xlarge": 1.006,
    "g5g.xlarge": 0.42,
    "p5.48xlarge": 55.04,
    "p5en.48xlarge": 63.296,
    "p6-b200.48xlarge": 113.9328,
    "p6-b300.48xlarge": 142.416,
    "trn1.2xlarge": 1.34375,
}
ROUGHLY_LISTED = {
    "m5zn.large": 0.1652,
    "i4i.large": 0.172,
    "im4gn.large": 0.1819,
    "is4gen.large": 0.28815,
    "i3.large": 0.156,
    "c5n.large": 0.108,
    "x1e.xlarge": 0.834,
    "x2gd.medium": 0.0835,
    "g4dn.xlarge": 0.526,
    "g6.xlarge": 0.8048,
    "g6e.xlarge": 1.861,
    "p4d.24xlarge": 21.957642,
    "inf1.xlarge": 0.228,
    "inf2.xlarge": 0.7582,
    "r5b.large": 0.149,
    "d3.xlarge": 0.499,
    "h1.2xlarge": 0.468,
}


@pytest.mark.parametrize("name", LISTED)
def test_a_type_costs_what_its_parts_do(name: str) -> None:
    assert on_demand(kind(name)) == pytest.approx(LISTED[name], rel=0.035)


@pytest.mark.parametrize("name", ROUGHLY_LISTED)
def test_types_whose_price_one_part_dominates_are_at_most_a_third_off(name: str) -> None:
    assert on_demand(kind(name)) == pytest.approx(ROUGHLY_LISTED[name], rel=0.33)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("c6g.large", {"vcpu aws 6": 2.0, "memory aws 6": 4.0}),
        ("x1e.xlarge", {"vcpu intel 4": 4.0, "memory intel 4": 32.0, "memory beyond 8 GiB per vcpu": 90.0}),
        ("t3.large", {"burstable memory intel": 8.0}),
        ("c5n.large", {"vcpu intel 5": 2.0, "vcpu option n": 2.0, "memory option n": 5.25}),
        ("m5zn.large", {"vcpu option z": 2.0, "memory option z": 8.0}),
        ("r5b.large", {"vcpu option b": 2.0, "memory option b": 16.0}),
        ("i3.large", {"disk ssd": 120.0, "disk ssd beyond": 355.0, "vcpu intel 4": 2.0}),
        ("d3.xlarge", {"disk hdd": 240.0, "disk hdd beyond": 5700.0}),
        ("g4dn.xlarge", {"gpu memory T4": 16.0, "disk ssd": 125.0, "disk ssd beyond": 0.0}),
        ("inf1.24xlarge", {"accelerator Inferentia": 16.0}),
        ("u-6tb1.112xlarge", {"vcpu intel 4": 448.0}),
    ],
)
def test_what_a_type_is_made_of(name: str, parts: dict[str, float]) -> None:
    found = features(kind(name))
    assert {part: found.get(part) for part in parts} == parts


def test_prices_are_rounded_to_a_thousandth_of_a_cent() -> None:
    prices = [on_demand(each) for each in catalog().types]
    assert prices == [round(price, 5) for price in prices]
    assert prices != [round(price, 4) for price in prices]


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


def test_an_accelerator_nobody_priced_costs_a_dollar() -> None:
    plain = kind("m5.large")
    neuron = NeuronInfo((NeuronDeviceInfo(name="Inferentia9", count=2),))
    assert on_demand(msgspec.structs.replace(plain, neuron_info=neuron)) == pytest.approx(on_demand(plain) + 2.0)


@pytest.mark.parametrize(
    ("name", "called", "priced"),
    [
        ("m8g.large", "m12g.large", "vcpu aws 9"),
        ("c6g.large", "a1.large", "vcpu aws 6"),
        ("m8a.large", "m12a.large", "vcpu amd 8"),
        ("m5a.large", "m4a.large", "vcpu amd 5"),
        ("m8i.large", "m12i.large", "vcpu intel 8"),
        ("m5.large", "m1.large", "vcpu intel 4"),
    ],
)
def test_generations_beyond_those_priced_cost_what_the_nearest_does(name: str, called: str, priced: str) -> None:
    found = features(msgspec.structs.replace(kind(name), instance_type=called))
    assert found[priced] == 2.0
    assert priced in USD_PER_HOUR


MOST_PER_UNIT = {
    "accelerator": 1.0,
    "burstable memory": 0.0125,
    "disk": 0.0005,
    "gpu memory": 0.1,
    "memory": 0.0055,
    "vcpu": 0.06,
}
"""What a vCPU, a GiB or a device costs an hour at most, whatever it is called. No type that AWS sells costs more."""


@pytest.mark.parametrize("part", sorted(USD_PER_HOUR))
def test_no_part_costs_more_than_any_type_that_has_it(part: str) -> None:
    """Types of kinds that no price is known of here are estimated by these, too."""
    most = next(price for prefix, price in MOST_PER_UNIT.items() if part.startswith(prefix))
    assert 0 < USD_PER_HOUR[part] <= most


def test_a_part_that_is_not_known_costs_what_its_kind_does_or_nothing() -> None:
    gpus = GpuInfo((GpuDeviceInfo(name="New"),), 100 * 1024)
    plain = kind("m5.large")
    grown = msgspec.structs.replace(plain, gpu_info=gpus)
    assert on_demand(grown) - on_demand(plain) == pytest.approx(4.0)
    other = msgspec.structs.replace(plain.processor_info, manufacturer="Another")
    assert on_demand(msgspec.structs.replace(plain, processor_info=other)) == 0.0
