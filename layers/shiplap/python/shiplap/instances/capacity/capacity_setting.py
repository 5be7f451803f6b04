"""The settings of capacity estimates: those of a whole cluster, and those that an EC2NodeClass changes by annotations.

Most are configuration. How the VPC CNI hands out addresses is read from its DaemonSet: a node cannot run more pods than
the CNI has addresses for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import nan
from typing import Protocol

import msgspec

from shiplap.errors import InvalidInput
from shiplap.kubernetes.objects import DaemonContainer, DaemonSet
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.shiplap_annotations import PREFIX, PREFIX_DELEGATION, VM_MEMORY_OVERHEAD_PERCENT

_TRUE = ("1", "t", "true")
_PREFIX_DELEGATION_SINCE = (1, 9)


class VpcCni(msgspec.Struct, frozen=True, omit_defaults=True):
    """The way in which the VPC CNI gives pods their addresses.

    `max_eni` is its MAX_ENI; `version` as `1.19.2`, empty if unknown; `ipv6` says that pods have IPv6 addresses.
    """

    prefix_delegation: bool = False
    custom_networking: bool = False
    max_eni: int | None = None
    version: str = ""
    ipv6: bool = False

    @property
    def delegates_prefixes(self) -> bool:
        """Prefix delegation is wanted and the version can do it; an unknown version is taken to be recent."""
        return (
            self.prefix_delegation and (_version(self.version) or _PREFIX_DELEGATION_SINCE) >= _PREFIX_DELEGATION_SINCE
        )


class CapacitySetting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The inputs of estimates beside the EC2NodeClass.

    `vm_memory_overhead_percent` is a fraction of the memory EC2 states (0.075), replaced per instance family or type
    by `overhead_percent_of`. `reserved_enis` are network interfaces pods cannot use. `cni` is None when nothing is
    known about the cluster's CNI.
    """

    region: str = "us-east-1"
    vm_memory_overhead_percent: float = 0.075
    overhead_percent_of: dict[str, float] = {}
    reserved_enis: int = 0
    cni: VpcCni | None = None

    def overhead_percent(self, instance_type: str) -> float:
        """The fraction for one type: its own, else its family's, else the common one."""
        if not self.overhead_percent_of:
            return self.vm_memory_overhead_percent
        family = instance_type.partition(".")[0]
        common = self.overhead_percent_of.get(family, self.vm_memory_overhead_percent)
        return self.overhead_percent_of.get(instance_type, common)


class ClusterValues(Protocol):
    """The settings of a cluster that shape capacity (see `shiplap.settings.ClusterSettings`)."""

    @property
    def region(self) -> str: ...
    @property
    def vm_memory_overhead_percent(self) -> float: ...
    @property
    def reserved_enis(self) -> int: ...
    @property
    def prefix_delegation(self) -> str: ...


def cluster_setting(values: ClusterValues, daemon_sets: Iterable[DaemonSet]) -> CapacitySetting:
    """The setting of a cluster: `prefix_delegation` `on` or `off` overrules what the VPC CNI's DaemonSet says."""
    cni = detect_cni(daemon_sets)
    if values.prefix_delegation in ("on", "off"):
        cni = msgspec.structs.replace(cni or VpcCni(), prefix_delegation=values.prefix_delegation == "on")
    return CapacitySetting(
        region=values.region,
        vm_memory_overhead_percent=values.vm_memory_overhead_percent,
        reserved_enis=values.reserved_enis,
        cni=cni,
    )


def detect_cni(daemon_sets: Iterable[DaemonSet]) -> VpcCni | None:
    """Return the configuration of the VPC CNI (DaemonSet kube-system/aws-node); None when it is not there."""
    for daemon_set in daemon_sets:
        if daemon_set.metadata.name == "aws-node" and daemon_set.metadata.namespace in ("kube-system", ""):
            for container in daemon_set.spec.template.spec.containers:
                if container.name == "aws-node":
                    return _configured(container)
    return None


def node_class_setting(setting: CapacitySetting, node_class: EC2NodeClass) -> CapacitySetting:
    """The setting with the EC2NodeClass's own annotations applied.

    Raises:
        InvalidInput: an annotation's value is not a fraction or not `on`/`off`.
    """
    annotations = node_class.metadata.annotations
    own = [key for key in annotations if key.startswith(PREFIX)]
    if not own:
        return setting
    common = setting.vm_memory_overhead_percent
    special = dict(setting.overhead_percent_of)
    for key in own:
        if key == VM_MEMORY_OVERHEAD_PERCENT:
            common = _fraction(node_class, key)
        elif key.startswith(VM_MEMORY_OVERHEAD_PERCENT + "."):
            special[key.removeprefix(VM_MEMORY_OVERHEAD_PERCENT + ".")] = _fraction(node_class, key)
    cni = setting.cni
    switch = annotations.get(PREFIX_DELEGATION)
    if switch is not None:
        if switch not in ("on", "off"):
            raise _refuse(node_class, PREFIX_DELEGATION, f"{switch!r} is neither on nor off")
        cni = msgspec.structs.replace(cni or VpcCni(), prefix_delegation=switch == "on")
    return msgspec.structs.replace(setting, vm_memory_overhead_percent=common, overhead_percent_of=special, cni=cni)


def _configured(container: DaemonContainer) -> VpcCni:
    variables = {variable.name: variable.value for variable in container.env}
    max_eni = variables.get("MAX_ENI", "")
    return VpcCni(
        prefix_delegation=_is_true(variables, "ENABLE_PREFIX_DELEGATION"),
        custom_networking=_is_true(variables, "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG"),
        ipv6=_is_true(variables, "ENABLE_IPv6"),
        # The CNI takes zero, negative and unreadable values as "no limit".
        max_eni=int(max_eni) if max_eni.isdecimal() and int(max_eni) > 0 else None,
        version=".".join(map(str, _version(container.image.rpartition(":")[2]))),
    )


def _is_true(variables: Mapping[str, str], name: str) -> bool:
    return variables.get(name, "").strip().lower() in _TRUE


def _version(text: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part) for part in match.groups() if part) if match else ()


def _fraction(node_class: EC2NodeClass, key: str) -> float:
    text = node_class.metadata.annotations[key]
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not 0 <= value < 1:
        raise _refuse(node_class, key, f"{text!r} is not a fraction such as 0.075")
    return value


def _refuse(node_class: EC2NodeClass, key: str, reason: str) -> InvalidInput:
    return InvalidInput(
        "EC2NodeClass",
        reason,
        document=f"EC2NodeClass/{node_class.metadata.name}",
        field=f"metadata.annotations[{key}]",
    )
