"""Every command with `-o json` prints the schema of its answers; `tests.commands` checks answers against it."""

from __future__ import annotations

import json

import jsonschema
import pytest

from shiplap_cli.lazy_commands import LazyCommand, LazyGroup, shiplap_command
from tests.commands import Shiplap, has_schema


def commands(group: LazyGroup) -> list[LazyCommand]:
    """All commands below a group that take `-o`."""
    found = [group.own] if group.own is not None else []
    for inner in group.commands.values():
        found += commands(inner) if isinstance(inner, LazyGroup) else [inner] if isinstance(inner, LazyCommand) else []
    for each in found:
        each.load()
    return [each for each in found if any("--output" in item.opts for item in each.params)]


def test_every_command_with_an_output_has_a_schema() -> None:
    found = commands(shiplap_command())
    assert len(found) > 25
    assert [each.path for each in found if not each.entry.answers] == []


@pytest.mark.parametrize("words", [each.path for each in commands(shiplap_command())])
def test_a_schema_is_printed_without_anything_else_that_the_command_needs(shiplap: Shiplap, words: str) -> None:
    schema = json.loads(shiplap(*words.split(), "--schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"] == f"shiplap {words} -o json"
    kinds = [part for part in schema.get("$defs", {}).values() if "properties" in part]
    assert any(part["required"] for part in kinds)


def test_an_answer_that_lacks_a_field_or_has_another_one_is_refused() -> None:
    answer = {"file": "a.csv", "charges": 1, "clusters": ["a"], "withoutLedger": []}
    found = {"valid": True, "documents": 1, "problems": [], "warnings": [], "skipped": []}
    has_schema(["validate"], found)
    for wrong in (answer, found | {"more": 1}, {"valid": True}):
        with pytest.raises(jsonschema.ValidationError):
            has_schema(["validate"], wrong)
