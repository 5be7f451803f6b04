"""Computes the real resources of simulated machines from EC2's description of a type and an EC2NodeClass, as JSON.

It computes nothing by the product's formulas: a mistake there shows as a node that is smaller than its plan. The memory
that a kernel sees is given by the scenario. The seed decides how much of a volume its file system keeps. Branch
interfaces are not reported: a cluster has them only once its CNI is told to make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from random import Random
from typing import Any

from shiplap_lab.judge.raw_json import Json, amount

_MIB = 2**20
_GIB = 2**30
_PER_PREFIX = 16
_LEAST_FILE_SYSTEM = 0.96
"""The least share of a volume that is left to pods after its file system's own data."""

_DEVICES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


class MachineYields:
    """Computes the resources that the machines of one EC2NodeClass yield.

    Args:
        node_class: the EC2NodeClass, as it is written.
        reserved_enis: network interfaces that pods get no addresses from.
        prefix_delegation: whether the CNI gives out prefixes: `on`, `off`, or `auto` where nothing is known of it.
    """

    def __init__(self, node_class: Json, *, reserved_enis: int, prefix_delegation: str, seed: int) -> None:
        self._spec: Json = node_class["spec"]
        self._kubelet: Json = self._spec.get("kubelet") or {}
        self._reserved, self._prefixes, self._seed = reserved_enis, prefix_delegation, seed

    def resources(self, kind: Json, memory: int) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable of a type whose kernel sees so many bytes; CPU in millicores, others in units."""
        cpus, pods = int(kind["VCpuInfo"]["DefaultVCpus"]), self._pods(kind)
        capacity = {
            "cpu": cpus * 1000,
            "memory": memory,
            "ephemeral-storage": self._storage(kind),
            "pods": pods,
            **_devices(kind),
        }
        kept = self._kept(capacity, cpus, pods if self._is("bottlerocket") else _plain_pods(kind, 0))
        return capacity, {name: max(0, has - kept.get(name, 0)) for name, has in capacity.items()}

    def _is(self, family: str) -> bool:
        terms = self._spec.get("amiSelectorTerms") or ()
        named = [self._spec.get("amiFamily") or "", *(term.get("alias") or "" for term in terms)]
        return next((name for name in named if name), "").lower().startswith(family)

    def _pods(self, kind: Json) -> int:
        """As the script of the EKS AMIs has it; the kubelet's own settings lower it, or replace it."""
        cpus = int(kind["VCpuInfo"]["DefaultVCpus"])
        nitro, told = kind.get("Hypervisor") == "nitro", self._kubelet.get("maxPods")
        plain = _plain_pods(kind, self._reserved)
        most = _plain_pods(kind, self._reserved, _PER_PREFIX) if nitro and self._prefixes != "off" else plain
        pods = min(most, 250 if cpus > 30 else 110) if self._prefixes == "on" else plain
        if told is not None:
            pods = min(told, most)
        per_core = self._kubelet.get("podsPerCore") or 0
        return min(pods, per_core * cpus) if per_core and not self._is("bottlerocket") else pods

    def _storage(self, kind: Json) -> int:
        if self._spec.get("instanceStorePolicy") == "RAID0" and kind.get("InstanceStorageInfo"):
            volume = kind["InstanceStorageInfo"]["TotalSizeInGB"] * 10**9
        else:
            volume = self._volume()
        chance = Random(f"{self._seed}:file system:{kind['InstanceType']}")  # noqa: S311 - repeatable chance
        return int(volume * chance.uniform(_LEAST_FILE_SYSTEM, 1.0))

    def _volume(self) -> int:
        device = "/dev/xvdb" if self._is("bottlerocket") else "/dev/xvda"
        volumes = self._spec.get("blockDeviceMappings") or ()
        roots = [item for item in volumes if item.get("rootVolume")]
        chosen = roots or [item for item in volumes if item.get("deviceName") == device]
        size = (chosen[0].get("ebs") or {}).get("volumeSize") if chosen else None
        return int(amount(size or "20Gi"))

    def _kept(self, capacity: Mapping[str, int], cpus: int, counted_pods: int) -> dict[str, int]:
        """Return the resources that kubelet keeps back: kube-reserved, system-reserved, and what it evicts pods for."""
        kept = {
            "cpu": _reserved_millicores(cpus),
            "memory": (11 * counted_pods + 255) * _MIB,
            "ephemeral-storage": _GIB,
        }
        kept.update(_canonical(self._kubelet.get("kubeReserved")))
        for name, more in _canonical(self._kubelet.get("systemReserved")).items():
            kept[name] = kept.get(name, 0) + more
        below = {"memory.available": "100Mi", "nodefs.available": "10%", **(self._kubelet.get("evictionHard") or {})}
        kept["memory"] += _threshold(below["memory.available"], capacity["memory"])
        kept["ephemeral-storage"] += _threshold(below["nodefs.available"], capacity["ephemeral-storage"])
        return kept


def _plain_pods(kind: Json, reserved_enis: int, per_address: int = 1) -> int:
    """Addresses of the default network card, without each interface's own, and two pods of the host network."""
    network = kind["NetworkInfo"]
    cards, index = network.get("NetworkCards") or (), network.get("DefaultNetworkCardIndex") or 0
    holder = cards[index] if index < len(cards) else network
    usable = int(holder["MaximumNetworkInterfaces"]) - reserved_enis
    if usable <= 0:
        return 0
    return usable * (int(network["Ipv4AddressesPerInterface"]) - 1) * per_address + 2


def _reserved_millicores(cpus: int) -> int:
    """6 % of the first core, 1 % of the second, half a per cent of the next two, a quarter of the others."""
    return 60 + 10 * (cpus > 1) + 5 * min(max(cpus - 2, 0), 2) + max(cpus - 4, 0) * 5 // 2


def _devices(kind: Json) -> dict[str, int]:
    found: dict[str, int] = {}
    for gpu in (kind.get("GpuInfo") or {}).get("Gpus") or ():
        name = _DEVICES.get(str(gpu.get("Manufacturer", "")).lower())
        if name and gpu.get("Count"):
            found[name] = found.get(name, 0) + int(gpu["Count"])
    neuron = (kind.get("NeuronInfo") or {}).get("NeuronDevices") or ()
    if neuron:
        found["aws.amazon.com/neuron"] = sum(int(device.get("Count", 0)) for device in neuron)
        found["aws.amazon.com/neuroncore"] = sum(
            int(device.get("Count", 0)) * int((device.get("CoreInfo") or {}).get("Count", 0)) for device in neuron
        )
    adapters = ((kind["NetworkInfo"].get("EfaInfo")) or {}).get("MaximumEfaInterfaces")
    return {**found, "vpc.amazonaws.com/efa": adapters} if adapters else found


def _canonical(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {
        name: int(amount(quantity) * (1000 if name == "cpu" else 1)) for name, quantity in (quantities or {}).items()
    }


def _threshold(value: str, capacity: int) -> int:
    if not value.endswith("%"):
        return int(amount(value))
    share = float(value[:-1])
    return 0 if share >= 100 else ceil(capacity * share / 100)
