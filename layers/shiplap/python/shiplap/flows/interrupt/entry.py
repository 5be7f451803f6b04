"""Notices of AWS about instances in, claims that leave out: the queue `interruption`, fed by the default bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.flows import batch
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.interrupt.notices import Notice, read_notice


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, Any]:
    """A batch of SQS records in, the messages to deliver again out."""

    def flow(notice: Notice) -> None:
        interrupt(notice, install.settings, install.state, install.context, install.meter)

    with install.reporting(context.aws_request_id):
        return batch.run_each(
            event["Records"], read_notice, flow, dead_letters=install.dead_letters, meter=install.meter
        )
