"""The audit flow: what CloudWatch Logs passes on of a cluster's audit log, told to the bus as pods that wait.

It needs nothing in the cluster and no way to its API server. Control-plane logs arrive minutes late and not always, so
this only makes things faster. Records are Kubernetes' audit.k8s.io/v1 Events, in the envelope of a subscription.
"""

from __future__ import annotations

import binascii
import logging
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.cluster.watcher import is_unschedulable
from shiplap.errors import InvalidMessage
from shiplap.flows import claim_events
from shiplap.flows.context import FlowContext
from shiplap.flows.messages import UNSCHEDULABLE
from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.claim_rules import ClaimRule, is_claimed
from shiplap.manifests.nodeclaim import PodReference

_LOG = logging.getLogger(__name__)

SOURCE = "audit log"
"""Names this way in, in errors."""

SCHEDULER = "system:kube-scheduler"
_NODES = "system:node:"

_LARGEST_BYTES = 64 * 2**20
"""More than any delivery holds (a compressed one is at most 1 MB): what is larger is somebody's bomb."""

_HEAD = 4096
"""Everything of a record that comes before the objects fits in so many characters."""

_GROUP = re.compile(r"/aws/eks/([^/]+)/cluster")
_CUT = re.compile(
    r'"auditID":"(?P<id>[^"]*)","stage":"ResponseComplete",'
    r'"requestURI":"/api/v1/namespaces/(?P<namespace>[^/"]+)/pods/(?P<name>[^/"]+)/status(?:\?[^"]*)?",'
    rf'"verb":"(?:patch|update)","user":\{{"username":"{SCHEDULER}"'
)
"""The beginning of a record that was cut before its end, as the API server orders its fields."""


class Delivery(msgspec.Struct, frozen=True):
    """The audit log lines of one cluster, as they came; none for a message that only tries the subscription out."""

    cluster: str
    lines: tuple[msgspec.Raw, ...] = ()


class UnscheduledPod(msgspec.Struct, frozen=True):
    """A pod that could not be scheduled. `at` in epoch seconds, 0 when unknown; `record` is the audit record's id."""

    pod: PodReference
    at: float
    record: str


class RecentPods:
    """Pods told about lately: kube-scheduler tries again and again, and each try is a record.

    What is told is forgotten after `lasts_s` seconds: by then the sweep has seen the pod.
    """

    def __init__(self, *, lasts_s: float = 60.0, most: int = 20_000) -> None:
        self._lasts_s = lasts_s
        self._most = most
        self._told: dict[tuple[str, ...], float] = {}

    def __contains__(self, key: tuple[str, ...]) -> bool:
        """True if the key was passed on and is not forgotten yet."""
        return key in self._told

    def forget(self, now: float) -> None:
        """Drop what was told long ago, and the oldest of too much."""
        kept = [(key, at) for key, at in self._told.items() if now - at < self._lasts_s]
        self._told = dict(kept[-self._most :])

    def add(self, keys: Iterable[tuple[str, ...]], now: float) -> None:
        """Remember what was told; only after it was."""
        for key in keys:
            self._told.pop(key, None)
            self._told[key] = now


class _Batch(msgspec.Struct, frozen=True, rename="camel"):
    message_type: str = ""
    log_group: str = ""
    log_events: tuple[msgspec.Raw, ...] = ()


class _Line(msgspec.Struct, frozen=True):
    message: str
    timestamp: int = 0


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Reference(msgspec.Struct, frozen=True):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """The fields that are read of an audit.k8s.io/v1 Event."""

    kind: str
    stage: str = ""
    audit_id: str = msgspec.field(default="", name="auditID")
    verb: str = ""
    user: _User = _User()
    object_ref: _Reference | None = None
    response_status: _ResponseStatus | None = None
    stage_timestamp: str = ""
    response_object: msgspec.Raw = msgspec.Raw(b"null")


_batch = msgspec.json.Decoder(_Batch)
_line = msgspec.json.Decoder(_Line)
_record = msgspec.json.Decoder(_Record)
_pod = msgspec.json.Decoder(Pod)


def read_delivery(event: Mapping[str, Any]) -> Delivery:
    """Unpack what CloudWatch Logs hands to a function: `{"awslogs": {"data": base64 of gzip of JSON}}`.

    Raises:
        InvalidMessage: it is none, or not of a cluster's log group `/aws/eks/<cluster>/cluster`.
    """
    try:
        packed = binascii.a2b_base64(event["awslogs"]["data"], strict_mode=True)
        unpacking = zlib.decompressobj(wbits=31)
        data = unpacking.decompress(packed, _LARGEST_BYTES)
        if not unpacking.eof:
            raise InvalidMessage(SOURCE, f"the delivery ends early, or holds more than {_LARGEST_BYTES} bytes")
        batch = _batch.decode(data)
    except (KeyError, TypeError, ValueError, zlib.error, RecursionError) as error:
        raise InvalidMessage(SOURCE, f"not a delivery of CloudWatch Logs: {error}") from error
    if batch.message_type == "CONTROL_MESSAGE":
        return Delivery("")
    group = _GROUP.fullmatch(batch.log_group)
    if group is None:
        raise InvalidMessage(SOURCE, f"log group {batch.log_group!r} is not that of an EKS cluster's control plane")
    return Delivery(group[1], batch.log_events)


def audit(delivery: Delivery, rules: Sequence[ClaimRule], context: FlowContext, recent: RecentPods) -> int:
    """Tell the bus which pods of a delivery wait for a node and are ours by the cluster's rules, in one event.

    A line that cannot be read costs one line in the log and nothing else.

    Returns:
        How many pods were told.

    Raises:
        StoreError: the bus took none of it; Lambda delivers again.
    """
    now = context.clock.now()
    recent.forget(now)
    found: dict[tuple[str, ...], UnscheduledPod] = {}
    unreadable = 0
    for line in delivery.lines:
        try:
            waiting = unscheduled_pod_in(line, rules)
        except InvalidMessage as error:
            unreadable += 1
            _LOG.warning("unreadable audit record: %s", error, extra={"cluster": delivery.cluster})
            continue
        if waiting is not None:
            found.setdefault(_key(delivery.cluster, waiting.pod), waiting)
    if unreadable:
        context.meter.count("AuditRecordsUnreadable", unreadable)
    news = {key: waiting for key, waiting in found.items() if key not in recent}
    if not news:
        return 0
    pods = [waiting.pod for waiting in news.values()]
    first = min(news.values(), key=lambda waiting: (waiting.at or now, waiting.record))
    event_id = f"{delivery.cluster}/audit/{first.record}"
    hint = claim_events.pods_pending(delivery.cluster, pods, UNSCHEDULABLE, now, event_id=event_id, source="audit")
    context.bus.publish([hint])
    recent.add(news, now)
    late_s = round(now - first.at, 3) if first.at else None
    _LOG.info("heard", extra={"cluster": delivery.cluster, "event_id": event_id, "pods": len(pods), "late_s": late_s})
    return len(pods)


def unscheduled_pod_in(line: msgspec.Raw, rules: Sequence[ClaimRule] = ()) -> UnscheduledPod | None:
    """The pod that a line of the log says could not be scheduled; None when it speaks of something else.

    The pod itself decides, as the API server answered with it. A record that was too large has lost it: the API server
    leaves objects out, CloudWatch cuts the text. Then it counts that kube-scheduler wrote the pod's status, which
    it does for pods without a node only.

    Raises:
        InvalidMessage: the line is not an audit record, nor the beginning of one.
    """
    try:
        logged = _line.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidMessage(SOURCE, f"not a log event: {error}") from error
    try:
        record = _record.decode(logged.message)
    except msgspec.ValidationError as error:
        raise InvalidMessage(SOURCE, f"not an audit record: {error}") from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _of_truncated(logged, error)
    if not _is_of_a_pods_status(record):
        return None
    try:
        pod = _pod_written(record, rules)
        at = epoch(record.stage_timestamp) if record.stage_timestamp else logged.timestamp / 1000
    except (ValueError, RecursionError) as error:
        raise InvalidMessage(SOURCE, str(error), document=record.audit_id) from error
    return None if pod is None else UnscheduledPod(pod, at, record.audit_id)


def _is_of_a_pods_status(record: _Record) -> bool:
    """True if this is the end of a write to a pod's status that was accepted, by anybody but a kubelet."""
    about = record.object_ref
    return (
        record.kind == "Event"
        and record.stage == "ResponseComplete"
        and record.verb in ("patch", "update")
        and about is not None
        and (about.resource, about.subresource) == ("pods", "status")
        and not record.user.username.startswith(_NODES)
        and (record.response_status is None or record.response_status.code < 300)
    )


def _pod_written(record: _Record, rules: Sequence[ClaimRule]) -> PodReference | None:
    about = record.object_ref
    if bytes(record.response_object) == b"null":
        if about is None or not about.name or record.user.username != SCHEDULER:
            return None
        return PodReference(about.namespace, about.name, "")
    pod = _pod.decode(record.response_object)
    if not is_unschedulable(pod) or not is_claimed(pod, rules):
        return None
    return PodReference.of(pod)


def _of_truncated(logged: _Line, error: Exception) -> UnscheduledPod | None:
    match = _CUT.search(logged.message[:_HEAD])
    if match is None:
        raise InvalidMessage(SOURCE, str(error)) from error
    return UnscheduledPod(PodReference(match["namespace"], match["name"], ""), logged.timestamp / 1000, match["id"])


def _key(cluster: str, pod: PodReference) -> tuple[str, ...]:
    return (cluster, pod.uid) if pod.uid else (cluster, pod.namespace, pod.name)
