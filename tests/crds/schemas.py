"""Upstream's CRDs: the schema of a kind, and every constraint that it states."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.go_modules import KARPENTER, folder_of

Schema = dict[str, Any]

FILES = {
    "NodePool": "karpenter.sh_nodepools.yaml",
    "EC2NodeClass": "karpenter.k8s.aws_ec2nodeclasses.yaml",
    "NodeOverlay": "karpenter.sh_nodeoverlays.yaml",
    "CapacityBuffer": "autoscaling.x-k8s.io_capacitybuffers.yaml",
}

WRITTEN_BY_US = {"NodeClaim": "karpenter.sh_nodeclaims.yaml"}
"""Kinds that users do not write."""

ITEM, ENTRY = "[]", "{}"
"""Steps of a path in a schema: into the items of a list, into the values of a map."""

_KEYWORDS = {
    "string": ("enum", "pattern", "minLength", "maxLength", "format"),
    "integer": ("minimum", "maximum", "format"),
    "array": ("minItems", "maxItems"),
    "object": ("maxProperties",),
}
"""What may be said of values of a type. Elsewhere it has no effect: upstream gives lists patterns."""


BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "maxProperties")


class Constraint(NamedTuple):
    """One thing that a schema demands, such as (("spec", "weight"), "minimum", 1) or a rule by its text."""

    path: tuple[str, ...]
    keyword: str
    detail: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path)} {self.keyword} {self.detail}"


@cache
def crd_of(kind: str) -> dict[str, Any]:
    """The CRD, as upstream publishes it. Skips where there is no Go."""
    file: Path = folder_of(KARPENTER) / "pkg" / "apis" / "crds" / (FILES | WRITTEN_BY_US)[kind]
    loaded: dict[str, Any] = yaml.safe_load(file.read_text())
    return loaded


def api_version_of(kind: str) -> str:
    """Group and the version that is stored."""
    spec = crd_of(kind)["spec"]
    return f"{spec['group']}/{_stored(spec)['name']}"


def schema_of(kind: str) -> Schema:
    """The schema of `spec`, in the version that is stored."""
    return schema_in(crd_of(kind))


def schema_in(crd: dict[str, Any]) -> Schema:
    """The schema of `spec` in a CRD, in the version that is stored."""
    version = _stored(crd["spec"])
    found: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    if "scale" in version.get("subresources", {}):  # its Scale object has replicas of 32 bits
        found["properties"]["replicas"]["format"] = "int32"
    return found


def status_schema_of(kind: str) -> Schema:
    """The schema of `status`, in the version that is stored."""
    found: Schema = _stored(crd_of(kind)["spec"])["schema"]["openAPIV3Schema"]["properties"]["status"]
    return found


def is_spec_required(kind: str) -> bool:
    """True if an object of this kind needs a spec."""
    return "spec" in _stored(crd_of(kind)["spec"])["schema"]["openAPIV3Schema"].get("required", ())


def _stored(spec: dict[str, Any]) -> dict[str, Any]:
    return next(version for version in spec["versions"] if version["storage"])


def constraints_of(schema: Schema, path: tuple[str, ...] = ("spec",)) -> Iterator[Constraint]:
    """Every constraint of a schema, outermost first."""
    yield from own_constraints(schema, path)
    for step, inner in inner_schemas(schema):
        yield from constraints_of(inner, (*path, step))


def own_constraints(schema: Schema, path: tuple[str, ...]) -> Iterator[Constraint]:
    """Yield the constraints of a schema on a value itself, not on the content of the value."""
    if schema.get("x-kubernetes-int-or-string"):
        yield Constraint(path, "type", "integer or string")
    elif "type" in schema:
        yield Constraint(path, "type", schema["type"])
    for keyword in _KEYWORDS.get(schema.get("type", "string"), ()):
        if keyword in schema:
            yield Constraint(path, keyword, str(schema[keyword]))
    if schema.get("x-kubernetes-list-type") == "set":
        yield Constraint(path, "set", "no duplicates")
    for name in schema.get("required", ()):
        if "default" not in schema["properties"][name]:  # it is never missing
            yield Constraint((*path, name), "required", "")
    for rule in schema.get("x-kubernetes-validations", ()):
        yield Constraint(path, "rule", rule["rule"])


def inner_schemas(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """The schemas right below one."""
    yield from schema.get("properties", {}).items()
    if "items" in schema:
        yield ITEM, schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield ENTRY, schema["additionalProperties"]
