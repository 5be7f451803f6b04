"""The kubelet settings of an EC2NodeClass, as far as they shape a node's capacity and overhead.

`spec.kubelet` is an open map upstream; only the keys that change what a node yields are read here, each checked for
its form. Where a value is an expression it is kept apart, to be evaluated for each instance type, in Karpenter's units:
cpu in millicores, rounded up to tens; memory in MiB, rounded up to sixteens; storage in GiB; process ids and inodes as
they are. The rounding keeps types alike: each different value costs a launch template.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from math import ceil
from typing import Any

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.described_capacity import default_card_interfaces
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, parse_amount
from shiplap.manifests import expressions
from shiplap.manifests.custom_resources import EC2NodeClass, NetworkInterface
from shiplap.manifests.expressions import Expression, Value

RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources of kubeReserved and systemReserved that lower allocatable; `pid` does not."""

_SIGNALS = {"memory.available": MEMORY, "nodefs.available": EPHEMERAL_STORAGE}


class Threshold(msgspec.Struct, frozen=True):
    """An eviction threshold: an absolute amount in bytes, or a percentage (0 to 100) of the capacity."""

    amount: int = 0
    percent: float | None = None


class Formula(msgspec.Struct, frozen=True):
    """An expression, and where it stands: in a map of `spec.kubelet` under a name, or in `maxPods` without one."""

    section: str
    name: str
    expression: Expression

    @property
    def field(self) -> str:
        """The path of the field it stands in."""
        return f"spec.kubelet.{self.section}" + (f".{self.name}" if self.name else "")


class _Interface(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A network interface as `kubelet_hash` takes it: with its type, whether or not that was written."""

    network_card_index: int = 0
    device_index: int = 0
    interface_type: str = ""

    @classmethod
    def of(cls, interface: NetworkInterface) -> _Interface:
        return cls(interface.network_card_index, interface.device_index, interface.interface_type)


class KubeletSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reserved amounts are canonical; `eviction` is by resource and holds only what was written.

    `formulas` are not contained in the other fields until they were evaluated for an instance type.
    """

    max_pods: int | None = None
    pods_per_core: int = 0
    kube_reserved: dict[str, int] = {}
    system_reserved: dict[str, int] = {}
    eviction: dict[str, Threshold] = {}
    formulas: tuple[Formula, ...] = ()


def signal_resource(signal: str) -> str:
    """The resource whose allocatable an eviction signal lowers; empty for those that lower none."""
    return _SIGNALS.get(signal, "")


def read_kubelet_settings(node_class: EC2NodeClass) -> KubeletSettings:
    """The settings that shape capacity.

    Raises:
        InvalidInput: a value is not of the form kubelet wants, nor an expression that can be read.
    """
    reader = _Reader(node_class.metadata.name)
    written, formulas = reader.parted(node_class.spec.kubelet)
    return KubeletSettings(
        max_pods=reader.count(written, "maxPods"),
        pods_per_core=reader.count(written, "podsPerCore") or 0,
        kube_reserved=reader.amounts(written, "kubeReserved"),
        system_reserved=reader.amounts(written, "systemReserved"),
        eviction=reader.thresholds(written, "evictionHard"),
        formulas=formulas,
    )


FormulaValues = tuple[tuple[str, str, str], ...]
"""Values of formulas on one instance type: (section, name, quantity as kubelet reads it), sorted."""


def kubelet_hash(node_class: EC2NodeClass, max_pods: int, values: FormulaValues = ()) -> str:
    """Ten hexadecimal digits that change with everything in a node class that changes what its kubelets report.

    That is the kubelet map with the values of its formulas, the number of pods written to the node's user data, the
    user data itself (it can hold kubelet settings), the disks and the network interfaces. What is learned holds only
    for an equal hash.
    """
    spec = node_class.spec
    shaping = (
        with_formula_values(spec.kubelet, values),
        max_pods,
        spec.user_data,
        spec.block_device_mappings,
        spec.instance_store_policy,
        tuple(map(_Interface.of, spec.network_interfaces)),
    )
    return blake2b(msgspec.json.encode(shaping, order="deterministic"), digest_size=5).hexdigest()


def with_formula_values(written: Mapping[str, Any], values: FormulaValues) -> dict[str, Any]:
    """The kubelet map with the values of its formulas in their places; equal to what was written when there are none.

    A formula in `maxPods` is left out: the number of pods has its own way to the node.
    """
    settings = dict(written)
    if expressions.is_expression(settings.get("maxPods")):
        del settings["maxPods"]
    for section, name, quantity in values:
        settings[section] = {**settings[section], name: quantity}
    return settings


class _Reader:
    """Reads values out of the open map and names the field in every complaint."""

    def __init__(self, node_class: str) -> None:
        self._document = f"EC2NodeClass/{node_class}"

    def parted(self, written: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Formula, ...]]:
        """The map without its formulas, and these in the order of their places."""
        plain = dict(written)
        formulas = []
        if expressions.is_expression(plain.get("maxPods")):
            formulas.append(self._formula("maxPods", "", plain.pop("maxPods")))
        for key in expressions.SECTIONS:
            section = self._section(plain, key)
            found = sorted(name for name, value in section.items() if expressions.is_expression(value))
            formulas += [self._formula(key, name, section[name]) for name in found]
            if found:
                plain[key] = {name: value for name, value in section.items() if name not in found}
        return plain, tuple(formulas)

    def _formula(self, section: str, name: str, text: str) -> Formula:
        try:
            return Formula(section, name, expressions.parse_number_expression(text))
        except ValueError as error:
            raise self._refuse(f"{section}.{name}" if name else section, str(error)) from error

    def count(self, written: Mapping[str, Any], key: str) -> int | None:
        value = written.get(key)
        if value is None:
            return None
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._refuse(key, f"{value!r} is not a whole number ≥ 0")
        return value

    def amounts(self, written: Mapping[str, Any], key: str) -> dict[str, int]:
        section = self._section(written, key)
        return {
            name: self._amount(f"{key}.{name}", name, section[name])
            for name in RESERVABLE
            if section.get(name) is not None
        }

    def thresholds(self, written: Mapping[str, Any], key: str) -> dict[str, Threshold]:
        section = self._section(written, key)
        return {
            resource: self._threshold(f"{key}.{signal}", resource, section[signal])
            for signal, resource in _SIGNALS.items()
            if section.get(signal) is not None
        }

    def _section(self, written: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        section = written.get(key)
        if section is None:
            return {}
        if not isinstance(section, Mapping):
            raise self._refuse(key, "expected a map of names to quantities")
        return section

    def _amount(self, field: str, resource: str, value: Any) -> int:
        try:
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"{value!r} is not a quantity")
            amount = parse_amount(resource, value)
        except ValueError as error:
            raise self._refuse(field, str(error)) from error
        if amount < 0:
            raise self._refuse(field, f"{value!r} is negative")
        return amount

    def _threshold(self, field: str, resource: str, value: Any) -> Threshold:
        if not (isinstance(value, str) and value.endswith("%")):
            return Threshold(amount=self._amount(field, resource, value))
        try:
            percent = float(value[:-1])
        except ValueError as error:
            raise self._refuse(field, f"{value!r} is not a percentage") from error
        if not 0 <= percent <= 100:
            raise self._refuse(field, f"{value!r} is not between 0% and 100%")
        return Threshold(percent=percent)

    def _refuse(self, field: str, reason: str) -> InvalidInput:
        return InvalidInput("EC2NodeClass", reason, document=self._document, field=f"spec.kubelet.{field}")


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
