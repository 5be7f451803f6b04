"""From launched to in service: the queue `lifecycle`, fed by nodes that were seen and by timers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows import batch
from shiplap.flows.install import Install
from shiplap.flows.lifecycle.lifecycle import visit_claims
from shiplap.flows.looks import check_answers
from shiplap.flows.messages import NodeSeen, Timer, for_lifecycle
from shiplap.flows.turns import Due, Turns
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("lifecycle")


LEAST_TURN_S = 10.0
"""A visit to a claim takes two seconds; its messages come again by themselves, and the sweep reminds of it too."""


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point: a batch of SQS records in, the messages to deliver again out."""
    own = install()
    deadline = own.clock.now() + lambda_context.get_remaining_time_in_millis() / 1000

    def look(due: Due) -> bool:
        return check_answers(own.context(due.cluster))

    def flow(cluster: ClusterSettings, hints: Sequence[NodeSeen | Timer], _until: float) -> str:
        visit_claims(cluster, hints, own.context(cluster))
        return ""

    with own.reporting(lambda_context.aws_request_id):
        return batch.run(
            event["Records"],
            for_lifecycle,
            flow,
            settings=own.served,
            dead_letters=own.dead_letters,
            meter=own.meter,
            turns=Turns(own.clock, deadline, look, LEAST_TURN_S),
        )
