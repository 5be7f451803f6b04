"""Every field of the CRDs of upstream's newest release is a field of ours, with the same bounds, and no other is."""

from __future__ import annotations

import pytest
from msgspec import inspect

from tests.crds.manifest_fields import OURS, SPECS, fields_here, fields_there
from tests.crds.schemas import schema_of

_BOUNDS = {
    "minimum": "least",
    "maximum": "most",
    "maxLength": "longest",
    "maxItems": "most_entries",
    "maxProperties": "most_entries",
    "minItems": "fewest",
    "minLength": "shortest",
}
_LARGEST = 2**31 - 1


@pytest.mark.parametrize("kind", SPECS)
def test_the_same_fields(kind: str) -> None:
    there = {path for path, _ in fields_there(schema_of(kind))}
    here = {path for path, _ in fields_here(inspect.type_info(SPECS[kind]))}
    assert there - here == set()
    assert here - there <= OURS.keys()
    assert len(there) >= 10


@pytest.mark.parametrize("kind", SPECS)
def test_the_same_bounds(kind: str) -> None:
    here = dict(fields_here(inspect.type_info(SPECS[kind])))
    compared = 0
    for path, schema in fields_there(schema_of(kind)):
        constraint = here[path]
        for keyword, name in _BOUNDS.items():
            if keyword in schema and (schema.get("type"), keyword) != ("array", "maxLength"):
                assert getattr(constraint, name) == schema[keyword], (path, keyword)
                compared += 1
        if "enum" in schema:
            assert sorted(constraint.choices) == sorted(schema["enum"]), path
        assert bool(constraint.pattern) == ("pattern" in schema and schema.get("type") != "array"), path
        if schema.get("format") == "int32" and "maximum" not in schema:
            assert constraint.most == _LARGEST, path
    assert compared >= 2
