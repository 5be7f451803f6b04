"""Faults and answers of AWS on botocore's own hooks: what runs is the real client, from serialising to retrying.

The hooks sit where a request would leave the process (`before-send`) and where an answer has come back
(`before-parse`). A scripted answer is the service's own document, written by hand after its API reference, so that
botocore parses it as it would the real one; whatever is not scripted goes on to the endpoint.

    faults = AwsFaults(client)
    faults.refuse("CreateFleet", "RequestLimitExceeded", times=2)      # throttled twice, then served
    faults.answer("DescribeInstanceStatus", document)                  # answered without a server
    faults.lose("CreateFleet")                                         # done, but nobody is told
    faults.edit("DescribeInstances", lambda text: ...)                 # seen late, seen twice, not seen at all
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError

_XML = {"Content-Type": "text/xml;charset=UTF-8"}
_JSON = {"Content-Type": "application/json"}


class Call(msgspec.Struct, frozen=True):
    """One attempt that botocore made: `parameters` as the Query protocol writes them, empty for other protocols."""

    operation: str
    parameters: dict[str, str]


class _Scripted(msgspec.Struct):
    operation: str
    status: int
    body: str
    times: int
    headers: dict[str, str]


class AwsFaults:
    """The hooks of one client. `calls` lists every attempt, retries included, in order."""

    def __init__(self, client: Any) -> None:
        self.calls: list[Call] = []
        self._answers: list[_Scripted] = []
        self._lost: dict[str, int] = {}
        self._edits: dict[str, list[Callable[[str], str]]] = {}
        client.meta.events.register_first("before-send", self._before_send)
        client.meta.events.register_first("before-parse", self._before_parse)

    def answer(
        self, operation: str, body: str, *, times: int = 1, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer the next calls of an operation with a document; scripts of one operation are used in order."""
        own = _JSON if body.lstrip().startswith("{") else _XML
        self._answers.append(_Scripted(operation, status, body, times, {**own, **(headers or {})}))

    def refuse(
        self, operation: str, code: str, message: str = "injected", *, times: int = 1, status: int = 400
    ) -> None:
        """Answer the next calls with an error of EC2; 503 is the status of its throttling."""
        status = 503 if code == "RequestLimitExceeded" else status
        self.answer(operation, error_document(code, message), times=times, status=status)

    def forget(self) -> None:
        """Drop what is scripted and what was called."""
        self.calls.clear()
        self._answers.clear()
        self._lost.clear()
        self._edits.clear()

    def lose(self, operation: str, *, times: int = 1) -> None:
        """Let the next calls reach the service and have its answers get lost."""
        self._lost[operation] = self._lost.get(operation, 0) + times

    def edit(self, operation: str, change: Callable[[str], str]) -> None:
        """Change every answer of an operation before botocore reads it."""
        self._edits.setdefault(operation, []).append(change)

    def made(self, operation: str) -> list[Call]:
        """The attempts of one operation."""
        return [call for call in self.calls if call.operation == operation]

    def _before_send(self, request: Any, event_name: str, **_: Any) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        self.calls.append(Call(operation, dict(_parameters(request.body))))
        scripted = next((item for item in self._answers if item.operation == operation and item.times > 0), None)
        if scripted is None:
            return None
        scripted.times -= 1
        return AWSResponse(request.url, scripted.status, scripted.headers, raw_body(scripted.body.encode()))

    def _before_parse(self, response_dict: dict[str, Any], event_name: str, **_: Any) -> None:
        operation = event_name.rpartition(".")[2]
        if self._lost.get(operation, 0) > 0:
            self._lost[operation] -= 1
            raise ReadTimeoutError(endpoint_url="the service")
        for change in self._edits.get(operation, ()):
            response_dict["body"] = change(response_dict["body"].decode()).encode()


def raw_body(body: bytes) -> io.BytesIO:
    """A body as urllib3 hands it to botocore."""
    return _Raw(body)


class _Raw(io.BytesIO):
    """A body as urllib3 hands it to botocore."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield self.read()


def _parameters(body: Any) -> list[tuple[str, str]]:
    if isinstance(body, str):
        body = body.encode()
    if isinstance(body, dict):
        return [(str(key), str(value)) for key, value in body.items()]
    return parse_qsl(body.decode()) if isinstance(body, bytes) and not body.startswith(b"{") else []


def error_document(code: str, message: str) -> str:
    """An error as EC2 writes it."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors>"
        "<RequestID>ea966190-f9aa-478e-9ede-example</RequestID></Response>"
    )
