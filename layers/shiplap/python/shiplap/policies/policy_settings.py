"""The settings of optional features, as a cluster's settings hold them."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec
from msgspec.structs import force_setattr

from shiplap.policies.registry import position_of, settings_of


class PolicySettings:
    """Base of the settings of a policy; each is a frozen struct beside."""

    __slots__ = ()

    policy: ClassVar[str]
    """Name of the policy in the registry."""

    leaves_pods_out: ClassVar[bool] = False
    """True if the feature keeps pods out of plans: trials of launches are planned without it."""

    @property
    def is_on(self) -> bool:
        """True if the feature takes part in decisions."""
        return True

    @property
    def asks_without_pods(self) -> bool:
        """True if nodes may be asked for by objects that the feature alone reads: then no cluster is idle."""
        return False


class ChosenPolicy(msgspec.Struct, frozen=True):
    """The settings of one policy, stored beside its name: the name says which struct reads them."""

    name: str
    settings: Any

    def __post_init__(self) -> None:
        """Read settings that come from JSON. Raises msgspec.ValidationError, InvalidInput."""
        if isinstance(self.settings, dict):
            force_setattr(self, "settings", msgspec.convert(self.settings, settings_of(self.name)))


def chosen(*settings: PolicySettings) -> tuple[ChosenPolicy, ...]:
    """Return the settings of several policies as a cluster holds them, in the order of the registry."""
    found = (ChosenPolicy(item.policy, item) for item in settings)
    return tuple(sorted(found, key=lambda item: position_of(item.name)))
