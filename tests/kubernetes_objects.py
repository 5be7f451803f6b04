"""Pods and nodes for tests as the API writes them, and the same typed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Node, Pod

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


def pod_object(
    name: str = "pod",
    cpu: str = "",
    memory: str = "",
    *,
    namespace: str = "default",
    on: str = "",
    phase: str = "",
    waits: bool = False,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container, on a node if `on` names one; with `waits` kube-scheduler has found no node for it."""
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    placed = {"nodeName": on} if on else {}
    status = {"phase": "Pending", "conditions": [UNSCHEDULABLE]} if waits else {"phase": phase} if phase else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
        "spec": {"containers": [container], **placed, **spec},
        "status": status,
    }


def typed_pod(name: str = "pod", cpu: str = "", memory: str = "", **fields: Any) -> Pod:
    """As `pod_object`, with the name as uid."""
    metadata = {"uid": name, **fields.pop("metadata", {})}
    return msgspec.convert(pod_object(name, cpu, memory, metadata=metadata, **fields), Pod)


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
    ready: bool | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A node with these labels; without `ready` it has no conditions."""
    known = {
        "node.kubernetes.io/instance-type": instance_type,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": capacity_type,
    }
    amounts = {key: amount for key, amount in (("cpu", cpu), ("memory", memory), ("pods", pods)) if amount}
    marks = {key: value for key, value in known.items() if value} | dict(labels or {})
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": marks, **(metadata or {})},
        "spec": spec,
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions},
    }


def typed_node(name: str = "node", cpu: str = "2", memory: str = "8Gi", pods: str = "29", **fields: Any) -> Node:
    """As `node_object`."""
    return msgspec.convert(node_object(name, cpu, memory, pods, **fields), Node)
