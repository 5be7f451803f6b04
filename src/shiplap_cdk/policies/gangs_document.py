"""The key `gangs` of shiplap.yaml."""

from __future__ import annotations

from shiplap.policies.gangs.gangs_settings import GangSettings
from shiplap_cdk.policy_document import PolicyDocument


class GangsDocument(PolicyDocument):
    """Gangs: decisions read pods anyway, so there is nothing to permit."""

    explanation = "Groups of pods that get nodes for all of their pods, or for none."
    of_cluster = (GangSettings, GangSettings())

    def settings(self, written: GangSettings) -> GangSettings | None:
        """Return the settings as they are written."""
        return written if written.is_on else None


DOCUMENT = GangsDocument()
