"""The key `gangs` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.policies.gangs.gangs_settings import GangSettings
from tests.infra.written_installs import WRITTEN, refusal, written


def test_gangs_are_set_per_cluster(folder: Path) -> None:
    assert written(folder, WRITTEN).clusters[0].settings.policy(GangSettings) is None
    (cluster,) = written(folder, WRITTEN + "    gangs: {mode: whole, membersWithin: 90s, setAsideAfter: 1h}\n").clusters
    settings = cluster.settings.policy(GangSettings)
    assert settings is not None
    assert (settings.wait_s, settings.set_aside_s) == (90.0, 3600.0)
    assert cluster.settings.policies_on == ("gangs",)


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ("mode: half", "mode", "off, whole"),
        ("membersWithin: soon", "membersWithin", "is not a duration"),
        ("membersWithin: -1m", "membersWithin", "is not a duration such as 5m"),
        ("setAsideAfter: later", "setAsideAfter", "is not a duration"),
        ("setAsideAfter: -1s", "setAsideAfter", "is not a duration such as 5m"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, line: str, field: str, reason: str) -> None:
    error = refusal(folder, WRITTEN + f"    gangs: {{{line}}}\n")
    assert error.field == f"clusters[0].gangs.{field}"
    assert reason in error.reason
