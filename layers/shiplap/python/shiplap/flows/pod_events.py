"""Tells users, with Kubernetes events, why no node can be launched for a pod, and what happens to a node."""

from __future__ import annotations

import logging

from shiplap.errors import ClusterError
from shiplap.flows.context import FlowContext
from shiplap.flows.optional.optional_calls import POD_EVENTS
from shiplap.kubernetes.names import has_no_object
from shiplap.kubernetes.objects import Event, EventSource, Node, ObjectReference, Pod
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.scheduling.model.scheduling_plan import Unschedulable

_LOG = logging.getLogger(__name__)

COMPONENT = "shiplap"
REASON = "FailedScheduling"
MOST_PODS = 50
"""Pods told about per invocation: telling must not cost the API server more than deciding does."""

_PODS_OF_A_CLAIM = 10
_TURN_S = 60.0
_LONGEST_MESSAGE = 1024
"""Characters; the API server refuses longer messages of events."""


def publish_unschedulable(cluster: str, pods: tuple[Unschedulable, ...], context: FlowContext) -> None:
    """Publish one event per pod; where there are too many, the next ones have their turn a minute later.

    An event that stands already is not repeated. Failing to tell is counted and logged, never an error.
    """
    now = context.clock.now()
    start = int(now // _TURN_S) * MOST_PODS % len(pods) if len(pods) > MOST_PODS else 0
    for unschedulable in (pods[start:] + pods[:start])[:MOST_PODS]:
        try:
            context.within(POD_EVENTS, context.cluster).publish(_event(unschedulable.pod, unschedulable.message, now))
        except ClusterError as error:
            context.meter.count("PodEventsNotPublished")
            _LOG.warning("pod not told: %s", error, extra={"cluster": cluster, "pod": unschedulable.pod.name})
            return  # the API server refuses or is out of reach: the others would fare no better


def publish_for_pods(claim: NodeClaim, message: str, context: FlowContext) -> None:
    """Publish why no node came of a claim, on the first of its pods. Failing to tell is counted and logged."""
    now = context.clock.now()
    for pod in [pod for pod in claim.plan.pods if not has_no_object(pod.name)][:_PODS_OF_A_CLAIM]:
        try:
            context.within(POD_EVENTS, context.cluster).publish(_event(pod, message, now))
        except ClusterError as error:
            context.meter.count("PodEventsNotPublished")
            _LOG.warning("pod not told: %s", error, extra={"cluster": claim.cluster, "pod": pod.name})
            return


def publish_on_node(node: Node, reason: str, message: str, context: FlowContext) -> bool:
    """Publish a warning on a node. Failing to tell is counted and logged; returns whether it was told."""
    meta = node.metadata
    about = ObjectReference(kind="Node", name=meta.name, uid=meta.uid, api_version="v1")
    if (error := _refusal(about, reason, message, context)) is None:
        return True
    context.meter.count("NodeEventsNotPublished")
    _LOG.warning("node not told: %s", error, extra={"node": meta.name})
    return False


def publish_on_pod(pod: Pod, reason: str, message: str, context: FlowContext) -> None:
    """Publish a warning on a pod. Failing to tell is counted and logged."""
    meta = pod.metadata
    about = ObjectReference("Pod", meta.namespace, meta.name, meta.uid, "v1")
    if (error := _refusal(about, reason, message, context)) is not None:
        context.meter.count("PodEventsNotPublished")
        _LOG.warning("pod not told: %s", error, extra={"pod": meta.name})


def _refusal(about: ObjectReference, reason: str, message: str, context: FlowContext) -> ClusterError | None:
    """Publish a warning; the error if that is refused."""
    try:
        context.within(POD_EVENTS, context.cluster).publish(_warning(about, reason, message, context.clock.now()))
    except ClusterError as error:
        return error
    return None


def _event(pod: PodReference, message: str, now: float) -> Event:
    about = ObjectReference(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, api_version="v1")
    return _warning(about, REASON, message, now)


def _warning(about: ObjectReference, reason: str, message: str, now: float) -> Event:
    return Event(
        involved_object=about,
        reason=reason,
        message=message[:_LONGEST_MESSAGE],
        type="Warning",
        source=EventSource(component=COMPONENT),
        reporting_component=COMPONENT,
        last_timestamp=rfc3339(now),
    )
