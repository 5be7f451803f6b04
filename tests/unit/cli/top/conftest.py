"""The settings of an install that `shiplap top` follows."""

from __future__ import annotations

import pytest

from shiplap.errors import AwsError
from shiplap.settings import ClusterSettings
from shiplap_cli.installs import installed


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[ClusterSettings | AwsError]:
    """The last one is what the functions have."""
    found: list[ClusterSettings | AwsError] = [ClusterSettings(name="prod", region="eu-west-1")]

    def look_up(*_: object) -> ClusterSettings:
        if isinstance(found[-1], AwsError):
            raise found[-1]
        return found[-1]

    monkeypatch.setattr(installed, "cluster_settings_of", look_up)
    return found
