"""Entries of learned capacity as people see them: what counts, and which reports are set aside, why and how long.

What EC2's description of a type allows is taken from the embedded catalogue, under an EC2NodeClass without settings. So
volumes and numbers of pods, which depend on the settings, are not judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

import msgspec

from shiplap.instances.capacity.described_capacity import described_capacity
from shiplap.instances.capacity.estimate import allowed_amounts, eni_limited_pods, overhead
from shiplap.instances.capacity.kubelet_settings import read_kubelet_settings
from shiplap.instances.capacity.reported_amounts import reports_of
from shiplap.instances.capacity.trusted_amounts import AllowedAmounts, FarReport, far_reports
from shiplap.instances.catalog.ami_families import family_of
from shiplap.instances.catalog.type_catalog import LearnedCapacity
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import EPHEMERAL_STORAGE, PODS
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap_lab.catalogue import embedded

_OVERHEAD_PERCENT = 0.075
_DEFAULT = EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec(ami_family="AL2023"))


class JudgedEntry(msgspec.Struct, frozen=True):
    """The smallest amounts of the last 60 days without those that are far, canonical units, and the far ones."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    far: tuple[FarReport, ...]


def judged(entry: LearnedCapacity, now: float) -> JudgedEntry:
    """The entry at a moment, epoch seconds; of a type that the catalogue does not know nothing is far."""
    reports = reports_of(entry)
    far = far_reports(reports, _allowed(entry.instance_type), now)
    return JudgedEntry(
        _smallest(((each.cluster, each.capacity) for each in reports), far, of_allocatable=False),
        _smallest(((each.cluster, each.allocatable) for each in reports), far, of_allocatable=True),
        far,
    )


def _smallest(
    reports: Iterable[tuple[str, Mapping[str, int]]], far: Iterable[FarReport], *, of_allocatable: bool
) -> dict[str, int]:
    aside = {(item.cluster, item.resource, item.amount) for item in far if item.of_allocatable is of_allocatable}
    least: dict[str, int] = {}
    for cluster, amounts in reports:
        for resource, amount in amounts.items():
            if (cluster, resource, amount) not in aside:
                least[resource] = min(amount, least.get(resource, amount))
    return dict(sorted(least.items()))


@cache
def _allowed(instance_type: str) -> AllowedAmounts:
    kind = next((item for item in embedded.load().types if item.instance_type == instance_type), None)
    if kind is None:
        return AllowedAmounts({}, {})
    family, pods = family_of(_DEFAULT), eni_limited_pods(kind)
    formula = described_capacity(kind, family, _DEFAULT.spec, pods=pods, overhead_percent=_OVERHEAD_PERCENT)
    kept = overhead(formula, kind.v_cpu_info.default_v_cpus, pods, read_kubelet_settings(_DEFAULT))
    allowed = allowed_amounts(kind, formula, kept)
    for ranges in (allowed.capacity, allowed.allocatable):
        del ranges[PODS], ranges[EPHEMERAL_STORAGE]
    return allowed
