"""The instance types an EC2NodeClass can launch, each with the best known capacity of its nodes.

Sources, best first: what a node of exactly this AMI, type and kubelet settings reported; what siblings on the AMI
reported; Karpenter's formulas. Users' NodeOverlays come on top per NodePool (see `overlays`). While a type is
unverified, `careful` holds the lower bound that all but one node must be planned with.

A node boots the best AMI whose requirements its type meets.

Instance types are computed once for the same inputs: hundreds of types take a tenth of a second, a warm function asks
with every invocation, and the catalogue and learned capacity change by the hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting, node_class_setting
from shiplap.instances.capacity.described_capacity import nominal_memory
from shiplap.instances.capacity.estimate import CapacityEstimator, default_max_pods, max_pods
from shiplap.instances.capacity.kubelet_settings import (
    FormulaValues,
    KubeletSettings,
    kubelet_hash,
    read_kubelet_settings,
    with_max_pods,
    with_values,
)
from shiplap.instances.capacity.learned_capacity import LearnedCapacityIndex
from shiplap.instances.catalog import type_labels
from shiplap.instances.catalog.ami_families import family_of
from shiplap.instances.catalog.ec2_catalog import Catalog, Ec2InstanceType
from shiplap.instances.catalog.resolved_nodeclass import (
    UPCOMING_STATES,
    Ami,
    CapacityReservation,
    PlacementGroup,
    ResolvedNodeClass,
)
from shiplap.instances.catalog.type_catalog import InstanceType, LearnedCapacity, Offering
from shiplap.instances.catalog.type_labels import meets
from shiplap.instances.offerings.offerings import incompatibility, offerings, subnet_zones
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.manifests.custom_resources import EC2NodeClass


class AmiChooser:
    """The AMIs of an EC2NodeClass in order of preference, ready to be asked type by type.

    AMIs that EC2 has deprecated come last. A label that a type does not define meets only NotIn and DoesNotExist, even
    if it is a well-known one: an image for GPUs must never win a type about whose GPUs nothing is known.
    """

    def __init__(self, amis: Sequence[Ami]) -> None:
        ordered = sorted(amis, key=lambda ami: ami.deprecated)
        self._candidates = [(ami.id, tuple(_requirements(ami).values())) for ami in ordered]

    def choose(self, type_requirements: Mapping[str, Requirement]) -> str | None:
        """The id of the AMI for a type with these labels, or None when no AMI fits."""
        for ami, wanted in self._candidates:
            if all(meets(rule, type_requirements.get(rule.key)) for rule in wanted):
                return ami
        return None


def _requirements(ami: Ami) -> Requirements:
    try:
        return Requirements(requirement(key, operator, values) for key, operator, values in ami.requirements)
    except ValueError as error:
        raise InvalidInput(f"AMI {ami.id}", str(error), field="requirements") from error


def instance_types(
    catalog: Catalog,
    node_class: EC2NodeClass,
    setting: CapacitySetting,
    *,
    resolved: ResolvedNodeClass | None,
    learned: Sequence[LearnedCapacity],
    unavailable: Collection[tuple[str, str, str]],
    cluster: str = "",
    now: float = 0.0,
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
        cluster: the one that plans, because what its own nodes report counts first; empty when planning from files.
        now: epoch seconds, because reports in doubt are forgotten; 0 when planning from files.

    Raises:
        InvalidInput: the EC2NodeClass names no known AMI family, or its kubelet settings cannot be read or evaluated
            for a type.
    """
    inputs = _TypeInputs(
        catalog=catalog,
        node_class=node_class,
        setting=node_class_setting(setting, node_class),
        amis=None if resolved is None else resolved.amis,
        zones=subnet_zones(resolved),
        group=None if resolved is None else resolved.placement_group,
        reservations=() if resolved is None else _reservations(resolved),
        unavailable=frozenset(unavailable),
    )
    types = _unmeasured_types(inputs)
    nominal = {kind.instance_type: nominal_memory(kind) for kind in catalog.types}
    knowledge = LearnedCapacityIndex(learned, nominal, cluster=cluster, now=now)
    estimator = CapacityEstimator(node_class, family_of(node_class), inputs.setting, knowledge)
    return tuple(_measured(unmeasured, estimator) for unmeasured in types)


def _reservations(resolved: ResolvedNodeClass) -> tuple[CapacityReservation, ...]:
    """Those that can be launched into, and those that pods may wait for."""
    upcoming = (held for held in resolved.upcoming_reservations if held.state in UPCOMING_STATES)
    return (*resolved.capacity_reservations, *upcoming)


class _TypeInputs(NamedTuple):
    """Everything the types of an EC2NodeClass depend on, except learned capacity.

    `amis` is None when the selectors were not answered, `zones` when subnets may be in any.
    """

    catalog: Catalog
    node_class: EC2NodeClass
    setting: CapacitySetting
    amis: tuple[Ami, ...] | None
    zones: frozenset[str] | None
    group: PlacementGroup | None
    reservations: tuple[CapacityReservation, ...]
    unavailable: frozenset[tuple[str, str, str]]

    def equals(self, other: _TypeInputs) -> bool:
        """As `==`, but a catalogue, which is large, only equals itself."""
        return self.catalog is other.catalog and self[1:] == other[1:]


class _UnmeasuredType(NamedTuple):
    """A type without its capacity: its AMI, its offerings and its kubelet settings."""

    kind: Ec2InstanceType
    requirements: tuple[Requirement, ...]
    offered: tuple[Offering, ...]
    ami: str
    pods: int
    kubelet: KubeletSettings
    values: FormulaValues
    kubelet_hash: str


_MOST_REMEMBERED = 8
"""EC2NodeClasses whose types are kept; a thousand each."""

_known: tuple[tuple[_TypeInputs, tuple[_UnmeasuredType, ...]], ...] = ()


def _unmeasured_types(inputs: _TypeInputs) -> tuple[_UnmeasuredType, ...]:
    """Types in the order of the catalogue, remembered: a warm function asks with the same inputs again and again."""
    global _known  # noqa: PLW0603 - one assignment, so that threads at worst do the same work twice
    for known, types in _known:
        if known.equals(inputs):
            return types
    resolver = _TypeResolver(inputs)
    types = tuple(unmeasured for kind in inputs.catalog.types if (unmeasured := resolver.resolve(kind)) is not None)
    others = [item for item in _known if item[0].catalog is inputs.catalog]
    _known = ((inputs, types), *others[: _MOST_REMEMBERED - 1])
    return types


def _measured(unmeasured: _UnmeasuredType, estimator: CapacityEstimator) -> InstanceType:
    figures = estimator.figures(
        unmeasured.kind, unmeasured.ami, unmeasured.kubelet_hash, unmeasured.pods, unmeasured.kubelet
    )
    return InstanceType(
        name=unmeasured.kind.instance_type,
        requirements=unmeasured.requirements,
        capacity=figures.capacity,
        overhead=figures.overhead,
        offerings=unmeasured.offered,
        careful=figures.careful,
        verified=figures.verified,
        sources=figures.sources,
        ami=unmeasured.ami,
        kubelet_hash=unmeasured.kubelet_hash,
        overhead_fraction=figures.overhead_fraction,
        kubelet_values=unmeasured.values,
        voices=figures.voices,
    )


class _TypeResolver:
    """Resolves the types of one EC2NodeClass."""

    def __init__(self, inputs: _TypeInputs) -> None:
        self._catalog = inputs.catalog
        self._node_class = inputs.node_class
        self._setting = inputs.setting
        self._family = family_of(inputs.node_class)
        self._kubelet = read_kubelet_settings(inputs.node_class)
        self._amis = None if inputs.amis is None else AmiChooser(inputs.amis)
        self._zones = inputs.zones
        self._unavailable = inputs.unavailable
        self._group = inputs.group
        self._reservations: dict[str, list[CapacityReservation]] = {}
        for held in inputs.reservations:
            self._reservations.setdefault(held.instance_type, []).append(held)
        self._pool = type_labels.RequirementCache()
        self._hashes: dict[tuple[int, FormulaValues], str] = {}

    def resolve(self, kind: Ec2InstanceType) -> _UnmeasuredType | None:
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
        label_values = type_labels.hardware_labels(kind, self._family, self._setting.region)
        label_values |= type_labels.offering_labels(offered)
        label_values |= type_labels.placement_labels(self._group)
        requirements = {item[0]: self._pool[item] for item in label_values.items()}
        ami = self._ami(requirements)
        if ami is None or (self._family.os == "windows" and type_labels.architecture(kind) != "amd64"):
            return None
        pods, kubelet, values = self._settled(kind)
        own_hash = self._hash(pods, values)
        return _UnmeasuredType(kind, tuple(requirements.values()), offered, ami, pods, kubelet, values, own_hash)

    def _ami(self, requirements: Mapping[str, Requirement]) -> str | None:
        return "" if self._amis is None else self._amis.choose(requirements)

    def _settled(self, kind: Ec2InstanceType) -> tuple[int, KubeletSettings, FormulaValues]:
        """The number of pods of a type, its kubelet settings, and the values of its formulas."""
        nics, kubelet = self._node_class.spec.network_interfaces, self._kubelet
        if not kubelet.formulas:
            return max_pods(kind, self._family, kubelet, self._setting, nics), kubelet, ()
        kubelet = with_max_pods(kubelet, kind, default_max_pods(kind, self._family, self._setting, nics))
        pods = max_pods(kind, self._family, kubelet, self._setting, nics)
        return pods, *with_values(kubelet, kind, pods)

    def _hash(self, pods: int, values: FormulaValues) -> str:
        known = self._hashes.get((pods, values))
        if known is None:
            known = self._hashes[pods, values] = kubelet_hash(self._node_class, pods, values)
        return known


_MOST = 16
"""Questions that are remembered: an EC2NodeClass of a cluster asks one, until something changes."""

_STEP_S = 600
"""Types are computed once for so many seconds: a report in doubt counts for an hour at least."""

_KNOWN: deque[tuple[tuple[object, ...], tuple[InstanceType, ...]]] = deque(maxlen=_MOST)


def remembered_types(
    catalog: Catalog,
    node_class: EC2NodeClass,
    setting: CapacitySetting,
    *,
    resolved: ResolvedNodeClass | None,
    learned: Sequence[LearnedCapacity],
    unavailable: Collection[tuple[str, str, str]],
    cluster: str = "",
    now: float = 0.0,
) -> tuple[InstanceType, ...]:
    """As `instance_types`; for equal arguments the same tuple. Time passes in steps of ten minutes.

    Raises InvalidInput.
    """
    now -= now % _STEP_S
    asked = (catalog, node_class, setting, resolved, tuple(learned), frozenset(unavailable), cluster, now)
    for place, (known, types) in enumerate(_KNOWN):
        if known == asked:
            if place:
                del _KNOWN[place]
                _KNOWN.appendleft((known, types))
            return types
    made = instance_types(
        catalog,
        node_class,
        setting,
        resolved=resolved,
        learned=learned,
        unavailable=unavailable,
        cluster=cluster,
        now=now,
    )
    _KNOWN.appendleft((asked, made))
    return made
