"""What all tests share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_width_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are as wide as where nothing says how wide: pytest's parallel workers are told a width of their own."""
    monkeypatch.delenv("COLUMNS", raising=False)
