"""The instance types that EC2 sells in the simulated Region, and the capacity that their nodes really have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from math import prod

import msgspec
from msgspec.structs import replace

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
from shiplap.instances.offerings.offerings import offerings
from shiplap.settings import ClusterSettings
from shiplap_lab.judge.raw_json import Json
from shiplap_lab.scenarios.scenario import NodeMemoryRule, node_memory
from shiplap_lab.virtual_time.machine_yields import MachineYields

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


def catalog(*, zone_ids: bool = False) -> Catalog:
    """Six families in four sizes, on demand and on spot, in three zones, whose ids are known if they are asked for."""
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
    ids = {zone: f"euw1-az{number}" for number, zone in enumerate(ZONES, 1)} if zone_ids else {}
    return Catalog(region=REGION, types=tuple(types), zones=zones, prices=prices, zone_ids=ids)


def price(sold: Catalog, instance_type: str, zone: str, capacity_type: str) -> float:
    """USD per hour that EC2 charges, an estimate where the catalogue has no price; 0 for what is not sold."""
    of_type = sold.prices.get(instance_type)
    if of_type is None:
        return _estimated(sold, instance_type, zone, capacity_type)
    if capacity_type == "spot":
        return next((item.price for item in of_type.spot if item.zone == zone), 0.0)
    return of_type.on_demand or 0.0


def _estimated(sold: Catalog, instance_type: str, zone: str, capacity_type: str) -> float:
    of_type = (kind for kind in sold.types if kind.instance_type == instance_type)
    known = (item for kind in of_type for item in offerings(sold, kind, compatible=True, zones=None, unavailable=()))
    return next((item.price for item in known if (item.zone, item.capacity_type) == (zone, capacity_type)), 0.0)


class MovingCatalogSource:
    """A CatalogSource that returns the same catalogue but for what spot costs.

    `factors` are the active ones: offerings (globs of type/zone), and how many times as much they cost.
    """

    def __init__(self, sold: Catalog, factors: Callable[[], Sequence[tuple[str, float]]]) -> None:
        self._sold, self._factors = sold, factors

    def fetch(self, previous: Catalog | None) -> Catalog:  # noqa: ARG002 - nothing is kept from before
        """The catalogue with the prices of now."""
        factors = self._factors()
        if not factors:
            return self._sold
        prices = {
            name: replace(known, spot=tuple(_times(factors, name, item) for item in known.spot))
            for name, known in self._sold.prices.items()
        }
        return replace(self._sold, prices=prices)


def _times(factors: Sequence[tuple[str, float]], instance_type: str, item: ZonePrice) -> ZonePrice:
    found = [factor for target, factor in factors if fnmatchcase(f"{instance_type}/{item.zone}", target)]
    return replace(item, price=round(item.price * prod(found), 4))


class SimulatedHardware:
    """The real capacity of a cluster's nodes by type; `memory` has the rules of the scenario."""

    def __init__(self, sold: Catalog, settings: ClusterSettings, memory: Sequence[NodeMemoryRule], seed: int) -> None:
        self.memory, self._seed = memory, seed
        self._sold = {kind.instance_type: kind for kind in sold.types}
        self._described: dict[str, Json] = {}
        self._yields = {
            item.metadata.name: MachineYields(
                {"spec": msgspec.to_builtins(item.spec)},
                reserved_enis=settings.reserved_enis,
                prefix_delegation=settings.prefix_delegation,
                seed=seed,
            )
            for item in settings.manifests.node_classes
        }
        self._class_of = {
            pool.metadata.name: pool.spec.template.spec.node_class_ref.name for pool in settings.manifests.node_pools
        }

    def resources(self, node_pool: str, instance_type: str, ami: str) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable, canonical units. Nodes without a NodePool have the first EC2NodeClass by name."""
        kind = self._sold[instance_type]
        if instance_type not in self._described:
            self._described[instance_type] = msgspec.to_builtins(kind)
        memory = node_memory(self.memory, kind, ami, self._seed)
        node_class = self._class_of[node_pool] if node_pool else min(self._yields)
        return self._yields[node_class].resources(self._described[instance_type], memory)

    def architecture(self, instance_type: str) -> str:
        """As Kubernetes names it."""
        return "arm64" if "arm64" in self._sold[instance_type].processor_info.supported_architectures else "amd64"
