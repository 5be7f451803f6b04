"""The quick reading of YAML gives what the thorough one gives, wherever it does not decline."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shiplap.manifests.files import yaml_reader
from shiplap.manifests.files.yaml_reader import read_quickly, read_thoroughly

TEXT = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=12),
    st.sampled_from(
        [
            "yes",
            "No",
            "null",
            "~",
            "",
            "1",
            "0x_",
            "12:30",
            "1e3",
            ".5",
            "2026-01-01",
            "<<",
            "- a",
            "a: b",
            "true",
            ".inf",
        ]
    ),
)
SCALARS = st.one_of(TEXT, st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=20,
)


def thorough(text: str) -> list[tuple[int, Any]]:
    return list(read_thoroughly("text", text))


@given(st.lists(VALUES, max_size=3), st.sampled_from([None, True, False]), st.sampled_from([None, '"', "'", "|"]))
def test_both_readings_agree(values: list[Any], flow: bool | None, style: str | None) -> None:
    text = yaml.dump_all(values, default_flow_style=flow, default_style=style, allow_unicode=True)
    found = read_quickly(text)
    if found is not None:
        assert found == thorough(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        "a: 1\n---\n---\nb: [x, {y: ~}]\n",
        "kind: List\nitems:\n- a: |\n    - b\n    c\n- 'quoted': \"12\"\n  1: yes\n  yes: 2\n  null: 3\n",
        "# comment\na:\n  - - 1\n    - 2\n  -\n",
    ],
)
def test_what_people_write_is_read_quickly(text: str) -> None:
    assert read_quickly(text) == thorough(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "a: {<<: {b: 1}}\n",
        "a: 1\na: 2\n",
        "? [a]\n: 1\n",
        "a: [",
        "a: 0x_\n",
        "[" * 300 + "]" * 300,
    ],
)
def test_the_rest_is_left_to_the_thorough_reading(text: str) -> None:
    assert read_quickly(text) is None


def test_the_public_reading_takes_either(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(yaml_reader.read("text", "a: &x 1\nb: *x\n")) == [(1, {"a": 1, "b": 1})]
    assert list(yaml_reader.read("text", "\na: 1\n")) == [(2, {"a": 1})]
