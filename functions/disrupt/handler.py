"""Every minute, in each cluster: commands take their next step, and what has been seen twice is begun."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any

from shiplap.disruption.standstill import LastDecision
from shiplap.errors import UnknownCluster
from shiplap.flows import batch
from shiplap.flows.disrupt.disruption_round import disrupt
from shiplap.flows.install import Install
from shiplap.flows.looks import IdleClusters, needs_disruption
from shiplap.flows.turns import Turns
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext


@cache
def install() -> Install:
    """The install as this function uses it, made at the first invocation and kept."""
    return Install.of_environment("disrupt")


_LAST: defaultdict[str, LastDecision] = defaultdict(LastDecision)
"""By cluster, while the function is warm."""

_AT_REST = IdleClusters()

SHARED_S = 45.0
"""No cluster's turn begins later than so many seconds after the start of an invocation that serves all clusters: the
next one begins after a minute. Those left over get an invocation each."""


def handle(event: dict[str, Any], lambda_context: LambdaContext) -> dict[str, int]:
    """Lambda's entry point: how many commands were begun, done and undone.

    `{}` is for all clusters that the function serves; `{"cluster": name}`, and an event of the bus with such a detail,
    for one.
    """
    own = install()
    done: Counter[str] = Counter()
    now = own.clock.now()
    turns = Turns(
        own.clock,
        deadline=now + lambda_context.get_remaining_time_in_millis() / 1000,
        look=lambda due: needs_disruption(due.cluster, own.context(due.cluster), _AT_REST),
        begins_until=now + SHARED_S,
    )

    def look_at(cluster: ClusterSettings) -> None:
        report = disrupt(cluster, own.context(cluster), own.memory, decision_of=_LAST[cluster.name])
        done.update(begun=len(report.begun), done=len(report.done), undone=len(report.undone))

    named = event.get("detail", event)
    with own.reporting(lambda_context.aws_request_id):
        if "cluster" not in named:
            batch.serve_all(own.served.clusters, look_at, meter=own.meter, turns=turns, hand_on=own.hand_on_disruption)
        else:
            try:
                look_at(own.served.cluster(str(named["cluster"])))
            except UnknownCluster as error:
                own.meter.count("UnknownClusters")
                own.logger.warning("dropped: %s", error)
    return {name: done[name] for name in ("begun", "done", "undone")}
