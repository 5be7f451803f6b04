"""Publishes hints to Shiplap's own functions, and the story of each claim for anybody who listens.

Event ids are derived from the content, so that a listener can drop a repetition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from shiplap.flows.messages import (
    MANIFESTS_CHANGED,
    MOST_PODS,
    NODE_JOINED,
    NODE_READY,
    POD_PENDING,
    RESERVATION_STARTED,
    rfc3339,
)
from shiplap.kubernetes.names import has_no_object
from shiplap.manifests.nodeclaim import NodeClaim, PodReference
from shiplap.ports import BusEvent

LAUNCHED = "NodeClaimLaunched"
REGISTERED = "NodeClaimRegistered"
INITIALIZED = "NodeClaimInitialized"
MISSED = "NodeClaimMissed"
INTERRUPTED = "NodeClaimInterrupted"
FAILED = "NodeClaimFailed"
TERMINATED = "NodeClaimTerminated"
DISRUPTION_DUE = "DisruptionDue"
INSPECTION_DUE = "InspectionDue"


def pods_pending(
    cluster: str, pods: Iterable[PodReference], reason: str, now: float, *, event_id: str, source: str = "functions"
) -> BusEvent:
    """The hint that pods may need nodes."""
    detail = {"cluster": cluster, "id": event_id, "time": rfc3339(now), "pods": _named(pods), "reason": reason}
    return BusEvent(POD_PENDING, detail, f"shiplap.{source}")


def _named(pods: Iterable[PodReference]) -> list[list[str]]:
    """Return the pods that a message names; nobody could look up those without an object."""
    return [[pod.namespace, pod.name, pod.uid] for pod in pods if not has_no_object(pod.name)][:MOST_PODS]


def reservation_started(cluster: str, reservation: str, now: float) -> BusEvent:
    """The hint that a capacity reservation may have started, by its id; empty where only its time is known."""
    event_id = f"{cluster}/reservation/{reservation or rfc3339(now)}"
    return pods_pending(cluster, (), RESERVATION_STARTED, now, event_id=event_id)


def disruption_due(cluster: str, network: str, now: float) -> BusEvent:
    """A cluster is to be looked at by an invocation of the disrupt function of its own, in its network group."""
    detail = {"cluster": cluster, "network": network, "id": f"{cluster}/disruption/{now:.3f}", "time": rfc3339(now)}
    return BusEvent(DISRUPTION_DUE, detail)


def disruption_hint(cluster: str, epoch: int) -> str:
    """The id of the hint that a command's replacements are planned for."""
    return f"{cluster}/{epoch}/disruption"


def inspection_due(cluster: str, now: float) -> BusEvent:
    """EC2NodeClasses are to be inspected now, rather than in a few minutes."""
    detail = {"cluster": cluster, "id": f"{cluster}/inspection/{now:.3f}", "time": rfc3339(now)}
    return BusEvent(INSPECTION_DUE, detail)


def inspected(cluster: str, now: float) -> BusEvent:
    """The hint that an inspection of EC2NodeClasses has news: statuses to write, and perhaps nodes to launch."""
    return pods_pending(cluster, (), MANIFESTS_CHANGED, now, event_id=f"{cluster}/inspected/{now:.3f}")


def node_seen(cluster: str, node: str, provider_id: str, now: float, *, ready: bool, event_id: str) -> BusEvent:
    """The hint that a node joined, or became ready."""
    detail = {"cluster": cluster, "id": event_id, "time": rfc3339(now), "node": node, "providerID": provider_id}
    return BusEvent(NODE_READY if ready else NODE_JOINED, detail, "shiplap.watch")


def of_claim(detail_type: str, claim: NodeClaim, now: float, **facts: Any) -> BusEvent:
    """One step of a claim's life; `facts` are added to what every such event tells."""
    detail = {
        "cluster": claim.cluster,
        "id": f"{claim.cluster}/{claim.name}/{detail_type}",
        "time": rfc3339(now),
        "claim": claim.name,
        "nodePool": claim.plan.node_pool,
        "nodeClass": claim.plan.node_class,
        "tier": claim.plan.tier,
        "instanceId": claim.instance_id,
        "instanceType": claim.known_instance.type,
        "zone": claim.known_instance.zone,
        "capacityType": claim.known_instance.capacity_type,
        "ami": claim.known_instance.ami,
        "hourly": claim.hourly,
        "node": claim.node_name,
        "pods": _named(claim.plan.pods),
        **facts,
    }
    return BusEvent(detail_type, detail)
