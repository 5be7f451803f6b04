"""The labels a node of an instance type carries, as requirements that a scheduler can intersect.

A label that an instance type does not have is written as DoesNotExist, so that neither `In` nor `Gt` ever matches it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import ARCHITECTURES, Ec2InstanceType, NetworkInfo
from shiplap.instances.catalog.resolved_nodeclass import PlacementGroup
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirement

_GENERATION = re.compile(r"^(?P<category>[a-z]+)(?:-\d+tb)?(?P<generation>\d+)?")
_PERFORMANCE = re.compile(r"^(?:(?P<cards>\d+)x )?(?P<up_to>Up to )?(?P<gigabits>[\d.]+) Gigabit$")


OFFERING_LABELS = (
    labels.ZONE,
    labels.ZONE_ID,
    labels.CAPACITY_TYPE,
    labels.RESERVATION_ID,
    labels.RESERVATION_TYPE,
    labels.RESERVATION_INTERRUPTIBLE,
)
"""Labels that an offering decides, not the instance type."""


LabelValue: TypeAlias = str | tuple[str, ...] | None
"""What is known of a label: its value, several possible values, or that it does not exist."""


class RequirementCache(dict[tuple[str, LabelValue], Requirement]):
    """Makes each distinct requirement once, by (key, value): most labels take few values over a thousand types."""

    def __missing__(self, item: tuple[str, LabelValue]) -> Requirement:
        key, value = item
        values = frozenset((value,)) if isinstance(value, str) else frozenset(value or ())
        made = self[item] = Requirement(key, values=values)
        return made


def architecture(kind: Ec2InstanceType) -> str:
    """The value of kubernetes.io/arch: the first of EC2's architectures that Kubernetes knows."""
    return next(
        (ARCHITECTURES[name] for name in kind.processor_info.supported_architectures if name in ARCHITECTURES), ""
    )


def hardware_labels(kind: Ec2InstanceType, family: AmiFamily, region: str) -> dict[str, LabelValue]:
    """All labels but the offerings: None where a label does not exist, a tuple where it may have several values."""
    name = kind.instance_type
    instance_family, _, size = name.partition(".")
    split = _GENERATION.match(name)
    clock = kind.processor_info.sustained_clock_speed_in_ghz
    ebs = kind.ebs_info
    store = kind.instance_storage_info
    values: dict[str, LabelValue] = {
        labels.INSTANCE_TYPE: name,
        labels.ARCH: architecture(kind),
        labels.OS: family.os,
        labels.WINDOWS_BUILD: family.windows_build or None,
        labels.REGION: region,
        _CATEGORY: split["category"] if split else None,
        _GENERATION_LABEL: split["generation"] if split else None,
        _FAMILY: instance_family,
        _SIZE: size,
        _CPU: str(kind.v_cpu_info.default_v_cpus),
        _CPU_MANUFACTURER: _slug(kind.processor_info.manufacturer) or None,
        _CLOCK: str(round(clock * 1000)) if clock else None,
        _MEMORY: str(kind.memory_info.size_in_mi_b),
        _EBS_BANDWIDTH: str(ebs.ebs_optimized_info.maximum_bandwidth_in_mbps)
        if ebs.ebs_optimized_support == "default" and ebs.ebs_optimized_info
        else None,
        _NETWORK_BANDWIDTH: network_bandwidth(kind.network_info),
        _LOCAL_NVME: str(store.total_size_in_gb) if store and store.nvme_support != "unsupported" else None,
        _HYPERVISOR: kind.hypervisor,
        _ENCRYPTION: _flag(kind.network_info.encryption_in_transit_supported),
        _SANDBOX: _flag(kind.nitro_enclaves_support == "supported"),
        _TENANCY: ("dedicated", "default"),
        _FLEX: _flag("-flex" in instance_family),
    }
    values.update(_gpu(kind))
    values.update(_accelerator(kind))
    return values


def network_bandwidth(network: NetworkInfo) -> str | None:
    """Megabits per second that last, as the EC2 user guide's table states them; None where it only has words for it.

    The figure is the one in NetworkPerformance when that is a constant, however many cards share it. Behind "Up to" it
    is the cards' baseline, cut to hundredths of a gigabit where the baseline is all there is.
    """
    stated = _PERFORMANCE.match(network.network_performance)
    if stated is None:
        return None
    if not stated["up_to"]:
        return str(round(float(stated["gigabits"]) * int(stated["cards"] or 1) * 1000))
    baseline = sum(card.baseline_bandwidth_in_gbps or 0 for card in network.network_cards)
    peak = sum(card.peak_bandwidth_in_gbps or 0 for card in network.network_cards)
    if not baseline:
        return None
    return str(int(baseline * 100 + 1e-6) * 10 if baseline >= peak else round(baseline * 1000))


def placement_labels(group: PlacementGroup | None) -> dict[str, LabelValue]:
    """The labels of nodes in a placement group: its id, and the partitions they may be in; none without a group."""
    if group is None:
        return {}
    partitions = tuple(str(number) for number in range(1, group.partitions + 1))
    return {_GROUP: group.id, labels.PARTITION: partitions or None}


def offering_labels(offerings: Iterable[Offering]) -> dict[str, tuple[str, ...]]:
    """The labels an offering decides: zone, zone id and capacity type, all values that can still be had."""
    offerings = tuple(offerings)
    return {
        labels.ZONE: tuple(sorted({offering.zone for offering in offerings})),
        labels.ZONE_ID: tuple(sorted({offering.zone_id for offering in offerings if offering.zone_id})),
        labels.CAPACITY_TYPE: tuple(sorted({offering.capacity_type for offering in offerings})),
    }


def meets(wanted: Requirement, given: Requirement | None) -> bool:
    """True if a node with the label values `given` satisfies `wanted`, strictly: an undefined label is no wildcard."""
    if given is None or not given.values:
        return wanted.allows_undefined
    return any(wanted.has(value) for value in given.values)


def single_valued_labels(instance_type: InstanceType) -> dict[str, str]:
    """The labels every node of the type has wherever and however bought, sorted: those with one possible value."""
    return {
        requirement.key: next(iter(requirement.values))
        for requirement in sorted(instance_type.requirements, key=lambda item: item.key)
        if requirement.key not in OFFERING_LABELS and not requirement.complement and len(requirement.values) == 1
    }


def _aws(name: str) -> str:
    return labels.AWS_PREFIX + name


_CATEGORY = _aws("instance-category")
_GENERATION_LABEL = _aws("instance-generation")
_FAMILY = _aws("instance-family")
_SIZE = _aws("instance-size")
_CPU = _aws("instance-cpu")
_CPU_MANUFACTURER = _aws("instance-cpu-manufacturer")
_CLOCK = _aws("instance-cpu-sustained-clock-speed-mhz")
_MEMORY = _aws("instance-memory")
_EBS_BANDWIDTH = _aws("instance-ebs-bandwidth")
_NETWORK_BANDWIDTH = _aws("instance-network-bandwidth")
_LOCAL_NVME = _aws("instance-local-nvme")
_HYPERVISOR = _aws("instance-hypervisor")
_ENCRYPTION = _aws("instance-encryption-in-transit-supported")
_SANDBOX = _aws("nitro-sandbox")
_TENANCY = _aws("instance-tenancy")
_GROUP = _aws("placement-group-id")
_FLEX = _aws("instance-capability-flex")
_GPU = tuple(_aws(f"instance-gpu-{what}") for what in ("name", "manufacturer", "count", "memory"))
_ACCELERATOR = tuple(_aws(f"instance-accelerator-{what}") for what in ("name", "manufacturer", "count"))

_NO_GPU = dict.fromkeys(_GPU)
_NO_ACCELERATOR = dict.fromkeys(_ACCELERATOR)


def _gpu(kind: Ec2InstanceType) -> Mapping[str, str | None]:
    gpus = kind.gpu_info.gpus if kind.gpu_info else ()
    if len(gpus) != 1:
        return _NO_GPU
    gpu = gpus[0]
    memory = str(gpu.memory_info.size_in_mi_b) if gpu.memory_info else None
    return _labelled(_GPU, (_slug(gpu.name), _slug(gpu.manufacturer), str(gpu.devices), memory))


def _accelerator(kind: Ec2InstanceType) -> Mapping[str, str | None]:
    neuron = kind.neuron_info.neuron_devices if kind.neuron_info else ()
    inference = kind.inference_accelerator_info.accelerators if kind.inference_accelerator_info else ()
    if len(neuron) == 1:
        return _labelled(_ACCELERATOR, (_slug(neuron[0].name), "aws", str(neuron[0].count)))
    if kind.neuron_info is None and len(inference) == 1:
        device = inference[0]
        return _labelled(_ACCELERATOR, (_slug(device.name), _slug(device.manufacturer), str(device.count)))
    return _NO_ACCELERATOR


def _labelled(keys: Sequence[str], values: Sequence[str | None]) -> Mapping[str, str | None]:
    return dict(zip(keys, values, strict=True))


def _slug(text: str) -> str:
    return text.lower().replace(" ", "-")


def _flag(value: object) -> str:
    return "true" if value else "false"
