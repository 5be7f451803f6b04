"""Reads what an API server sends, and sets aside single objects that cannot be read instead of failing with all.

An API server validates the objects it stores, so an unreadable one is rare: a webhook, an aggregated API server or a
proxy made it, or it is far larger than any controller writes it (the types in `objects` say how large a list may be,
`MOST_KEPT_BYTES` how large all of them). The other objects must not suffer from it. A null counts as absent, as it does
for the API server.

Nodes, pods that have a node, and DaemonSets are never left out: a node would seem to be gone or empty, and would be
ended, or a new one would be too small. In their place stands an object with the readable fields: a node that takes no
pods, a pod that must not be disrupted, a DaemonSet that comes to every node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec.structs import force_setattr

from shiplap.kubernetes import labels
from shiplap.kubernetes.lenient_json import Fields, without_nulls
from shiplap.kubernetes.objects import (
    Amounts,
    Container,
    DaemonContainer,
    DaemonPodSpec,
    DaemonSet,
    DaemonSetSpec,
    DaemonTemplateSpec,
    Event,
    Few,
    FewLabels,
    Labels,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Parts,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Taint,
    Toleration,
)
from shiplap.kubernetes.quantity import CPU, parse_amount
from shiplap.kubernetes.timestamps import epoch

T = TypeVar("T")

_LONGEST_REASON = 200
_LONGEST_NAME = 253
_LONGEST_TIME = 64

MOST_KEPT_BYTES = 2**16
"""The most that the fields of one object that are read may hold, encoded. Pods of real clusters hold 1 to 5 KiB. A
thousand of this size hold half of what `schedule` may: in memory they are four to eight times as large.
"""

_MOST_AT_ONCE = 2**22
"""A page of more bytes is read object by object: all that its large objects hold must not be in memory together."""

_UNKNOWN_REQUESTS = (Container(resources=ResourceRequirements({CPU: "unknown"})),)

_encode = msgspec.msgpack.Encoder().encode


class Unreadable(msgspec.Struct, frozen=True, omit_defaults=True, order=True):
    """An object that was set aside: the readable part of its identity, and the reason.

    `waits`: it is a pod without a node, for which nothing can be planned.
    """

    kind: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    reason: str = ""
    waits: bool = False

    @property
    def text(self) -> str:
        """One line for people."""
        name = "/".join(part for part in (self.namespace, self.name) if part) or "without a name"
        return f"{self.kind} {name} cannot be read: {self.reason}"


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list; `token` is empty on the last one."""

    items: tuple[T, ...]
    version: str
    token: str
    unreadable: tuple[Unreadable, ...] = ()


class ReadObject(msgspec.Struct, Generic[T], frozen=True):
    """One object, or its stand-in; `item` is None when it has none."""

    item: T | None
    unreadable: Unreadable | None = None


class _ListMeta(msgspec.Struct, frozen=True, rename={"resource_version": "resourceVersion", "token": "continue"}):
    resource_version: str = ""
    token: str = ""


class _Typed(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list; Go encodes an empty list as null."""

    metadata: _ListMeta = _ListMeta()
    items: tuple[T, ...] | None = None


class _Raw(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] | None = None


_RAW = msgspec.json.Decoder(_Raw)


class Reader(Generic[T]):
    """Reads objects of one kind."""

    def __init__(self, kind: type[T], name: str = "", *, any_size: bool = False) -> None:
        """`kind` is a struct; `name` is the kind in messages, by default the name of the struct.

        Objects of `any_size` are those of operators: manifests, and CRDs, whose annotations hold all of them again.
        """
        self._kind = kind
        self.name = name or kind.__name__
        self._page: msgspec.json.Decoder[_Typed[T]] = msgspec.json.Decoder(_Typed[kind])  # type: ignore[valid-type]
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._any_size = any_size
        self._problem: Callable[[Any], str] = cast("Any", _PROBLEMS.get(kind, _problem_of_any))

    def page(self, body: bytes) -> Page[T]:
        """A page of a list.

        Raises:
            msgspec.DecodeError: it is none.
        """
        if len(body) > _MOST_AT_ONCE:
            return self._one_by_one(body)
        try:
            page = self._page.decode(body)
        except (msgspec.ValidationError, UnicodeError, RecursionError):
            return self._one_by_one(body)
        items = page.items or ()
        if not self._all_readable(items) or (len(body) > MOST_KEPT_BYTES and any(map(self._holds_too_much, items))):
            return self._one_by_one(body)
        self._drop_unread(items)
        return Page(items, page.metadata.resource_version, page.metadata.token)

    def one(self, body: bytes | msgspec.Raw) -> ReadObject[T]:
        """One object."""
        size = len(memoryview(body))
        try:
            item = self._object.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if size > MOST_KEPT_BYTES:
                return self._set_aside(body, str(error))
            return self._without_nulls(body, str(error))
        return self._judged(body, item, is_large=size > MOST_KEPT_BYTES)

    def _all_readable(self, items: Sequence[T]) -> bool:
        if self._kind is Pod:
            return _times_are_readable(cast("Sequence[Pod]", items))
        return not any(map(self._problem, items))

    def _drop_unread(self, items: Sequence[T]) -> None:
        if self._kind is Pod:
            _drop_unread_annotations(cast("Sequence[Pod]", items))

    def _holds_too_much(self, item: T) -> bool:
        if self._any_size:
            return False
        self._drop_unread((item,))
        return len(_encode(item)) > MOST_KEPT_BYTES

    def _judged(self, body: bytes | msgspec.Raw, item: T, *, is_large: bool) -> ReadObject[T]:
        reason = self._problem(item)
        if not reason and is_large and self._holds_too_much(item):
            reason = f"the fields that decisions read hold more than {MOST_KEPT_BYTES} bytes"
        self._drop_unread((item,))
        return self._set_aside(body, reason) if reason else ReadObject(item)

    def _one_by_one(self, body: bytes) -> Page[T]:
        try:
            page = _RAW.decode(body)
        except (UnicodeError, RecursionError) as error:  # no item can be told from its neighbours
            raise msgspec.DecodeError(str(error)) from error
        found = [self.one(raw) for raw in page.items or ()]
        return Page(
            tuple(read.item for read in found if read.item is not None),
            page.metadata.resource_version,
            page.metadata.token,
            tuple(read.unreadable for read in found if read.unreadable is not None),
        )

    def _without_nulls(self, body: bytes | msgspec.Raw, reason: str) -> ReadObject[T]:
        content = _content(body)
        try:
            item = msgspec.convert(content, self._kind)
        except msgspec.ValidationError as error:
            return self._set_aside(body, str(error) if content else reason)
        return self._judged(body, item, is_large=False)

    def _set_aside(self, body: bytes | msgspec.Raw, reason: str) -> ReadObject[T]:
        outline = _Outline(body)
        waits = self._kind is Pod and not outline.spec.is_set("nodeName")
        about = Unreadable(
            kind=self.name,
            namespace=outline.metadata.text("namespace")[:_LONGEST_NAME],
            name=outline.metadata.text("name")[:_LONGEST_NAME],
            uid=outline.metadata.text("uid")[:_LONGEST_NAME],
            reason=reason[:_LONGEST_REASON],
            waits=waits,
        )
        make: Any = _STAND_INS.get(self._kind)
        stand_in = make(outline) if make is not None and about.name and not waits else None
        return ReadObject(stand_in, about)


def _content(body: bytes | msgspec.Raw) -> dict[str, Any]:
    """The object without nulls; empty when it is no object or cannot be decoded at all."""
    try:
        content = without_nulls(msgspec.json.decode(body), in_lists=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


class _Outline:
    """The parts of an object that identify it and stand in for it, still encoded."""

    def __init__(self, body: bytes | msgspec.Raw) -> None:
        fields = Fields.of(body)
        self.metadata, self.spec, self.status = map(fields.inner, ("metadata", "spec", "status"))


def _stand_in_metadata(metadata: Fields) -> ObjectMeta:
    deleted = metadata.text("deletionTimestamp")
    return ObjectMeta(
        name=metadata.text("name"),
        namespace=metadata.text("namespace"),
        uid=metadata.text("uid"),
        resource_version=metadata.text("resourceVersion"),
        labels=metadata.read("labels", Labels, {}),
        annotations={**metadata.read("annotations", dict[str, str], {}), labels.DO_NOT_DISRUPT: "true"},
        deletion_timestamp="" if _is_malformed_time(deleted) else deleted,
        owner_references=metadata.read("ownerReferences", Few[OwnerReference], ()),
    )


def _stand_in_node(outline: _Outline) -> Node:
    spec = outline.spec
    conditions: tuple[NodeCondition, ...] = outline.status.read("conditions", Few[NodeCondition], ())
    return Node(
        _stand_in_metadata(outline.metadata),
        NodeSpec(provider_id=spec.text("providerID"), taints=spec.read("taints", Few[Taint], ()), unschedulable=True),
        NodeStatus(conditions=tuple(each for each in conditions if not _is_malformed_time(each.last_transition_time))),
    )


def _stand_in_pod(outline: _Outline) -> Pod:
    """A pod that takes what it requests of its node."""
    spec = outline.spec
    pod = Pod(
        _stand_in_metadata(outline.metadata),
        PodSpec(
            node_name=spec.text("nodeName"),
            containers=_containers(spec, "containers"),
            init_containers=_containers(spec, "initContainers"),
            overhead=spec.read("overhead", Amounts, {}),
            resources=spec.read("resources", ResourceRequirements, None),
            host_network=spec.read("hostNetwork", bool, False),
        ),
        PodStatus(phase=outline.status.text("phase")),
    )
    _drop_unread_annotations((pod,))
    return pod


def _containers(spec: Fields, name: str) -> tuple[Container, ...]:
    """The containers in a field. If they cannot be read, neither can their requests: nothing of the node is free."""
    return spec.read(name, Parts[Container], _UNKNOWN_REQUESTS) if spec.is_set(name) else ()


def _stand_in_daemon_set(outline: _Outline) -> DaemonSet:
    """A set whose pods come to every node that its node selector allows, and take what they request."""
    template = outline.spec.inner("template").inner("spec")
    containers: tuple[DaemonContainer, ...] = template.read("containers", Parts[DaemonContainer], ())
    spec = DaemonPodSpec(
        containers=containers,
        init_containers=_containers(template, "initContainers"),
        node_selector=template.read("nodeSelector", FewLabels, {}),
        tolerations=(Toleration(operator="Exists"),),
        overhead=template.read("overhead", Amounts, {}),
        resources=template.read("resources", ResourceRequirements, None),
    )
    return DaemonSet(_stand_in_metadata(outline.metadata), DaemonSetSpec(DaemonTemplateSpec(spec=spec)))


_STAND_INS: Mapping[Any, Callable[[_Outline], Any]] = {
    Node: _stand_in_node,
    Pod: _stand_in_pod,
    DaemonSet: _stand_in_daemon_set,
}


def _drop_unread_annotations(pods: Iterable[Pod]) -> None:
    """Keep those that decisions read: an API server takes 256 KiB of annotations of each pod."""
    for pod in pods:
        written = pod.metadata.annotations
        if written:
            kept = {key: written[key] for key in labels.ANNOTATIONS_OF_PODS if key in written}
            force_setattr(pod.metadata, "annotations", kept)


def _is_malformed_time(text: str | None) -> bool:
    """True if a timestamp is there and cannot be read."""
    if not text:
        return False
    return len(text) > _LONGEST_TIME or _cannot_be_read(text)


@lru_cache(maxsize=65536)
def _cannot_be_read(text: str) -> bool:
    try:
        epoch(text)
    except (ValueError, OverflowError):
        return True
    return False


def _problem_of_metadata(metadata: ObjectMeta) -> str:
    for text in (metadata.creation_timestamp, metadata.deletion_timestamp):
        if text and _is_malformed_time(text):
            return f"metadata: {text!r} is not a time"
    return ""


def _problem_of_any(item: Any) -> str:
    return _problem_of_metadata(item.metadata) if isinstance(getattr(item, "metadata", None), ObjectMeta) else ""


def _times_are_readable(pods: Iterable[Pod]) -> bool:
    """True if `_problem_of_pod` finds no problem in any pod.

    Pods of a list share most of their times: each time is read once.
    """
    times = {
        time
        for pod in pods
        for time in (pod.metadata.creation_timestamp, pod.metadata.deletion_timestamp, pod.status.start_time)
    }
    return not any(map(_is_malformed_time, times))


def _problem_of_pod(pod: Pod) -> str:
    """Quantities of pods are read, and refused, where their needs are worked out."""
    started = pod.status.start_time
    if started and _is_malformed_time(started):
        return f"status.startTime: {started!r} is not a time"
    return _problem_of_metadata(pod.metadata)


def _problem_of_node(node: Node) -> str:
    for field, quantities in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        for resource, text in quantities.items():
            try:
                amount = parse_amount(resource, text)
            except ValueError as error:
                return f"status.{field}.{resource}: {error}"
            if amount < 0:
                return f"status.{field}.{resource}: {text!r} is less than nothing"
    for condition in node.status.conditions:
        if _is_malformed_time(condition.last_transition_time):
            return f"status.conditions: {condition.last_transition_time!r} is not a time"
    return _problem_of_metadata(node.metadata)


def _problem_of_event(event: Event) -> str:
    for text in (event.last_timestamp, event.event_time):
        if _is_malformed_time(text):
            return f"{text!r} is not a time"
    return _problem_of_metadata(event.metadata)


_PROBLEMS: Mapping[Any, Any] = {Pod: _problem_of_pod, Node: _problem_of_node, Event: _problem_of_event}
