"""Expressions of an EC2NodeClass's kubelet map, evaluated for one instance type.

Karpenter's units: cpu in millicores, rounded up to tens; memory in MiB, rounded up to sixteens; storage in GiB; process
ids and inodes as they are. The rounding keeps types alike: each different value costs a launch template.
"""

from __future__ import annotations

from math import ceil

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.kubelet_settings import (
    RESERVABLE,
    Formula,
    FormulaValues,
    KubeletSettings,
    Threshold,
    signal_resource,
)
from shiplap.instances.capacity.max_pods import default_card_interfaces
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, parse_amount
from shiplap.manifests.expressions import Value

_MOST_PODS = 2**31 - 1
_IN_GIB = (EPHEMERAL_STORAGE, "nodefs.available", "imagefs.available")
_IN_MIB = (MEMORY, "memory.available")


def with_max_pods(settings: KubeletSettings, kind: Ec2InstanceType, default: int) -> KubeletSettings:
    """The settings with the formula of `maxPods` evaluated, where there is one; `default` pods without it.

    Raises:
        InvalidInput: it cannot be evaluated, or is no number of pods.
    """
    for formula in settings.formulas:
        if formula.section == "maxPods":
            pods = _number(formula, kind, default)
            if not 0 <= pods <= _MOST_PODS:
                raise _refuse(formula, kind, f"{pods} is not from 0 to {_MOST_PODS}")
            return msgspec.structs.replace(settings, max_pods=pods)
    return settings


def with_values(settings: KubeletSettings, kind: Ec2InstanceType, pods: int) -> tuple[KubeletSettings, FormulaValues]:
    """The settings with all other formulas evaluated for a node of `pods` pods, and their values.

    Raises:
        InvalidInput: one cannot be evaluated, or is negative.
    """
    values = tuple(
        sorted(
            (formula.section, formula.name, _quantity(formula, kind, pods))
            for formula in settings.formulas
            if formula.section != "maxPods"
        )
    )
    maps = {"kubeReserved": dict(settings.kube_reserved), "systemReserved": dict(settings.system_reserved)}
    eviction = dict(settings.eviction)
    for section, name, text in values:
        if section in maps and name in RESERVABLE:
            maps[section][name] = parse_amount(name, text)
        elif section == "evictionHard" and signal_resource(name):
            eviction[signal_resource(name)] = Threshold(amount=parse_amount(signal_resource(name), text))
    settled = msgspec.structs.replace(
        settings, kube_reserved=maps["kubeReserved"], system_reserved=maps["systemReserved"], eviction=eviction
    )
    return settled, values


def _quantity(formula: Formula, kind: Ec2InstanceType, pods: int) -> str:
    number = _number(formula, kind, pods)
    if number < 0:
        raise _refuse(formula, kind, f"{number} is negative")
    if formula.name == CPU:
        return f"{ceil(number / 10) * 10}m"
    if formula.name in _IN_MIB:
        return f"{ceil(number / 16) * 16}Mi"
    return f"{number}Gi" if formula.name in _IN_GIB else str(number)


def _number(formula: Formula, kind: Ec2InstanceType, pods: int) -> int:
    """The value of the expression, fractions cut off."""
    try:
        return int(formula.expression.evaluate(_variables(kind, pods)))
    except ValueError as error:
        raise _refuse(formula, kind, str(error)) from error


def _variables(kind: Ec2InstanceType, pods: int) -> dict[str, Value]:
    return {
        "vcpus": kind.v_cpu_info.default_v_cpus,
        "memory_mib": kind.memory_info.size_in_mi_b,
        "default_enis": default_card_interfaces(kind),
        "ips_per_eni": kind.network_info.ipv4_addresses_per_interface,
        "max_pods": pods,
        "instance_type": kind.instance_type,
    }


def _refuse(formula: Formula, kind: Ec2InstanceType, reason: str) -> InvalidInput:
    text = formula.expression.text
    return InvalidInput("EC2NodeClass", f"{text!r} for {kind.instance_type}: {reason}", field=formula.field)
