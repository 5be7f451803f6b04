"""Capacity, overhead and allocatable, by Karpenter's published figures and those its own tests assert."""

from __future__ import annotations

import msgspec
import pytest

from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.capacity.described_capacity import (
    BRANCH_INTERFACES,
    careful_capacity,
    device_resources,
    estimated_memory,
)
from shiplap.instances.capacity.estimate import recommended_max_pods, reserved_cpu
from shiplap.instances.catalog.ec2_catalog import GpuDeviceInfo, GpuInfo, NeuronDeviceInfo, NeuronInfo
from shiplap.instances.catalog.type_catalog import ImportedCapacity, InstanceType, LearnedCapacity
from tests.builders.node_classes import node_class
from tests.unit.instances.given_instances import (
    GIB,
    MIB,
    disk,
    kind,
    known,
    resolved,
    seen,
    yields,
)

# type: vCPU, MiB of EC2, capacity, pods, kube-reserved, allocatable Mi, allocatable cpu m, Bottlerocket with prefixes Mi
WORKED = {
    "t4g.nano": (2, 512, 414, 4, 299, 15, 1930, -315),
    "t3.micro": (2, 1024, 947, 4, 299, 548, 1930, 218),
    "t3.medium": (2, 4096, 3788, 17, 442, 3246, 1930, 2223),
    "t3.large": (2, 8192, 7577, 35, 640, 6837, 1930, 6012),
    "c6g.medium": (1, 2048, 1835, 8, 343, 1392, 940, 402),
    "r8gd.medium": (1, 8192, 7518, 8, 343, 7075, 940, 6085),
    "m5.large": (2, 8192, 7577, 29, 574, 6903, 1930, 6012),
    "m7g.large": (2, 8192, 7518, 29, 574, 6844, 1930, 5953),
    "c7i-flex.large": (2, 4096, 3788, 29, 574, 3114, 1930, 2223),
    "c5.large": (2, 4096, 3788, 29, 574, 3114, 1930, 2223),
    "c5.xlarge": (4, 8192, 7577, 58, 893, 6584, 3920, 6012),
    "m5.xlarge": (4, 16384, 15155, 58, 893, 14162, 3920, 13590),
    "g4dn.xlarge": (4, 16384, 15155, 29, 574, 14481, 3920, 13590),
    "inf2.xlarge": (4, 16384, 15155, 58, 893, 14162, 3920, 13590),
    "m7a.4xlarge": (16, 65536, 60620, 234, 2829, 57691, 15890, 59055),
    "m7i-flex.8xlarge": (32, 131072, 121241, 234, 2829, 118312, 31850, 118136),
    "r5a.8xlarge": (32, 262144, 242483, 234, 2829, 239554, 31850, 239378),
    "r5.12xlarge": (48, 393216, 363724, 234, 2829, 360795, 47810, 360619),
    "m5.24xlarge": (96, 393216, 363724, 737, 8362, 355262, 95690, 360619),
    "m5.metal": (96, 393216, 363724, 737, 8362, 355262, 95690, 360619),
    "i3.large": (2, 15616, 14444, 29, 574, 13770, 1930, 13770),
    "c4.large": (2, 3840, 3552, 29, 574, 2878, 1930, 2878),
    "i4i.32xlarge": (128, 1048576, 969932, 737, 8362, 961470, 127610, 966827),
    "m6idn.32xlarge": (128, 524288, 484966, 394, 4589, 480277, 127610, 481861),
    "g5.48xlarge": (192, 786432, 727449, 345, 4050, 723299, 191450, 724344),
    "p4d.24xlarge": (96, 1179648, 1091174, 737, 8362, 1082712, 95690, 1088069),
    "p5.48xlarge": (192, 2097152, 1939865, 100, 1355, 1938410, 191450, 1936760),
    "trn1.32xlarge": (128, 524288, 484966, 247, 2972, 481894, 127610, 481861),
    "u-6tb1.112xlarge": (448, 6291456, 5819596, 737, 8362, 5811134, 446810, 5816491),
}

# r5a.8xlarge: overhead fraction, MiB deducted, capacity, allocatable
R5A = {
    0.0: (0, 262144, 259215),
    0.02: (5243, 256901, 253972),
    0.04: (10486, 251658, 248729),
    0.045: (11797, 250347, 247418),
    0.048: (12583, 249561, 246632),
    0.0488: (12793, 249351, 246422),
    0.0489: (12819, 249325, 246396),
    0.05: (13108, 249036, 246107),
    0.06: (15729, 246415, 243486),
    0.07: (18351, 243793, 240864),
    0.075: (19661, 242483, 239554),
    0.08: (20972, 241172, 238243),
    0.1: (26215, 235929, 233000),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_examples(name: str) -> None:
    v_cpus, stated, capacity, pods, reserved, memory, cpu, _ = WORKED[name]
    made = yields(name)
    assert kind(name).memory_info.size_in_mi_b == stated
    assert made.capacity["cpu"] == v_cpus * 1000
    assert made.capacity["memory"] == capacity * MIB
    assert made.capacity["pods"] == pods
    assert made.overhead["memory"] == (reserved + 100) * MIB
    assert made.allocatable["memory"] == memory * MIB
    assert made.allocatable["cpu"] == cpu
    assert made.allocatable["ephemeral-storage"] == 17 * GIB


@pytest.mark.parametrize("name", WORKED)
def test_bottlerocket_reserves_by_the_pods_it_is_told(name: str) -> None:
    prefixes = VpcCni(prefix_delegation=True)
    made = yields(name, node_class(family="Bottlerocket"), CapacitySetting(cni=prefixes))
    assert made.capacity["pods"] == recommended_max_pods(kind(name), prefixes)
    assert made.allocatable["memory"] == WORKED[name][-1] * MIB


@pytest.mark.parametrize("fraction", R5A)
def test_memory_overhead_of_r5a_8xlarge(fraction: float) -> None:
    deducted, capacity, allocatable = R5A[fraction]
    assert capacity == 262144 - deducted
    made = yields("r5a.8xlarge", setting=CapacitySetting(vm_memory_overhead_percent=fraction))
    assert made.capacity["memory"] == capacity * MIB
    assert made.allocatable["memory"] == allocatable * MIB


@pytest.mark.parametrize(
    ("family", "reserved"),
    [("AL2", 640), ("AL2023", 640), ("Custom", 640), ("Bottlerocket", 365), ("Windows2022", 365)],
)
def test_memory_reserved_with_ten_pods(family: str, reserved: int) -> None:
    made = yields("t3.large", node_class(family=family, kubelet={"maxPods": 10}))
    assert made.capacity["pods"] == 10
    assert made.overhead["memory"] == (reserved + 100) * MIB


@pytest.mark.parametrize(
    ("family", "pods", "reserved"),
    [
        ("AL2", 24, 640),
        ("AL2023", 24, 640),
        ("Custom", 24, 640),
        ("Bottlerocket", 24, 519),
        ("Windows2019", 110, 1465),
        ("Windows2022", 110, 1465),
        ("Windows2025", 110, 1465),
    ],
)
def test_memory_reserved_with_a_reserved_interface(family: str, pods: int, reserved: int) -> None:
    made = yields("t3.large", node_class(family=family), CapacitySetting(reserved_enis=1))
    assert made.capacity["pods"] == pods
    assert made.overhead["memory"] == (reserved + 100) * MIB


def test_no_interface_left_means_no_pods() -> None:
    assert yields("t3.large", setting=CapacitySetting(reserved_enis=1_000_000)).capacity["pods"] == 0


@pytest.mark.parametrize(
    ("v_cpus", "millicores"),
    [
        (1, 60),
        (2, 70),
        (4, 80),
        (8, 90),
        (16, 110),
        (32, 150),
        (48, 190),
        (64, 230),
        (96, 310),
        (128, 390),
        (192, 550),
        (448, 1190),
    ],
)
def test_reserved_cpu(v_cpus: int, millicores: int) -> None:
    assert reserved_cpu(v_cpus) == millicores


def test_reserved_by_default() -> None:
    made = yields("m5.xlarge")
    assert made.overhead == {"cpu": 80, "memory": (893 + 100) * MIB, "ephemeral-storage": 3 * GIB}


def test_kube_reserved_replaces_only_what_it_names_and_system_reserved_is_added() -> None:
    kubelet = {
        "kubeReserved": {"memory": "10Gi", "cpu": "2", "ephemeral-storage": "2Gi"},
        "systemReserved": {"cpu": "100m", "memory": "1Gi"},
    }
    made = yields("m5.24xlarge", node_class(kubelet=kubelet))
    assert made.overhead == {"cpu": 2100, "memory": 11 * GIB + 100 * MIB, "ephemeral-storage": 4 * GIB}
    partly = yields("m5.xlarge", node_class(kubelet={"kubeReserved": {"memory": "1Gi"}}))
    assert partly.overhead["cpu"] == 80
    assert partly.overhead["memory"] == GIB + 100 * MIB


@pytest.mark.parametrize(
    ("threshold", "evicted"),
    [("500Mi", 500 * MIB), ("10%", 794_506_036), ("100%", 0), ("0%", 0)],
)
def test_eviction_threshold_of_memory(threshold: str, evicted: int) -> None:
    made = yields("m5.large", node_class(kubelet={"evictionHard": {"memory.available": threshold}}))
    assert made.overhead["memory"] == 574 * MIB + evicted


def test_soft_eviction_does_not_matter() -> None:
    soft = {"evictionSoft": {"memory.available": "5Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}
    assert yields("m5.large", node_class(kubelet=soft)).overhead == yields("m5.large").overhead


def test_eviction_threshold_of_the_disk() -> None:
    made = yields("m5.large", node_class(kubelet={"evictionHard": {"nodefs.available": "5%"}}))
    assert made.overhead["ephemeral-storage"] == 2 * GIB


@pytest.mark.parametrize(
    ("name", "allocatable_ki"),
    [("t4g.small", 1408312), ("t4g.medium", 3377496), ("t4g.xlarge", 15136012), ("m5.large", 7220184)],
)
def test_never_more_than_kubelets_really_report(name: str, allocatable_ki: int) -> None:
    assert yields(name).allocatable["memory"] <= allocatable_ki * 1024


@pytest.mark.parametrize(
    ("name", "capacity_ki"),
    [
        ("c7g.medium", 1873556),  # the formula promises 1835Mi, 5Mi more than there are
        ("m7a.4xlarge", 64422252),
        ("m5.large", 7220184 + 674 * 1024),
        ("t4g.small", 1408312 + 476 * 1024),
    ],
)
def test_the_careful_bound_is_below_what_was_seen_in_the_field(name: str, capacity_ki: int) -> None:
    made = yields(name)
    assert not made.verified
    assert made.careful["memory"] < capacity_ki * 1024
    assert made.careful["memory"] <= made.capacity["memory"]
    assert made.careful["ephemeral-storage"] < made.capacity["ephemeral-storage"]
    assert made.careful["cpu"] == made.capacity["cpu"]
    assert made.careful["pods"] == made.capacity["pods"]


def test_the_careful_bound_follows_the_worst_overhead_seen_on_the_ami() -> None:
    kind_ = kind("m5.large")
    estimate = {"memory": 7577 * MIB, "ephemeral-storage": 20 * GIB}
    assert careful_capacity(kind_, estimate)["memory"] == (8192 - 1024 - 128) * MIB
    assert careful_capacity(kind_, estimate, 0.1)["memory"] == pytest.approx((8192 * 0.8 - 128) * MIB, abs=1)
    assert careful_capacity(kind_, estimate, 0.6)["memory"] == 0
    assert careful_capacity(kind_, {**estimate, "memory": 5 * GIB})["memory"] == 5 * GIB, "never above the estimate"


def test_arm_loses_its_contiguous_memory_first() -> None:
    assert estimated_memory(kind("t4g.nano"), 0.0) == 448 * MIB
    assert estimated_memory(kind("t3.nano"), 0.0) == 512 * MIB


@pytest.mark.parametrize(
    ("family", "mappings", "size"),
    [
        ("AL2023", (), 20 * GIB),
        ("Bottlerocket", (), 20 * GIB),
        ("Windows2022", (), 50 * GIB),
        ("Custom", (), 20 * GIB),
        ("Custom", (disk("/dev/sda", "8Gi"),), 8 * GIB),
        ("AL2023", (disk("/dev/xvda", "100Gi"),), 100 * GIB),
        ("AL2023", (disk("/dev/xvda", None),), 20 * GIB),
        ("AL2023", (disk("/dev/sdf", "100Gi"),), 20 * GIB),
        ("Windows2022", (disk("/dev/sdf", "100Gi"),), 50 * GIB),
        ("AL2023", (disk("/dev/sdf", "100Gi"), disk("/dev/sdg", "30G", root=True)), 20 * GIB),
        ("AL2", (disk("/dev/xvda", "40Gi"), disk("/dev/sdg", "30G", root=True)), 40 * GIB),
        ("Bottlerocket", (disk("/dev/xvda", "4Gi", root=True), disk("/dev/xvdb", "80Gi")), 80 * GIB),
        ("Bottlerocket", (disk("/dev/xvda", "100Gi", root=True),), 20 * GIB),
        ("Windows2025", (disk("/dev/sda1", "70Gi"), disk("/dev/xvdb", "100Gi", root=True)), 70 * GIB),
        ("Bottlerocket", (disk("/dev/xvda", "8Gi"), disk("/dev/xvdb", "80Gi")), 80 * GIB),
        ("Custom", (disk("/dev/sda", "8Gi"), disk("/dev/sdb", "1Ti")), 2**40),
        ("Custom", (disk("/dev/sda", "8Gi"), disk("/dev/sdb", None)), 20 * GIB),
    ],
)
def test_ephemeral_storage(family: str, mappings: tuple[object, ...], size: int) -> None:
    made = yields("m5.large", node_class(family=family, block_device_mappings=mappings))
    assert made.capacity["ephemeral-storage"] == size


@pytest.mark.parametrize(
    ("family", "size"),
    [
        ("AL2023", 30 * GIB),
        ("AL2", 30 * GIB),
        ("Bottlerocket", 90 * GIB),
        ("Windows2022", 50 * GIB),
        ("Custom", 30 * GIB),
    ],
)
def test_only_user_data_of_amazon_linux_can_have_pods_data_on_a_marked_device(family: str, size: int) -> None:
    """Without commands of its own, the AMI mounts nothing but its own device."""
    mappings = (disk("/dev/sdg", "30Gi", root=True), disk("/dev/xvdb", "90Gi"))
    made = yields("m5.large", node_class(family=family, block_device_mappings=mappings, user_data="mount"))
    assert made.capacity["ephemeral-storage"] == size


@pytest.mark.parametrize(
    ("family", "name", "striped"),
    [
        ("AL2", "m6idn.32xlarge", True),
        ("Bottlerocket", "m6idn.32xlarge", True),
        ("Custom", "m6idn.32xlarge", True),
        ("Windows2022", "m6idn.32xlarge", False),
        ("AL2023", "d3.xlarge", True),
        ("AL2023", "d2.xlarge", False),
        ("AL2023", "i2.xlarge", False),
    ],
)
def test_a_raid_is_made_on_linux_of_nvme_disks(family: str, name: str, *, striped: bool) -> None:
    plain, raid = (
        yields(name, node_class(family=family, instance_store_policy=policy)).capacity["ephemeral-storage"]
        for policy in (None, "RAID0")
    )
    assert (raid != plain) is striped


def test_ephemeral_storage_on_the_instance_store() -> None:
    raid = node_class(instance_store_policy="RAID0")
    assert yields("m6idn.32xlarge", raid).capacity["ephemeral-storage"] == 7600 * 10**9
    assert yields("m5.large", raid).capacity["ephemeral-storage"] == 20 * GIB


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("g5.48xlarge", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 1}),
        ("g6f.xlarge", {"nvidia.com/gpu": 1}),
        ("gr6f.4xlarge", {"nvidia.com/gpu": 1}),
        ("g6.48xlarge", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 1}),
        ("inf2.24xlarge", {"aws.amazon.com/neuron": 6, "aws.amazon.com/neuroncore": 12}),
        ("trn1.32xlarge", {"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 32, "vpc.amazonaws.com/efa": 8}),
        ("p5.48xlarge", {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32}),
        ("m5.large", {}),
    ],
)
def test_devices(name: str, devices: dict[str, int]) -> None:
    made = yields(name)
    extended = {name: amount for name, amount in made.capacity.items() if "/" in name}
    assert {name: amount for name, amount in extended.items() if name != BRANCH_INTERFACES} == devices


@pytest.mark.parametrize(
    ("name", "branches"),
    [
        ("m5.large", 9),
        ("m5.xlarge", 18),
        ("c6g.medium", 4),
        ("c6g.8xlarge", 54),
        ("c6i.8xlarge", 84),
        ("m5.24xlarge", 107),
        ("c6in.32xlarge", 106),
        ("m7i-flex.large", 3),
        ("m7i-flex.8xlarge", 54),
        ("m7i-flex.12xlarge", 114),
        ("m7i-flex.16xlarge", 107),
        ("t3.large", 0),
        ("i3.large", 0),
    ],
)
def test_branch_interfaces_follow_the_size(name: str, branches: int) -> None:
    """As the VPC resource controller counts them: none on Xen and on types that burst."""
    made = yields(name)
    assert made.capacity.get(BRANCH_INTERFACES, 0) == branches
    assert made.careful.get(BRANCH_INTERFACES, 0) == branches
    assert made.sources.get(BRANCH_INTERFACES, "formula") == "formula"


@pytest.mark.parametrize(
    ("manufacturer", "resource"),
    [("NVIDIA", "nvidia.com/gpu"), ("AMD", "amd.com/gpu"), ("Habana", "habana.ai/gaudi"), ("Xilinx", "")],
)
def test_accelerators_have_the_resource_of_their_maker(manufacturer: str, resource: str) -> None:
    gpu_info = GpuInfo(
        gpus=(GpuDeviceInfo(manufacturer=manufacturer, count=4), GpuDeviceInfo(manufacturer="NVIDIA", count=2))
    )
    made = device_resources(msgspec.structs.replace(kind("m5.large"), gpu_info=gpu_info), node_class().spec)
    expected = {"nvidia.com/gpu": 2} | ({resource: 4} if resource else {})
    assert made == expected | ({"nvidia.com/gpu": 6} if manufacturer == "NVIDIA" else {})


def test_neuron_devices_whose_cores_are_not_told_have_none() -> None:
    devices = NeuronInfo(neuron_devices=(NeuronDeviceInfo(count=4),))
    told = device_resources(msgspec.structs.replace(kind("m5.large"), neuron_info=devices), node_class().spec)
    assert told == {"aws.amazon.com/neuron": 4}


def imports(name: str, capacity: dict[str, int], allocatable: dict[str, int]) -> InstanceType:
    """A type whose capacity another install has learned."""
    kubelet = yields(name, answered=resolved()).kubelet_hash
    entry = LearnedCapacity("ami-amd", name, kubelet, imported=ImportedCapacity(capacity, allocatable, 3))
    return yields(name, answered=resolved(), learned=(entry,))


def test_an_import_says_that_it_was_used_only_where_it_lowers_an_estimate() -> None:
    without = yields("m5.large", answered=resolved())
    same = imports("m5.large", without.capacity, without.allocatable)
    assert same == without
    lower = imports("m5.large", {"memory": 7500 * MIB}, {"memory": 6900 * MIB})
    assert (lower.capacity["memory"], lower.sources["memory"]) == (7500 * MIB, "imported")
    assert lower.overhead == without.overhead
    kept = imports("m5.large", {"memory": without.capacity["memory"]}, {"memory": without.allocatable["memory"] - 1})
    assert kept.overhead["memory"] == without.overhead["memory"] + 1
    assert (kept.sources["memory"], kept.sources["cpu"]) == ("imported", "catalog")


def test_an_import_takes_at_most_twice_what_the_kubelet_keeps() -> None:
    without = yields("g5.48xlarge", answered=resolved())
    odd = imports("g5.48xlarge", without.capacity, dict.fromkeys(without.capacity, 1))
    assert odd.overhead == {resource: 2 * amount for resource, amount in without.overhead.items()}
    assert odd.allocatable["nvidia.com/gpu"] == 8


def test_branch_interfaces_are_doubted_where_families_depart_from_the_rule() -> None:
    """g5.xlarge really has 4, i3en.large 5, i4i.large none, and c9g is too new; a node tells."""
    for name, really in (("g5.xlarge", 4), ("i3en.large", 5), ("i4i.large", 0), ("trn1.2xlarge", 17), ("c9g.large", 0)):
        made = yields(name)
        assert made.careful[BRANCH_INTERFACES] <= really < made.capacity[BRANCH_INTERFACES]
    unseen = yields("g5.xlarge", answered=resolved())
    node = seen("g5.xlarge", 15000 * MIB, kubelet=unseen.kubelet_hash, **{BRANCH_INTERFACES: 4})
    after = yields("g5.xlarge", answered=resolved(), learned=(known(node),))
    assert (after.capacity[BRANCH_INTERFACES], after.sources[BRANCH_INTERFACES]) == (4, "learned")


@pytest.mark.parametrize(("name", "careful"), [("i4i.large", 0), ("i4i.xlarge", 4), ("g5.2xlarge", 9)])
def test_of_branch_interfaces_that_are_doubted_a_quarter_is_relied_on_from_four_v_cpus_on(
    name: str, careful: int
) -> None:
    assert yields(name).careful.get(BRANCH_INTERFACES, 0) == careful


def test_windows_nodes_have_no_branches() -> None:
    assert BRANCH_INTERFACES not in yields("m5.large", node_class(family="Windows2022")).capacity


def test_windows_nodes_give_out_addresses() -> None:
    assert yields("m5.large", node_class(family="Windows2022")).capacity["vpc.amazonaws.com/PrivateIPv4Address"] == 9


def test_overhead_percent_per_node_class_family_and_type() -> None:
    key = "shiplap.dev/vm-memory-overhead-percent"
    made = node_class(annotations={key: "0.06", f"{key}.r5a": "0.05", f"{key}.r5a.8xlarge": "0.048"})
    assert yields("m5.large", made).capacity["memory"] == (8192 - 492) * MIB
    assert yields("r5a.8xlarge", made).capacity["memory"] == 249561 * MIB
    assert yields("r5a.large", made).capacity["memory"] == (16384 - 820) * MIB
