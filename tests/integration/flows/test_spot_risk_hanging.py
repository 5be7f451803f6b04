"""The stories of hanging calls about spot are about the work of their function."""

from __future__ import annotations

from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.spot_risk_hanging import interrupting


def test_a_story_of_an_interruption_is_about_the_work_of_its_function() -> None:
    assert ClaimState.DRAINING in str(interrupting().act())
