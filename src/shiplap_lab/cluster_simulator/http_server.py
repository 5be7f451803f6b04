"""The Kubernetes API over HTTP on loopback, as far as Shiplap and a scheduler need it.

Lists in pages, watches as chunked streams with bookmarks and 410 as an event of the stream, patches, binding, eviction,
bearer tokens with RBAC rules. One thread per connection; connections are kept alive.
"""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import msgspec

from shiplap.errors import ClusterDenied, ClusterError, ObjectConflict, ObjectNotFound, TooManyRequests
from shiplap_lab.api_server.api_resources import IDLE, RESOURCES
from shiplap_lab.api_server.bodies.field_checks import check_fields
from shiplap_lab.api_server.bodies.json_patches import json_patch
from shiplap_lab.api_server.bodies.protobuf_bodies import MEDIA_TYPE, decoded_protobuf
from shiplap_lab.api_server.bodies.server_side_apply import applied
from shiplap_lab.api_server.discovery import discovery_document
from shiplap_lab.api_server.openapi import openapi_document
from shiplap_lab.api_server.printed_tables import table, wants_table
from shiplap_lab.api_server.scale_subresource import SCALED, scale_of, scaling_patch
from shiplap_lab.api_server.server import ApiServer, ListOptions
from shiplap_lab.api_server.stored_workloads import admitted, readable
from shiplap_lab.cluster_simulator.access import ApiRequest, PolicyRule, allowed, parse
from shiplap_lab.cluster_simulator.workloads.garbage_collector import (
    FOREGROUND,
    ORPHAN,
    OWNERS,
    delete,
    delete_contents,
)

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    504: "Timeout",
}
_MERGES = {"application/merge-patch+json": False, "application/strategic-merge-patch+json": True}
"""Types of merge patches, and whether they are strategic."""

_TRIED = ("", "status", "scale")
"""Subresources of which dry runs are served: those that need nothing but the object itself."""

_APPLY = "application/apply-patch+yaml"

_WRITES = frozenset({"create", "update", "patch"})

_FINALIZERS = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
"""By the propagation policy of a deletion."""

_POLL_S = 0.2
"""How often an idle watch looks whether the server is being stopped."""


class KubeHttpServer:
    """Serves an ApiServer at `endpoint`.

    `access` maps bearer tokens to their rules; without it anybody may do anything. A watch gets a bookmark every
    `bookmark_s` seconds, if that tells it something. `on_pod_deleted` is called with each pod that a client has evicted
    or, with True, deleted: as it was before. `version` of Kubernetes is what clients are told. `warns` says what is
    wrong with an object that a client has written, beside the answer; empty if nothing is.

    Attributes:
        seen: how often each (verb, API group, resource) was asked for.
        refusals: errors that answer the next requests instead of their results.
        told: kinds of which a client was told that nothing acts on them.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        access: Mapping[str, tuple[PolicyRule, ...]] | None = None,
        bookmark_s: float = 60.0,
        on_pod_deleted: Callable[[dict[str, Any], bool], object] | None = None,
        version: str = "v1.36.0",
        warns: Callable[[dict[str, Any]], str] = lambda _item: "",
    ) -> None:
        self.api = api
        self.warns = warns
        self.version = version
        self.on_pod_deleted = on_pod_deleted or (lambda _pod, _forced: None)
        self.access = access
        self.bookmark_s = bookmark_s
        self.seen: Counter[tuple[str, str, str]] = Counter()
        self.refusals: deque[ClusterError] = deque()
        self.told: set[str] = set()
        self.stopping = Event()
        self._server = _Server(self)
        self._thread = Thread(target=self._server.serve_forever, name="kube-api", args=(0.05,), daemon=True)

    @property
    def endpoint(self) -> str:
        """The URL clients connect to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> KubeHttpServer:
        """Begin to serve in a thread; returns itself."""
        self._thread.start()
        return self

    def drop_connections(self) -> None:
        """Cut every connection, watches included, as a failing network does."""
        self._server.close_connections()

    def stop(self) -> None:
        """Stop serving, end all watches and close all connections."""
        self.stopping.set()
        self._server.shutdown()
        self._server.close_connections()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> KubeHttpServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that server_close waits for the handlers
    request_queue_size = 128  # a hundred clients may connect at once

    def __init__(self, owner: KubeHttpServer) -> None:
        self.owner = owner
        self._connections: set[socket.socket] = set()
        self._lock = Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def remember(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)

    def forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # the client closed it first


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    _api: ApiServer
    """What the request reads and writes: a server of its own for a dry run."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # headers and body leave in one segment

    def setup(self) -> None:
        super().setup()
        self.server.remember(self.connection)

    def finish(self) -> None:
        self.server.forget(self.connection)
        try:
            super().finish()
        except OSError:
            pass  # the client has gone with the answer half written

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Requests are counted, not logged."""

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True  # the client has gone; there is nobody to answer

    def _serve(self) -> None:
        owner = self.server.owner
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path if self.command == "GET" else ""
        found = discovery_document(path, owner.version) or openapi_document(path, owner.version)
        if found is not None:
            self._send(200, found)
            return
        try:
            self._api = owner.api
            request, query = parse(self.command, self.path)
            self._authorize(request)
            owner.seen[request.verb, request.group, request.target] += 1
            if owner.refusals:
                raise owner.refusals.popleft()
            if request.verb == "watch":
                self._watch(request, query)
            else:
                status, answer = self._answer(request, query, body)
                self._send(status, answer, self._warning(request, query, answer))
        except ClusterError as error:
            self._send(error.status or 500, _status(error))
        except RecursionError:
            self._send(400, _status(ClusterError("the request body is nested too deeply", status=400)))

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - the base class looks for these names

    def _authorize(self, request: ApiRequest) -> None:
        access = self.server.owner.access
        if access is None:
            return
        rules = access.get((self.headers.get("Authorization") or "").removeprefix("Bearer "))
        if rules is None:
            raise ClusterDenied("Unauthorized", status=401)
        if not allowed(rules, request):
            where = f'in the namespace "{request.namespace}"' if request.namespace else "at the cluster scope"
            raise ClusterDenied(
                f'{request.target} is forbidden: User "shiplap" cannot {request.verb} resource "{request.target}" '
                f'in API group "{request.group}" {where}',
                status=403,
            )

    def _answer(self, request: ApiRequest, query: dict[str, str], raw: bytes) -> tuple[int, Any]:
        if request.target == "pods/log":
            raise ClusterError("the pods of a simulated cluster run no containers, so they have no logs", status=405)
        body = {} if request.verb == "patch" else self._decoded_body(raw)
        if query.get("dryRun"):
            if request.subresource not in _TRIED:
                raise ClusterError(f"a dry run of {request.target} is not served", status=400)
            name = request.name or str((body.get("metadata") or {}).get("name", ""))
            self._api = self._api.trial(request.resource, name, request.namespace)
        if request.verb == "patch":
            return 200, self._patch(request, raw, query)
        if request.subresource == "scale" and request.resource in SCALED:
            return 200, self._scale(request, body)
        if request.verb in ("get", "list") and request.subresource in ("", "status"):
            return 200, self._read(request, query)
        if request.verb == "create":
            return 201, self._create(request, body, query)
        return 200, self._change(request, body, query)

    def _read(self, request: ApiRequest, query: dict[str, str]) -> dict[str, Any]:
        api = self._api
        if request.verb == "get":
            item = api.get(request.resource, request.name, request.namespace)
            version = {"resourceVersion": item["metadata"]["resourceVersion"]}
            return self._printed(request.resource, [item], version, query) if self._is_table else item
        page = api.list(
            request.resource,
            _selection(request, query),
            limit=_number(query, "limit"),
            continue_token=query.get("continue", ""),
        )
        metadata: dict[str, Any] = {"resourceVersion": page.resource_version}
        if page.continue_token:
            metadata |= {"continue": page.continue_token, "remainingItemCount": page.remaining}
        if self._is_table:
            return self._printed(request.resource, page.items, metadata, query)
        resource = RESOURCES[request.resource]
        kind = f"{resource.kind}List"  # typed clients decode by it
        return {"kind": kind, "apiVersion": resource.api_version, "metadata": metadata, "items": page.items}

    def _decoded_body(self, raw: bytes) -> dict[str, Any]:
        return decoded_protobuf(raw) if self._content_type == MEDIA_TYPE else _decoded(raw)

    @property
    def _content_type(self) -> str:
        return (self.headers.get("Content-Type") or "").partition(";")[0]

    @property
    def _is_table(self) -> bool:
        return wants_table(self.headers.get("Accept") or "")

    def _printed(
        self,
        plural: str,
        items: list[dict[str, Any]],
        metadata: dict[str, Any],
        query: dict[str, str],
        *,
        headed: bool = True,
    ) -> dict[str, Any]:
        include, now = query.get("includeObject", ""), self._api.now
        return table(plural, items, now=now, metadata=metadata, include=include, headed=headed)

    def _create(self, request: ApiRequest, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        api = self._api
        match request.target:
            case "pods/binding":
                uid = (body.get("metadata") or {}).get("uid", "")
                api.bind(request.name, body.get("target", {}).get("name", ""), request.namespace, uid=uid)
                return _success(201)
            case "pods/eviction":
                options = body.get("deleteOptions") or {}
                uid = (options.get("preconditions") or {}).get("uid", "")
                before = api.get("pods", request.name, request.namespace)
                api.evict(request.name, request.namespace, grace_s=options.get("gracePeriodSeconds"), uid=uid)
                self.server.owner.on_pod_deleted(before, False)
                return _success(201)
        if request.name:
            raise _not_allowed()
        check_fields(request.resource, body, query)
        if RESOURCES[request.resource].has_status and request.resource != "nodes":
            body = {field: value for field, value in body.items() if field != "status"}  # written by itself, later
        return api.create(request.resource, body, request.namespace, admit=admitted)

    def _change(self, request: ApiRequest, body: dict[str, Any], query: dict[str, str]) -> dict[str, Any]:
        api, plural, name, namespace = self._api, request.resource, request.name, request.namespace
        match request.verb, request.subresource:
            case "update", "" | "status" as subresource:
                check_fields(plural, body, query, whole=not subresource)
                admit = readable if subresource else admitted
                return api.replace(plural, body, namespace, subresource=subresource, admit=admit)
            case "delete", "":
                uid = (body.get("preconditions") or {}).get("uid", "")
                before = api.get(plural, name, namespace)
                finalizer = _FINALIZERS.get(body.get("propagationPolicy") or query.get("propagationPolicy") or "", "")
                if finalizer and plural in OWNERS:
                    return delete(api, plural, name, namespace, finalizer)
                answer = api.delete(plural, name, namespace, grace_s=body.get("gracePeriodSeconds"), uid=uid)
                if plural == "namespaces":
                    delete_contents(api, name)
                if plural == "pods" and not query.get("dryRun"):
                    self.server.owner.on_pod_deleted(before, True)
                return answer
        raise _not_allowed()

    def _patch(self, request: ApiRequest, raw: bytes, query: dict[str, str]) -> dict[str, Any]:
        api, plural, name, namespace = self._api, request.resource, request.name, request.namespace
        kind = self._content_type
        if request.subresource == "scale" and plural in SCALED:
            if kind not in _MERGES:
                raise _unsupported(kind)
            item = api.patch(plural, name, scaling_patch(_decoded(raw)), namespace)
            return scale_of(item)
        if request.subresource not in ("", "status"):
            raise _not_allowed()
        admit = readable if request.subresource else admitted
        if kind == "application/json-patch+json":
            operations = _json(raw)

            def changed(current: dict[str, Any]) -> dict[str, Any]:
                result = json_patch(current, operations)
                if not isinstance(result, dict):
                    raise ClusterError("the patch leaves nothing that is an object", status=400)
                check_fields(plural, result, query)
                return result

            return api.change(plural, name, changed, namespace, subresource=request.subresource, admit=admit)
        if kind == _APPLY and not request.subresource:
            return self._apply(request, raw, query)
        if kind not in _MERGES:
            raise _unsupported(kind)
        body, strategic = _decoded(raw), _MERGES[kind]
        check_fields(plural, body, query, whole=False)
        return api.patch(
            plural, name, body, namespace, strategic=strategic, subresource=request.subresource, admit=admit
        )

    def _apply(self, request: ApiRequest, raw: bytes, query: dict[str, str]) -> dict[str, Any]:
        """Server-side apply. It creates what is not there."""
        api, plural, name, namespace = self._api, request.resource, request.name, request.namespace
        manager, force = query.get("fieldManager", ""), query.get("force") == "true"
        if not manager:
            raise ClusterError("fieldManager: Required value: is required for apply patch", status=400)
        body = _decoded(raw, msgspec.yaml.decode)
        check_fields(plural, body, query)
        named = {**(body.get("metadata") or {}), "name": name}
        config, kind = {**body, "metadata": named}, RESOURCES[plural].kind
        with api.at_once():
            try:
                api.get(plural, name, namespace)
            except ObjectNotFound:
                made = applied(None, config, kind, manager, force=force)
                return api.create(plural, made, namespace, admit=admitted)

            def changed(current: dict[str, Any]) -> dict[str, Any]:
                return applied(current, config, kind, manager, force=force)

            return api.change(plural, name, changed, namespace, admit=admitted)

    def _scale(self, request: ApiRequest, body: dict[str, Any]) -> dict[str, Any]:
        api, plural, name, namespace = self._api, request.resource, request.name, request.namespace
        if request.verb == "get":
            return scale_of(api.get(plural, name, namespace))
        if request.verb != "update":
            raise _not_allowed()
        return scale_of(api.patch(plural, name, scaling_patch(body), namespace))

    def _watch(self, request: ApiRequest, query: dict[str, str]) -> None:
        owner, version = self.server.owner, query.get("resourceVersion", "")
        selection = _selection(request, query)
        selection.test(RESOURCES[request.resource])  # a malformed selector is refused before the stream begins
        ends = monotonic() + (_number(query, "timeoutSeconds") or 1800)
        bookmark_at, told = monotonic() + owner.bookmark_s, version
        as_table, headed = self._is_table, True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        while not owner.stopping.is_set() and monotonic() < ends:
            try:
                changes, version = owner.api.changes(request.resource, version, selection)
            except ClusterError as error:
                self._chunk({"type": "ERROR", "object": _status(error)})
                break
            for change in changes:
                item = change.object
                if as_table:
                    versions = {"resourceVersion": str(change.resource_version)}
                    item = self._printed(request.resource, [item], versions, query, headed=headed)
                    headed = False
                self._chunk({"type": change.type, "object": item})
                told = str(change.resource_version)
            if monotonic() >= bookmark_at:
                if told != version and query.get("allowWatchBookmarks") in ("1", "true"):
                    self._chunk(_bookmark(request.resource, version))
                    told = version
                bookmark_at = monotonic() + owner.bookmark_s
            self.wfile.flush()
            owner.api.wait(version, max(0.0, min(_POLL_S, ends - monotonic(), bookmark_at - monotonic())))
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, event: dict[str, Any]) -> None:
        line = msgspec.json.encode(event) + b"\n"
        self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")

    def _warning(self, request: ApiRequest, query: dict[str, str], answer: dict[str, Any]) -> str:
        """What kubectl prints beside the answer: once of each kind, that nothing acts on it here."""
        owner, plural = self.server.owner, request.resource
        if request.verb not in _WRITES or request.subresource or query.get("dryRun"):
            return ""
        if plural not in IDLE or plural in owner.told:
            return owner.warns(answer)
        owner.told.add(plural)
        return f"{RESOURCES[plural].kind} is stored and has no effect here: {IDLE[plural]}"

    def _send(self, status: int, answer: Any, warning: str = "") -> None:
        body = msgspec.json.encode(answer)
        self.send_response(status)
        if warning:
            self.send_header("Warning", f'299 - "{warning}"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _selection(request: ApiRequest, query: dict[str, str]) -> ListOptions:
    return ListOptions(request.namespace, query.get("labelSelector", ""), query.get("fieldSelector", ""))


def _number(query: dict[str, str], name: str) -> int:
    text = query.get(name, "0")
    if not text.isdecimal():
        raise ClusterError(f"invalid {name}: {text!r}", status=400)
    return int(text)


def _decoded(body: bytes, read: Callable[[bytes], Any] = msgspec.json.decode) -> dict[str, Any]:
    decoded = _json(body, read) if body else {}
    if not isinstance(decoded, dict):
        raise ClusterError("the request body is not a JSON object", status=400)
    return decoded


def _json(body: bytes, read: Callable[[bytes], Any] = msgspec.json.decode) -> Any:
    try:
        return read(body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"the request body is not a JSON object: {error}", status=400) from error


def _unsupported(kind: str) -> ClusterError:
    return ClusterError(f"the body of the request was in an unsupported format: {kind!r}", status=415)


def _not_allowed() -> ClusterError:
    return ClusterError("the server does not allow this method on the requested resource", status=405)


def _status(error: ClusterError) -> dict[str, Any]:
    code = error.status or 500
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": str(error),
        "reason": _REASONS.get(code, "InternalError"),
        "code": code,
    }
    if code == 422 and isinstance(error, ObjectConflict):
        late = "status.nominatedNodeName" in str(error)
        cause = ("FieldValueForbidden", "status.nominatedNodeName") if late else ("FieldValueInvalid", "metadata.uid")
        status["details"] = {"causes": [{"reason": cause[0], "message": str(error), "field": cause[1]}]}
    elif isinstance(error, TooManyRequests) and error.status == 403:
        status["details"] = {"group": "policy", "kind": "poddisruptionbudget"}
    return status


def _success(code: int) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}


def _bookmark(plural: str, version: str) -> dict[str, Any]:
    """A bookmark with the empty fields that API servers write into it: a pod's containers are null there."""
    resource = RESOURCES[plural]
    item = {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": version, "creationTimestamp": None},
        "spec": {"containers": None} if plural == "pods" else {},
        "status": {},
    }
    return {"type": "BOOKMARK", "object": item}
