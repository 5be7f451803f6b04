"""The objects that a scenario creates in its clusters."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap_lab.api_server.api_resources import key_of
from shiplap_lab.api_server.server import ApiServer
from shiplap_lab.scenarios.scenario import PodGroup


def pod_object(group: PodGroup, name: str, *, uid: str = "", replicated: bool = False) -> dict[str, Any]:
    """One pod of a group, `replicated` as part of its ReplicaSet. Without `uid` the API server gives one."""
    requests = {"cpu": group.cpu, "memory": group.memory, **group.requests}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": group.namespace,
            **({"uid": uid} if uid else {}),
            "labels": {"app": group.name, **group.labels},
            "annotations": dict(group.annotations),
            **({"ownerReferences": [_replica_set(group)]} if replicated else {}),
        },
        "spec": {
            "containers": [{"name": "main", "image": "example/app:v1", "resources": {"requests": requests}}],
            **group.spec,
        },
    }


def pods_of_step(group: PodGroup) -> list[dict[str, Any]]:
    """The pods that a step creates for a group: `name-0` … `name-<count-1>`."""
    return [pod_object(group, f"{group.name}-{index}", replicated=group.replicas) for index in range(group.count)]


def replica_set_uid(group: PodGroup) -> str:
    """The uid of the ReplicaSet of a group."""
    return f"rs-{group.namespace}-{group.name}"


def disruption_budget(group: PodGroup) -> dict[str, Any]:
    """The PodDisruptionBudget of a group with `max_unavailable`."""
    selector = {"matchLabels": {"app": group.name}}
    return {
        "metadata": {"name": group.name, "namespace": group.namespace},
        "spec": {"selector": selector, "maxUnavailable": group.max_unavailable},
    }


def create_object(server: ApiServer, item: dict[str, Any], now: float) -> None:
    """Create an object; an Event without a time happens now."""
    body = dict(item)
    if body["kind"] == "Event":
        body.setdefault("lastTimestamp", rfc3339(now))
    server.create(key_of(body), body, body["metadata"].get("namespace", ""))


def remove_pod(server: ApiServer, pod: Pod) -> None:
    """Delete a pod; without an owner, so that no controller replaces it."""
    meta = pod.metadata
    server.patch("pods", meta.name, {"metadata": {"ownerReferences": None}}, meta.namespace)
    server.delete("pods", meta.name, meta.namespace, grace_s=0)


def _replica_set(group: PodGroup) -> dict[str, Any]:
    uid = replica_set_uid(group)
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": group.name, "uid": uid, "controller": True}
