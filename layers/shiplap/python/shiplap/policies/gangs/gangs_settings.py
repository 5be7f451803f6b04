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
    """`gangs` of a cluster in shiplap.yaml: `mode` off|whole, and how long members that do not exist are waited for.

    `set_aside_after` is how long a gang waits before it has room set aside from gangs after it; 0s for never.
    """

    policy: ClassVar[str] = "gangs"
    leaves_pods_out: ClassVar[bool] = True

    mode: Annotated[str, demands(choices=(OFF, WHOLE))] = OFF
    members_within: str = "5m"
    set_aside_after: str = "30m"

    @property
    def is_on(self) -> bool:
        """True if gangs are planned as a whole."""
        return self.mode == WHOLE

    @property
    def wait_s(self) -> float:
        """How long members that do not exist yet are waited for, in seconds."""
        return go_seconds(self.members_within)

    @property
    def set_aside_s(self) -> float:
        """After how many seconds a gang has room set aside; 0 for never."""
        return go_seconds(self.set_aside_after)

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings: the field as written, and the reason."""
        for field, written in (("membersWithin", self.members_within), ("setAsideAfter", self.set_aside_after)):
            try:
                lasts_s = go_seconds(written)
            except ValueError as error:
                yield (field,), str(error)
                continue
            if lasts_s < 0:
                yield (field,), f"{written!r} must not be negative"
