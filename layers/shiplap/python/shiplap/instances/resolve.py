"""The instance types an EC2NodeClass can launch, each with the best known figures of what a node of it yields.

Sources, best first: what a node of exactly this AMI, type and kubelet settings reported; what siblings on the AMI
reported; Karpenter's formulas. Users' NodeOverlays come on top per NodePool (see `overlays`). While a type is
unverified, `careful` holds the lower bound that all but one node must be planned with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from shiplap.api.types import EC2NodeClass
from shiplap.instances import labels as type_labels
from shiplap.instances.amis import AmiChooser
from shiplap.instances.capacity import nominal_memory
from shiplap.instances.catalog import Catalog, Ec2InstanceType
from shiplap.instances.estimate import Estimator
from shiplap.instances.families import family_of
from shiplap.instances.kubelet import KubeletSettings, Values, kubelet_hash, read
from shiplap.instances.kubelet_formulas import with_max_pods, with_values
from shiplap.instances.learning import Knowledge
from shiplap.instances.max_pods import default_pods, max_pods
from shiplap.instances.nodeclass import CapacityReservation, ResolvedNodeClass
from shiplap.instances.offerings import incompatibility, offerings, subnet_zones
from shiplap.instances.setting import CapacitySetting, for_node_class
from shiplap.instances.types import InstanceType, LearnedCapacity
from shiplap.kubernetes.requirements import Requirement


def instance_types(
    catalog: Catalog,
    node_class: EC2NodeClass,
    setting: CapacitySetting,
    *,
    resolved: ResolvedNodeClass | None,
    learned: Sequence[LearnedCapacity],
    unavailable: Collection[tuple[str, str, str]],
) -> tuple[InstanceType, ...]:
    """Every type of the catalogue that has an AMI under this EC2NodeClass, sorted by name.

    Args:
        catalog: what EC2 sells in the region.
        node_class: as written; its annotations may change the setting.
        setting: what holds for the cluster.
        resolved: AMIs and subnets of the EC2NodeClass, or None when planning from files: then every type is kept,
            in all zones, with an unknown AMI.
        learned: learned capacity of these AMIs, in any order.
        unavailable: (type, zone, capacity type) that EC2 refused lately.

    Raises:
        InvalidInput: the EC2NodeClass names no known AMI family, or its kubelet settings cannot be read or worked out
            for a type.
    """
    builder = _Builder(catalog, node_class, setting, resolved, learned, unavailable)
    return tuple(built for kind in catalog.types if (built := builder.build(kind)) is not None)


class _Builder:
    """What is the same for all types of one call."""

    def __init__(
        self,
        catalog: Catalog,
        node_class: EC2NodeClass,
        setting: CapacitySetting,
        resolved: ResolvedNodeClass | None,
        learned: Sequence[LearnedCapacity],
        unavailable: Collection[tuple[str, str, str]],
    ) -> None:
        self._catalog = catalog
        self._node_class = node_class
        self._setting = for_node_class(setting, node_class)
        self._family = family_of(node_class)
        self._kubelet = read(node_class)
        self._amis = None if resolved is None else AmiChooser(resolved.amis)
        self._zones = subnet_zones(resolved)
        self._unavailable = frozenset(unavailable)
        self._group = resolved.placement_group if resolved is not None else None
        self._reservations: dict[str, list[CapacityReservation]] = {}
        for held in resolved.capacity_reservations if resolved is not None else ():
            self._reservations.setdefault(held.instance_type, []).append(held)
        nominal = {kind.instance_type: nominal_memory(kind) for kind in catalog.types}
        self._estimator = Estimator(node_class, self._family, self._setting, Knowledge(learned, nominal))
        self._pool = type_labels.RequirementPool()
        self._hashes: dict[tuple[int, Values], str] = {}

    def build(self, kind: Ec2InstanceType) -> InstanceType | None:
        """The type under the EC2NodeClass, or None when no AMI fits it."""
        spec = self._node_class.spec
        compatible = incompatibility(kind, self._family, spec, self._group) is None
        offered = offerings(
            self._catalog,
            kind,
            compatible=compatible,
            zones=self._zones,
            unavailable=self._unavailable,
            reservations=self._reservations.get(kind.instance_type, ()),
        )
        found = type_labels.hardware(kind, self._family, self._setting.region) | type_labels.of_offerings(offered)
        found |= type_labels.of_placement(self._group)
        requirements = {item[0]: self._pool[item] for item in found.items()}
        ami = self._ami(requirements)
        if ami is None or (self._family.os == "windows" and type_labels.architecture(kind) != "amd64"):
            return None
        pods, kubelet, values = self._settled(kind)
        kubelet_hash = self._hash(pods, values)
        figures = self._estimator.figures(kind, ami, kubelet_hash, pods, kubelet)
        return InstanceType(
            name=kind.instance_type,
            requirements=tuple(requirements.values()),
            capacity=figures.capacity,
            overhead=figures.overhead,
            offerings=offered,
            careful=figures.careful,
            verified=figures.verified,
            sources=figures.sources,
            ami=ami,
            kubelet_hash=kubelet_hash,
            overhead_fraction=figures.overhead_fraction,
            kubelet_values=values,
        )

    def _ami(self, requirements: Mapping[str, Requirement]) -> str | None:
        return "" if self._amis is None else self._amis.choose(requirements)

    def _settled(self, kind: Ec2InstanceType) -> tuple[int, KubeletSettings, Values]:
        """The number of pods of a type, its kubelet settings, and what its formulas came to."""
        nics, kubelet = self._node_class.spec.network_interfaces, self._kubelet
        if not kubelet.formulas:
            return max_pods(kind, self._family, kubelet, self._setting, nics), kubelet, ()
        kubelet = with_max_pods(kubelet, kind, default_pods(kind, self._family, self._setting, nics))
        pods = max_pods(kind, self._family, kubelet, self._setting, nics)
        return pods, *with_values(kubelet, kind, pods)

    def _hash(self, pods: int, values: Values) -> str:
        found = self._hashes.get((pods, values))
        if found is None:
            found = self._hashes[pods, values] = kubelet_hash(self._node_class, pods, values)
        return found
