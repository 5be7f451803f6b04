"""Gangs in a drawn install: their settings."""

from __future__ import annotations

from random import Random

from shiplap.policies.gangs.gangs_settings import WHOLE, GangSettings
from shiplap.settings import ClusterSettings


def settings(_at: float) -> GangSettings:
    """Gangs are planned as a whole."""
    return GangSettings(WHOLE)


def remember(_install: ClusterSettings, _at: float, _draw: Random) -> None:
    """Store nothing: pods say which gang they are of."""
