"""Tests the yield and the choice of instance types under an EC2NodeClass: scenarios 1 to 35 of the AWS reference."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.catalog import type_labels
from shiplap.instances.catalog.ec2_catalog import GpuDeviceInfo, GpuInfo, GpuMemoryInfo
from shiplap.instances.catalog.type_catalog import InstanceType
from tests.builders.node_classes import node_class
from tests.builders.pods import pod
from tests.builders.pools import pool, rule
from tests.conformance.given import given
from tests.conformance.given_aws import like, one, shown, sold

MIB = 2**20
ON_DEMAND = rule("karpenter.sh/capacity-type", "In", "on-demand")
FIXTURE = (
    "c6g.large", "g4dn.8xlarge", "g5.12xlarge", "inf2.xlarge", "inf2.24xlarge", "m5.large",
    "m5.xlarge", "m5.metal", "m6idn.32xlarge", "m7i-flex.large", "p5.48xlarge", "t3.large", "t4g.small",
    "t4g.medium", "t4g.xlarge", "trn1.2xlarge",
)  # fmt: skip
"""The types of Karpenter's own test suites, but for g4ad.16xlarge, which the embedded catalogue lacks."""
FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025")


def test_1_a_pod_may_select_every_label_of_an_instance() -> None:
    """One pod per label with a value that some type of the fixture has; its node carries it."""
    types = {item.name: item for item in sold(*FIXTURE)}
    wanted: dict[str, str] = {}
    for item in types.values():
        for key, value in type_labels.single_valued_labels(item).items():
            wanted.setdefault(key, value)
    assert len(wanted) > 25
    for key, value in sorted(wanted.items()):
        outcome = given(
            pod(cpu="10m", selector={key: value}), pools=[pool("default", ON_DEMAND)], types=tuple(types.values())
        )
        launched = types[outcome.claim.launch.instance_type]
        assert type_labels.single_valued_labels(launched)[key] == value, key


def test_3_accelerator_labels_lead_to_inferentia() -> None:
    selector = {
        "karpenter.k8s.aws/instance-accelerator-name": "inferentia2",
        "karpenter.k8s.aws/instance-accelerator-manufacturer": "aws",
        "karpenter.k8s.aws/instance-accelerator-count": "1",
    }
    outcome = given(pod(cpu="1", selector=selector), types=sold(*FIXTURE))
    assert outcome.claim.launch.instance_type == "inf2.xlarge"


def test_5_a_pod_that_wants_an_interface_of_its_own_gets_a_type_with_branches() -> None:
    outcome = given(
        pod(requests={"cpu": "100m", "vpc.amazonaws.com/pod-eni": "1"}), types=sold("t3.large", "t4g.small", "m5.large")
    )
    assert outcome.claim.launch.instance_type == "m5.large"
    ten = [pod(f"pod-{n}", requests={"cpu": "10m", "vpc.amazonaws.com/pod-eni": "1"}) for n in range(10)]
    assert len(given(*ten, types=sold("m5.large")).claims) == 2  # it has nine


def test_11_a_pod_that_pins_metal_gets_it() -> None:
    outcome = given(pod(cpu="1", selector={"node.kubernetes.io/instance-type": "m5.metal"}), types=sold(*FIXTURE))
    assert outcome.claim.launch.instance_type == "m5.metal"


def test_13_windows_nodes_give_out_private_addresses() -> None:
    types = sold("m5.large", "t3.large", under=node_class(family="Windows2022"))
    outcome = given(
        pod(requests={"vpc.amazonaws.com/PrivateIPv4Address": "1"}, selector={"kubernetes.io/os": "windows"}),
        types=types,
    )
    assert outcome.scheduled
    assert all(item.capacity["vpc.amazonaws.com/PrivateIPv4Address"] > 0 for item in types)


def device_pods(resource: str, *amounts: int) -> list[Any]:
    return [
        pod(f"pod-{place}", requests={"cpu": "100m", resource: str(amount)}) for place, amount in enumerate(amounts)
    ]


def test_15_two_neuron_devices_beside_two_and_four_apart() -> None:
    types = sold("inf2.24xlarge", "m5.large")
    outcome = given(*device_pods("aws.amazon.com/neuron", 2, 2, 4), types=types)
    assert [claim.launch.instance_type for claim in outcome.claims] == ["inf2.24xlarge"] * 2
    assert sorted(len(claim.pods) for claim in outcome.claims) == [1, 2]


def test_17_one_gpu_beside_two_and_four_apart() -> None:
    radeon = GpuInfo((GpuDeviceInfo("Radeon Pro V520", "AMD", 4, GpuMemoryInfo(8192)),))
    types = sold("m5.large", beside=(like("g5.12xlarge", instance_type="g4ad.16xlarge", gpu_info=radeon),))
    outcome = given(*device_pods("amd.com/gpu", 1, 2, 4), types=types)
    assert [claim.launch.instance_type for claim in outcome.claims] == ["g4ad.16xlarge"] * 2


def test_19_instance_stores_count_only_where_they_are_made_one_disk() -> None:
    wanted = pod(requests={"ephemeral-storage": "5000Gi"})
    assert not given(wanted, types=sold(*FIXTURE)).scheduled
    striped = node_class(instanceStorePolicy="RAID0")
    outcome = given(wanted, types=sold("m5.large", "m6idn.32xlarge", "t3.large", under=striped))
    assert outcome.claim.launch.instance_type == "m6idn.32xlarge"
    assert one("m6idn.32xlarge", under=striped).capacity["ephemeral-storage"] == 7600 * 10**9


@pytest.mark.parametrize(
    ("name", "allocatable_ki"),
    [("t4g.small", 1408312), ("t4g.medium", 3377496), ("t4g.xlarge", 15136012), ("m5.large", 7220184)],
)
def test_21_never_more_than_a_kubelet_really_reports(name: str, allocatable_ki: int) -> None:
    assert one(name).allocatable["memory"] <= allocatable_ki * 1024


def test_23_kube_reserved_replaces_exactly_what_it_names() -> None:
    reserved = {"cpu": "2", "memory": "10Gi", "ephemeral-storage": "2Gi"}
    off = {"memory.available": "100%", "nodefs.available": "100%"}
    found = one("m5.xlarge", under=node_class(kubelet={"kubeReserved": reserved, "evictionHard": off}))
    assert shown(found.overhead) == {"cpu": "2", "memory": "10Gi", "ephemeral-storage": "2Gi"}


@pytest.mark.parametrize(("threshold", "evicted"), [("500Mi", 500 * MIB), ("10%", None), ("100%", 0), ("", 100 * MIB)])
def test_25_hard_eviction_of_memory(threshold: str, evicted: int | None) -> None:
    kubelet = {"evictionHard": {"memory.available": threshold}} if threshold else {}
    found = one("m5.xlarge", under=node_class(kubelet=kubelet))
    wanted = ceil(found.capacity["memory"] / 10) if evicted is None else evicted
    assert found.overhead["memory"] - 893 * MIB == wanted


@pytest.mark.parametrize("family", FAMILIES)
def test_27_max_pods_holds_for_every_type_of_every_family(family: str) -> None:
    types = sold(*FIXTURE, under=node_class(family=family, kubelet={"maxPods": 10}))
    # A t4g.small has 3 interfaces of 4 addresses: 11 pods, so 10 fit.
    assert {item.capacity["pods"] for item in types} == {10}


@pytest.mark.parametrize(
    ("family", "pods", "reserved_mib"),
    [
        ("AL2", 24, 640), ("AL2023", 24, 640), ("Custom", 24, 640),
        ("Bottlerocket", 24, 519), ("Windows2019", 110, 1465), ("Windows2022", 110, 1465),
    ],
)  # fmt: skip
def test_29_one_reserved_interface(family: str, pods: int, reserved_mib: int) -> None:
    found = one("t3.large", under=node_class(family=family), reserved_enis=1)
    assert found.capacity["pods"] == pods
    assert found.overhead["memory"] == (reserved_mib + 100) * MIB


@pytest.mark.parametrize(
    ("family", "kubelet", "pods"),
    [
        ("AL2023", {"podsPerCore": 1}, 2),
        ("AL2023", {"podsPerCore": 4, "maxPods": 20}, 8),
        ("AL2", {"podsPerCore": 4, "maxPods": 5}, 5),
        ("AL2023", {"podsPerCore": 0}, 35),
        ("Bottlerocket", {"podsPerCore": 1}, 35),
        ("Bottlerocket", {"podsPerCore": 1, "maxPods": 20}, 20),
    ],
)
def test_31_pods_per_core(family: str, kubelet: dict[str, int], pods: int) -> None:
    assert one("t3.large", under=node_class(family=family, kubelet=kubelet)).capacity["pods"] == pods


def pods_of(text: str) -> InstanceType:
    return one("t3.large", under=node_class(kubelet={"maxPods": text}))


def test_33_an_expression_in_range_is_the_number_of_pods() -> None:
    assert pods_of("max_pods - 5").capacity["pods"] == 30


@pytest.mark.parametrize("text", ["vcpus - 3", "2147483648", "vcpus * 2000000000", "10 / (vcpus - 2)", "1.0 / 0.0"])
def test_33_an_expression_out_of_range_sells_nothing_at_all(text: str) -> None:
    if text.isdigit():  # a plain number is checked where manifests are read
        text = f"{text} + 0"
    with pytest.raises(InvalidInput, match=r"spec\.kubelet\.maxPods"):
        pods_of(text)


def test_35_kubelet_settings_that_cannot_be_read_sell_nothing_until_they_are_mended() -> None:
    with pytest.raises(InvalidInput):
        sold("t3.large", under=node_class(kubelet={"podsPerCore": "many"}))
    assert sold("t3.large", under=node_class(kubelet={"podsPerCore": 1}))


def test_73_fabric_adapters_are_of_the_hardware_or_as_written() -> None:
    assert one("g5.48xlarge").capacity["vpc.amazonaws.com/efa"] == 1
    written = [{}, {"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}]
    assert one("g5.48xlarge", under=node_class(networkInterfaces=written)).capacity["vpc.amazonaws.com/efa"] == 1
    assert "vpc.amazonaws.com/efa" not in one("m5.large").capacity
