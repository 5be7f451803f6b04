"""The disrupt function about to run where deletion costs are written, on a stage on which optional calls may hang."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from shiplap.policies.deletion_costs.deletion_costs_settings import ANNOTATED, DeletionCostSettings
from shiplap.policies.policy_settings import chosen
from tests.integration.flows.deployment_stage import DeploymentStage
from tests.integration.flows.disrupted import Disrupted
from tests.integration.flows.hanging_plays import Played, done, prepared
from tests.integration.flows.stage import Stage


def disrupting_with_costs() -> Played:
    """A Deployment runs on several nodes, and its pods have no deletion costs yet."""
    stage = DeploymentStage(DeletionCostSettings())
    stage.deploy("web", 12, annotations={"shiplap.dev/deletion-cost": "managed"}, cpu="1500m")
    stage.settle()
    stage.settings = replace(stage.settings, policies=chosen(DeletionCostSettings(mode=ANNOTATED)))

    def act(stage: Stage) -> Any:
        assert isinstance(stage, Disrupted)
        report = stage.disrupt()
        return report.proposed, len(report.begun), done(stage)

    return prepared(stage, act)


STORIES = (disrupting_with_costs,)
