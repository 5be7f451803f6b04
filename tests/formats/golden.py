"""Golden files: what the outside sees today, as JSON beside this file; a test compares, only `write` replaces."""

from __future__ import annotations

import difflib
import json
import math
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "golden"
WRITING = pytest.StashKey[bool]()
_MOST_LINES = 80


class Golden:
    """Compares values with the golden file of a name, or writes it."""

    def __init__(self, *, writing: bool) -> None:
        self._writing = writing

    def holds(self, name: str, value: Any) -> None:
        """Fails with a diff when `value` is not what `golden/<name>.json` says."""
        path = FOLDER / f"{name}.json"
        found = text_of(value)
        if self._writing:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(found)
            return
        known = path.read_text() if path.exists() else ""
        if found != known:
            pytest.fail(f"{_difference(known, found, f'golden/{name}.json')}\n{_ADVICE}", pytrace=False)


_ADVICE = "The outside would see this. If that is meant: python -m tests.formats.write, and tell users."


def same(known: Any, found: Any, name: str) -> None:
    """Fails with a diff when two values differ."""
    before, after = text_of(known), text_of(found)
    if before != after:
        pytest.fail(_difference(before, after, name), pytrace=False)


def text_of(value: Any) -> str:
    """The text of a golden file: sorted keys, an indent of 1, numbers rounded to what every machine agrees on."""
    return json.dumps(_plain(value), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(_plain(entry) for entry in value)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.12g}")
    return value


def _difference(known: str, found: str, name: str) -> str:
    lines = list(difflib.unified_diff(known.splitlines(), found.splitlines(), name, "found", lineterm="", n=2))
    left_out = len(lines) - _MOST_LINES
    return "\n".join(lines[:_MOST_LINES] + ([f"… {left_out} lines more"] if left_out > 0 else []))
