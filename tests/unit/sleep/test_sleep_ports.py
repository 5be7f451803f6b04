"""Flows get the port to the notes of sleep where something may sleep."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest
from msgspec.structs import replace

from shiplap.flows import install as installs
from shiplap.flows.install import Install
from shiplap.flows.policies.sleep_inputs import SLEEP
from shiplap.policies.policy_settings import chosen
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.settings import ClusterSettings, ResourceNames, Settings

pytestmark = pytest.mark.usefixtures("own_logger")

NAMES = ResourceNames("state", "capacity", "bucket", "bus", "https://sqs/lifecycle", "https://sqs/dead", "platform")
AWAKE = ClusterSettings(name="blue", region="us-east-1", endpoint="https://blue.example", token="t")
ASLEEP = replace(AWAKE, policies=chosen(SleepSettings(("dev",), 3, (WindowSettings("daily 19:00-07:00 UTC"),))))


def test_notes_are_read_from_a_table_of_the_install_once_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    monkeypatch.setattr(installs, "client", lambda *of: made.append(of) or MagicMock())
    awake, asleep = (
        Install("schedule", Settings((settings,)), NAMES).context(settings).policy_port(SLEEP)
        for settings in (AWAKE, ASLEEP)
    )
    assert awake is None
    assert asleep is not None
    assert made == []
    assert callable(asleep.read)
