"""The settings of gangs in shiplap.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.manifests.times import go_seconds
from shiplap.policies.policy_settings import PolicySettings

OFF, WHOLE = "off", "whole"


class GangSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`gangs` of a cluster in shiplap.yaml: `mode` off|whole, and how long members that do not exist are waited for."""

    policy: ClassVar[str] = "gangs"
    leaves_pods_out: ClassVar[bool] = True

    mode: Annotated[str, demands(choices=(OFF, WHOLE))] = OFF
    members_within: str = "5m"

    @property
    def is_on(self) -> bool:
        """True if gangs are planned as a whole."""
        return self.mode == WHOLE

    @property
    def wait_s(self) -> float:
        """How long members that do not exist yet are waited for, in seconds."""
        return go_seconds(self.members_within)

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings: the field as written, and the reason."""
        try:
            lasts_s = go_seconds(self.members_within)
        except ValueError as error:
            yield ("membersWithin",), str(error)
            return
        if lasts_s < 0:
            yield ("membersWithin",), f"{self.members_within!r} must not be negative"
