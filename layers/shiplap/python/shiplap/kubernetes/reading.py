"""Reads what an API server sends, and sets aside single objects that cannot be read instead of failing with all.

An API server validates the objects it stores, so an unreadable one is rare: a webhook, an aggregated API server or a
proxy made it. The other objects must not suffer from it. A null counts as absent, as it does for the API server.

Nodes, and pods that have a node, are never left out: a node would seem to be gone or empty, and would be ended. In
their place stands an object with the readable fields, which takes no pods and must not be disrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import (
    Event,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Taint,
)
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.timestamps import epoch

T = TypeVar("T")

_LONGEST_REASON = 200


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

    def __init__(self, kind: type[T], name: str = "") -> None:
        """`kind` is a struct; `name` is the kind in messages, by default the name of the struct."""
        self._kind = kind
        self._name = name or kind.__name__
        self._page: msgspec.json.Decoder[_Typed[T]] = msgspec.json.Decoder(_Typed[kind])  # type: ignore[valid-type]
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._problem: Callable[[Any], str] = cast("Any", _PROBLEMS.get(kind, _problem_of_any))

    def page(self, body: bytes) -> Page[T]:
        """A page of a list.

        Raises:
            msgspec.DecodeError: it is none.
        """
        try:
            page = self._page.decode(body)
        except (msgspec.ValidationError, UnicodeError, RecursionError):
            return self._one_by_one(body)
        items = page.items or ()
        if not self._all_readable(items):
            return self._one_by_one(body)
        return Page(items, page.metadata.resource_version, page.metadata.token)

    def _all_readable(self, items: Sequence[T]) -> bool:
        if self._kind is Pod:
            return _times_are_readable(cast("Sequence[Pod]", items))
        return not any(map(self._problem, items))

    def one(self, body: bytes | msgspec.Raw) -> ReadObject[T]:
        """One object."""
        try:
            item = self._object.decode(body)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return self._without_nulls(body, str(error))
        reason = self._problem(item)
        return self._set_aside(_content(body), reason) if reason else ReadObject(item)

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
            return self._set_aside(content, str(error) if content else reason)
        wrong = self._problem(item)
        return self._set_aside(content, wrong) if wrong else ReadObject(item)

    def _set_aside(self, content: Mapping[str, Any], reason: str) -> ReadObject[T]:
        metadata = _mapping(content, "metadata")
        spec = _mapping(content, "spec")
        waits = self._kind is Pod and not spec.get("nodeName")
        about = Unreadable(
            kind=self._name,
            namespace=_text(metadata, "namespace"),
            name=_text(metadata, "name"),
            uid=_text(metadata, "uid"),
            reason=reason[:_LONGEST_REASON],
            waits=waits,
        )
        stand_in: Any = None
        if self._kind is Node and about.name:
            stand_in = _stand_in_node(metadata, spec, _mapping(content, "status"))
        elif self._kind is Pod and about.name and not waits:
            stand_in = _stand_in_pod(metadata, spec, _mapping(content, "status"))
        return ReadObject(stand_in, about)


def _content(body: bytes | msgspec.Raw) -> dict[str, Any]:
    """The object without nulls; empty when it is no object or cannot be decoded at all."""
    try:
        content = without_nulls(msgspec.json.decode(body), in_lists=True)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def without_nulls(value: Any, *, in_lists: bool = False) -> Any:
    """The value without null fields, which count as absent; AWS's SDKs print them in some languages, too.

    `in_lists` drops null entries of lists as well. An API object loses such an entry, so that the rest of it can be
    read. A manifest keeps it, so that it is refused.
    """
    if isinstance(value, dict):
        return {key: without_nulls(entry, in_lists=in_lists) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [without_nulls(entry, in_lists=in_lists) for entry in value if entry is not None or not in_lists]
    return value


def _mapping(content: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = content.get(field)
    return value if isinstance(value, dict) else {}


def _text(content: Mapping[str, Any], field: str) -> str:
    value = content.get(field)
    return value if isinstance(value, str) else ""


def _converted(content: Mapping[str, Any], field: str, kind: Any, otherwise: Any) -> Any:
    try:
        return msgspec.convert(content.get(field, otherwise), kind)
    except msgspec.ValidationError:
        return otherwise


def _stand_in_metadata(metadata: Mapping[str, Any]) -> ObjectMeta:
    annotations = _converted(metadata, "annotations", dict[str, str], {})
    deleted = _text(metadata, "deletionTimestamp")
    return ObjectMeta(
        name=_text(metadata, "name"),
        namespace=_text(metadata, "namespace"),
        uid=_text(metadata, "uid"),
        resource_version=_text(metadata, "resourceVersion"),
        labels=_converted(metadata, "labels", dict[str, str], {}),
        annotations={**annotations, labels.DO_NOT_DISRUPT: "true"},
        deletion_timestamp="" if _is_malformed_time(deleted) else deleted,
        owner_references=_converted(metadata, "ownerReferences", tuple[OwnerReference, ...], ()),
    )


def _stand_in_node(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> Node:
    conditions = _converted(status, "conditions", tuple[NodeCondition, ...], ())
    return Node(
        _stand_in_metadata(metadata),
        NodeSpec(
            provider_id=_text(spec, "providerID"),
            taints=_converted(spec, "taints", tuple[Taint, ...], ()),
            unschedulable=True,
        ),
        NodeStatus(conditions=tuple(each for each in conditions if not _is_malformed_time(each.last_transition_time))),
    )


def _stand_in_pod(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> Pod:
    node = spec["nodeName"]
    return Pod(
        _stand_in_metadata(metadata),
        PodSpec(node_name=node if isinstance(node, str) else ""),
        PodStatus(phase=_text(status, "phase")),
    )


@lru_cache(maxsize=65536)
def _is_malformed_time(text: str | None) -> bool:
    """Whether a timestamp is there and cannot be read."""
    if not text:
        return False
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
    """Whether `_problem_of_pod` finds none in any pod. Pods of a list share most of their times: each is read once."""
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
