"""Every minute, in each cluster: commands take their next step, and what has been seen twice is begun."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from shiplap.disruption.standstill import LastDecision
from shiplap.errors import UnknownCluster
from shiplap.flows import batch, claim_events
from shiplap.flows.disrupt.disruption_round import disrupt
from shiplap.flows.function_install import FunctionInstall, InvocationContext
from shiplap.flows.live_settings import KnownManifests, listed_settings
from shiplap.flows.optional.optional_calls import EVENTS
from shiplap.flows.planning.decision_inputs import CarriedPods
from shiplap.flows.turns import IdleClusters, Turns, TurnTimes, needs_disruption
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

SHARED_S = 45.0
"""No cluster's turn begins later than so many seconds after the start of an invocation that serves all clusters: the
next one begins after a minute. Those left over get an invocation each."""


class LastDecisions:
    """The last decision of each cluster."""

    def __init__(self) -> None:
        self.of: defaultdict[str, LastDecision] = defaultdict(LastDecision)


def handle(event: Mapping[str, Any], context: InvocationContext, install: FunctionInstall) -> dict[str, int]:
    """Return how many commands were begun, done and undone.

    `{}` is for all clusters that the function serves; `{"cluster": name}`, and an event of the bus with such a detail,
    for one.
    """
    clock, idle, last = install.clock, install.warm.of(IdleClusters), install.warm.of(LastDecisions)
    known = install.warm.of(KnownManifests)
    done: Counter[str] = Counter()
    now = clock.now()
    turns = Turns(
        clock,
        deadline=now + context.get_remaining_time_in_millis() / 1000,
        probe=lambda due: needs_disruption(due.cluster, install.context(due.cluster), idle),
        begins_until=now + SHARED_S,
        executor=install.executor,
        times=install.warm.of(TurnTimes),
    )

    def flow(cluster: ClusterSettings) -> None:
        ports = install.context(cluster)
        current, state = listed_settings(cluster, ports, known)
        decision_of = last.of[cluster.name]
        bound_pods = install.warm.of(CarriedPods).of(cluster.name, ports)
        report = disrupt(
            current, ports, install.memory, decision_of=decision_of, manifest_state=state, bound_pods=bound_pods
        )
        done.update(begun=len(report.begun), done=len(report.done), undone=len(report.undone))

    def hand_on(cluster: ClusterSettings, _since: float) -> None:
        event = claim_events.disruption_due(cluster.name, cluster.network, clock.now())
        ports = install.context(cluster)
        ports.within(EVENTS, ports.bus).publish([event])

    named = event.get("detail", event)
    with install.reporting(context.aws_request_id):
        if "cluster" not in named:
            batch.serve_all(install.served.clusters, flow, meter=install.meter, turns=turns, hand_on=hand_on)
        else:
            try:
                flow(install.served.cluster(str(named["cluster"])))
            except UnknownCluster as error:
                install.meter.count("UnknownClusters")
                _LOG.warning("dropped: %s", error)
    return {name: done[name] for name in ("begun", "done", "undone")}
