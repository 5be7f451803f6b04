"""Follows nodes and pods of a cluster: a list, then every change until the caller ends it.

All events go into one queue, so that one thread can draw them. A kind that may not be listed is reported once; a lost
connection is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Queue
from threading import Event, Thread
from typing import Any

import msgspec

from shiplap.cluster.client import decode_answer
from shiplap.cluster.list_pages import list_pages, read_page
from shiplap.cluster.transport import Transport, error_of
from shiplap.errors import ClusterDenied, ClusterError, ResourceVersionGone
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.reading import Reader
from shiplap_cli.inputs.cluster_listing import UNFINISHED

_PAGE = 500
_WINDOW_S = 300.0
_PAUSE_S = 2.0
_KINDS = {"nodes": ("/api/v1/nodes", ""), "pods": ("/api/v1/pods", UNFINISHED)}


class ObjectsListed(msgspec.Struct, frozen=True):
    """All objects of a kind, `nodes` or `pods`; what was known of it before is over."""

    kind: str
    objects: tuple[Node, ...] | tuple[Pod, ...]


class ObjectChanged(msgspec.Struct, frozen=True):
    """One object that was added, changed or deleted (`gone`)."""

    kind: str
    object: Node | Pod
    gone: bool = False


class SourceProblem(msgspec.Struct, frozen=True):
    """A kind cannot be seen now, and why; empty when it can be seen again."""

    kind: str
    reason: str


ClusterEvent = ObjectsListed | ObjectChanged | SourceProblem


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Frame(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Marker(msgspec.Struct, frozen=True):
    metadata: _Version = _Version()
    code: int = 0
    message: str = ""


# Made before there are threads: two that meet a type for the first time at once crash msgspec.
_READERS: dict[str, Reader[Any]] = {"nodes": Reader(Node), "pods": Reader(Pod)}
_FRAMES, _MARKERS = msgspec.json.Decoder(_Frame), msgspec.json.Decoder(_Marker)


def follow_cluster(enter: Callable[[], Transport], seen: Queue[Any], ended: Event) -> None:
    """Follow nodes and pods in threads of their own, which end with the process at the latest.

    Args:
        enter: makes a connection; each thread has its own.
        seen: what takes what is seen.
        ended: set to stop; a thread that waits for the server notices at the server's next answer.
    """
    for kind in _KINDS:
        Thread(target=follow_kind, args=(kind, enter(), seen.put, ended), name=f"follow-{kind}", daemon=True).start()


def follow_kind(kind: str, transport: Transport, put: Callable[[ClusterEvent], Any], ended: Event) -> None:
    """Follow one kind until `ended` is set or access is denied. A lost connection is made again after a pause."""
    version, troubled = "", False
    while not ended.is_set():
        try:
            if not version:
                objects, version = _list(kind, transport)
                put(ObjectsListed(kind, objects))
            if troubled:
                put(SourceProblem(kind, ""))
                troubled = False
            for change, at in _watch(kind, transport, version):
                version = at
                if change is not None:
                    put(change)
                if ended.is_set():
                    return
        except ResourceVersionGone:
            version = ""
        except ClusterDenied as error:
            put(SourceProblem(kind, f"not permitted to list and watch {kind}: {error}"))
            return
        except ClusterError as error:
            put(SourceProblem(kind, str(error)))
            troubled = True
            ended.wait(_PAUSE_S)


def _list(kind: str, transport: Transport) -> tuple[Any, str]:
    path, selector = _KINDS[kind]
    query = {"fieldSelector": selector} if selector else {}
    pages = list(
        list_pages(transport, lambda body: read_page(_READERS[kind], body, path), path, query, most_objects=_PAGE)
    )
    return tuple(found for page in pages for found in page.items), pages[-1].version


def _watch(kind: str, transport: Transport, version: str) -> Iterator[tuple[ObjectChanged | None, str]]:
    """Changes, and the version each leads to; a bookmark is only a version."""
    path, selector = _KINDS[kind]
    query: dict[str, str | int] = {"watch": 1, "allowWatchBookmarks": "true", "resourceVersion": version}
    query |= {"timeoutSeconds": int(_WINDOW_S)} | ({"fieldSelector": selector} if selector else {})
    what = f"watch of {kind}"
    for line in transport.lines(path, query, _WINDOW_S):
        frame = decode_answer(_FRAMES, line, what)
        if frame.type == "ERROR":
            marker = decode_answer(_MARKERS, frame.object, what)
            raise error_of(marker.code, f"{what}: {marker.message}")
        if frame.type == "BOOKMARK":
            yield None, decode_answer(_MARKERS, frame.object, what).metadata.resource_version
            continue
        found = _READERS[kind].one(frame.object).item
        if found is not None:  # one that cannot be read is not shown
            version = found.metadata.resource_version or version
            yield ObjectChanged(kind, found, frame.type == "DELETED"), version
