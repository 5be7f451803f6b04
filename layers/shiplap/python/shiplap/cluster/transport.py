"""Requests to one API server: a kept-alive connection, the token, bounded retries of reads, errors by their status.

A server that never answers, answers for ever or sends without end must not keep an invocation from the other clusters.
So each request ends by a deadline (`bounded_connections`): its own, or the time limit of the thread that serves a
cluster. Answers and lines of watches have a most size, counted after unpacking.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from shiplap.cluster.bounded_connections import bound_answers, left_s, time_limit
from shiplap.errors import (
    AnswerTooLarge,
    ClusterDenied,
    ClusterError,
    ClusterUnreachable,
    ObjectConflict,
    ObjectNotFound,
    ResourceVersionGone,
    TooManyRequests,
)

MERGE_PATCH = "application/merge-patch+json"

_CONNECT_TIMEOUT_S = 3.0
_READ_TIMEOUT_S = 30.0
_SILENCE_S = 120.0
"""API servers send a bookmark about once a minute; a watch that is silent twice as long has lost its connection."""

BACK_OFF_S = (0.1, 0.5, 2.0)
"""Pauses before each repetition of a failed read, in seconds."""

_WHOLE_ANSWER_S = 60.0
"""A request that is not a watch ends within so many seconds, from its first byte to the last of the answer: API servers
end their own after 60 (`--request-timeout`).
"""

MOST_ANSWER_BYTES = 16 * 2**20
"""The most that an answer, or a line of a watch, may hold after it is unpacked: 500 pods of 30 KiB, which is twice what
pods with their `managedFields` have, or one object of 1.5 MiB each character of which takes six as JSON.
"""

_MOST_ERROR_BYTES = 2**20

_CHUNK = 2**18

KEPT_ALIVE: list[tuple[int, int, int | bytes]] = [
    *HTTPConnection.default_socket_options,
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
]
"""Options of connections to API servers. NAT gateways and load balancers forget one that is silent for 350 seconds, and
say nothing: probes after a minute keep it known, and what is sent and not acknowledged for ten seconds ends it.
"""
for _option, _value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4), ("TCP_USER_TIMEOUT", 10_000)):
    if hasattr(socket, _option):  # not every machine that runs the command line has them
        KEPT_ALIVE.append((socket.IPPROTO_TCP, getattr(socket, _option), _value))

_ERRORS = {
    401: ClusterDenied,
    403: ClusterDenied,
    404: ObjectNotFound,
    409: ObjectConflict,
    410: ResourceVersionGone,
    429: TooManyRequests,
}


class TokenSource(Protocol):
    """Bearer tokens for an API server."""

    def token(self) -> str:
        """A token that is valid now, or "" to send none."""
        ...

    def discard(self) -> None:
        """Forget a token that was refused, so that the next one is new."""
        ...


class StaticToken:
    """One token that never changes."""

    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token

    def discard(self) -> None:
        """There is no other."""


class _Cause(msgspec.Struct, frozen=True):
    field: str = ""
    reason: str = ""


class _Details(msgspec.Struct, frozen=True):
    causes: tuple[_Cause, ...] | None = None
    kind: str | None = None


class _Status(msgspec.Struct, frozen=True):
    """metav1.Status, as far as errors need it."""

    message: str = ""
    code: int = 0
    details: _Details | None = None

    @property
    def is_of_budget(self) -> bool:
        """True if a PodDisruptionBudget forbids an eviction, and not the permissions of the caller."""
        return self.details is not None and self.details.kind == "poddisruptionbudget"

    @property
    def came_too_late(self) -> bool:
        """True if a patch came too late for its object.

        Its object is gone and another object of the same name, with another uid, is stored; or the patch nominates a
        pod that has a node by now.
        """
        causes = (self.details and self.details.causes) or ()
        return any(
            cause.field == "metadata.uid"
            or (cause.field == "status.nominatedNodeName" and cause.reason == "FieldValueForbidden")
            for cause in causes
        )


class Transport:
    """Sends requests to `endpoint`.

    `back_off_s` are the pauses before each repetition of a failed read; writes are never repeated, because the first
    may have happened. `sleep` makes the pauses. `headers` are said with every request, a name as often as it is there.
    All requests end within the time limit of the thread that sends them. No answer holds more than `most_bytes`, but an
    object that comes alone may hold `most_object_bytes`, by default as much.
    """

    def __init__(
        self,
        endpoint: str,
        token: TokenSource,
        *,
        pool: urllib3.HTTPConnectionPool,
        sleep: Callable[[float], None],
        back_off_s: Sequence[float] = BACK_OFF_S,
        headers: Sequence[tuple[str, str]] = (),
        most_bytes: int = MOST_ANSWER_BYTES,
        most_object_bytes: int | None = None,
    ) -> None:
        bound_answers(pool)
        self._host = endpoint
        self._prefix = urlsplit(endpoint).path.rstrip("/")
        self._token = token
        self._pool = pool
        self._sleep = sleep
        self._back_off_s = tuple(back_off_s)
        self._headers = tuple(headers)
        self.most_bytes = most_bytes
        self._most_object_bytes = most_bytes if most_object_bytes is None else most_object_bytes

    def get(self, path: str, query: Mapping[str, str | int] | None = None) -> bytes:
        """The body of a GET, repeated while the server is unreachable or asks to slow down.

        Raises:
            AnswerTooLarge: the body has more than `most_bytes`.
            ClusterError: or one of its kinds, by the status.
        """
        return self._get(path, query, self.most_bytes)

    def get_one(self, path: str, query: Mapping[str, str | int]) -> bytes:
        """As `get`, for one object, which may have `most_object_bytes`."""
        return self._get(path, query, self._most_object_bytes)

    def _get(self, path: str, query: Mapping[str, str | int] | None, most_bytes: int) -> bytes:
        for pause in self._back_off_s:
            try:
                return self._read(self._request("GET", path, query), most_bytes)
            except (ClusterUnreachable, TooManyRequests):
                if left_s() <= pause:
                    raise
                self._sleep(pause)
        return self._read(self._request("GET", path, query), most_bytes)

    def ask(self, path: str, body: Any) -> bytes:
        """The answer to a POST that changes nothing, such as an access review. Raises ClusterError."""
        return self.send("POST", path, body)

    def send(self, method: str, path: str, body: Any, content_type: str = "application/json") -> bytes:
        """A write, sent once; what the server answers. Raises ClusterError or one of its kinds."""
        return self._read(self._request(method, path, body=msgspec.json.encode(body), content_type=content_type))

    def lines(self, path: str, query: Mapping[str, str | int], timeout_s: float) -> Iterator[bytes]:
        """The lines of a streamed answer as they arrive, until the server ends it.

        Raises:
            ClusterUnreachable: the connection broke or fell silent.
            ClusterError: or one of its kinds, by the status.
        """
        silence_s = min(timeout_s + _CONNECT_TIMEOUT_S, _SILENCE_S)
        response = self._request("GET", path, query, stream_timeout_s=silence_s, whole_s=timeout_s + _SILENCE_S)
        try:
            yield from self._lines_of(response, path)
        except HTTPError as error:
            raise ClusterUnreachable(f"watch of {path} at {self._host} broke: {error}") from error
        finally:
            _drop(response)  # a stream left early leaves the connection unusable

    def _lines_of(self, response: urllib3.BaseHTTPResponse, path: str) -> Iterator[bytes]:
        unfinished: list[bytes] = []
        length = 0
        for chunk in response.stream():
            first, *others = chunk.split(b"\n")
            length += len(first)
            if length > self._most_object_bytes:
                most = self._most_object_bytes
                raise AnswerTooLarge(f"watch of {path} at {self._host}: a line has more than {most} bytes")
            unfinished.append(first)
            if others:
                yield from filter(None, (b"".join(unfinished), *others[:-1]))
                unfinished, length = [others[-1]], len(others[-1])

    def _read(self, response: urllib3.BaseHTTPResponse, most_bytes: int | None = None) -> bytes:
        """The whole body; one that breaks off, comes too late or is too large ends the connection."""
        most = self.most_bytes if most_bytes is None else most_bytes
        parts: list[bytes] = []
        length = 0
        try:
            for part in response.stream(_CHUNK, decode_content=True):  # a chunked body is left packed otherwise
                parts.append(part)
                length += len(part)
                if length > most:
                    _drop(response)
                    raise AnswerTooLarge(f"an answer of {self._host} has more than {most} bytes")
        except HTTPError as error:
            _drop(response)
            raise ClusterUnreachable(f"the answer of {self._host} broke off: {error}") from error
        return b"".join(parts)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int] | None = None,
        *,
        body: bytes | None = None,
        content_type: str = "",
        stream_timeout_s: float | None = None,
        whole_s: float = _WHOLE_ANSWER_S,
    ) -> urllib3.BaseHTTPResponse:
        """An answer whose body is still to be read, by then or by the thread's time limit."""
        url = f"{self._prefix}{path}?{urlencode(query)}" if query else f"{self._prefix}{path}"
        with time_limit(whole_s):
            response = self._once(method, url, body, content_type, stream_timeout_s)
            if response.status == 401:
                _drop(response)  # its body may be endless, and a new connection is cheap beside a new token
                self._token.discard()
                response = self._once(method, url, body, content_type, stream_timeout_s)
            if response.status >= 300:
                raise self._error(f"{method} {path}", response)
        return response

    def _once(
        self, method: str, url: str, body: bytes | None, content_type: str, stream_timeout_s: float | None
    ) -> urllib3.BaseHTTPResponse:
        left = left_s()
        if left <= 0:
            raise ClusterUnreachable(f"{method} {url} at {self._host}: no time is left for it")
        headers = HTTPHeaderDict(self._headers, Accept="application/json")
        if token := self._token.token():
            headers["Authorization"] = f"Bearer {token}"
        if content_type:
            headers["Content-Type"] = content_type
        if stream_timeout_s is None:
            headers["Accept-Encoding"] = "gzip"  # lists shrink to a tenth; a compressed watch would arrive late
        try:
            return self._pool.request(
                method,
                url,
                body=body,
                headers=headers,
                retries=False,
                preload_content=False,
                pool_timeout=min(_WHOLE_ANSWER_S, left),
                timeout=urllib3.Timeout(
                    connect=min(_CONNECT_TIMEOUT_S, left), read=min(stream_timeout_s or _READ_TIMEOUT_S, left)
                ),
            )
        except HTTPError as error:
            raise ClusterUnreachable(f"{method} {url} at {self._host}: {error}") from error

    def _error(self, what: str, response: urllib3.BaseHTTPResponse) -> ClusterError:
        try:
            said = msgspec.json.decode(self._read(response, _MOST_ERROR_BYTES), type=_Status)
        except (msgspec.DecodeError, UnicodeError, RecursionError, ClusterError):
            said = _Status()  # not from an API server but from something in between; the status says enough
        message = f"{what} at {self._host}: {said.message or f'status {response.status}'}"
        if response.status == 422 and said.came_too_late:
            return ObjectConflict(message, status=422)
        if response.status == 403 and said.is_of_budget:
            return TooManyRequests(message, status=403)
        return error_of(response.status, message)


def _drop(response: urllib3.BaseHTTPResponse) -> None:
    """End the connection of an answer that is not read to its end, and give its place in the pool back.

    Closing alone keeps the place: a pool that blocks would be empty after four refusals, and wait for ever.
    """
    response.close()
    response.release_conn()


def error_of(status: int, message: str) -> ClusterError:
    """The error an HTTP status stands for."""
    kind = ClusterUnreachable if status >= 500 else _ERRORS.get(status, ClusterError)
    return kind(message, status=status)
