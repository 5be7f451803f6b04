"""The documents by which clients such as kubectl find out which resources an API server has."""

from __future__ import annotations

from typing import Any

from shiplap_lab.api_server.api_resources import RESOURCES, Resource
from shiplap_lab.api_server.scale_subresource import SCALED
from shiplap_lab.api_server.stored_workloads import WORKLOADS

_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_ALL = frozenset({"pods", "services", *WORKLOADS})
"""The resources that `kubectl get all` shows."""
_SHORT_NAMES = {
    "configmaps": ["cm"],
    "cronjobs": ["cj"],
    "customresourcedefinitions": ["crd", "crds"],
    "daemonsets": ["ds"],
    "deployments": ["deploy"],
    "ec2nodeclasses": ["ec2nc", "ec2ncs"],
    "endpoints": ["ep"],
    "events": ["ev"],
    "horizontalpodautoscalers": ["hpa"],
    "ingresses": ["ing"],
    "limitranges": ["limits"],
    "namespaces": ["ns"],
    "networkpolicies": ["netpol"],
    "nodes": ["no"],
    "persistentvolumeclaims": ["pvc"],
    "persistentvolumes": ["pv"],
    "poddisruptionbudgets": ["pdb"],
    "pods": ["po"],
    "priorityclasses": ["pc"],
    "replicasets": ["rs"],
    "replicationcontrollers": ["rc"],
    "resourcequotas": ["quota"],
    "serviceaccounts": ["sa"],
    "services": ["svc"],
    "statefulsets": ["sts"],
    "storageclasses": ["sc"],
}


def discovery_document(path: str, version: str) -> dict[str, Any] | None:
    """The answer to GET of a path such as `/apis/apps/v1`; None of a path that is not one of discovery's.

    Args:
        path: without query.
        version: of Kubernetes, such as v1.36.0.
    """
    match path.strip("/").split("/"):
        case ["version"]:
            major, minor = version.removeprefix("v").split(".")[:2]
            return {"major": major, "minor": minor, "gitVersion": version, "platform": "linux/arm64"}
        case ["api"]:
            return {"kind": "APIVersions", "apiVersion": "v1", "versions": ["v1"]}
        case ["apis"]:
            groups = sorted({(item.group, item.version) for item in RESOURCES.values() if item.group})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [*_groups(groups)]}
        case ["api", "v1"]:
            return _resources("", "v1")
        case ["apis", group, group_version]:
            return _resources(group, group_version)
    return None


def _groups(versions: list[tuple[str, str]]) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, str]]] = {}
    for group, version in versions:
        found.setdefault(group, []).append({"groupVersion": f"{group}/{version}", "version": version})
    return [{"name": group, "versions": known, "preferredVersion": known[0]} for group, known in found.items()]


def _resources(group: str, version: str) -> dict[str, Any] | None:
    known = [item for item in RESOURCES.values() if (item.group, item.version) == (group, version)]
    if not known:
        return None
    listed = [entry for item in known for entry in _entries(item)]
    return {"kind": "APIResourceList", "groupVersion": known[0].api_version, "resources": listed}


def _entries(item: Resource) -> list[dict[str, Any]]:
    entry = {
        "name": item.plural,
        "singularName": item.kind.lower(),
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": _VERBS,
        "shortNames": _SHORT_NAMES.get(item.plural, []),
        "categories": ["all"] if item.plural in _ALL else [],
    }
    below = {"singularName": "", "namespaced": item.namespaced, "verbs": ["get", "patch", "update"]}
    entries = [entry]
    if item.has_status:
        entries.append({"name": f"{item.plural}/status", "kind": item.kind, **below})
    if item.plural in SCALED:
        scale = {"name": f"{item.plural}/scale", "group": "autoscaling", "version": "v1", "kind": "Scale"}
        entries.append({**scale, **below})
    return entries
