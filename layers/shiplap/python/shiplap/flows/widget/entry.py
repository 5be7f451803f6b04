"""The custom widget of the CloudWatch dashboard: draws the clusters of the install."""

from __future__ import annotations

from typing import Any

from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.widget.widget import widget


def handle(event: dict[str, Any], context: InvocationContext, install: FunctionInstall) -> str:
    """CloudWatch's question in, markup out."""
    with install.reporting(context.aws_request_id):
        return widget(event, install.settings, install.context, context.invoked_function_arn)
