"""Lambda's way into the function `schedule`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows.install import Install
from shiplap.flows.schedule import entry

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("schedule")


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point."""
    return entry.handle(event, lambda_context, install())
