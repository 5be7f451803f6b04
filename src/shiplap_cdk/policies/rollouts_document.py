"""The key `rollouts` of shiplap.yaml."""

from __future__ import annotations

from shiplap.kubernetes.labels import ROLLOUT, ROLLOUT_WITHIN
from shiplap.policies.rollouts.rollouts_settings import RolloutSettings
from shiplap_cdk.policy_document import PolicyDocument


class RolloutsDocument(PolicyDocument):
    """Rollouts: functions need no right of AWS, but one in the cluster."""

    explanation = "Pods of leaving nodes move by restarts of their Deployments."
    of_cluster = (RolloutSettings, RolloutSettings())
    rbac = "rbac-rollouts.yaml"
    annotations = (ROLLOUT, ROLLOUT_WITHIN)

    def settings(self, written: RolloutSettings) -> RolloutSettings | None:
        """Return the settings as they are written."""
        return written if written.is_on else None


DOCUMENT = RolloutsDocument()
