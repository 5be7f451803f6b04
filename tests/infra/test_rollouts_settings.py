"""The key `rollouts` of shiplap.yaml."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiplap.policies.rollouts.rollouts_settings import RolloutSettings
from tests.infra.written_installs import WRITTEN, refusal, written


def test_rollouts_are_set_per_cluster(folder: Path) -> None:
    assert written(folder, WRITTEN).clusters[0].settings.policy(RolloutSettings) is None
    (cluster,) = written(folder, WRITTEN + "    rollouts: {mode: annotated, within: 90s, atOnce: 3}\n").clusters
    settings = cluster.settings.policy(RolloutSettings)
    assert settings is not None
    assert (settings.within_s, settings.at_once) == (90.0, 3)
    assert cluster.settings.policies_on == ("rollouts",)


@pytest.mark.parametrize(
    ("line", "field", "reason"),
    [
        ("mode: all", "mode", "off, annotated"),
        ("within: soon", "within", "is not a duration"),
        ("within: -1m", "within", "is not a duration"),
        ("atOnce: 0", "atOnce", "must be 1 or more"),
    ],
)
def test_what_cannot_be_is_refused(folder: Path, line: str, field: str, reason: str) -> None:
    error = refusal(folder, WRITTEN + f"    rollouts: {{{line}}}\n")
    assert error.field == f"clusters[0].rollouts.{field}"
    assert reason in error.reason
