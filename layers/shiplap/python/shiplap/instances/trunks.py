"""How many pods with a network interface of their own (security groups for pods) a type can hold.

Such a pod gets a branch of the node's trunk interface, and the VPC resource controller shows how many branches there
are as `vpc.amazonaws.com/pod-eni`. No answer of EC2's says it. But a type's limit follows from its size: the larger the
machine, the more interfaces in all, and branches are those that are not plain ones. Families built around disks or
accelerators, and the largest machines, depart from that; and the controller shows none at all on a type that its table
does not list yet. There, no more than one node relies on the estimate before a node has reported.
"""

from __future__ import annotations

import re

from shiplap.instances.catalog import Ec2InstanceType

BRANCH_INTERFACES = "vpc.amazonaws.com/pod-eni"

_IN_ALL = ((64, 122), (16, 62), (8, 42), (4, 22), (2, 12), (1, 6))
"""Interfaces of all kinds, from so many vCPUs on."""
_IN_ALL_LARGE_X86 = ((48, 122), (32, 92), *_IN_ALL[1:])
"""The same for Intel and AMD of the sixth generation and later."""
_STEADY_FAMILIES = re.compile(r"(?:a|c|m|r)\d")
_MAYBE_UNLISTED = re.compile(r"[a-z]+(?:9|\d{2})|[a-z]+\d[a-z]*[nb]\.metal")
"""The newest generation, and bare metal of families built for network or EBS: the controller learns of them last."""
_GENERATION = re.compile(r"[a-z]+(\d+)")
_WITHOUT_TRUNK = re.compile(r"u-\d")
"""High-memory machines of the first generation."""
_LARGEST_HALVED_FLEX = 32
"""vCPUs up to which a flexible type is treated as one of half its size."""


def branch_interfaces(kind: Ec2InstanceType) -> int:
    """The branches of a trunk interface by the rule; 0 for types without one: Xen, and those that burst."""
    if kind.hypervisor == "xen" or kind.burstable_performance_supported or _WITHOUT_TRUNK.match(kind.instance_type):
        return 0
    family, v_cpus = kind.instance_type.partition(".")[0], kind.v_cpu_info.default_v_cpus
    if family.endswith("-flex") and v_cpus <= _LARGEST_HALVED_FLEX:
        v_cpus //= 2
    in_all = next((total for least, total in _steps(kind, family) if v_cpus >= least), 0)
    return max(in_all - kind.network_info.maximum_network_interfaces, 0)


def careful_branches(kind: Ec2InstanceType) -> int:
    """A lower bound of the same."""
    estimate = branch_interfaces(kind)
    if _MAYBE_UNLISTED.match(kind.instance_type):
        return 0
    if _STEADY_FAMILIES.match(kind.instance_type):
        return estimate
    return estimate // 4 if kind.v_cpu_info.default_v_cpus >= 4 else 0


def _steps(kind: Ec2InstanceType, family: str) -> tuple[tuple[int, int], ...]:
    generation = _GENERATION.match(family)
    recent = generation is not None and int(generation.group(1)) >= 6
    graviton = "arm64" in kind.processor_info.supported_architectures
    return _IN_ALL_LARGE_X86 if recent and not graviton else _IN_ALL
