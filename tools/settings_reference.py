"""Writes docs/reference/settings.md: every key of shiplap.yaml, from the schema that editors read."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # run as a program, it finds only its own folder

from shiplap_cdk.install_schema import install_schema  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "settings.md"

_HEAD = """# Settings

Every key of shiplap.yaml. `[]` stands for each entry of a list, `{}` for each value by a name. `shiplap init` writes
`shiplap.schema.json` with the same, for editors; `shiplap validate shiplap.yaml` names every mistake.

This page is written by `make docs`.

| key | value | default | explanation |
|---|---|---|---|
"""

_BOUNDS = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "above {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "below {}"),
    ("minItems", "{} or more entries"),
    ("maxItems", "{} entries at most"),
)
_KINDS = {"string": "text", "boolean": "true or false", "integer": "whole number", "number": "number", "object": "map"}
_MOST_CHOICES = 8


def text() -> str:
    """Return the page."""
    schema = install_schema()
    return _HEAD + "".join(
        f"| {' | '.join((f'`{key}`', _value(part), _default(part), _cell(part.get('description', ''))))} |\n"
        for key, part in keys(schema)
    )


def keys(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each key by its path with what the schema says of it, in the order of the schema."""
    yield from _below("", schema["$ref"], schema["$defs"])


def _below(path: str, reference: str, known: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, part in known[reference.rpartition("/")[2]].get("properties", {}).items():
        key = f"{path}.{name}" if path else name
        yield key, _with_choices(part, known)
        inner, sign = _inner(part)
        if inner:
            yield from _below(key + sign, inner, known)


def _with_choices(part: Mapping[str, Any], known: Mapping[str, Any]) -> Mapping[str, Any]:
    """The key with the words of the enumeration that it refers to, if it does."""
    named = (known.get(way.get("$ref", "").rpartition("/")[2], {}) for way in _ways(part))
    return next(({**part, "anyOf": [found]} for found in named if "enum" in found), part)


def _inner(part: Mapping[str, Any]) -> tuple[str, str]:
    """The struct that a key holds, and the sign for a list or a map of it; empty if it holds none."""
    for way in _ways(part):
        if "$ref" in way:
            return way["$ref"], ""
        for field, sign in (("items", "[]"), ("additionalProperties", "{}")):
            if isinstance(way.get(field), dict) and (found := _inner(way[field])[0]):
                return found, sign
    return "", ""


def _ways(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [way for way in part.get("anyOf", [part]) if way.get("type") != "null"]


def _value(part: Mapping[str, Any]) -> str:
    said = [_one_value(way) for way in _ways(part)]
    return " or ".join(dict.fromkeys(filter(None, said)))


def _one_value(way: Mapping[str, Any]) -> str:
    choices = [word for word in way.get("enum", ()) if isinstance(word, str) and word]
    if 0 < len(choices) <= _MOST_CHOICES:
        return ", ".join(f"`{word}`" for word in choices)
    kinds = [way["type"]] if isinstance(way.get("type"), str) else list(way.get("type", ()))
    bounds = [words.format(way[field]) for field, words in _BOUNDS if field in way]
    if "array" in kinds:
        inner = _value(way.get("items", {}))
        return ", ".join([f"list of {inner}" if inner else "list", *bounds])
    named = [_KINDS[kind] for kind in kinds if kind in _KINDS]
    return ", ".join([*named[:1], *bounds]) if named else "map" if "$ref" in way else ""


def _default(part: Mapping[str, Any]) -> str:
    default = part.get("default")
    if default in (None, "", [], {}) or isinstance(default, dict):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(text())
