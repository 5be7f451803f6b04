"""The effects of sleep beside the commands themselves: rehearsals are noted and told, nodes that leave are counted.

Nodes are counted before their command is written: a function that dies in between has counted too many, and nodes stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from msgspec import UNSET

from shiplap.disruption.commands import Decision, DisruptionProposal, Reason
from shiplap.errors import ClusterError, StoreError
from shiplap.flows import cluster_metrics
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import POD_EVENTS
from shiplap.flows.policies.sleep_inputs import SLEEP
from shiplap.kubernetes.objects import Event, EventSource, Node, ObjectReference
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.policies.sleep.sleep_settings import SleepSettings
from shiplap.policies.sleep.sleep_state import SleepState, with_rehearsals, with_taken
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

MOST_TOLD = 50
"""Events about rehearsals per minute: telling must not burden the API server."""

_COMPONENT, _REASON = "shiplap", "SleepRehearsal"


class SleepRound:
    """The sleep of one cluster in one invocation of the disrupt function."""

    def __init__(self, settings: ClusterSettings, context: FlowContext) -> None:
        self._settings, self._context = settings, context

    def noted(
        self, proposals: Sequence[DisruptionProposal], state: SleepState | None
    ) -> tuple[DisruptionProposal, ...]:
        """Note rehearsals and nodes that are about to leave; the proposals that may begin.

        What cannot be noted does not begin: the next minute tries again.
        """
        settings, store = self._settings.policy(SleepSettings), self._context.policy_port(SLEEP)
        others = tuple(item for item in proposals if item.reason is not Reason.ASLEEP)
        tell_doubts(self._settings, state, self._context)
        if settings is None or store is None or state is None or not state.scopes:
            return others
        now, name, pools = self._context.clock.now(), self._settings.name, self._settings.manifests.node_pools
        leaving = sum(len(item.nodes) for item in proposals if item.reason is Reason.ASLEEP)
        try:
            before = store.read(name)
            notes = with_rehearsals(settings, pools, before, now)
            counted = with_taken(state, notes, leaving, now) if leaving else notes
            may_take = counted.taken <= settings.most_nodes  # others may have counted since the decision
            if (after := counted if may_take else notes) != before:
                store.save(name, after, now)
        except StoreError as error:
            self._context.meter.count("SleepNotNoted")
            _LOG.warning("nothing leaves for sleep, it is not noted: %s", error, extra={"cluster": name})
            return others
        return tuple(proposals) if may_take else others

    def tell(
        self, decision: Decision, state: SleepState | None, nodes: Sequence[Node], told: Sequence[str]
    ) -> tuple[str, ...]:
        """Count nodes that stay, and tell of those that would leave if this were no rehearsal, each once.

        Returns the names of those that have been told of in this rehearsal.
        """
        of = cluster_metrics.of_cluster(self._settings.name)
        if decision.kept_awake is not UNSET:
            self._context.meter.count("NodesKeptAwake", len(decision.kept_awake), dimensions=of)
        rehearsed = decision.rehearsed if decision.rehearsed is not UNSET else ()
        if state is None or not rehearsed:
            return ()
        self._context.meter.count("NodesRehearsed", len(rehearsed), dimensions=of)
        until = max(scope.until for scope in state.scopes)
        due = [node for node in nodes if node.metadata.name in set(rehearsed) - set(told)][:MOST_TOLD]
        _LOG.info("rehearsal: %d nodes would leave for sleep", len(rehearsed), extra={"cluster": self._settings.name})
        known, publisher = set(told), self._context.within(POD_EVENTS, self._context.cluster)
        for node in due:
            try:
                publisher.publish(_event(node, until, self._context.clock.now()))
            except ClusterError as error:
                self._context.meter.count("NodeEventsNotPublished")
                _LOG.warning("rehearsal not told: %s", error, extra={"node": node.metadata.name})
                break
            known.add(node.metadata.name)
        return tuple(sorted(known.intersection(rehearsed)))


def _event(node: Node, until: float, now: float) -> Event:
    return Event(
        involved_object=ObjectReference(kind="Node", name=node.metadata.name, uid=node.metadata.uid, api_version="v1"),
        reason=_REASON,
        message=f"rehearsal: this node would leave now and its pods would wait, until {rfc3339(until)} at the latest",
        type="Normal",
        source=EventSource(component=_COMPONENT),
        reporting_component=_COMPONENT,
        last_timestamp=rfc3339(now),
    )


def tell_doubts(settings: ClusterSettings, state: SleepState | None, context: FlowContext) -> None:
    """Count and log what stays awake because it is not understood: an alarm watches the count."""
    if state is not None and state.doubts:
        context.meter.count("SleepInDoubt", len(state.doubts))
        _LOG.warning("stays awake: %s", "; ".join(state.doubts), extra={"cluster": settings.name})
