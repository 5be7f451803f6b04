"""Sleep in a scenario is read when the scenario is loaded, and a wrong one is refused with its field."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap_lab.policies.sleep_play import settings
from shiplap_lab.policies.sleep_scenario import sleep_of
from shiplap_lab.scenarios.scenario import load


def test_settings_are_those_that_are_written() -> None:
    assert settings(load("sleep").scenario) == SleepSettings(
        ("dev", "shared"),
        6,
        (
            WindowSettings("daily 22:35-00:30 UTC", node_pools=("dev",)),
            WindowSettings("daily 22:50-23:50 UTC", namespaces=("ci",)),
        ),
    )
    assert settings(load("mixed").scenario) is sleep_of(load("mixed").scenario) is None


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        ("{mostNodes: 5, windows: []}", r"missing required field `nodePools` - at `\$.sleep`"),
        ("{nodePools: [dev], mostNodes: many, windows: []}", r"Expected `int`, got `str` - at `\$.sleep.mostNodes`"),
        ("{nodePools: [dev], mostNodes: 5, windows: [], dreams: 3}", "unknown field `dreams`"),
    ],
)
def test_a_wrong_sleep_names_file_field_and_reason(tmp_path: Path, written: str, reason: str) -> None:
    path = tmp_path / "night.yaml"
    path.write_text(f"about: x\nsleep: {written}")
    with pytest.raises(InvalidInput, match=reason) as refusal:
        load(str(path))
    assert "night.yaml" in str(refusal.value)
