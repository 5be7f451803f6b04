"""Machines that boot from their user data: what their hardware really yields, and what Node each registers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.capacity.described_capacity import described_capacity
from shiplap.instances.capacity.estimate import eni_limited_pods, max_pods, overhead
from shiplap.instances.capacity.kubelet_settings import read_kubelet_settings
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.instances.catalog.ec2_catalog import Catalog, Ec2InstanceType
from shiplap.instances.catalog.type_labels import architecture
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY, format_resources
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap_lab.api_server.stored_pods import condition
from shiplap_lab.cluster_simulator.booted_user_data import NodeRegistration, registration
from shiplap_lab.scenarios.scenario import node_memory

_HUGE_PAGES, _HUGE_PAGE_BYTES = f"{HUGE_PAGES}2Mi", 2 * 2**20


class Machine(msgspec.Struct, frozen=True):
    """An EC2 instance as its kubelet knows it. `launched_at` in epoch seconds, `user_data` decoded.

    `reboots` counts how often EC2 has restarted it.
    """

    id: str
    instance_type: str
    zone: str
    ami: str
    launched_at: float
    running: bool = True
    private_dns: str = ""
    user_data: str = ""
    reboots: int = 0

    @property
    def node_name(self) -> str:
        return self.private_dns or self.id

    @property
    def region(self) -> str:
        return self.zone.rstrip("abcdefghijklmnopqrstuvwxyz")

    @property
    def provider_id(self) -> str:
        return f"aws:///{self.zone}/{self.id}"


class NodeResources(msgspec.Struct, frozen=True):
    """The report of a kubelet, in canonical units; `architecture` and `os` as the labels kubernetes.io/* have them."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    architecture: str = "amd64"
    os: str = "linux"


Hardware = Callable[[Machine, NodeRegistration], NodeResources]
"""The truth about a machine, as its kubelet finds it."""

TrueMemory = Callable[[Ec2InstanceType, str], int]
"""Bytes a kernel really sees, by instance type and AMI."""


class CatalogHardware:
    """Hardware of the types of a catalogue; what kubelet keeps back follows the node's own settings."""

    def __init__(self, catalog: Catalog, memory: TrueMemory | None = None) -> None:
        self._types = {kind.instance_type: kind for kind in catalog.types}
        self._memory = memory or partial(node_memory, ())

    def __call__(self, machine: Machine, registration: NodeRegistration) -> NodeResources:
        """Capacity and allocatable of one machine. Raises InvalidInput when the catalogue lacks its type."""
        kind = self._types.get(machine.instance_type)
        if kind is None:
            raise InvalidInput("catalogue", f"has no instance type {machine.instance_type!r}")
        family = FAMILIES[registration.family]
        spec = EC2NodeClassSpec(kubelet=registration.kubelet)
        kubelet = read_kubelet_settings(EC2NodeClass(metadata=ObjectMeta(name=machine.id), spec=spec))
        pods = kubelet.max_pods or max_pods(kind, family, kubelet, CapacitySetting(region=machine.region))
        if kubelet.pods_per_core and family.pods_per_core:
            pods = min(pods, kubelet.pods_per_core * kind.v_cpu_info.default_v_cpus)
        capacity = described_capacity(kind, family, spec, pods=pods, overhead_percent=0.0)
        capacity[MEMORY] = self._memory(kind, machine.ami)
        capacity[EPHEMERAL_STORAGE] = capacity[EPHEMERAL_STORAGE] * 999 // 1000  # the file system's own share
        paged = registration.huge_pages * _HUGE_PAGE_BYTES
        if paged:
            capacity[_HUGE_PAGES] = paged
        counted = eni_limited_pods(kind) if family.eni_limited_overhead else pods
        kept = overhead(capacity, kind.v_cpu_info.default_v_cpus, counted, kubelet)
        kept[MEMORY] = kept.get(MEMORY, 0) + paged
        allocatable = {resource: max(0, amount - kept.get(resource, 0)) for resource, amount in capacity.items()}
        return NodeResources(capacity, allocatable, architecture(kind), family.os)


class Delays(msgspec.Struct, frozen=True):
    """Seconds: launch until the Node appears, from then until it is Ready; binding until the pod runs."""

    join_s: float = 1.0
    ready_s: float = 0.5
    pod_start_s: float = 0.0


class BootedMachines:
    """A NodeSource: Nodes as user data and hardware have them; an ended machine and a deleted pod are gone at once.

    `joins` may replace the join delay of single machines: seconds, or None for a machine that never joins.
    """

    node_gone_s = 0.0

    def __init__(
        self, hardware: Hardware, delays: Delays, joins: Callable[[Machine], float | None] | None, version: str
    ) -> None:
        self.pod_start_s = delays.pod_start_s
        self._hardware, self._delays, self._joins, self._version = hardware, delays, joins, version

    def node_object(self, machine: Machine, now: float) -> dict[str, Any]:
        return node_object(machine, self._hardware, self._version, now)

    def join_s(self, machine: Machine) -> float | None:
        return self._joins(machine) if self._joins else self._delays.join_s

    def ready_s(self, machine: Machine) -> float:  # noqa: ARG002 - all take the same time
        return self._delays.ready_s

    def pod_end_s(self, uid: str) -> float:  # noqa: ARG002 - all end at once
        return 0.0


def node_object(machine: Machine, hardware: Hardware, version: str, now: float) -> dict[str, Any]:
    """The Node that a machine's kubelet registers: labels and taints of its user data, and what the hardware yields.

    Not ready yet; with what a cloud controller adds, zone labels and provider id. `now` in epoch seconds.

    Raises:
        InvalidInput: the machine's boot script would fail on its user data.
    """
    moment = rfc3339(now)
    registered = registration(machine.user_data)
    resources = hardware(machine, registered)
    not_ready = {"key": labels.NOT_READY_TAINT, "effect": "NoSchedule", "timeAdded": moment}
    return {
        "metadata": {
            "name": machine.node_name,
            "labels": {
                **registered.labels,
                labels.HOSTNAME: machine.node_name,
                labels.INSTANCE_TYPE: machine.instance_type,
                labels.ZONE: machine.zone,
                labels.REGION: machine.region,
                labels.ARCH: resources.architecture,
                labels.OS: resources.os,
            },
        },
        "spec": {
            "providerID": machine.provider_id,
            "taints": [*msgspec.to_builtins(registered.taints), not_ready],
        },
        "status": {
            "capacity": format_resources(resources.capacity),
            "allocatable": format_resources(resources.allocatable),
            "conditions": [condition("Ready", "False", moment, "KubeletNotReady", "container network is not ready")],
            "addresses": [{"type": "Hostname", "address": machine.node_name}],
            "nodeInfo": {
                "kubeletVersion": version,
                "architecture": resources.architecture,
                "operatingSystem": resources.os,
                "osImage": registered.family,
            },
        },
    }
