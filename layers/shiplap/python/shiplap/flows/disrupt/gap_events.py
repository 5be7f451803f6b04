"""Tells with an event on the Node that it goes before its replacement, and how long its pods have no place."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import ClusterError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import POD_EVENTS
from shiplap.flows.pod_events import COMPONENT
from shiplap.kubernetes.objects import Event, EventSource, Node, ObjectReference
from shiplap.kubernetes.timestamps import rfc3339

_LOG = logging.getLogger(__name__)

REASON = "TerminatingFirst"


def publish_gaps(commands: Iterable[DisruptionCommand], nodes: Mapping[str, Node], context: FlowContext) -> None:
    """Publish one event for each node of these commands. Failing to tell is counted and logged."""
    publisher = context.within(POD_EVENTS, context.cluster)
    for command in commands:
        for node in (nodes[name] for name in command.nodes if name in nodes):
            try:
                publisher.publish(_event(node, command.detail, context.clock.now()))
            except ClusterError as error:
                context.meter.count("NodeEventsNotPublished")
                _LOG.warning("node not told: %s", error, extra={"node": node.metadata.name})
                return


def _event(node: Node, message: str, now: float) -> Event:
    return Event(
        involved_object=ObjectReference(kind="Node", name=node.metadata.name, uid=node.metadata.uid, api_version="v1"),
        reason=REASON,
        message=message[:1024],
        type="Warning",
        source=EventSource(component=COMPONENT),
        reporting_component=COMPONENT,
        last_timestamp=rfc3339(now),
    )
