"""The settings of spot risk."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.policies.policy_settings import PolicySettings


class SpotRiskSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`spotRisk` of a cluster in shiplap.yaml."""

    policy: ClassVar[str] = "spot_risk"

    mode: Annotated[str, demands(choices=("off", "observe", "prefer"))] = "off"
    """`observe` collects evidence about interruptions; `prefer` also avoids what is interrupted often."""
    most_premium: Annotated[float, demands(least=0, most=1, form="write 0.15 for 15 %")] = 0.15
    """The largest share of a price that a safer offering may cost more, as a fraction."""

    @property
    def is_on(self) -> bool:
        """True if evidence is collected and read."""
        return self.mode in ("observe", "prefer")
