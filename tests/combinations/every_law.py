"""Every law that needs no program but ours."""

from __future__ import annotations

from tests.combinations.command_laws import COMMAND_LAWS
from tests.combinations.disruption_laws import DISRUPTION_LAWS
from tests.combinations.laws import LAWS, Law

EVERY_LAW: tuple[Law, ...] = (*LAWS, *DISRUPTION_LAWS, *COMMAND_LAWS)
"""The name is what a failure is filed under."""
