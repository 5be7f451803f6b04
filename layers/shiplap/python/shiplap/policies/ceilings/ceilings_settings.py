"""The settings of ceilings: those of a cluster, and those of all clusters of the install together."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.policy_settings import PolicySettings


class CeilingSettings(PolicySettings, msgspec.Struct, frozen=True, omit_defaults=True):
    """The ceilings in dollars of a cluster, its NodePools and namespaces, and those `of_account`."""

    policy: ClassVar[str] = "ceilings"

    of_cluster: tuple[Ceiling, ...] = ()
    of_account: tuple[Ceiling, ...] = ()

    @property
    def is_on(self) -> bool:
        """True if anything bounds the cost of the cluster's nodes."""
        return bool(self.of_cluster or self.of_account)

    @property
    def stops_launches(self) -> bool:
        """True if a ceiling refuses replacements, too."""
        return any(ceiling.mode is CeilingMode.STOP for ceiling in (*self.of_cluster, *self.of_account))


NO_CEILINGS = CeilingSettings()
"""The settings of a cluster without ceilings."""
