"""The capacity of a node of one type, by the best source there is, and how far that can be trusted."""

from __future__ import annotations

import msgspec

from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.capacity.described_capacity import (
    BRANCH_INTERFACES,
    careful_capacity,
    described_capacity,
    nominal_memory,
)
from shiplap.instances.capacity.kubelet_settings import KubeletSettings
from shiplap.instances.capacity.learned_capacity import LearnedCapacityIndex
from shiplap.instances.capacity.max_pods import eni_limited_pods
from shiplap.instances.capacity.overhead import overhead, overhead_fraction
from shiplap.instances.catalog.ami_families import AmiFamily
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.instances.catalog.type_catalog import huge_pages
from shiplap.kubernetes.quantity import EPHEMERAL_STORAGE, MEMORY, PODS
from shiplap.manifests.custom_resources import EC2NodeClass

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
        sources = {resource: "formula" if resource in _FORMULA else "catalog" for resource in formula}
        learned = self._knowledge.exact(ami, kind.instance_type, kubelet_hash)
        if learned is not None:
            return self._learned(kind, formula, sources, learned, kubelet)
        nominal = nominal_memory(kind)
        inferred = self._knowledge.inferred_memory(ami, kind.instance_type, nominal, formula[MEMORY])
        if inferred is not None:
            formula[MEMORY] = inferred
            sources[MEMORY] = "sibling"
        bound = careful_capacity(kind, formula, self._knowledge.worst_overhead_ratio(ami))
        return CapacityEstimate(
            formula,
            self._overhead(kind, formula, kubelet),
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
        learned: tuple[dict[str, int], dict[str, int]],
        kubelet: KubeletSettings,
    ) -> CapacityEstimate:
        """Reported figures replace computed ones; what kubelet keeps back is the difference it reported.

        The number of pods is not learned: kubelet was told it. A node of a pool whose NodeOverlay says more must not
        raise it above the addresses there are.
        """
        reported, allocatable = learned
        amounts = formula | reported
        amounts[PODS] = min(amounts[PODS], formula[PODS])
        kept = self._overhead(kind, amounts, kubelet)
        for resource in sorted(reported.keys() & allocatable.keys() - {PODS}):
            difference = reported[resource] - allocatable[resource]
            if resource == MEMORY:  # huge pages are taken out of memory beside what kubelet keeps
                difference -= huge_pages(reported)
            if difference or resource in kept:
                kept[resource] = difference
        known = sources | dict.fromkeys(reported, "learned")
        return CapacityEstimate(
            amounts, kept, {}, verified=True, sources=known, overhead_fraction=overhead_fraction(kubelet)
        )

    def _overhead(self, kind: Ec2InstanceType, amounts: dict[str, int], kubelet: KubeletSettings) -> dict[str, int]:
        counted = eni_limited_pods(kind) if self._family.eni_limited_overhead else amounts[PODS]
        return overhead(amounts, kind.v_cpu_info.default_v_cpus, counted, kubelet)
