"""Predicts the API server's verdict on an object from the CRD: the schema here, the rules by Google's CEL.

It guides the generator of manifests and judges where no control plane is built; the campaign on a real API server
compares the two.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from cel_expr_python import cel

from tests.crds.schemas import (
    BOUNDS,
    ENTRY,
    ITEM,
    Constraint,
    Schema,
    inner_schemas,
    is_spec_required,
    own_constraints,
    schema_of,
)

_TEXT = cel.Type.STRING
_BLOCKING = ("type", "required", "maxLength", "maxItems", "maxProperties", "set")
_ABSENT = object()
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_DATE_TIME = re.compile(rf"{_DATE}[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[-+]\d\d:\d\d)", re.ASCII)
"""But for days that a month lacks."""


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match[0] if match else ""


ENVIRONMENT = cel.NewEnv(
    variables={"self": cel.Type.DYN, "oldSelf": cel.Type.DYN},
    functions=[
        cel.FunctionDecl("find", [cel.Overload("string_find", _TEXT, [_TEXT, _TEXT], is_member=True, impl=_find)]),
        cel.FunctionDecl(
            "split",
            [cel.Overload("string_split", cel.Type.LIST, [_TEXT, _TEXT], is_member=True, impl=lambda a, b: a.split(b))],
        ),
    ],
)
"""CEL's own functions and the two that Kubernetes adds and upstream's rules use."""


def defaulted(schema: Schema, value: Any) -> Any:
    """Return the value that an API server validates: nulls of fields dropped, defaults written."""
    if isinstance(value, list):
        return [defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    fields = schema.get("properties", {})
    is_map = isinstance(schema.get("additionalProperties"), dict)
    kept = {name: item for name, item in value.items() if item is not None or not (is_map or name in fields)}
    for name, field in fields.items():
        if "default" in field and name not in kept:
            kept[name] = copy.deepcopy(field["default"])
    entry = schema.get("additionalProperties")
    other: Schema = entry if isinstance(entry, dict) else {}
    return {name: defaulted(fields.get(name, other), item) for name, item in kept.items()}


def object_violations(kind: str, manifest: dict[str, Any], before: Any = _ABSENT) -> set[Constraint]:
    """Every constraint that a manifest breaks; its metadata is not looked at. `before` is the spec it replaces."""
    if manifest.get("spec") is None:
        return {Constraint(("spec",), "required", "")} if is_spec_required(kind) else set()
    schema = schema_of(kind)
    return violations(schema, defaulted(schema, manifest["spec"]), before)


def violations(schema: Schema, value: Any, before: Any = _ABSENT) -> set[Constraint]:
    """Every constraint that a defaulted `spec` breaks; `before` is the one that it replaces.

    Rules are not asked where the shape is broken, as on an API server.
    """
    broken = set(_of_shape(schema, value, ("spec",)))
    if not any(constraint.keyword in _BLOCKING for constraint in broken):
        broken.update(_of_rules(schema, value, before, ("spec",)))
    return broken


def met(schema: Schema, value: Any, path: tuple[str, ...] = ("spec",)) -> Iterator[Constraint]:
    """The constraints that an accepted value meets: bounds at their very ends, everything else wherever it applies."""
    size = len(value) if isinstance(value, str | list | dict) else value
    for constraint in own_constraints(schema, path):
        if constraint.keyword not in BOUNDS or schema[constraint.keyword] == size:
            yield constraint
    inner = dict(inner_schemas(schema))
    if isinstance(value, list) and ITEM in inner:
        for item in value:
            yield from met(inner[ITEM], item, (*path, ITEM))
    elif isinstance(value, dict):
        for name, item in value.items():
            step = name if name in inner else ENTRY
            if step in inner:
                yield from met(inner[step], item, (*path, step))


def broken_shape(schema: Schema, value: Any) -> set[Constraint]:
    """Every constraint but the rules that a value breaks."""
    return set(_of_shape(schema, value, ("spec",)))


def broken_rules(schema: Schema, value: Any) -> set[str]:
    """The schema's own rules that a value breaks; not those of its parts, nor those about a former value."""
    whole = defaulted(schema, value)
    rules = [rule["rule"] for rule in schema.get("x-kubernetes-validations", ())]
    return {rule for rule in rules if "oldSelf" not in rule and not _holds(rule, {"self": whole})}


def _of_shape(schema: Schema, value: Any, path: tuple[str, ...]) -> Iterator[Constraint]:
    wanted = schema.get("type", "")
    if schema.get("x-kubernetes-int-or-string"):
        if not _is(value, "integer") and not isinstance(value, str):
            yield Constraint(path, "type", "integer or string")
            return
    elif schema.get("format") == "date-time" and isinstance(value, list):
        return  # a peculiarity of the API server's validation
    elif wanted and not _is(value, wanted):
        yield Constraint(path, "type", wanted)
        return
    if "enum" in schema and value not in schema["enum"]:
        yield Constraint(path, "enum", str(schema["enum"]))
    if isinstance(value, str):
        yield from _of_text(schema, value, path)
    elif isinstance(value, list):
        yield from _of_list(schema, value, path)
    elif isinstance(value, dict):
        yield from _of_object(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _of_number(schema, value, path)


def _is(value: Any, wanted: str) -> bool:
    if wanted == "integer":
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        return whole and not isinstance(value, bool)
    return isinstance(value, {"string": str, "boolean": bool, "array": list, "object": dict}[wanted])


def _of_text(schema: Schema, value: str, path: tuple[str, ...]) -> Iterator[Constraint]:
    if "pattern" in schema and not matches(schema["pattern"], value):
        yield Constraint(path, "pattern", schema["pattern"])
    if len(value) < schema.get("minLength", 0):
        yield Constraint(path, "minLength", str(schema["minLength"]))
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield Constraint(path, "maxLength", str(schema["maxLength"]))
    if schema.get("format") == "date-time" and not _DATE_TIME.fullmatch(value):
        yield Constraint(path, "format", "date-time")


def matches(pattern: str, text: str) -> bool:
    """As Go's expressions match: `$` is the very end, `\\d` and `\\s` are ASCII."""
    return re.search(pattern.replace("$", r"\Z"), text, re.ASCII) is not None


def _of_number(schema: Schema, value: float, path: tuple[str, ...]) -> Iterator[Constraint]:
    if "minimum" in schema and value < schema["minimum"]:
        yield Constraint(path, "minimum", str(schema["minimum"]))
    if "maximum" in schema and value > schema["maximum"]:
        yield Constraint(path, "maximum", str(schema["maximum"]))
    bits = {"int32": 31, "int64": 63}.get(schema.get("format", ""), 63)
    if not -(2**bits) <= value < 2**bits:
        yield Constraint(path, "format", schema.get("format", "int64"))


def _of_list(schema: Schema, value: list[Any], path: tuple[str, ...]) -> Iterator[Constraint]:
    if len(value) < schema.get("minItems", 0):
        yield Constraint(path, "minItems", str(schema["minItems"]))
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield Constraint(path, "maxItems", str(schema["maxItems"]))
    if schema.get("x-kubernetes-list-type") == "set" and any(item in value[:at] for at, item in enumerate(value)):
        yield Constraint(path, "set", "no duplicates")
    for item in value:
        yield from _of_shape(schema.get("items", {}), item, (*path, ITEM))


def _of_object(schema: Schema, value: dict[str, Any], path: tuple[str, ...]) -> Iterator[Constraint]:
    fields = schema.get("properties", {})
    entry = schema.get("additionalProperties")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield Constraint(path, "maxProperties", str(schema["maxProperties"]))
    for name in schema.get("required", ()):
        if name not in value:
            yield Constraint((*path, name), "required", "")
    for name, item in value.items():
        if name in fields:
            yield from _of_shape(fields[name], item, (*path, name))
        elif isinstance(entry, dict):
            yield from _of_shape(entry, item, (*path, ENTRY))
        elif not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield Constraint(path, "unknown", "")


@cache
def _compiled(rule: str) -> Any:
    return ENVIRONMENT.compile(rule)


def _holds(rule: str, values: dict[str, Any]) -> bool:
    """An error of a rule refuses, too. A rule that needs more steps than the library allows counts as kept."""
    try:
        result = _compiled(rule).eval(data=values)
    except RuntimeError as error:
        if "Iteration budget" not in str(error):
            raise
        return True
    return result.type() != cel.Type.ERROR and result.value() is True


def _of_rules(schema: Schema, value: Any, before: Any, path: tuple[str, ...]) -> Iterator[Constraint]:
    for rule in schema.get("x-kubernetes-validations", ()):
        text = rule["rule"]
        if "oldSelf" in text and before is _ABSENT:
            continue
        if not _holds(text, {"self": value} | ({"oldSelf": before} if before is not _ABSENT else {})):
            yield Constraint(path, "rule", text)
    if isinstance(value, list):
        for item in value:  # items of a list without keys have no former selves
            yield from _of_rules(schema.get("items", {}), item, _ABSENT, (*path, ITEM))
    elif isinstance(value, dict):
        fields = schema.get("properties", {})
        entry = schema.get("additionalProperties")
        for name, item in value.items():
            was = before.get(name, _ABSENT) if isinstance(before, dict) else _ABSENT
            if name in fields:
                yield from _of_rules(fields[name], item, was, (*path, name))
            elif isinstance(entry, dict):
                yield from _of_rules(entry, item, was, (*path, ENTRY))
