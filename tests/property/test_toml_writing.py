"""Whatever settings TOML can hold, writing and reading them gives the same back."""

from __future__ import annotations

import tomllib
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.aws.userdata import bottlerocket

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SCALARS = (
    TEXT
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.dates(date(1900, 1, 1))
    | st.datetimes(datetime(1900, 1, 1), timezones=st.none() | st.just(UTC))  # noqa: DTZ001 - TOML has local times
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
@settings(derandomize=True, deadline=None)
def test_what_is_written_reads_back(document: dict[str, Any]) -> None:
    assert tomllib.loads(bottlerocket.dumps(document)) == document


@given(st.dictionaries(TEXT, VALUES, max_size=5))
@settings(derandomize=True, deadline=None)
def test_order_of_keys_does_not_matter(document: dict[str, Any]) -> None:
    assert bottlerocket.dumps(dict(reversed(document.items()))) == bottlerocket.dumps(document)


def test_what_toml_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="NoneType has no form in TOML"):
        bottlerocket.dumps({"a": None})
