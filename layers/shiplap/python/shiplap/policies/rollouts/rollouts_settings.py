"""The settings of rollouts in shiplap.yaml."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.manifests.times import go_seconds
from shiplap.policies.policy_settings import PolicySettings

OFF, ANNOTATED = "off", "annotated"


class RolloutSettings(
    PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True
):
    """`rollouts` of a cluster in shiplap.yaml: `mode` off|annotated, and the bounds of restarts.

    `within` is how long a pod waits for its restart where no annotation says it, from when its node begins to leave.
    `at_once` bounds the Deployments that are restarted for one node at the same time.
    """

    policy: ClassVar[str] = "rollouts"

    mode: Annotated[str, demands(choices=(OFF, ANNOTATED))] = OFF
    within: str = "15m"
    at_once: int = 10

    @property
    def is_on(self) -> bool:
        """True if annotations are read."""
        return self.mode == ANNOTATED

    @property
    def within_s(self) -> float:
        """How long a pod waits where no annotation says it, in seconds."""
        return go_seconds(self.within)

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings: the field as written, and the reason."""
        if self.at_once < 1:
            yield ("atOnce",), f"{self.at_once} must be at least 1"
        try:
            lasts_s = self.within_s
        except ValueError as error:
            yield ("within",), str(error)
            return
        if lasts_s < 0:
            yield ("within",), f"{self.within!r} must not be negative"
