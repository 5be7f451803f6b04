"""Unmeasured types for a NodePool that allows one node to find out how much memory they have."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import MEMORY
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import NodePool

MEMORY_LABEL = labels.AWS_PREFIX + "instance-memory"
_MEBI = 2**20


def probes(pool: NodePool) -> bool:
    """True if a pool asks Shiplap to launch one node where only the memory that EC2 states would do."""
    return pool.metadata.annotations.get(shiplap_annotations.PROBE_UNMEASURED_TYPES) == "on"


def apply(types: Sequence[InstanceType]) -> tuple[InstanceType, ...]:
    """The types, unmeasured ones with the memory that EC2 states as their estimate; the careful bound stays."""
    return tuple(map(_with_stated_memory, types))


def stated_memory(instance_type: InstanceType) -> int:
    """The memory EC2 states, bytes, from the label of the type; 0 if it has none."""
    known = next((entry for entry in instance_type.requirements if entry.key == MEMORY_LABEL), None)
    if known is None or known.complement or len(known.values) != 1:
        return 0
    return int(next(iter(known.values))) * _MEBI


def _with_stated_memory(instance_type: InstanceType) -> InstanceType:
    stated, estimate = stated_memory(instance_type), instance_type.capacity.get(MEMORY, 0)
    if instance_type.verified or stated <= estimate:
        return instance_type
    kept = dict(instance_type.overhead)
    if fraction := instance_type.overhead_fraction.get(MEMORY):
        kept[MEMORY] = kept.get(MEMORY, 0) + ceil(fraction * (stated - estimate))
    return replace(
        instance_type,
        capacity=instance_type.capacity | {MEMORY: stated},
        overhead=kept,
        sources=instance_type.sources | {MEMORY: "stated"},
    )
