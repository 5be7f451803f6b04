"""The settings of deletion costs in shiplap.yaml."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.policies.policy_settings import PolicySettings

OFF, ANNOTATED, REMOVE = "off", "annotated", "remove"


class DeletionCostSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`deletionCosts` of a cluster in shiplap.yaml."""

    policy: ClassVar[str] = "deletion_costs"

    mode: Annotated[str, demands(choices=(OFF, ANNOTATED, REMOVE))] = OFF
    """`annotated`: deletion costs are written as annotations ask; `remove`: all that were written are removed."""
    most_writes: Annotated[int, demands(least=1)] = 100
    """The most pods that are written in one decision, about once a minute."""

    @property
    def is_on(self) -> bool:
        """True if pods are written."""
        return self.mode != OFF
