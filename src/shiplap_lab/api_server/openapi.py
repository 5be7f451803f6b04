"""The OpenAPI documents by which kubectl finds that the server validates fields itself."""

from __future__ import annotations

from typing import Any

from shiplap_lab.api_server.api_resources import RESOURCES, Resource


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
