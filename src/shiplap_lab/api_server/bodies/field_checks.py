"""Checks a body against the type of its object: by Kubernetes' types, or by those of Shiplap's manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from shiplap.errors import ClusterError
from shiplap.manifests.custom_resources import CapacityBuffer, EC2NodeClass, NodeOverlay, NodePool
from shiplap.manifests.decoding import decode, field_name
from shiplap_lab.api_server.api_resources import RESOURCES
from shiplap_lab.api_server.bodies.api_types import is_known, mistakes_of

_CUSTOM: dict[str, type[msgspec.Struct]] = {
    kind.__name__: kind for kind in (CapacityBuffer, EC2NodeClass, NodeOverlay, NodePool)
}
_KNOWN = [msgspec.json.Decoder(kind) for kind in _CUSTOM.values()]
"""Several threads check bodies: msgspec crashes when two of them learn about a type at the same time."""

_PARTS = ("metadata", "spec", "status")


def check_fields(plural: str, body: Mapping[str, Any], query: Mapping[str, str], *, whole: bool = True) -> None:
    """Refuse an object of another kind or with values of another type; with `fieldValidation=Strict` unknown fields.

    Without `whole` the body is a patch.

    Raises:
        ClusterError: status 400 for all of these; 422 for a pod without containers.
    """
    resource = RESOURCES[plural]
    for field, expected in (("apiVersion", resource.api_version), ("kind", resource.kind)):
        given = body.get(field, expected)
        if given != expected:
            raise ClusterError(
                f"the {field} of the object ({given}) does not match the {field} of the URL ({expected})", status=400
            )
    for field in _PARTS:
        if body.get(field) is not None and not isinstance(body[field], dict):
            raise _unfit(plural, [f"{field} is a {type(body[field]).__name__}, not an object"])
    is_strict = query.get("fieldValidation") == "Strict"
    if is_known(resource.kind):
        found = mistakes_of(resource.kind, body)
        if found.wrong:
            raise _unfit(plural, found.wrong)
        unknown = [f'unknown field "{name}"' for name in found.unknown]
    else:
        unknown = [*_custom_problems(resource.kind, body)] if is_strict and whole else []
    if unknown and is_strict:
        raise _unfit(plural, [f"strict decoding error: {', '.join(unknown)}"])
    if plural == "pods" and (whole or "spec" in body):
        _check_containers(body.get("spec") or {}, whole=whole)


def _custom_problems(kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a custom resource's shape, an unknown field in upstream's words."""
    if kind not in _CUSTOM:
        return
    for path, problem in decode(body, _CUSTOM[kind])[1]:
        _, unknown, hint = problem.partition("unknown field")
        yield f'unknown field "{field_name(path)}"{hint}' if unknown else f"{field_name(path)}: {problem}"


def _unfit(plural: str, reasons: list[str]) -> ClusterError:
    resource = RESOURCES[plural]
    return ClusterError(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {", ".join(reasons)}',
        status=400,
    )


def _check_containers(spec: Mapping[str, Any], *, whole: bool) -> None:
    if not whole and spec and "containers" not in spec:
        return
    if not spec.get("containers"):
        raise ClusterError("spec.containers: Required value", status=422)
