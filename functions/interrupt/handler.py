"""Notices of AWS about instances in, claims that leave out: the queue `interruption`, fed by the default bus."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows import batch
from shiplap.flows.install import Install
from shiplap.flows.interrupt.interrupt import interrupt
from shiplap.flows.interrupt.notices import Notice, read_notice

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("interrupt")


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point: a batch of SQS records in, the messages to deliver again out."""
    own = install()

    def flow(notice: Notice) -> None:
        interrupt(notice, own.settings, own.state, own.context, own.meter)

    with own.reporting(lambda_context.aws_request_id):
        return batch.run_each(event["Records"], read_notice, flow, dead_letters=own.dead_letters, meter=own.meter)
