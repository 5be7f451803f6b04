"""The ceilings of a scenario: those of the account, and those of each cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shiplap.policies.ceilings.ceilings import Ceiling
from shiplap_lab.scenarios.scenario import Scenario


def check(scenario: Scenario) -> None:
    """Read all ceilings. Raises msgspec.ValidationError."""
    for written in (scenario.ceilings, *(cluster.ceilings for cluster in scenario.clusters)):
        ceilings_of(written)


def ceilings_of(written: Sequence[dict[str, Any]]) -> tuple[Ceiling, ...]:
    """Return ceilings as shiplap.yaml has them. Raises msgspec.ValidationError."""
    return msgspec.convert(written, tuple[Ceiling, ...])
