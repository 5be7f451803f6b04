"""The settings of rollouts in shiplap.yaml."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.manifests.times import GO_DURATION, go_seconds
from shiplap.policies.policy_settings import PolicySettings

OFF, ANNOTATED = "off", "annotated"


class RolloutSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`rollouts` of a cluster in shiplap.yaml."""

    policy: ClassVar[str] = "rollouts"

    mode: Annotated[str, demands(choices=(OFF, ANNOTATED))] = OFF
    """`annotated`: Deployments are restarted as annotations ask."""
    within: Annotated[str, demands(pattern=GO_DURATION, form="a duration such as 15m or 1h30m", unit="s")] = "15m"
    """How long a pod waits for its restart where no annotation says it, from when its node begins to leave."""
    at_once: Annotated[int, demands(least=1)] = 10
    """The most Deployments that are restarted for one node at the same time."""

    @property
    def is_on(self) -> bool:
        """True if annotations are read."""
        return self.mode == ANNOTATED

    @property
    def within_s(self) -> float:
        """How long a pod waits where no annotation says it, in seconds."""
        return go_seconds(self.within)
