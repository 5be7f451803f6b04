"""Types the messages that arrive on the queues. Each message is a hint: it names where to look, never what to do.

Two shapes come in. Events are EventBridge envelopes (`detail-type`, `detail`). Timers and sweeps are plain bodies,
because they are put on a queue directly. `docs/reference/events.md` lists both.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from shiplap.errors import InvalidMessage
from shiplap.kubernetes.names import subdomain_problem
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.nodeclaim import PodReference

POD_PENDING = "PodPending"
NODE_JOINED = "NodeJoined"
NODE_READY = "NodeReady"


UNSCHEDULABLE = "Unschedulable"
"""Why pods are pending whom kube-scheduler has found no node for."""

TURN_MISSED = "TurnMissed"
"""Why a cluster is told of again for which an invocation had no time left: it is to be swept."""

MANIFESTS_CHANGED = "ManifestsChanged"
"""Why pods may get nodes now that could not before: somebody has edited a NodePool, or an EC2NodeClass is inspected."""

RESERVATION_STARTED = "CapacityReservationStarted"
"""Why nodes may be launched now that could not before: what is known of capacity reservations is asked for anew."""

ROOM_TAKEN = "RoomTaken"
"""Why nodes may be needed although no pod waits: pods have got nodes whose room CapacityBuffers keep."""

MOST_PODS = 500
"""Pods named in one event: an entry of the bus may hold 256 KB, and the rest is found by looking."""


class PodsPending(msgspec.Struct, frozen=True):
    """Pods of a cluster may need nodes. `time` in epoch seconds, 0 when unknown."""

    cluster: str
    time: float = 0.0
    id: str = ""
    pods: tuple[PodReference, ...] = ()
    reason: str = ""


class Sweep(msgspec.Struct, frozen=True):
    """Look at everything of a cluster; sent every minute, so that no lost message matters.

    Without a cluster it is for all that the function serves.
    """

    cluster: str = ""
    time: float = 0.0


class NodeSeen(msgspec.Struct, frozen=True):
    """A node joined or changed its readiness."""

    cluster: str
    node: str
    provider_id: str = ""
    time: float = 0.0


class Timer(msgspec.Struct, frozen=True):
    """Look at a claim again. `step` says why, for the log only."""

    cluster: str
    claim: str
    step: str = ""


Message = PodsPending | Sweep | NodeSeen | Timer


class _Envelope(msgspec.Struct, frozen=True, rename="kebab"):
    detail_type: str
    detail: msgspec.Raw
    id: str = ""
    time: str = ""


class _PodPendingDetail(msgspec.Struct, frozen=True):
    cluster: str
    id: str = ""
    time: str = ""
    pods: tuple[tuple[str, str, str], ...] = ()
    reason: str = ""


class _NodeDetail(msgspec.Struct, frozen=True):
    cluster: str
    node: str
    provider_id: str = msgspec.field(default="", name="providerID")
    time: str = ""


class _Body(msgspec.Struct, frozen=True):
    """A timer, or with kind `sweep` a sweep, which need not name a cluster."""

    cluster: str | None = None
    kind: str = "timer"
    claim: str = ""
    step: str = ""
    time: str = ""


class _Outline(msgspec.Struct, frozen=True):
    """Just enough to tell the two shapes apart."""

    detail_type: str | None = msgspec.field(default=None, name="detail-type")


_outline = msgspec.json.Decoder(_Outline)
_envelope = msgspec.json.Decoder(_Envelope)
_body = msgspec.json.Decoder(_Body)
_pod_pending = msgspec.json.Decoder(_PodPendingDetail)
_node = msgspec.json.Decoder(_NodeDetail)


def for_schedule(body: str | bytes, source: str) -> PodsPending | Sweep:
    """Read a message of the queue `provisioning`. Raises as `decode` does, also for what belongs in another queue."""
    message = decode(body, source)
    if isinstance(message, PodsPending | Sweep):
        return message
    raise InvalidMessage(source, f"{type(message).__name__} does not belong in this queue")


def for_lifecycle(body: str | bytes, source: str) -> NodeSeen | Timer:
    """Read a message of the queue `lifecycle`. Raises as `decode` does, also for what belongs in another queue."""
    message = decode(body, source)
    if isinstance(message, NodeSeen | Timer):
        return message
    raise InvalidMessage(source, f"{type(message).__name__} does not belong in this queue")


def decode(body: str | bytes, source: str) -> Message:
    """Read one queue message.

    The name of a node becomes part of a request's path, so one that Kubernetes would not give is malformed. Pods with
    such names are left out.

    Args:
        body: the message's body.
        source: the queue's name, for the error.

    Raises:
        InvalidMessage: not JSON, of no known kind, or with a field missing, malformed or empty.
    """
    try:
        is_event = _outline.decode(body).detail_type is not None
        message = _of_envelope(_envelope.decode(body)) if is_event else _of_body(_body.decode(body))
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(source, str(error)) from error
    for field in ("cluster", "node", "claim"):
        if getattr(message, field, "unset") == "" and not isinstance(message, Sweep):
            raise InvalidMessage(source, "must not be empty", field=field)
    if isinstance(message, NodeSeen) and (wrong := subdomain_problem(message.node)):
        raise InvalidMessage(source, wrong, field="node")
    return message


def _of_body(body: _Body) -> Message:
    if body.cluster == "":
        raise ValueError("cluster: must not be empty")
    if body.kind == "sweep":
        return Sweep(body.cluster or "", _seconds(body.time))
    if body.kind == "timer":
        return Timer(body.cluster or "", body.claim, body.step)
    raise ValueError(f"unknown kind {body.kind!r}: expected sweep or timer")


def _of_envelope(envelope: _Envelope) -> Message:
    if envelope.detail_type == POD_PENDING:
        detail = _pod_pending.decode(envelope.detail)
        if detail.cluster and detail.reason == TURN_MISSED:
            return Sweep(detail.cluster, _seconds(detail.time))
        return PodsPending(
            detail.cluster,
            _seconds(detail.time or envelope.time),
            detail.id or envelope.id,
            tuple(PodReference(*pod) for pod in detail.pods if not any(map(subdomain_problem, pod[:2]))),
            detail.reason,
        )
    if envelope.detail_type in (NODE_JOINED, NODE_READY):
        node = _node.decode(envelope.detail)
        return NodeSeen(node.cluster, node.node, node.provider_id, _seconds(node.time or envelope.time))
    raise ValueError(f"unknown detail-type {envelope.detail_type!r}")


def _seconds(text: str) -> float:
    return epoch(text) if text else 0.0


def rfc3339(seconds: float) -> str:
    """Epoch seconds as RFC 3339 in UTC with milliseconds, as events carry it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
