"""From launched to in service: the queue `lifecycle`, fed by nodes that were seen and by timers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shiplap.errors import HintsFailed
from shiplap.flows import batch
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.lifecycle.lifecycle import visit_claims
from shiplap.flows.live_settings import stored_settings
from shiplap.flows.messages import NodeSeen, Timer, for_lifecycle
from shiplap.flows.turns import Due, Turns, TurnTimes, check_answers
from shiplap.settings import ClusterSettings

LEAST_TURN_S = 10.0
"""A visit to a claim takes two seconds; its messages come again by themselves, and the sweep reminds of it too."""


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, Any]:
    """A batch of SQS records in, the messages to deliver again out."""
    deadline = install.clock.now() + context.get_remaining_time_in_millis() / 1000

    def probe(due: Due) -> bool:
        return check_answers(install.context(due.cluster))

    def flow(cluster: ClusterSettings, hints: Sequence[NodeSeen | Timer], _until: float) -> str:
        ports = install.context(cluster)
        current = stored_settings(cluster, ports)
        report = visit_claims(current, hints, ports)
        if current.live_manifests:
            from shiplap.flows.shown_claims import show_claims  # noqa: PLC0415 - only for live manifests

            show_claims({*report.registered, *report.initialized, *report.ended}, current, ports)  # last: no node waits
        if report.failures:
            first = report.failures[0].error
            raise HintsFailed([failure.hint for failure in report.failures], str(first)) from first
        return ""

    with install.reporting(context.aws_request_id):
        return batch.run(
            event["Records"],
            for_lifecycle,
            flow,
            settings=install.served,
            dead_letters=install.dead_letters,
            meter=install.meter,
            turns=Turns(
                install.clock,
                deadline,
                probe,
                LEAST_TURN_S,
                executor=install.executor,
                times=install.warm.of(TurnTimes),
            ),
        )
