"""The JSON schema of shiplap.yaml, by which editors complete and check it while it is written."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.regions import known_regions
from shiplap_cdk.field_docs import field_docs, structs_of
from shiplap_cdk.install_keys import InstallDocument, written_install

SCHEMA_FILE = "shiplap.schema.json"
"""The name of the schema beside a shiplap.yaml."""

SCHEMA_LINE = f"# yaml-language-server: $schema=./{SCHEMA_FILE}\n"
"""The first line of a shiplap.yaml that has the schema beside it."""

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def install_schema() -> dict[str, Any]:
    """Return the JSON schema: whatever the reader takes satisfies it."""
    made = msgspec.json.schema(written_install())
    structs = structs_of(written_install())
    for title, part in made["$defs"].items():
        explained = field_docs(structs[title]) if title in structs else {}
        required = part.get("required", ())
        for name, value in part.get("properties", {}).items():
            if name in explained:
                value.setdefault("description", explained[name])
            if name not in required:
                _allow_null(value)
            if isinstance(value.get("additionalProperties"), dict):
                _allow_null(value["additionalProperties"])
            _allow_switch(value)
    made["$defs"][InstallDocument.__name__]["properties"]["region"]["enum"] = known_regions()
    schema: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode({"$schema": _DIALECT, "title": "shiplap.yaml", **made})
    )
    return schema


def schema_text() -> str:
    """Return the text of the file."""
    return msgspec.json.format(msgspec.json.encode(install_schema()), indent=2).decode() + "\n"


def _allow_switch(part: dict[str, Any]) -> None:
    """Let a word that YAML 1.1 reads as a truth value be one: so it is read."""
    choices = part.get("enum", ())
    switches = [value for word, value in (("on", True), ("off", False)) if word in choices]
    if switches:
        part["enum"] = [*choices, *switches]
        part["type"] = [*part["type"], "boolean"] if isinstance(part["type"], list) else [part["type"], "boolean"]


def _allow_null(part: dict[str, Any]) -> None:
    """Let a key be empty, as one whose lines are comments: the reader takes that for a key that is not there."""
    nothing = {"type": "null"}
    if "anyOf" in part:
        part["anyOf"] += [nothing] if nothing not in part["anyOf"] else []
    elif "$ref" in part:
        part["anyOf"] = [{"$ref": part.pop("$ref")}, nothing]
    else:
        part["type"] = [part["type"], "null"]
        if "enum" in part:
            part["enum"] = [*part["enum"], None]
