"""Pods, as the API writes them and typed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import msgspec

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339

UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
WAITING = {"phase": "Pending", "conditions": [UNSCHEDULABLE]}


def pod_object(
    name: str = "pod",
    cpu: str = "",
    memory: str = "",
    *,
    namespace: str = "default",
    node: str = "",
    phase: str = "",
    waits: bool = False,
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container, on a node if one is named; with `waits` kube-scheduler has found no node for it."""
    requests = {key: amount for key, amount in (("cpu", cpu), ("memory", memory)) if amount}
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    placed = {"nodeName": node} if node else {}
    marks = {"labels": dict(labels)} if labels is not None else {}
    status = deepcopy(WAITING) if waits else {"phase": phase} if phase else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace} | marks | dict(metadata or {}),
        "spec": {"containers": [container], **placed, **spec},
        "status": status,
    }


def owned_by(kind: str, name: str = "owner") -> dict[str, Any]:
    """The part of an object's metadata that names its controller."""
    return {"ownerReferences": [{"kind": kind, "name": name, "uid": name, "controller": True}]}


def pod(
    name: str = "pod",
    cpu: str = "",
    memory: str = "",
    *,
    namespace: str = "default",
    node: str = "",
    nominated: str = "",
    phase: str = "",
    started_at: float | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    owner: str = "",
    owner_kind: str = "DaemonSet",
    deleting: bool = False,
    ready: bool | None = None,
    selector: Mapping[str, str] | None = None,
    requires: Sequence[Sequence[Mapping[str, Any]]] = (),
    prefers: Sequence[Sequence[Mapping[str, Any]]] = (),
    tolerations: Sequence[Mapping[str, str]] = (),
    ports: Sequence[int] = (),
    priority: int = 0,
    requests: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Pod:
    """A typed pod: Running if it is on a `node`, else unschedulable, unless `phase` or `status` says otherwise.

    `owner` names its controller; `requires` holds terms of which one must hold, each with all its rules.
    """
    wanted = dict(requests or {}) | ({"cpu": cpu} if cpu else {}) | ({"memory": memory} if memory else {})
    opened = [{"containerPort": port, "hostPort": port} for port in ports]
    affinity: dict[str, Any] = {}
    if requires:
        terms = [{"matchExpressions": list(term)} for term in requires]
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if prefers:
        wishes = [{"weight": 1, "preference": {"matchExpressions": list(term)}} for term in prefers]
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = wishes
    body = {
        "containers": [{"name": "main", "resources": {"requests": wanted}, "ports": opened}],
        "nodeSelector": dict(selector or {}),
        "tolerations": list(tolerations),
        "priority": priority,
        "nodeName": node,
        **({"affinity": {"nodeAffinity": affinity}} if affinity else {}),
    }
    marks = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
    known = {"name": name, "namespace": namespace, "uid": f"uid-{name}", **marks, **(metadata or {})}
    if owner:
        known |= owned_by(owner_kind, owner)
    if deleting:
        known["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    state = dict(status) if status is not None else {"phase": phase or "Running"} if phase or node else WAITING
    if ready is not None:
        state = state | {"conditions": [{"type": "Ready", "status": str(ready)}]}
    if nominated:
        state = state | {"nominatedNodeName": nominated}
    begun = {} if started_at is None else {"startTime": rfc3339(started_at)}
    return msgspec.convert({"metadata": known, "spec": body | dict(spec or {}), "status": state | begun}, Pod)


def pods(number: int, name: str = "pod", **fields: Any) -> list[Pod]:
    """As many equal pods."""
    return [pod(f"{name}-{place}", **fields) for place in range(number)]


def pod_of_kind(name: str, kind: str = "a", **fields: Any) -> Pod:
    """A pod of a ReplicaSet, Running unless told otherwise; pods of one kind are alike."""
    known = {"selector": {"kind": kind}, "owner": "owner", "owner_kind": "ReplicaSet", "phase": "Running"}
    return pod(name, **known | fields)


def pod_on(name: str, node: str = "", cpu: str = "1", **fields: Any) -> Pod:
    """A pod of one CPU on a node; it waits if none is named."""
    return pod(name, cpu, node=node, **fields)
