"""shiplap.yaml: its fields with types and defaults, and what is said about one that nobody knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.formats.doors import install_of, install_schema
from tests.formats.golden import Golden

MANIFESTS = Path(__file__).parent / "given" / "pools.yaml"
_NAMED_AFTER_CLASSES = ("title", "description", "$ref")


def inlined(part: Any, parts: dict[str, Any]) -> Any:
    """A schema without the names and docstrings of classes."""
    if isinstance(part, list):
        return [inlined(item, parts) for item in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return inlined(parts[part["$ref"].rpartition("/")[2]], parts)
    return {
        key: {name: inlined(item, parts) for name, item in value.items()}
        if key == "properties"
        else inlined(value, parts)
        for key, value in part.items()
        if key not in _NAMED_AFTER_CLASSES
    }


def test_fields_types_and_defaults(golden: Golden) -> None:
    schema = install_schema()
    parts = schema.pop("$defs")
    golden.holds("shiplap-yaml", inlined(schema, parts))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("region: eu-west-1\nclusters: [{name: a, manifests: pools.yaml}]\nwatch: 1\n", "watch: unknown field"),
        (
            "region: eu-west-1\nclusters:\n  - name: a\n    manifests: pools.yaml\n    joinTimeout: 1\n",
            "clusters[0].joinTimeout: unknown field",
        ),
        ("clusters: []\n", "region: "),
        (
            "region: eu-west-1\nclusters: [{name: a, manifests: pools.yaml, placement: guess}]\n",
            "clusters[0].placement",
        ),
    ],
    ids=["unknown", "unknown of a cluster", "missing", "value"],
)
def test_mistakes_are_refused_with_file_line_and_field(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text(MANIFESTS.read_text())
    (tmp_path / "shiplap.yaml").write_text(text)
    with pytest.raises(Exception, match=r"shiplap\.yaml:\d+") as refused:
        install_of(tmp_path / "shiplap.yaml")
    assert said in str(refused.value)
