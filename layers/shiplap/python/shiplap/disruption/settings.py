"""The knobs of disruption, as an install sets them for a cluster."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec


class DisruptionSettings(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """What may be disrupted for money, and how patiently.

    `enabled` switches the whole of disruption off. `spot_to_spot` allows replacing spot nodes by cheaper spot nodes.
    `least_saving_per_pod` (USD per hour) is what moving one pod has to save at least, `least_saving_share` the part of
    what nodes cost that replacing them has to save: less is not worth the restarts, and search could find it for ever.
    `settle_s` how long pods that a
    command moved are left where they are. `improve_s` is the effort spent on finding cheaper replacements.
    `climb_back_s` is how old a node of a fallback tier has to be before it may go back to the preferred one.
    `expire_protected` lets nodes expire in spite of protected pods, as Karpenter does.
    """

    enabled: bool = True
    spot_to_spot: bool = True
    least_saving_per_pod: float = 0.001
    least_saving_share: float = 0.1
    settle_s: float = msgspec.field(default=1800.0, name="settleSeconds")
    improve_s: float = msgspec.field(default=0.6, name="improveSeconds")
    climb_back_s: float = msgspec.field(default=3600.0, name="climbBackSeconds")
    expire_protected: bool = False

    def problems(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """What is wrong with them: the field as written, and the reason."""
        if self.least_saving_per_pod < 0:
            yield ("leastSavingPerPod",), f"{self.least_saving_per_pod:g} must not be negative"
        if not 0 <= self.least_saving_share < 1:
            yield ("leastSavingShare",), f"{self.least_saving_share:g} must be at least 0 and below 1"
        if self.settle_s < 0:
            yield ("settleSeconds",), f"{self.settle_s:g} must not be negative"
        if self.improve_s < 0:
            yield ("improveSeconds",), f"{self.improve_s:g} must not be negative"
        if self.climb_back_s < 0:
            yield ("climbBackSeconds",), f"{self.climb_back_s:g} must not be negative"
