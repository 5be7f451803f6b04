"""The schedule function about to run where commitments are counted on, on a stage on which optional calls may hang."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shiplap.policies.commitments.commitment_settings import CommitmentSettings
from shiplap.policies.policy_settings import chosen
from tests.integration.flows.hanging_plays import Played, done, prepared
from tests.integration.flows.stage import Stage


def scheduling_on_commitments() -> Played:
    """Two pods get a node; AWS has not shown yet what the account has."""
    stage = Stage()
    stage.add_pods(2)
    stage.settings = replace(stage.settings, policies=chosen(CommitmentSettings(counted_by="eu-west-1/shiplap")))

    def act(stage: Stage) -> Any:
        report = stage.schedule()
        return report.unfinished, len(report.launched), done(stage)

    return prepared(stage, act)


STORIES = (scheduling_on_commitments,)
