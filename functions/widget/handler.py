"""The custom widget of the CloudWatch dashboard: draws the clusters of the install."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows.install import Install
from shiplap.flows.widget.widget import widget

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("widget")


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> str:
    """Lambda's entry point: CloudWatch's question in, markup out."""
    own = install()
    with own.reporting(lambda_context.aws_request_id):
        return widget(event, own.settings, own.context, lambda_context.invoked_function_arn)
