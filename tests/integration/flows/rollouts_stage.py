"""A stage on which Deployments run and rollouts are on."""

from __future__ import annotations

from shiplap.policies.rollouts.rollouts_settings import ANNOTATED, RolloutSettings
from tests.integration.flows.deployment_stage import DeploymentStage

ON = RolloutSettings(mode=ANNOTATED)


class RolloutStage(DeploymentStage):
    """Deployments on nodes, moved by restarts unless there are no settings."""

    def __init__(self, settings: RolloutSettings | None = ON, *, budget: str = "100%", **disruption: object) -> None:
        super().__init__(settings, budget=budget, **disruption)

    def restarts(self, name: str) -> int:
        """Return how often a Deployment was restarted: the revision of its template beyond the first."""
        metadata = self.server.get("deployments", name, "default")["metadata"]
        return int(metadata["annotations"]["deployment.kubernetes.io/revision"]) - 1
