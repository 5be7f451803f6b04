"""Prices estimated from hardware, for planning from files and the demo, where AWS has not been asked.

A linear model: so much for a vCPU of a maker and generation, a GiB of memory, a GB of local disk, a GiB of GPU memory.
All coefficients are ≥ 0, so within a family a larger type never costs less. `tools/fit_prices.py` fits them to a price
list; these prices are marked as estimates wherever they are shown.
"""

from __future__ import annotations

import re

from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType

SPOT_FRACTION = 0.4
"""Of the on-demand price, where a zone's spot price is unknown; what spot commonly costs, between 0.25 and 0.6."""

_FLEX_FRACTION = 0.95
_NAME = re.compile(r"^[a-z]+(?:-\d+tb)?(?P<generation>\d+)(?P<options>[a-z]*)")
_GENERATIONS = {"aws": (6, 9), "amd": (5, 8), "intel": (4, 8)}
_OPTIONS = ("b", "n", "z")
_NEAR_DISK_GB_PER_VCPU = 60
_COMMON_MEMORY_GIB_PER_VCPU = 8

USD_PER_HOUR: dict[str, float] = {
    "accelerator Inferentia": 0.001528,
    "accelerator Inferentia2": 0.4595,
    "accelerator Trainium": 0.8186,
    "burstable memory amd": 0.0094,
    "burstable memory aws": 0.0084,
    "burstable memory intel": 0.01049,
    "disk hdd": 0.0003259,
    "disk hdd beyond": 5.214e-06,
    "disk ssd": 0.0001867,
    "disk ssd beyond": 8.422e-05,
    "gpu memory A100": 0.02816,
    "gpu memory A10G": 0.03515,
    "gpu memory B200": 0.0668,
    "gpu memory B300": 0.05327,
    "gpu memory H100": 0.06066,
    "gpu memory H200": 0.03602,
    "gpu memory L4": 0.02108,
    "gpu memory L40S": 0.04045,
    "gpu memory RTX PRO 4500": 0.06649,
    "gpu memory RTX PRO Server 6000": 0.02549,
    "gpu memory T4": 0.001872,
    "gpu memory T4g": 0.01835,
    "gpu memory V100": 0.08626,
    "memory amd 5": 0.003038,
    "memory amd 6": 0.003074,
    "memory amd 7": 0.004121,
    "memory amd 8": 0.004332,
    "memory aws 6": 0.002846,
    "memory aws 7": 0.002905,
    "memory aws 8": 0.003248,
    "memory aws 9": 0.00282,
    "memory beyond 8 GiB per vcpu": 0.00474,
    "memory intel 4": 0.003132,
    "memory intel 5": 0.003337,
    "memory intel 6": 0.00362,
    "memory intel 7": 0.003604,
    "memory intel 8": 0.003833,
    "memory option b": 0.002213,
    "memory option n": 0.0007224,
    "memory option z": 0.001883,
    "vcpu amd 5": 0.03214,
    "vcpu amd 6": 0.03186,
    "vcpu amd 7": 0.04278,
    "vcpu amd 8": 0.045,
    "vcpu aws 6": 0.02736,
    "vcpu aws 7": 0.03024,
    "vcpu aws 8": 0.03318,
    "vcpu aws 9": 0.03779,
    "vcpu intel 4": 0.04277,
    "vcpu intel 5": 0.03548,
    "vcpu intel 6": 0.03394,
    "vcpu intel 7": 0.03719,
    "vcpu intel 8": 0.03902,
    "vcpu option b": 0.0173,
    "vcpu option n": 0.018,
    "vcpu option z": 0.01181,
}
"""Per unit of each feature, fitted to the on-demand Linux prices of us-east-1 of July 2026."""

_UNKNOWN_DEVICE = {"gpu": 0.04, "accelerator": 1.0}
"""What a GiB of GPU memory, or an accelerator, of a kind not in the list is taken to cost."""


def on_demand(kind: Ec2InstanceType) -> float:
    """Estimated USD per hour of an on-demand Linux instance in us-east-1."""
    price = sum(_coefficient(name) * amount for name, amount in features(kind).items())
    return round(price * (_FLEX_FRACTION if _is_flex(kind) else 1.0), 5)


def features(kind: Ec2InstanceType) -> dict[str, float]:
    """Amounts by the name of the coefficient that prices them; a flex type has those of the type it is a variant of."""
    maker = kind.processor_info.manufacturer.lower()
    memory_gib = kind.memory_info.size_in_mi_b / 1024
    if kind.burstable_performance_supported:
        return {f"burstable memory {maker}": memory_gib}
    v_cpus = kind.v_cpu_info.default_v_cpus
    common = min(memory_gib, v_cpus * _COMMON_MEMORY_GIB_PER_VCPU)
    name = _NAME.match(kind.instance_type)
    line = f"{maker} {_generation(maker, name)}"
    values = {
        f"vcpu {line}": float(v_cpus),
        f"memory {line}": common,
        "memory beyond 8 GiB per vcpu": memory_gib - common,
    }
    options = name["options"] if name else ""
    for option in _OPTIONS:
        if option in options:
            values[f"vcpu option {option}"] = float(v_cpus)
            values[f"memory option {option}"] = common
    values.update(_devices(kind))
    return values


def _devices(kind: Ec2InstanceType) -> dict[str, float]:
    devices: dict[str, float] = {}
    store = kind.instance_storage_info
    if store is not None:
        media = "disk hdd" if any(disk.type == "hdd" for disk in store.disks) else "disk ssd"
        near = min(store.total_size_in_gb, _NEAR_DISK_GB_PER_VCPU * kind.v_cpu_info.default_v_cpus)
        devices[media] = float(near)
        devices[f"{media} beyond"] = float(store.total_size_in_gb - near)
    if kind.gpu_info is not None and kind.gpu_info.gpus:
        devices[f"gpu memory {kind.gpu_info.gpus[0].name}"] = kind.gpu_info.total_gpu_memory_in_mi_b / 1024
    if kind.neuron_info is not None:
        for device in kind.neuron_info.neuron_devices:
            devices[f"accelerator {device.name}"] = float(device.count)
    return devices


def _coefficient(name: str) -> float:
    return USD_PER_HOUR.get(name, _UNKNOWN_DEVICE.get(name.partition(" ")[0], 0.0))


def _generation(maker: str, name: re.Match[str] | None) -> int:
    """The generation as far as prices are known; a newer one is taken to cost what the newest known does."""
    oldest, newest = _GENERATIONS.get(maker, (0, 0))
    return min(max(int(name["generation"]) if name else oldest, oldest), newest)


def _is_flex(kind: Ec2InstanceType) -> bool:
    return "-flex." in kind.instance_type
