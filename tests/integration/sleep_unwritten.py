"""A table in which nothing is noted of sleep."""

from __future__ import annotations

import pytest

from shiplap.aws.policies.sleep_adapters import DynamoSleep
from shiplap.policies.sleep.sleep_state import SleepNotes


def replace_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the table finds no notes."""
    monkeypatch.setattr(DynamoSleep, "read", lambda *_: SleepNotes())
