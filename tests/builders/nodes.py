"""Nodes, as the API writes them and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Node, Taint
from shiplap.kubernetes.timestamps import rfc3339

_PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
"""Conditions that every kubelet reports beside Ready, False while all is well."""


def node_object(
    name: str = "node",
    cpu: str = "2",
    memory: str = "8Gi",
    pods: str = "29",
    *,
    instance_type: str = "",
    zone: str = "",
    region: str = "",
    pool: str = "",
    capacity_type: str = "",
    labels: Mapping[str, str] | None = None,
    ready: bool | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A node with these labels; without `ready` it has no conditions."""
    marks = _marks(instance_type, zone, region, pool, capacity_type) | dict(labels or {})
    amounts = {key: amount for key, amount in (("cpu", cpu), ("memory", memory), ("pods", pods)) if amount}
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks, **(metadata or {})},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }


def node(
    name: str = "node",
    cpu: str = "4",
    memory: str = "4Gi",
    pods: str = "110",
    *,
    instance_type: str = "",
    zone: str = "",
    region: str = "",
    capacity_type: str = "",
    pool: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Taint | Mapping[str, str]] = (),
    ready: bool | str | None = True,
    since: float | None = None,
    initialized: bool = True,
    cordoned: bool = False,
    deleting: bool = False,
    born: str | None = "2026-01-01T00:00:00Z",
    capacity: Mapping[str, str] | None = None,
    provider_id: str = "",
    instance_id: str = "",
    metadata: Mapping[str, Any] | None = None,
) -> Node:
    """A typed node, registered and initialized in a NodePool if `pool` names one; `ready` None is not reported.

    `since` is when Ready last changed.
    """
    known = {"kubernetes.io/hostname": name} | _marks(instance_type, zone, region, pool, capacity_type)
    if pool:
        known |= {"karpenter.sh/registered": "true"}
        known |= {"karpenter.sh/initialized": "true"} if initialized else {}
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    about = {"name": name, "labels": known | dict(labels or {}), "creationTimestamp": born, **(metadata or {})}
    if deleting:
        about["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": kind, "status": "False"} for kind in _PRESSURES]
    if ready is not None:
        moved = {} if since is None else {"lastTransitionTime": rfc3339(since)}
        conditions.append({"type": "Ready", "status": str(ready), **moved})
    status = {
        "capacity": dict(capacity) if capacity is not None else amounts,
        "allocatable": {key: amount for key, amount in amounts.items() if amount},
        "conditions": conditions,
    }
    found = f"aws:///{zone or 'a'}/{instance_id}" if instance_id else ""
    spec = {"taints": list(taints), "unschedulable": cordoned, "providerID": provider_id or found}
    return msgspec.convert({"metadata": about, "spec": spec, "status": status}, Node)


def _marks(instance_type: str, zone: str, region: str, pool: str, capacity_type: str) -> dict[str, str]:
    known = {
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": capacity_type,
    }
    return {key: value for key, value in known.items() if value}
