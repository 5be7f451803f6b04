"""The instance types that EC2 sells in the simulated Region, and the capacity that their nodes really have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiplap.instances.capacity.capacity_setting import cluster_setting
from shiplap.instances.catalog.ec2_catalog import (
    Catalog,
    Ec2InstanceType,
    MemoryInfo,
    NetworkCard,
    NetworkInfo,
    ProcessorInfo,
    TypePrices,
    VCpuInfo,
    ZonePrice,
)
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.catalog.type_labels import architecture
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.settings import ClusterSettings
from shiplap_lab.scenarios.scenario import NodeMemoryRule, node_memory

REGION = "eu-west-1"
ZONES = ("eu-west-1a", "eu-west-1b", "eu-west-1c")

_SIZES = {"large": (2, 3, 10), "xlarge": (4, 4, 15), "2xlarge": (8, 4, 15), "4xlarge": (16, 8, 30)}
_GIB_PER_CPU = {"c7i-flex": 2, "c7i": 2, "m7i-flex": 4, "m6i": 4, "m7i": 4, "r6i": 8}
_PRICE_PER_CPU = {
    "c7i-flex": 0.0424,
    "c7i": 0.0446,
    "m7i-flex": 0.0479,
    "m6i": 0.0480,
    "m7i": 0.0504,
    "r6i": 0.0630,
}


def catalog() -> Catalog:
    """Six families in four sizes, on demand and on spot, in three zones."""
    types, prices = [], {}
    for family in sorted(_GIB_PER_CPU):
        for size, (cpus, interfaces, addresses) in sorted(_SIZES.items()):
            name = f"{family}.{size}"
            price = cpus * _PRICE_PER_CPU[family]
            types.append(
                Ec2InstanceType(
                    instance_type=name,
                    v_cpu_info=VCpuInfo(cpus),
                    memory_info=MemoryInfo(cpus * _GIB_PER_CPU[family] * 1024),
                    network_info=NetworkInfo(addresses, interfaces, 0, (NetworkCard(interfaces),)),
                    processor_info=ProcessorInfo(("x86_64",), 3.2, "Intel"),
                    hypervisor="nitro",
                    supported_usage_classes=("on-demand", "spot"),
                    supported_virtualization_types=("hvm",),
                )
            )
            spot = tuple(
                ZonePrice(zone, round(price * share, 4)) for zone, share in zip(ZONES, (0.38, 0.41, 0.44), strict=True)
            )
            prices[name] = TypePrices(round(price, 4), spot)
    zones: dict[str, tuple[str, ...]] = {instance_type.instance_type: ZONES for instance_type in types}
    return Catalog(region=REGION, types=tuple(types), zones=zones, prices=prices)


class FixedCatalogSource:
    """A CatalogSource that always returns the same catalogue."""

    def __init__(self, sold: Catalog) -> None:
        self._sold = sold

    def fetch(self, previous: Catalog | None) -> Catalog:  # noqa: ARG002 - nothing is kept from before
        """The catalogue."""
        return self._sold


class SimulatedHardware:
    """The real capacity of a cluster's nodes by type; `memory` has the rules of the scenario."""

    def __init__(self, sold: Catalog, settings: ClusterSettings, memory: Sequence[NodeMemoryRule], seed: int) -> None:
        self.memory, self._seed = memory, seed
        self._sold = {instance_type.instance_type: instance_type for instance_type in sold.types}
        self._types = {item.metadata.name: _formula(sold, item, settings) for item in settings.manifests.node_classes}
        self._class_of = {
            pool.metadata.name: pool.spec.template.spec.node_class_ref.name for pool in settings.manifests.node_pools
        }

    def resources(self, node_pool: str, instance_type: str, ami: str) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable, canonical units."""
        known = self._types[self._class_of[node_pool]][instance_type]
        memory = node_memory(self.memory, self._sold[instance_type], ami, self._seed)
        capacity = {**known.capacity, MEMORY: memory}
        allocatable = {name: max(0, amount - known.overhead.get(name, 0)) for name, amount in capacity.items()}
        return capacity, allocatable

    def architecture(self, instance_type: str) -> str:
        """As Kubernetes names it."""
        return architecture(self._sold[instance_type])

    def price(self, node_pool: str, instance_type: str, zone: str, capacity_type: str) -> float:
        """USD per hour."""
        for offering in self._types[self._class_of[node_pool]][instance_type].offerings:
            if (offering.zone, offering.capacity_type) == (zone, capacity_type):
                return offering.price
        return 0.0


def _formula(sold: Catalog, node_class: EC2NodeClass, settings: ClusterSettings) -> Mapping[str, InstanceType]:
    types = instance_types(sold, node_class, cluster_setting(settings, ()), resolved=None, learned=(), unavailable=())
    return {instance_type.name: instance_type for instance_type in types}
