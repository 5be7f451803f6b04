"""Notices of AWS about instances in, claims that leave out: the queue `interruption`, fed by the default bus."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shiplap.cluster.bounded_connections import time_limit
from shiplap.flows import batch
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.interrupt.notices import Notice, read_notice

RESERVE_S = 4.0
"""Kept free at the end of an invocation of ten seconds, in seconds, for the writes of claims and for its report.

Without it, what no decision needs could take all of the time, and what was done would be done again.
"""


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, Any]:
    """A batch of SQS records in, the messages to deliver again out."""

    def flow(notice: Notice) -> None:
        interrupt(notice, install.settings, install.state, install.context, install.meter)

    left_s = context.get_remaining_time_in_millis() / 1000 - RESERVE_S
    with install.reporting(context.aws_request_id), time_limit(left_s):
        return batch.run_each(
            event["Records"], read_notice, flow, dead_letters=install.dead_letters, meter=install.meter
        )
