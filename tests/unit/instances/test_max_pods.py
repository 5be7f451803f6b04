"""Pods per node, by the tables of Karpenter and of max-pods-calculator.sh."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.capacity.estimate import cni_max_pods, eni_limited_pods, max_pods, recommended_max_pods
from shiplap.instances.capacity.kubelet_settings import KubeletSettings
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.manifests.custom_resources import NetworkInterface
from tests.unit.instances.given_instances import kind

PD = VpcCni(prefix_delegation=True)
CUSTOM = VpcCni(custom_networking=True)
PD_CUSTOM = VpcCni(prefix_delegation=True, custom_networking=True)
PD_TWO = VpcCni(prefix_delegation=True, max_eni=2)

# type: plain, prefixes uncapped, prefixes, custom networking, prefixes + custom networking, prefixes + MAX_ENI 2
TABLE = {
    "t4g.nano": (4, 34, 34, 3, 18, 34),
    "c6g.medium": (8, 98, 98, 5, 50, 98),
    "t3.medium": (17, 242, 110, 12, 110, 110),
    "m5.large": (29, 434, 110, 20, 110, 110),
    "c5.large": (29, 434, 110, 20, 110, 110),
    "c5.xlarge": (58, 898, 110, 44, 110, 110),
    "m5.xlarge": (58, 898, 110, 44, 110, 110),
    "m7a.4xlarge": (234, 3714, 110, 110, 110, 110),
    "r5a.8xlarge": (234, 3714, 250, 205, 250, 250),
    "m5.24xlarge": (737, 11762, 250, 250, 250, 250),
    "m5.metal": (737, 737, 250, 250, 250, 100),
    "i3.large": (29, 29, 29, 20, 20, 20),
    "p5.48xlarge": (100, 1570, 250, 51, 250, 250),
}


def told(name: str, *, family: str = "AL2023", cni: VpcCni | None = None, reserved: int = 0, **kubelet: int) -> int:
    setting = CapacitySetting(cni=cni, reserved_enis=reserved)
    return max_pods(kind(name), FAMILIES[family], KubeletSettings(**kubelet), setting)


@pytest.mark.parametrize("name", TABLE)
def test_every_column_of_the_table(name: str) -> None:
    plain, uncapped, prefixes, custom, prefixes_custom, prefixes_two = TABLE[name]
    assert eni_limited_pods(kind(name)) == plain
    assert cni_max_pods(kind(name), PD) == uncapped
    assert recommended_max_pods(kind(name), PD) == prefixes
    assert recommended_max_pods(kind(name), CUSTOM) == custom
    assert recommended_max_pods(kind(name), PD_CUSTOM) == prefixes_custom
    assert recommended_max_pods(kind(name), PD_TWO) == prefixes_two


@pytest.mark.parametrize("name", TABLE)
def test_nodes_are_told_what_the_table_says(name: str) -> None:
    plain, _, prefixes, custom, prefixes_custom, prefixes_two = TABLE[name]
    assert told(name) == plain
    assert told(name, cni=VpcCni()) == plain
    assert told(name, cni=PD) == prefixes
    assert told(name, cni=CUSTOM) == custom
    assert told(name, cni=PD_CUSTOM) == prefixes_custom
    assert told(name, cni=PD_TWO) == prefixes_two


@pytest.mark.parametrize(
    ("name", "pods"), [("t3.nano", 110), ("c6g.medium", 110), ("m5.large", 110), ("m5.24xlarge", 250), ("i3.large", 29)]
)
def test_one_ipv6_prefix_is_enough_for_any_node(name: str, pods: int) -> None:
    """Neither interfaces nor those set aside bound the pods: the first interface has addresses for all."""
    assert told(name, cni=VpcCni(ipv6=True)) == pods
    if pods != 29:
        assert told(name, cni=VpcCni(ipv6=True, prefix_delegation=True, max_eni=1), reserved=1) == pods
        assert told(name, cni=VpcCni(ipv6=True), max_pods=300) == 300


def test_prefixes_need_version_1_9() -> None:
    assert told("m5.large", cni=VpcCni(prefix_delegation=True, version="1.8.0")) == 29
    assert told("m5.large", cni=VpcCni(prefix_delegation=True, version="1.9.0")) == 110
    assert told("m5.large", cni=VpcCni(prefix_delegation=True, version="2.0.1")) == 110


@pytest.mark.parametrize(("v_cpus", "pods"), [(30, 110), (31, 250)])
def test_more_than_110_pods_are_recommended_on_more_than_30_v_cpus(v_cpus: int, pods: int) -> None:
    large = kind("m5.24xlarge")
    cut = msgspec.structs.replace(large, v_cpu_info=msgspec.structs.replace(large.v_cpu_info, default_v_cpus=v_cpus))
    assert recommended_max_pods(cut, PD) == pods


@pytest.mark.parametrize("prefixes", [True, False])
def test_without_an_interface_for_pods_only_those_of_the_host_network_run(prefixes: bool) -> None:
    one = VpcCni(prefix_delegation=prefixes, custom_networking=True, max_eni=1)
    assert cni_max_pods(kind("m5.large"), one) == 2
    assert cni_max_pods(kind("m5.large"), one, 9) == 2


def test_types_that_are_not_nitro_get_no_prefixes() -> None:
    assert told("i3.large", cni=PD) == 29
    assert told("c4.large", cni=PD) == 29


def test_max_pods_never_exceeds_the_addresses_there_are() -> None:
    assert told("c6g.medium", cni=PD, max_pods=110) == 98
    assert told("c6g.medium", cni=VpcCni(), max_pods=110) == 8
    assert told("m5.large", cni=PD, max_pods=200) == 200, "more than recommended is the user's choice"


def test_while_the_cni_is_unknown_max_pods_may_count_on_prefixes() -> None:
    assert told("c6g.medium", max_pods=110) == 98
    assert told("m5.large", max_pods=110) == 110
    assert told("i3.large", max_pods=110) == 29


@pytest.mark.parametrize("family", FAMILIES)
def test_a_small_max_pods_is_taken_as_it_is(family: str) -> None:
    assert told("t3.large", family=family, max_pods=10) == 10


def test_reserved_interfaces() -> None:
    assert told("t3.large", reserved=1) == 24
    assert told("t3.large", reserved=1, family="Windows2022") == 110
    assert told("t3.large", reserved=1_000_000) == 0
    assert told("m5.large", reserved=1, cni=CUSTOM) == 20, (
        "an interface reserved for custom networking is not counted twice"
    )


def test_pods_per_core() -> None:
    assert told("t3.large", pods_per_core=1) == 2
    assert told("t3.large", pods_per_core=4, max_pods=20) == 8
    assert told("t3.large", pods_per_core=1, family="Bottlerocket") == 35
    assert told("t3.large", pods_per_core=0) == 35


def test_interfaces_for_efa_alone_carry_no_pods() -> None:
    efa_only = (NetworkInterface(0, 0), NetworkInterface(0, 1, "efa-only"))
    family = FAMILIES["AL2023"]
    assert max_pods(kind("m6idn.32xlarge"), family, KubeletSettings(), CapacitySetting(), efa_only) == 345
    assert max_pods(kind("m6idn.32xlarge"), family, KubeletSettings(), CapacitySetting()) == 394


def test_only_the_default_card_counts() -> None:
    assert told("p5.48xlarge") == 100
    assert told("p5.48xlarge", cni=PD) == 250
