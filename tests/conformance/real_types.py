"""EC2's own instance types under a plain AL2023 EC2NodeClass, from the embedded catalogue, for cases that need them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import pytest

from shiplap.errors import InvalidInput
from shiplap.instances.capacity.capacity_setting import CapacitySetting, VpcCni
from shiplap.instances.catalog.ec2_catalog import Catalog
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.resolve import instance_types
from shiplap.manifests.custom_resources import EC2NodeClass, NodePool
from shiplap_lab.catalogue import embedded
from tests.builders.pools import pool, rule

TYPE = "node.kubernetes.io/instance-type"
FAMILY = "karpenter.k8s.aws/instance-family"
FLEX = "karpenter.k8s.aws/instance-capability-flex"


@lru_cache(maxsize=1)
def catalog() -> Catalog:
    try:
        return embedded.load("us-east-1")
    except InvalidInput as error:
        pytest.skip(f"the embedded catalogue is not built: {error}")


def real_types(
    *,
    overhead_percent: float = 0.075,
    cni: VpcCni | None = None,
    max_pods: int | None = None,
    verified: bool = True,
    unavailable: Collection[tuple[str, str, str]] = (),
) -> tuple[InstanceType, ...]:
    """All types. `verified` takes the formula's figures for facts, so that cases speak of one thing at a time."""
    spec: dict[str, Any] = {"amiFamily": "AL2023", "kubelet": {"maxPods": max_pods} if max_pods else {}}
    node_class = msgspec.convert({"metadata": {"name": "default"}, "spec": spec}, EC2NodeClass)
    setting = CapacitySetting(vm_memory_overhead_percent=overhead_percent, cni=cni)
    types = instance_types(catalog(), node_class, setting, resolved=None, learned=(), unavailable=unavailable)
    return tuple(msgspec.structs.replace(item, verified=True, careful={}) for item in types) if verified else types


def only(types: Sequence[InstanceType], keep: Callable[[str], bool]) -> tuple[InstanceType, ...]:
    """The types whose name is kept."""
    return tuple(item for item in types if keep(item.name))


def without_offerings(types: Sequence[InstanceType], gone: Callable[[str], bool]) -> tuple[InstanceType, ...]:
    """The same types, those `gone` with no offering available, as after capacity errors."""
    return tuple(
        msgspec.structs.replace(
            item,
            offerings=tuple(msgspec.structs.replace(offering, available=False) for offering in item.offerings),
        )
        if gone(item.name)
        else item
        for item in types
    )


def flex_first(*, ordered: bool) -> list[NodePool]:
    """Flex first, anything of the same generation as fallback: as one ordered list, or as two weighted pools."""

    on_demand = rule("karpenter.sh/capacity-type", "In", "on-demand")
    small = rule("karpenter.k8s.aws/instance-size", "In", "large", "xlarge", "2xlarge")
    if ordered:
        return [pool("flex-first", rule(FAMILY, "In", "c7i-flex", "*"), small, on_demand, limits={})]
    return [
        pool("flex", rule(FAMILY, "In", "c7i-flex"), small, on_demand, weight=100, limits={}),
        pool("any", rule(FLEX, "In", "false"), small, on_demand, weight=1, limits={}),
    ]
