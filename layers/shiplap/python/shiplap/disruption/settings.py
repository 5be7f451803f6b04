"""The knobs of disruption, as an install sets them for a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class DisruptionSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """What may be disrupted for money, and how patiently.

    `enabled` switches the whole of disruption off. `spot_to_spot` allows replacing spot nodes by cheaper spot nodes.
    `least_saving_per_pod` (USD per hour) is what moving one pod has to save at least; `settle_s` how long pods that a
    command moved are left where they are. `improve_s` is the effort spent on finding cheaper replacements.
    `climb_back_s` is how old a node of a fallback tier has to be before it may go back to the preferred one.
    """

    enabled: bool = True
    spot_to_spot: bool = True
    least_saving_per_pod: float = 0.001
    settle_s: float = msgspec.field(default=1800.0, name="settleSeconds")
    improve_s: float = msgspec.field(default=0.6, name="improveSeconds")
    climb_back_s: float = msgspec.field(default=3600.0, name="climbBackSeconds")

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What is wrong with them: the field as written, and the reason."""
        if self.least_saving_per_pod < 0:
            yield ("leastSavingPerPod",), f"{self.least_saving_per_pod:g} must not be negative"
        if self.settle_s < 0:
            yield ("settleSeconds",), f"{self.settle_s:g} must not be negative"
        if self.improve_s < 0:
            yield ("improveSeconds",), f"{self.improve_s:g} must not be negative"
        if self.climb_back_s < 0:
            yield ("climbBackSeconds",), f"{self.climb_back_s:g} must not be negative"
