"""The capacity of a node of one type, by the best source there is, and how far that can be trusted.

The number of pods is Karpenter's formula, bounded by the VPC CNI's ceilings and by the kubelet's settings. The ceilings
are those of max-pods-calculator.sh (awslabs/amazon-eks-ami), quirks included: only the default network card counts,
bare metal is not taken to delegate prefixes, and the recommended ceiling holds without prefixes too. The overhead is
the part that kubelet keeps back: kube-reserved, system-reserved and the eviction thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import msgspec

from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.capacity.described_capacity import (
    BRANCH_INTERFACES,
    MIB,
    careful_branches,
    careful_capacity,
    default_card_interfaces,
    described_capacity,
    nominal_memory,
)
from shiplap.instances.capacity.kubelet_settings import KubeletSettings, Threshold
from shiplap.instances.capacity.learned_capacity import LearnedCapacityIndex, allowed_memory
from shiplap.instances.capacity.trusted_amounts import (
    NOTHING_TRUSTED,
    AllowedAmounts,
    AllowedRange,
    TrustedAmounts,
)
from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from shiplap.manifests.custom_resources import EC2NodeClass, NetworkInterface

_HOST_NETWORK_PODS = 2
_ADDRESSES_PER_PREFIX = 16
_ADDRESSES_PER_IPV6_PREFIX = 2**48
"""Of the /80 that the first interface gets: more than any node runs pods, whatever its interfaces."""
_WITHOUT_ENI_LIMIT = 110


def eni_limited_pods(kind: Ec2InstanceType, reserved_enis: int = 0) -> int:
    """Pods by secondary addresses, as Karpenter counts them; 0 when no interface is left for pods."""
    usable = max(default_card_interfaces(kind) - reserved_enis, 0)
    return _secondary(kind, usable) if usable else 0


def cni_max_pods(kind: Ec2InstanceType, cni: VpcCni, reserved_enis: int = 0) -> int:
    """Pods the VPC CNI can give addresses to: max-pods-calculator.sh with --show-max-allowed.

    Custom networking keeps the first interface from pods. It is also what `reserved_enis` of 1 is commonly set for,
    so the two do not add up. With IPv6 one prefix on the first interface serves all pods.
    """
    if cni.ipv6 and kind.hypervisor == "nitro":
        return _ADDRESSES_PER_IPV6_PREFIX
    usable = default_card_interfaces(kind)
    if cni.max_eni is not None:
        usable = min(usable, cni.max_eni)
    usable = max(usable - max(reserved_enis, int(cni.custom_networking)), 0)
    if cni.delegates_prefixes and kind.hypervisor == "nitro":
        return (
            usable * (kind.network_info.ipv4_addresses_per_interface - 1) * _ADDRESSES_PER_PREFIX + _HOST_NETWORK_PODS
        )
    return _secondary(kind, usable)


def recommended_max_pods(kind: Ec2InstanceType, cni: VpcCni, reserved_enis: int = 0) -> int:
    """The figure of max-pods-calculator.sh: the ceiling, but at most 110, or 250 on more than 30 vCPUs."""
    return min(cni_max_pods(kind, cni, reserved_enis), 250 if kind.v_cpu_info.default_v_cpus > 30 else 110)


def max_pods(
    kind: Ec2InstanceType,
    family: AmiFamily,
    kubelet: KubeletSettings,
    setting: CapacitySetting,
    network_interfaces: tuple[NetworkInterface, ...] = (),
) -> int:
    """Pods a node of this type is told to take; planned with, and written to its user data.

    By default Karpenter's formula, or what the calculator recommends once the CNI is known to depart from plain
    secondary addresses. `maxPods` replaces the default but never exceeds the addresses the CNI can give out; while
    nothing is known about the CNI, prefix delegation is allowed for. `podsPerCore` lowers the result.
    """
    reserved = _reserved(setting, network_interfaces)
    pods = default_max_pods(kind, family, setting, network_interfaces)
    if kubelet.max_pods is not None:
        pods = kubelet.max_pods
        if family.eni_limited_density:
            pods = min(pods, cni_max_pods(kind, setting.cni or VpcCni(prefix_delegation=True), reserved))
    if kubelet.pods_per_core > 0 and family.pods_per_core:
        pods = min(pods, kubelet.pods_per_core * kind.v_cpu_info.default_v_cpus)
    return pods


def default_max_pods(
    kind: Ec2InstanceType,
    family: AmiFamily,
    setting: CapacitySetting,
    network_interfaces: tuple[NetworkInterface, ...] = (),
) -> int:
    """Pods a node of this type takes when its EC2NodeClass says nothing about it."""
    if not family.eni_limited_density:
        return _WITHOUT_ENI_LIMIT
    return _default(kind, setting.cni, _reserved(setting, network_interfaces))


def _reserved(setting: CapacitySetting, network_interfaces: tuple[NetworkInterface, ...]) -> int:
    """Interfaces of the default card that pods cannot use: those set aside, and those for elastic fabric alone."""
    return setting.reserved_enis + sum(
        1 for nic in network_interfaces if nic.network_card_index == 0 and nic.interface_type == "efa-only"
    )


def _default(kind: Ec2InstanceType, cni: VpcCni | None, reserved_enis: int) -> int:
    if cni is not None and (cni.delegates_prefixes or cni.custom_networking or cni.max_eni is not None or cni.ipv6):
        return recommended_max_pods(kind, cni, reserved_enis)
    return eni_limited_pods(kind, reserved_enis)


def _secondary(kind: Ec2InstanceType, usable: int) -> int:
    return usable * (kind.network_info.ipv4_addresses_per_interface - 1) + _HOST_NETWORK_PODS


_GIB = 2**30
_CPU_BANDS = ((1, 600), (2, 100), (4, 50))
"""Up to so many vCPUs, hundredths of a per cent of each core that are kept back; 25 beyond."""

_DEFAULT_EVICTION = {MEMORY: Threshold(amount=100 * MIB), EPHEMERAL_STORAGE: Threshold(percent=10)}


def reserved_cpu(v_cpus: int) -> int:
    """Millicores kept back by default: 6 % of the first core, 1 % of the second, 0.5 % of two more, 0.25 % of the rest.

    Each band is cut to whole millicores before they are added, as on EKS.
    """
    total, below = 0, 0
    for upper, share in (*_CPU_BANDS, (v_cpus, 25)):
        cores = min(v_cpus, upper) - below
        if cores > 0:
            total += cores * 1000 * share // 10_000
            below += cores
    return total


def reserved_memory(pods: int) -> int:
    """Bytes kept back by default: 11 MiB for each pod and 255 MiB."""
    return (11 * pods + 255) * MIB


def overhead(capacity: Mapping[str, int], v_cpus: int, counted_pods: int, kubelet: KubeletSettings) -> dict[str, int]:
    """The amount kept back of each resource, canonical units.

    `counted_pods` is the number of pods the memory reserve is sized for; it depends on the AMI family (see
    `AmiFamily.eni_limited_overhead`). Percentages are of `capacity`, so a better estimate of that changes them.
    """
    kept = {
        CPU: reserved_cpu(v_cpus),
        MEMORY: reserved_memory(counted_pods),
        EPHEMERAL_STORAGE: _GIB,
    }
    if kubelet.kube_reserved:
        kept.update(kubelet.kube_reserved)
    for resource, amount in kubelet.system_reserved.items():
        kept[resource] += amount
    for resource, default in _DEFAULT_EVICTION.items():
        threshold = kubelet.eviction.get(resource, default)
        kept[resource] += threshold_bytes(threshold, capacity[resource])
    return kept


def overhead_fraction(kubelet: KubeletSettings) -> dict[str, float]:
    """The share of further capacity that is kept back too, per resource: eviction thresholds written in per cent."""
    thresholds = {resource: kubelet.eviction.get(resource, default) for resource, default in _DEFAULT_EVICTION.items()}
    return {
        resource: threshold.percent / 100
        for resource, threshold in thresholds.items()
        if threshold.percent is not None and 0 < threshold.percent < 100
    }


def threshold_bytes(threshold: Threshold, capacity: int) -> int:
    """Bytes below which kubelet evicts. 100 % means that the signal is off."""
    if threshold.percent is None:
        return threshold.amount
    return 0 if threshold.percent >= 100 else ceil(capacity / 100 * threshold.percent)


_FORMULA = (EPHEMERAL_STORAGE, MEMORY, PODS, BRANCH_INTERFACES)
"""Resources whose amount a formula gives; EC2 states the others as they are."""


class CapacityEstimate(msgspec.Struct, frozen=True):
    """The part of an InstanceType that is about amounts; see there."""

    capacity: dict[str, int]
    overhead: dict[str, int]
    careful: dict[str, int]
    verified: bool
    sources: dict[str, str]
    overhead_fraction: dict[str, float]
    voices: int = 0


class CapacityEstimator:
    """Estimates type after type under one EC2NodeClass."""

    def __init__(
        self,
        node_class: EC2NodeClass,
        family: AmiFamily,
        setting: CapacitySetting,
        knowledge: LearnedCapacityIndex,
    ) -> None:
        self._spec = node_class.spec
        self._family = family
        self._setting = setting
        self._knowledge = knowledge

    def figures(
        self, kind: Ec2InstanceType, ami: str, kubelet_hash: str, pods: int, kubelet: KubeletSettings
    ) -> CapacityEstimate:
        """The figures of a type that boots `ami`, is told to take `pods` pods and has these kubelet settings."""
        percent = self._setting.overhead_percent(kind.instance_type)
        formula = described_capacity(kind, self._family, self._spec, pods=pods, overhead_percent=percent)
        trusted = NOTHING_TRUSTED
        if self._knowledge.has_reports(ami, kind.instance_type, kubelet_hash):
            allowed = allowed_amounts(kind, formula, self._overhead(kind, formula, kubelet))
            trusted = self._knowledge.trusted(ami, kind.instance_type, kubelet_hash, allowed)
        found = self._estimated(kind, ami, kubelet_hash, formula, trusted, kubelet)
        if found.verified and not trusted.fading:
            return found
        bound = {} if found.verified else _below_doubted(found, trusted)
        heard = self._knowledge.voices(ami, kind.instance_type, kubelet_hash)
        return msgspec.structs.replace(found, careful=bound, voices=heard)

    def _estimated(
        self,
        kind: Ec2InstanceType,
        ami: str,
        kubelet_hash: str,
        formula: dict[str, int],
        trusted: TrustedAmounts,
        kubelet: KubeletSettings,
    ) -> CapacityEstimate:
        """By what nodes have reported, if the cluster can rely on it, else by siblings and the formula."""
        sources = {resource: "formula" if resource in _FORMULA else "catalog" for resource in formula}
        if MEMORY in trusted.capacity:
            return self._learned(kind, formula, sources, trusted, kubelet)
        nominal = nominal_memory(kind)
        inferred = self._knowledge.inferred_memory(ami, kind.instance_type, nominal, formula[MEMORY])
        if inferred is not None:
            formula[MEMORY] = inferred
            sources[MEMORY] = "sibling"
        bound = careful_capacity(kind, formula, self._knowledge.worst_overhead_ratio(ami))
        kept = self._overhead(kind, formula, kubelet)
        imported = self._knowledge.imported(ami, kind.instance_type, kubelet_hash)
        if imported is not None:
            for resource in _lower(formula, kept, bound, *imported):
                sources[resource] = "imported"
        return CapacityEstimate(
            formula,
            kept,
            bound,
            verified=False,
            sources=sources,
            overhead_fraction=overhead_fraction(kubelet),
        )

    def _learned(
        self,
        kind: Ec2InstanceType,
        formula: dict[str, int],
        sources: dict[str, str],
        trusted: TrustedAmounts,
        kubelet: KubeletSettings,
    ) -> CapacityEstimate:
        """Reported figures replace computed ones; what kubelet keeps back is the difference it reported.

        The number of pods is not learned: kubelet was told it. A node of a pool whose NodeOverlay says more must not
        raise it above the addresses there are. The type stays unverified while a resource is in doubt.
        """
        amounts = formula | trusted.capacity
        amounts[PODS] = min(amounts[PODS], formula[PODS])
        kept = self._overhead(kind, amounts, kubelet)
        for resource in sorted(trusted.capacity.keys() & trusted.allocatable.keys() - {PODS}):
            difference = trusted.capacity[resource] - trusted.allocatable[resource]
            if difference or resource in kept:
                kept[resource] = difference
        return CapacityEstimate(
            amounts,
            kept,
            {},
            verified=not trusted.in_doubt,
            sources=sources | dict.fromkeys(trusted.capacity, "learned") | dict.fromkeys(trusted.fading, "reported"),
            overhead_fraction=overhead_fraction(kubelet),
        )

    def _overhead(self, kind: Ec2InstanceType, amounts: dict[str, int], kubelet: KubeletSettings) -> dict[str, int]:
        counted = eni_limited_pods(kind) if self._family.eni_limited_overhead else amounts[PODS]
        return overhead(amounts, kind.v_cpu_info.default_v_cpus, counted, kubelet)


_PODS_LESS = 2
"""Pods that a node may have less than computed, beside an eighth of them."""


def allowed_amounts(kind: Ec2InstanceType, formula: Mapping[str, int], kept: Mapping[str, int]) -> AllowedAmounts:
    """Return the amounts that EC2's description of a type allows a node to report.

    Memory: see `allowed_memory`; branch interfaces: see `careful_branches`. Of pods and of the volume an eighth may be
    missing, nothing of CPUs and devices. The kubelet may keep twice what is computed, and of CPUs a sixteenth more.

    Args:
        kind: as EC2 describes it.
        formula: the capacity by formula, canonical units.
        kept: what kubelet keeps of it by formula.
    """
    capacity = {resource: AllowedRange(amount, amount) for resource, amount in formula.items()}
    nominal = nominal_memory(kind)
    capacity[MEMORY] = AllowedRange(min(allowed_memory(nominal).least, formula[MEMORY]), max(nominal, formula[MEMORY]))
    capacity[EPHEMERAL_STORAGE] = _less_an_eighth(formula[EPHEMERAL_STORAGE])
    capacity[PODS] = AllowedRange(max(_less_an_eighth(formula[PODS]).least - _PODS_LESS, 0), formula[PODS])
    if BRANCH_INTERFACES in formula:
        capacity[BRANCH_INTERFACES] = AllowedRange(careful_branches(kind), formula[BRANCH_INTERFACES])
    allocatable = {
        resource: AllowedRange(range_.least - 2 * kept.get(resource, 0), range_.most)
        for resource, range_ in capacity.items()
    }
    cpu = allocatable[CPU]
    allocatable[CPU] = AllowedRange(cpu.least - cpu.most // 16, cpu.most)
    return AllowedAmounts(capacity, allocatable)


def _less_an_eighth(amount: int) -> AllowedRange:
    return AllowedRange(amount - amount // 8, amount)


def _below_doubted(found: CapacityEstimate, trusted: TrustedAmounts) -> dict[str, int]:
    """The careful bound, so that a plan that does not explore relies on no more than a doubted report has."""
    bound = dict(found.careful)
    for resource, amount in found.capacity.items():
        doubted = trusted.doubted_capacity.get(resource, amount)
        if resource in trusted.doubted_allocatable:
            left = trusted.doubted_allocatable[resource] + found.overhead.get(resource, 0)
            doubted = min(doubted, left)
        if doubted < bound.get(resource, amount):
            bound[resource] = doubted
    return bound


def _lower(
    amounts: dict[str, int],
    kept: dict[str, int],
    bound: Mapping[str, int],
    capacity: Mapping[str, int],
    allocatable: Mapping[str, int],
) -> list[str]:
    """Lower an estimate to what another install has seen; the resources of which less is left, sorted.

    It never raises anything. It never goes below the careful bound, and takes at most twice what the kubelet would
    keep, so that a wrong import cannot make a type useless.

    Args:
        amounts: the estimate, changed in place.
        kept: what the kubelet keeps of it, changed in place.
        bound: the careful bound of resources that have one; the others stay, because EC2 states them.
        capacity, allocatable: imported.
    """
    lowered = []
    for resource in sorted(amounts.keys() & capacity.keys() - {PODS}):
        least = min(amounts[resource], max(capacity[resource], bound.get(resource, amounts[resource])))
        own = kept.get(resource, 0)
        more = min(capacity[resource] - allocatable.get(resource, capacity[resource]), 2 * own)
        if least < amounts[resource] or more > own:
            amounts[resource] = least
            if more > own:
                kept[resource] = more
            lowered.append(resource)
    return lowered
