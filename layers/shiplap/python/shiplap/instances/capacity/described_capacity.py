"""The capacity of a node by EC2's description of its instance type, before kubelet keeps its share.

The formulas are Karpenter's (instancetype/types.go), so that the figures are those that people know.

A pod with a network interface of its own (security groups for pods) gets a branch of the node's trunk interface. The
VPC resource controller shows the number of branches as `vpc.amazonaws.com/pod-eni`; EC2 does not describe it. It
follows from the size of the type: larger machines have more interfaces in all, and branches are those that are not
plain ones. Families built around disks or accelerators, and the largest machines, depart from that rule, and the
controller shows none on a type that its table does not list yet. There, only one node relies on the estimate before a
node has reported.
"""

from __future__ import annotations

import re
from math import ceil, floor

from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import (
    AMD_GPU,
    CPU,
    EPHEMERAL_STORAGE,
    GAUDI,
    MEMORY,
    NEURON,
    NEURON_CORE,
    NVIDIA_GPU,
    PODS,
    parse_amount,
)
from shiplap.manifests.custom_resources import BlockDevice, EC2NodeClassSpec

BRANCH_INTERFACES = "vpc.amazonaws.com/pod-eni"

_IN_ALL = ((64, 122), (16, 62), (8, 42), (4, 22), (2, 12), (1, 6))
"""Interfaces of all kinds, from so many vCPUs on."""
_IN_ALL_LARGE_X86 = ((48, 122), (32, 92), *_IN_ALL)
"""The same for Intel and AMD of the sixth generation and later."""
_STEADY_FAMILIES = re.compile(r"(?:a|c|m|r)\d")
_MAYBE_UNLISTED = re.compile(r"[a-z]+(?:9|\d{2})|[a-z]+\d[a-z]*[nb]\.metal")
"""The newest generation, and bare metal of families built for network or EBS: the controller learns of them last."""
_GENERATION = re.compile(r"[a-z]+(\d+)")
_WITHOUT_TRUNK = re.compile(r"u-\d")
"""High-memory machines of the first generation."""
_LARGEST_HALVED_FLEX = 32
"""vCPUs up to which a flexible type is treated as one of half its size."""


def branch_interfaces(kind: Ec2InstanceType) -> int:
    """The branches of a trunk interface by the rule; 0 for types without one: Xen, and those that burst."""
    if kind.hypervisor == "xen" or kind.burstable_performance_supported or _WITHOUT_TRUNK.match(kind.instance_type):
        return 0
    family, v_cpus = kind.instance_type.partition(".")[0], kind.v_cpu_info.default_v_cpus
    if family.endswith("-flex") and v_cpus <= _LARGEST_HALVED_FLEX:
        v_cpus //= 2
    in_all = next((total for least, total in _steps(kind, family) if v_cpus >= least), 0)
    return max(in_all - kind.network_info.maximum_network_interfaces, 0)


def careful_branches(kind: Ec2InstanceType) -> int:
    """A lower bound of the same."""
    estimate = branch_interfaces(kind)
    if _MAYBE_UNLISTED.match(kind.instance_type):
        return 0
    if _STEADY_FAMILIES.match(kind.instance_type):
        return estimate
    return estimate // 4 if kind.v_cpu_info.default_v_cpus >= 4 else 0


def _steps(kind: Ec2InstanceType, family: str) -> tuple[tuple[int, int], ...]:
    generation = _GENERATION.match(family)
    recent = generation is not None and int(generation.group(1)) >= 6
    graviton = "arm64" in kind.processor_info.supported_architectures
    return _IN_ALL_LARGE_X86 if recent and not graviton else _IN_ALL


MIB = 2**20
FIXED_OVERHEAD = 128 * MIB
"""The part of the missing memory that does not grow with the machine (kernel image, firmware, crash kernel), bytes."""
FABRIC_ADAPTERS = "vpc.amazonaws.com/efa"
ENCLAVES = "eks.amazonaws.com/nitro-sandbox"
"""Asked for by pods that start Nitro enclaves; no type is said to have any but by a NodeOverlay."""
_GPU_RESOURCES = {"nvidia": NVIDIA_GPU, "amd": AMD_GPU, "habana": GAUDI}
_ARM_CONTIGUOUS_MEMORY_MIB = 64
_DEFAULT_VOLUME = "20Gi"


def nominal_memory(kind: Ec2InstanceType) -> int:
    """The memory EC2 states, bytes."""
    return kind.memory_info.size_in_mi_b * MIB


def least_memory(nominal: int, worst_overhead_ratio: float = 0.0) -> int:
    """A lower bound of the memory of a type of which EC2 states `nominal`, bytes.

    At least 12.5 % of it, or twice the worst ratio seen on the AMI, and 128 MiB are taken off. In the field 1.7 to
    5.3 % are missing on large types, and some 100 to 220 MiB on the smallest.
    """
    return max(nominal - ceil(nominal * max(0.125, 2 * worst_overhead_ratio)) - FIXED_OVERHEAD, 0)


def estimated_memory(kind: Ec2InstanceType, overhead_percent: float) -> int:
    """Memory the guest sees by the formula, bytes, whole MiB.

    Graviton's kernels reserve 64 MiB of contiguous memory; the hypervisor is taken to keep `overhead_percent` (a
    fraction) of the rest. Floating point as upstream computes it, so that equal settings give equal figures.
    """
    mib = kind.memory_info.size_in_mi_b
    if kind.processor_info.supported_architectures[:1] == ("arm64",):
        mib -= _ARM_CONTIGUOUS_MEMORY_MIB
    return (mib - ceil(mib * MIB * overhead_percent / 1024 / 1024)) * MIB


def ephemeral_storage(kind: Ec2InstanceType, family: AmiFamily, spec: EC2NodeClassSpec) -> int:
    """Bytes of the file system pods' data lives on: the instance store as RAID 0, or the volume of the family.

    No family but those of Linux makes a RAID, and only of NVMe disks: their scripts look for nothing else.
    """
    store = kind.instance_storage_info
    if spec.instance_store_policy == "RAID0" and family.os == "linux" and store and store.nvme_support != "unsupported":
        return store.total_size_in_gb * 10**9
    return volume_size(family, spec)


def volume_size(family: AmiFamily, spec: EC2NodeClassSpec) -> int:
    """Bytes of the volume that holds pods' data.

    It is on the family's device. `rootVolume` marks another one where only the AMI knows the device, or where user data
    of Amazon Linux may mount it; without a mark, an AMI of a user's own keeps data on the last volume listed. A volume
    without a size is taken to have 20Gi.
    """
    mappings = spec.block_device_mappings
    chosen = None
    if not family.ephemeral_device or (family.mounts_by_user_data and spec.user_data):
        chosen = next((mapping for mapping in mappings if mapping.root_volume), None)
    if chosen is None and not family.ephemeral_device:
        chosen = mappings[-1] if mappings else None
    elif chosen is None:
        known = (*mappings, *family.block_devices)
        chosen = next((mapping for mapping in known if mapping.device_name == family.ephemeral_device), None)
    device = (chosen.ebs if chosen else None) or BlockDevice()
    return parse_amount(EPHEMERAL_STORAGE, device.volume_size or _DEFAULT_VOLUME)


def device_resources(kind: Ec2InstanceType, spec: EC2NodeClassSpec) -> dict[str, int]:
    """Extended resources of the hardware: GPUs, Neuron devices and cores, elastic fabric adapters; zeroes left out."""
    amounts: dict[str, int] = {}
    if kind.gpu_info is not None:
        for gpu in kind.gpu_info.gpus:
            resource = _GPU_RESOURCES.get(gpu.manufacturer.lower())
            if resource:
                amounts[resource] = amounts.get(resource, 0) + gpu.devices
    if kind.neuron_info is not None and kind.neuron_info.neuron_devices:
        neuron = kind.neuron_info.neuron_devices
        amounts[NEURON] = sum(device.count for device in neuron)
        # The first device speaks for all: mixed Neuron devices do not exist.
        amounts[NEURON_CORE] = neuron[0].count * (neuron[0].core_info.count if neuron[0].core_info else 0)
    amounts[FABRIC_ADAPTERS] = _fabric_adapters(kind, spec)
    return {resource: amount for resource, amount in amounts.items() if amount}


def described_capacity(
    kind: Ec2InstanceType, family: AmiFamily, spec: EC2NodeClassSpec, *, pods: int, overhead_percent: float
) -> dict[str, int]:
    """Every resource of a node in canonical units, by formula."""
    amounts = {
        CPU: kind.v_cpu_info.default_v_cpus * 1000,
        MEMORY: estimated_memory(kind, overhead_percent),
        EPHEMERAL_STORAGE: ephemeral_storage(kind, family, spec),
        PODS: pods,
    }
    amounts.update(device_resources(kind, spec))
    if family.os == "windows":
        amounts["vpc.amazonaws.com/PrivateIPv4Address"] = kind.network_info.ipv4_addresses_per_interface - 1
    elif branches := branch_interfaces(kind):
        amounts[BRANCH_INTERFACES] = branches
    return amounts


def careful_capacity(
    kind: Ec2InstanceType, estimate: dict[str, int], worst_overhead_ratio: float = 0.0
) -> dict[str, int]:
    """A lower bound of `estimate` that nodes are not expected to undercut.

    Memory: see `least_memory`. Ephemeral storage: file systems keep a few per cent of a volume. Branch interfaces: see
    `careful_branches`. CPUs, devices and pods are exact: EC2 states them and we set them.
    """
    bound = {
        **estimate,
        MEMORY: min(estimate[MEMORY], least_memory(nominal_memory(kind), worst_overhead_ratio)),
        EPHEMERAL_STORAGE: floor(estimate[EPHEMERAL_STORAGE] * 0.95),
    }
    if BRANCH_INTERFACES in estimate:
        bound[BRANCH_INTERFACES] = careful_branches(kind)
    return bound


def _fabric_adapters(kind: Ec2InstanceType, spec: EC2NodeClassSpec) -> int:
    if spec.network_interfaces:
        return sum(1 for nic in spec.network_interfaces if nic.interface_type == "efa-only")
    efa = kind.network_info.efa_info
    return efa.maximum_efa_interfaces if efa else 0


def default_card_interfaces(kind: Ec2InstanceType) -> int:
    """Network interfaces of the default network card, the only one pods get addresses from."""
    network = kind.network_info
    if network.default_network_card_index < len(network.network_cards):
        return network.network_cards[network.default_network_card_index].maximum_network_interfaces
    return network.maximum_network_interfaces
