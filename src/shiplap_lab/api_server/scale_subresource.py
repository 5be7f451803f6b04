"""The `scale` subresource of workloads, as `kubectl scale` reads and writes it."""

from __future__ import annotations

from typing import Any

from shiplap.errors import ClusterError
from shiplap_lab.api_server.changelog import Object

SCALED = frozenset({"deployments", "replicasets", "statefulsets", "replicationcontrollers"})
"""The resources that have the subresource."""

_MOST = 2**31 - 1


def scale_of(item: Object) -> dict[str, Any]:
    """The Scale of a workload: how many pods it wants and has."""
    metadata = item["metadata"]
    kept = {key: metadata[key] for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")}
    wanted = (item.get("spec") or {}).get("replicas", 1)
    found = (item.get("status") or {}).get("replicas", 0)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": kept,
        "spec": {"replicas": wanted},
        "status": {"replicas": found},
    }


def scaling_patch(body: Object) -> dict[str, Any]:
    """The merge patch of a workload that a Scale, or a patch of one, asks for.

    Raises:
        ClusterError: status 422, the number of replicas is none.
    """
    spec, metadata = body.get("spec"), body.get("metadata")
    replicas = spec.get("replicas") if isinstance(spec, dict) else None
    if isinstance(replicas, bool) or not isinstance(replicas, int) or not 0 <= replicas <= _MOST:
        raise ClusterError(
            f"spec.replicas: Invalid value: {replicas!r}: must be a whole number from 0 to {_MOST}", status=422
        )
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    precondition = {"metadata": {"resourceVersion": version}} if version else {}
    return {**precondition, "spec": {"replicas": replicas}}
