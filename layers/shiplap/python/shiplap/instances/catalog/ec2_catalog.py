"""The raw catalogue: EC2's description of every instance type, before any EC2NodeClass is applied to it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from shiplap.errors import InvalidInput

ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
"""EC2's names of the architectures a node may have, and Kubernetes' names for them."""


class _Raw(msgspec.Struct, frozen=True, rename="pascal", omit_defaults=True, gc=False):
    """Base: DescribeInstanceTypes' own PascalCase; fields Shiplap does not use are skipped."""


class VCpuInfo(_Raw, frozen=True):
    default_v_cpus: int = msgspec.field(name="DefaultVCpus")


class MemoryInfo(_Raw, frozen=True):
    size_in_mi_b: int = msgspec.field(name="SizeInMiB")


class ProcessorInfo(_Raw, frozen=True):
    supported_architectures: tuple[str, ...] = ()
    sustained_clock_speed_in_ghz: float | None = None
    manufacturer: str = ""
    supported_features: tuple[str, ...] = ()


class NetworkCard(_Raw, frozen=True):
    maximum_network_interfaces: int = 0
    baseline_bandwidth_in_gbps: float | None = None
    peak_bandwidth_in_gbps: float | None = None


class EfaInfo(_Raw, frozen=True):
    maximum_efa_interfaces: int = 0


class NetworkInfo(_Raw, frozen=True):
    ipv4_addresses_per_interface: int = 0
    maximum_network_interfaces: int = 0
    default_network_card_index: int = 0
    network_cards: tuple[NetworkCard, ...] = ()
    encryption_in_transit_supported: bool = False
    efa_info: EfaInfo | None = None
    network_performance: str = ""


class GpuMemoryInfo(_Raw, frozen=True):
    size_in_mi_b: int = msgspec.field(name="SizeInMiB", default=0)


class GpuDeviceInfo(_Raw, frozen=True):
    """`count` is the number of physical GPUs: 0 on types that own a fraction of one, such as g6f."""

    name: str = ""
    manufacturer: str = ""
    count: int = 0
    memory_info: GpuMemoryInfo | None = None
    logical_gpu_count: int = 0

    @property
    def devices(self) -> int:
        """The GPUs that a node shows: a fraction is one, also in records that lack the number of logical GPUs."""
        return self.logical_gpu_count or self.count or 1


class GpuInfo(_Raw, frozen=True):
    gpus: tuple[GpuDeviceInfo, ...] = ()
    total_gpu_memory_in_mi_b: int = msgspec.field(name="TotalGpuMemoryInMiB", default=0)


class NeuronCoreInfo(_Raw, frozen=True):
    count: int = 0


class NeuronDeviceInfo(_Raw, frozen=True):
    name: str = ""
    count: int = 0
    core_info: NeuronCoreInfo | None = None


class NeuronInfo(_Raw, frozen=True):
    neuron_devices: tuple[NeuronDeviceInfo, ...] = ()


class InferenceDeviceInfo(_Raw, frozen=True):
    name: str = ""
    manufacturer: str = ""
    count: int = 0


class InferenceAcceleratorInfo(_Raw, frozen=True):
    accelerators: tuple[InferenceDeviceInfo, ...] = ()


class DiskInfo(_Raw, frozen=True):
    type: str = ""


class InstanceStorageInfo(_Raw, frozen=True):
    disks: tuple[DiskInfo, ...] = ()
    total_size_in_gb: int = msgspec.field(name="TotalSizeInGB", default=0)
    nvme_support: str = ""


class EbsOptimizedInfo(_Raw, frozen=True):
    maximum_bandwidth_in_mbps: int = 0


class EbsInfo(_Raw, frozen=True):
    ebs_optimized_support: str = ""
    ebs_optimized_info: EbsOptimizedInfo | None = None


class PlacementGroupInfo(_Raw, frozen=True):
    supported_strategies: tuple[str, ...] = ()


class Ec2InstanceType(_Raw, frozen=True):
    """One record of DescribeInstanceTypes."""

    instance_type: str
    v_cpu_info: VCpuInfo = msgspec.field(name="VCpuInfo")
    memory_info: MemoryInfo
    network_info: NetworkInfo
    processor_info: ProcessorInfo = ProcessorInfo()
    hypervisor: str = ""
    bare_metal: bool = False
    burstable_performance_supported: bool = False
    supported_usage_classes: tuple[str, ...] = ()
    supported_virtualization_types: tuple[str, ...] = ()
    gpu_info: GpuInfo | None = None
    neuron_info: NeuronInfo | None = None
    inference_accelerator_info: InferenceAcceleratorInfo | None = None
    instance_storage_info: InstanceStorageInfo | None = None
    ebs_info: EbsInfo = EbsInfo()
    placement_group_info: PlacementGroupInfo = PlacementGroupInfo()
    nitro_enclaves_support: str = ""


class ZonePrice(msgspec.Struct, frozen=True):
    """Spot price of a type in a zone, USD per hour."""

    zone: str
    price: float


class TypePrices(msgspec.Struct, frozen=True, omit_defaults=True):
    """`on_demand` in USD per hour, None when unknown; `estimated` when derived from hardware, not from AWS."""

    on_demand: float | None = None
    spot: tuple[ZonePrice, ...] = ()
    estimated: bool = False


class Catalog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Types, where they are sold and for how much, in one region; `refreshed_at` in epoch seconds.

    `zones` maps a type to the zones that offer it, `zone_ids` a zone to its id. `on_demand_at` and `spot_at` say when
    AWS last gave prices, which may be long before; 0 means never.
    """

    region: str
    types: tuple[Ec2InstanceType, ...]
    zones: dict[str, tuple[str, ...]] = {}
    zone_ids: dict[str, str] = {}
    prices: dict[str, TypePrices] = {}
    refreshed_at: float = 0.0
    version: str = ""
    on_demand_at: float = 0.0
    spot_at: float = 0.0


def parse_instance_types(records: Iterable[Mapping[str, Any]]) -> tuple[Ec2InstanceType, ...]:
    """DescribeInstanceTypes records, as botocore returns them, as typed ones: only types a node can run on, by name.

    A node needs hardware virtualization and an architecture Kubernetes images are built for.

    Raises:
        InvalidInput: a record lacks a field every instance type has.
    """
    kept = []
    for record in records:
        try:
            kind = msgspec.convert(record, Ec2InstanceType)
        except msgspec.ValidationError as error:
            name = str(record.get("InstanceType", "?"))
            raise InvalidInput("DescribeInstanceTypes", str(error), document=name) from error
        architectures = kind.processor_info.supported_architectures
        if "hvm" in kind.supported_virtualization_types and not ARCHITECTURES.keys().isdisjoint(architectures):
            kept.append(kind)
    return tuple(sorted(kept, key=lambda kind: kind.instance_type))


def encode(catalog: Catalog) -> bytes:
    """A catalogue as compressed MessagePack; equal catalogues give equal bytes."""
    return zlib.compress(msgspec.msgpack.encode(catalog, order="deterministic"), 9)


def decode(data: bytes, source: str = "catalogue") -> Catalog:
    """The inverse of `encode`.

    Raises:
        InvalidInput: the bytes are no catalogue; `source` names them.
    """
    try:
        return msgspec.msgpack.decode(zlib.decompress(data), type=Catalog)
    except (zlib.error, msgspec.DecodeError) as error:
        raise InvalidInput(source, f"not a catalogue: {error}") from error
