"""Writes docs/reference/ec2-fields.md: every field of EC2's DescribeInstanceTypes and its use in Shiplap.

The fields are those of botocore's model. `FIELDS` holds the use of each; a test compares it with the model and with the
structs that Shiplap decodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import botocore.session
import msgspec
from msgspec import inspect

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a program, it finds only its own folder

from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "ec2-fields.md"
READ, REFUSED, STORED, WITHOUT_EFFECT = "read", "refused", "stored", "without effect"


class Entry(NamedTuple):
    """Fields with the same use for the same reason. A name also stands for all fields below it."""

    use: str
    reason: str
    names: tuple[str, ...]


def _read(reason: str, *names: str) -> Entry:
    return Entry(READ, reason, names)


def _refused(reason: str, *names: str) -> Entry:
    return Entry(REFUSED, reason, names)


def _without_effect(reason: str, *names: str) -> Entry:
    return Entry(WITHOUT_EFFECT, reason, names)


FIELDS: tuple[Entry, ...] = (
    _read("labels of type, family, size, category and generation", "InstanceType"),
    _refused("types without `hvm` are left out: no EKS AMI starts on them", "SupportedVirtualizationTypes"),
    _refused(
        "types without `x86_64` and `arm64` are left out, as Kubernetes has no images for others",
        "ProcessorInfo.SupportedArchitectures",
    ),
    _read("which capacity types are offered", "SupportedUsageClasses"),
    _read("CPUs of the node, kubelet's reserve, limits of pods and prices by estimate", "VCpuInfo.DefaultVCpus"),
    _read("memory of the node and its label", "MemoryInfo.SizeInMiB"),
    _read(
        "labels",
        "Hypervisor",
        "ProcessorInfo.Manufacturer",
        "ProcessorInfo.SustainedClockSpeedInGhz",
        "NetworkInfo.EncryptionInTransitSupported",
        "NetworkInfo.NetworkPerformance",
        "NetworkInfo.NetworkCards.BaselineBandwidthInGbps",
        "NetworkInfo.NetworkCards.PeakBandwidthInGbps",
        "EbsInfo.EbsOptimizedSupport",
        "EbsInfo.EbsOptimizedInfo.MaximumBandwidthInMbps",
        "GpuInfo.Gpus.MemoryInfo.SizeInMiB",
        "InferenceAcceleratorInfo.Accelerators.Count",
        "InferenceAcceleratorInfo.Accelerators.Name",
        "InferenceAcceleratorInfo.Accelerators.Manufacturer",
        "NeuronInfo.NeuronDevices.Name",
    ),
    _read("label of the NVMe store; only NVMe disks become a RAID", "InstanceStorageInfo.NvmeSupport"),
    _read("types that a nested virtualization of the EC2NodeClass needs", "ProcessorInfo.SupportedFeatures"),
    _read("Nitro enclaves and their label", "NitroEnclavesSupport"),
    _read("which types may be in a placement group", "PlacementGroupInfo.SupportedStrategies"),
    _read("branch interfaces: types that burst have none", "BurstablePerformanceSupported"),
    _read(
        "pods of a node and branch interfaces",
        "NetworkInfo.MaximumNetworkInterfaces",
        "NetworkInfo.DefaultNetworkCardIndex",
        "NetworkInfo.NetworkCards.MaximumNetworkInterfaces",
        "NetworkInfo.Ipv4AddressesPerInterface",
    ),
    _read("`vpc.amazonaws.com/efa`", "NetworkInfo.EfaInfo.MaximumEfaInterfaces"),
    _read(
        "resources of GPUs and labels; a fraction of a GPU has a count of 0 and one logical GPU",
        "GpuInfo.Gpus.Name",
        "GpuInfo.Gpus.Manufacturer",
        "GpuInfo.Gpus.Count",
        "GpuInfo.Gpus.LogicalGpuCount",
    ),
    _read("prices by estimate", "GpuInfo.TotalGpuMemoryInMiB", "InstanceStorageInfo.Disks.Type"),
    _read("ephemeral storage with `instanceStorePolicy: RAID0`, and a label", "InstanceStorageInfo.TotalSizeInGB"),
    _read("Neuron resources and labels", "NeuronInfo.NeuronDevices.Count", "NeuronInfo.NeuronDevices.CoreInfo.Count"),
    Entry(STORED, "the size in the name of the type says it", ("BareMetal",)),
    _without_effect("follows from the name of the type: NodePools choose generations by label", "CurrentGeneration"),
    _without_effect("prices are list prices", "FreeTierEligible"),
    _without_effect("all AMI families start from EBS volumes", "SupportedRootDeviceTypes"),
    _without_effect(
        "EC2's defaults are launched: neither NodePool nor EC2NodeClass has CPU options",
        "VCpuInfo.DefaultCores",
        "VCpuInfo.DefaultThreadsPerCore",
        "VCpuInfo.ValidCores",
        "VCpuInfo.ValidThreadsPerCore",
    ),
    _without_effect("follows from the information about the store", "InstanceStorageSupported"),
    _without_effect(
        "the RAID has the size of all disks together",
        "InstanceStorageInfo.Disks.SizeInGB",
        "InstanceStorageInfo.Disks.Count",
    ),
    _without_effect(
        "all types that can be launched encrypt; nothing asks for less",
        "InstanceStorageInfo.EncryptionSupport",
        "EbsInfo.EncryptionSupport",
    ),
    _without_effect(
        "no label of Karpenter says it",
        "EbsInfo.EbsOptimizedInfo.BaselineBandwidthInMbps",
        "EbsInfo.EbsOptimizedInfo.BaselineThroughputInMBps",
        "EbsInfo.EbsOptimizedInfo.BaselineIops",
        "EbsInfo.EbsOptimizedInfo.MaximumThroughputInMBps",
        "EbsInfo.EbsOptimizedInfo.MaximumIops",
        "EbsInfo.NvmeSupport",
        "EbsInfo.MaximumEbsCards",
        "EbsInfo.EbsCards",
        "NetworkInfo.NetworkCards.NetworkCardIndex",
        "NetworkInfo.NetworkCards.NetworkPerformance",
        "NetworkInfo.NetworkCards.DefaultEnaQueueCountPerInterface",
        "NetworkInfo.NetworkCards.MaximumEnaQueueCount",
        "NetworkInfo.NetworkCards.MaximumEnaQueueCountPerInterface",
        "NetworkInfo.BandwidthWeightings",
        "NetworkInfo.FlexibleEnaQueuesSupport",
        "NetworkInfo.ConnectionTrackingConfiguration",
        "NetworkInfo.EnaSrdSupported",
    ),
    _without_effect(
        "how many volumes a node takes is learned from its CSINode: the driver decides it",
        "EbsInfo.MaximumEbsAttachments",
        "EbsInfo.AttachmentLimitType",
    ),
    _without_effect("follows from the cards", "NetworkInfo.MaximumNetworkCards"),
    _without_effect(
        "pods get addresses from plain interfaces of the default card",
        "NetworkInfo.NetworkCards.AdditionalFlexibleNetworkInterfaces",
        "NetworkInfo.NetworkCards.InterfaceTypes",
        "NetworkInfo.SecondaryNetworkSupported",
        "NetworkInfo.MaximumSecondaryNetworkInterfaces",
        "NetworkInfo.Ipv4AddressesPerSecondaryInterface",
    ),
    _without_effect(
        "pods get a prefix, which every Nitro type takes",
        "NetworkInfo.Ipv6AddressesPerInterface",
        "NetworkInfo.Ipv6Supported",
    ),
    _without_effect("the AMIs of all families have the driver", "NetworkInfo.EnaSupport"),
    _without_effect("follows from the number of adapters", "NetworkInfo.EfaSupported"),
    _without_effect(
        "the number of logical GPUs says what a node shows", "GpuInfo.Gpus.GpuPartitionSize", "GpuInfo.Gpus.Workloads"
    ),
    _without_effect("no device plugin of Karpenter's resources", "FpgaInfo", "MediaAcceleratorInfo"),
    _without_effect(
        "no label of Karpenter says it",
        "InferenceAcceleratorInfo.Accelerators.MemoryInfo",
        "InferenceAcceleratorInfo.TotalInferenceMemoryInMiB",
        "NeuronInfo.NeuronDevices.CoreInfo.Version",
        "NeuronInfo.NeuronDevices.MemoryInfo",
        "NeuronInfo.TotalNeuronDeviceMemoryInMiB",
    ),
    _without_effect(
        "nodes neither hibernate nor recover: they are replaced",
        "HibernationSupported",
        "AutoRecoverySupported",
        "RebootMigrationSupport",
    ),
    _without_effect("EC2NodeClasses have no dedicated hosts by type; tenancy is a label", "DedicatedHostsSupported"),
    _without_effect(
        "an AMI says how it boots, and EC2 refuses a type that cannot",
        "SupportedBootModes",
        "NitroTpmSupport",
        "NitroTpmInfo",
    ),
    _without_effect("neither NodePool nor EC2NodeClass can ask for it", "PhcSupport"),
    _without_effect("types of other Regions are not listed", "SupportedInRegion"),
)
"""The use of every field, by its path in a record."""

_USES = {
    READ: "decisions or labels depend on it.",
    REFUSED: "a type is left out by it.",
    STORED: "the catalogue keeps it for people; no decision reads it.",
    WITHOUT_EFFECT: "it is not decoded, for the reason given.",
}


def fields_of_ec2() -> frozenset[str]:
    """The paths of all fields in botocore's model."""
    model = botocore.session.get_session().get_service_model("ec2")
    return frozenset(_paths(model.shape_for("InstanceTypeInfo"), ""))


def _paths(shape: Any, above: str) -> Iterator[str]:
    for name, member in shape.members.items():
        inner = member
        while inner.type_name == "list":
            inner = inner.member
        if inner.type_name == "structure":
            yield from _paths(inner, f"{above}{name}.")
        else:
            yield above + name


def fields_decoded(struct: type[msgspec.Struct] = Ec2InstanceType, above: str = "") -> dict[str, str]:
    """The paths of all fields that Shiplap decodes, and the attributes that hold them."""
    found: dict[str, str] = {}
    shape = inspect.type_info(struct)
    assert isinstance(shape, inspect.StructType)  # noqa: S101 - `struct` is one's
    for field in shape.fields:
        inner = _struct_in(field.type)
        path = above + field.encode_name
        found |= {path: field.name} if inner is None else fields_decoded(inner, f"{path}.")
    return found


def _struct_in(shape: inspect.Type) -> Any:
    match shape:
        case inspect.StructType(cls=cls):
            return cls
        case inspect.VarTupleType(item_type=of):
            return _struct_in(of)
        case inspect.UnionType(types=types):
            return next(filter(None, map(_struct_in, types)), None)
    return None


def covered(name: str, fields: frozenset[str]) -> frozenset[str]:
    """The fields that a name stands for: itself, or all below it."""
    return frozenset(field for field in fields if field == name or field.startswith(f"{name}."))


def text(fields: frozenset[str]) -> str:
    """The page."""
    counts = {
        use: sum(len(covered(name, fields)) for entry in FIELDS if entry.use == use for name in entry.names)
        for use in _USES
    }
    lines = [
        "# Fields of EC2's instance types",
        "",
        "Every field of a record of DescribeInstanceTypes, and its use. A name stands for all fields below it.",
        "",
        *(f"* **{use}** ({counts[use]}): {meaning}" for use, meaning in _USES.items()),
        "",
        "This page is written by `make docs`. A test compares it with botocore's model and with what Shiplap decodes.",
        "",
        "| field | use | reason |",
        "|---|---|---|",
    ]
    lines += (
        f"| {', '.join(f'`{name}`' for name in entry.names)} | {entry.use} | {entry.reason} |" for entry in FIELDS
    )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(fields_of_ec2()), encoding="utf-8")
