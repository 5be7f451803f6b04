"""Ceilings in a drawn install: those of the cluster and of the account."""

from __future__ import annotations

from random import Random

from shiplap.policies.ceilings.ceilings import Ceiling, CeilingMode
from shiplap.policies.ceilings.ceilings_settings import CeilingSettings
from shiplap.settings import ClusterSettings


def settings(at: float) -> CeilingSettings:
    """The cluster's ceiling is of a mode that the moment draws."""
    mode = Random(int(at)).choice(list(CeilingMode))  # noqa: S311 - drawn, not secret
    return CeilingSettings(
        (Ceiling(monthly=5_000.0, mode=mode, above_priority=0),), (Ceiling(monthly=9_000.0, mode=CeilingMode.STOP),)
    )


def remember(_install: ClusterSettings, _at: float, _draw: Random) -> None:
    """Nothing is stored before the first posting."""
