"""The settings of spot risk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.policies.policy_settings import PolicySettings


class SpotRiskSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`spotRisk` in shiplap.yaml: `mode` off|observe|prefer, and the premium's largest share of a price, a fraction."""

    policy: ClassVar[str] = "spot_risk"

    mode: Annotated[str, demands(choices=("off", "observe", "prefer"))] = "off"
    most_premium: float = 0.15

    @property
    def is_on(self) -> bool:
        """True if evidence is collected and read."""
        return self.mode in ("observe", "prefer")

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings: the field as written, and the reason."""
        if not 0 <= self.most_premium <= 1:
            yield ("mostPremium",), f"{self.most_premium:g} must be at least 0 and at most 1, such as 0.15 for 15 %"
