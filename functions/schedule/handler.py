"""Pending pods in, instances out: the queue `provisioning`, one flow per cluster for a whole batch, in turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.flows import batch
from shiplap.flows.install import Install
from shiplap.flows.looks import FULL_SWEEP_S, IdleClusters, check_answers, needs_sweep
from shiplap.flows.messages import PodsPending, Sweep, for_schedule
from shiplap.flows.schedule.schedule import schedule
from shiplap.flows.turns import Due, Turns
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("schedule")


_SWEPT_AT: dict[str, float] = {}
"""When this process last swept a cluster, epoch seconds by name."""

_AT_REST = IdleClusters()


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, Any]:
    """Lambda's entry point: a batch of SQS records in, the messages to deliver again out."""
    own = install()
    deadline = own.clock.now() + lambda_context.get_remaining_time_in_millis() / 1000

    def look(due: Due) -> bool:
        context = own.context(due.cluster)
        if due.asked:
            return check_answers(context)
        overdue = _SWEPT_AT.get(due.cluster.name, 0.0) + FULL_SWEEP_S <= own.clock.now()
        return needs_sweep(due.cluster, context, _AT_REST) or overdue

    def flow(cluster: ClusterSettings, hints: Sequence[PodsPending | Sweep], until: float) -> str:
        if any(isinstance(hint, Sweep) for hint in hints):
            _SWEPT_AT[cluster.name] = own.clock.now()
        context = own.context(cluster)
        return schedule(cluster, hints, context, owner=lambda_context.aws_request_id, deadline=until).unfinished

    with own.reporting(lambda_context.aws_request_id):
        return batch.run(
            event["Records"],
            for_schedule,
            flow,
            settings=own.served,
            dead_letters=own.dead_letters,
            meter=own.meter,
            turns=Turns(own.clock, deadline, look),
            hand_on=own.hand_on_sweep,
        )
