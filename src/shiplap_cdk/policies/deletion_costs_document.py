"""The key `deletionCosts` of shiplap.yaml."""

from __future__ import annotations

from shiplap.kubernetes.labels import MANAGED_COST
from shiplap.policies.deletion_costs.deletion_costs_settings import DeletionCostSettings
from shiplap_cdk.policy_document import PolicyDocument


class DeletionCostsDocument(PolicyDocument):
    """Deletion costs: functions need no right of AWS, but one in the cluster."""

    explanation = "ReplicaSets that are scaled down empty the nodes that should go."
    of_cluster = (DeletionCostSettings, DeletionCostSettings())
    rbac = "rbac-deletion-costs.yaml"
    annotations = (MANAGED_COST,)

    def settings(self, written: DeletionCostSettings) -> DeletionCostSettings | None:
        """Return the settings as they are written."""
        return written if written.is_on else None


DOCUMENT = DeletionCostsDocument()
