"""The kubelet settings of an EC2NodeClass, as far as they shape a node's capacity and overhead.

`spec.kubelet` is an open map upstream; only the keys that change what a node yields are read here, each checked for
its form. Expressions in place of numbers are not supported and are refused rather than ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from shiplap.api.types import EC2NodeClass
from shiplap.errors import InvalidInput
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, parse_amount

RESERVABLE = (CPU, MEMORY, EPHEMERAL_STORAGE)
"""Resources of kubeReserved and systemReserved that lower allocatable; `pid` does not."""

_SIGNALS = {"memory.available": MEMORY, "nodefs.available": EPHEMERAL_STORAGE}


class Threshold(msgspec.Struct, frozen=True):
    """An eviction threshold: an absolute amount in bytes, or a percentage (0 to 100) of the capacity."""

    amount: int = 0
    percent: float | None = None


class KubeletSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reserved amounts are canonical; `eviction` is by resource and holds only what was written."""

    max_pods: int | None = None
    pods_per_core: int = 0
    kube_reserved: dict[str, int] = {}
    system_reserved: dict[str, int] = {}
    eviction: dict[str, Threshold] = {}


def read(node_class: EC2NodeClass) -> KubeletSettings:
    """The settings that shape capacity.

    Raises:
        InvalidInput: a value is not of the form kubelet wants, or is an expression.
    """
    written = node_class.spec.kubelet
    reader = _Reader(node_class.metadata.name)
    return KubeletSettings(
        max_pods=reader.count(written, "maxPods"),
        pods_per_core=reader.count(written, "podsPerCore") or 0,
        kube_reserved=reader.amounts(written, "kubeReserved"),
        system_reserved=reader.amounts(written, "systemReserved"),
        eviction=reader.thresholds(written, "evictionHard"),
    )


def kubelet_hash(node_class: EC2NodeClass, max_pods: int) -> str:
    """Ten hexadecimal digits that change with everything in a node class that changes what its kubelets report.

    That is the kubelet map, the number of pods written to the node's user data, the user data itself (it can hold
    kubelet settings), the disks and the network interfaces. What is learned holds only for an equal hash.
    """
    spec = node_class.spec
    shaping = (
        spec.kubelet,
        max_pods,
        spec.user_data,
        spec.block_device_mappings,
        spec.instance_store_policy,
        spec.network_interfaces,
    )
    return blake2b(msgspec.json.encode(shaping, order="deterministic"), digest_size=5).hexdigest()


class _Reader:
    """Reads values out of the open map and names the field in every complaint."""

    def __init__(self, node_class: str) -> None:
        self._document = f"EC2NodeClass/{node_class}"

    def count(self, written: Mapping[str, Any], key: str) -> int | None:
        value = written.get(key)
        if value is None:
            return None
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._refuse(key, f"{value!r} is not a whole number ≥ 0 (expressions are not supported)")
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
            raise self._refuse(field, f"{error} (expressions are not supported)") from error
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
