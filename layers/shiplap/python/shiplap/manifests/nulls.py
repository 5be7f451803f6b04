"""Null fields of what was written, which count as absent."""

from __future__ import annotations

from typing import Any


def without_nulls(value: Any) -> Any:
    """A null field counts as absent, as on an API server, and as AWS's SDKs in some languages print it."""
    if isinstance(value, dict):
        return {key: without_nulls(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry) for entry in value]
    return value
