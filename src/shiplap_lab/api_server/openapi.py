"""The OpenAPI documents by which kubectl finds that the server validates fields itself, and the validation it does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.errors import ClusterError
from shiplap_lab.api_server.api_resources import RESOURCES, Resource
from shiplap_lab.api_server.changelog import Object

_OBJECT = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_METADATA = frozenset(
    {
        "annotations",
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "generation",
        "labels",
        "managedFields",
        "name",
        "namespace",
        "ownerReferences",
        "resourceVersion",
        "selfLink",
        "uid",
    }
)
_WITH_SPEC = frozenset(
    {
        "pods",
        "nodes",
        "namespaces",
        "daemonsets",
        "deployments",
        "replicasets",
        "jobs",
        "statefulsets",
        "replicationcontrollers",
        "poddisruptionbudgets",
        "nodepools",
        "nodeclaims",
        "nodeoverlays",
        "ec2nodeclasses",
    }
)
"""The resources of which everything stands in `spec` and `status`."""


def openapi_document(path: str, version: str) -> dict[str, Any] | None:
    """The answer to GET of a path below `/openapi/v3`; None of another path or an unknown group."""
    match path.strip("/").split("/"):
        case ["openapi", "v3"]:
            roots = sorted({_root(item) for item in RESOURCES.values()})
            return {"paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}?hash={version}"} for root in roots}}
        case ["openapi", "v3", *rest]:
            known = [item for item in RESOURCES.values() if _root(item) == "/".join(rest)]
            if known:
                info = {"title": "Kubernetes", "version": version}
                return {"openapi": "3.0.0", "info": info, "paths": dict(map(_path, known)), "components": {}}
    return None


def check_fields(plural: str, body: Object, query: Mapping[str, str], *, whole: bool = True) -> None:
    """Refuse an object of another kind, and with `fieldValidation=Strict` one with fields that its kind has not.

    Without `whole` the body is a patch.

    Raises:
        ClusterError: status 400 for both, and for parts of another type; 422 for a pod without containers.
    """
    resource = RESOURCES[plural]
    for field, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = body.get(field, expected)
        if given != expected:
            raise ClusterError(
                f"the {field} of the object ({given}) does not match the {field} of the URL ({expected})", status=400
            )
    for field in ("metadata", "spec", "status"):
        if body.get(field) is not None and not isinstance(body[field], dict):
            raise ClusterError(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"{field} is a {type(body[field]).__name__}, not an object",
                status=400,
            )
    if plural == "pods" and (whole or "spec" in body):
        _check_containers(body.get("spec") or {}, whole=whole)
    if query.get("fieldValidation") != "Strict":
        return
    unknown = [f"metadata.{name}" for name in sorted((body.get("metadata") or {}).keys() - _METADATA)]
    if plural in _WITH_SPEC:
        unknown = sorted(body.keys() - _OBJECT) + unknown
    if unknown:
        found = ", ".join(f'unknown field "{name}"' for name in unknown)
        raise ClusterError(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"strict decoding error: {found}",
            status=400,
        )


def _check_containers(spec: Object, *, whole: bool) -> None:
    if not whole and spec and "containers" not in spec:
        return
    containers = spec.get("containers")
    if not containers:
        raise ClusterError("spec.containers: Required value", status=422)
    if not isinstance(containers, list) or not all(isinstance(each, dict) for each in containers):
        raise ClusterError(
            'Pod in version "v1" cannot be handled as a Pod: spec.containers is not a list of objects', status=400
        )


def _root(item: Resource) -> str:
    return f"apis/{item.api_version}" if item.group else f"api/{item.version}"


def _path(item: Resource) -> tuple[str, dict[str, Any]]:
    where = "namespaces/{namespace}/" if item.namespaced else ""
    named = {"group": item.group, "version": item.version, "kind": item.kind}
    patch = {
        "operationId": f"patch{item.kind}",
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string", "uniqueItems": True}}],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": named,
    }
    return f"/{_root(item)}/{where}{item.plural}/{{name}}", {"patch": patch}
