"""Adds faults that DynamoDB Local lacks: conflicts, throttling, partial batches, short pages and lost answers.

The layer lies below botocore, so that its retries, its checks and the adapter see what they would see of AWS. All
follows from a seed. `effects` counts what took effect, by kind.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from io import BytesIO
from random import Random
from typing import Any, Protocol

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ConnectionClosedError

KINDS = (
    "conflict",
    "throttled action",
    "throttled",
    "unprocessed keys",
    "unprocessed items",
    "short page",
    "not sent",
    "answer lost",
)
_SHARE = 0.04
"""How many calls meet a fault of their own."""

_SHARE_OF_BATCHES = 0.5
"""How many writes of batches do, if any call does: a run has one or none."""

_REPEATS = (0, 0, 0, 1, 2, 4, 8)
"""How many further attempts of a call meet the same: 4 are all that botocore makes, 8 all that the adapter makes."""

_OF_TRANSACTIONS = ("conflict", "throttled action")
_BATCH = "BatchWriteItem"
_WRITES = frozenset({"PutItem", "TransactWriteItems", _BATCH})
_EXCEPTION = "com.amazonaws.dynamodb.v20120810#"


class Sender(Protocol):
    """Sends the requests of botocore."""

    def send(self, request: AWSPreparedRequest) -> AWSResponse: ...


class FaultyTransport:
    """Stands between a client and what it sends requests with.

    `rewrite` may change the items of a write before it is sent; `written` is told the items of a write as soon as
    they are durable, whether their writer hears of it or not.
    """

    def __init__(
        self,
        sender: Sender,
        seed: int,
        *,
        share: float = _SHARE,
        rewrite: Callable[[dict[str, Any]], dict[str, Any]] = lambda item: item,
        written: Callable[[Sequence[dict[str, Any]]], object] = lambda items: None,
    ) -> None:
        self.effects: Counter[str] = Counter()
        self.sender = sender
        self._share, self._rewrite, self._written = share, rewrite, written
        self._random = Random(f"{seed}:transport")  # noqa: S311 - repeatable chance
        self._streak: tuple[str, str, int] = ("", "", 0)
        self._tokens: set[str] = set()

    def attach(self, client: Any) -> None:
        """Send this client's requests from now on."""
        client._endpoint.http_session = self

    def detach(self, client: Any) -> None:
        """Let the client send its requests as before."""
        client._endpoint.http_session = self.sender

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """No faults inside."""
        share, self._share, self._streak = self._share, 0.0, ("", "", 0)
        try:
            yield
        finally:
            self._share = share

    def close(self) -> None:
        """As botocore's own session."""

    def send(self, request: AWSPreparedRequest) -> AWSResponse:
        """Send a request, or not, and answer it as AWS might."""
        operation = _text(request.headers["X-Amz-Target"]).rpartition(".")[2]
        body = json.loads(request.body)
        kind = self._fault_of(operation, body)
        if kind in ("conflict", "throttled action", "throttled"):
            self.effects[kind] += 1
            return _error(request, *_refusal(kind, body, self._random))
        if kind == "not sent":
            self.effects[kind] += 1
            raise ConnectionClosedError(endpoint_url=request.url)
        later = self._hold_back(kind, body)
        response = self._carry_out(request, operation, body)
        if kind == "answer lost":
            self.effects[kind] += 1
            raise ConnectionClosedError(endpoint_url=request.url)
        if kind == "short page" and b"LastEvaluatedKey" in response.content:
            self.effects[kind] += 1
        if later and response.status_code == HTTPStatus.OK:
            self.effects[kind] += 1
            return answer_of(request, HTTPStatus.OK, {**json.loads(response.content), **later})
        return response

    def _fault_of(self, operation: str, body: dict[str, Any]) -> str:
        """The fault of this attempt, empty for none: the same as before while a streak lasts, else by chance."""
        before, kind, left = self._streak
        possible = _kinds_of(operation, body)
        if before == operation and left and kind in possible:
            self._streak = (before, kind, left - 1)
            return kind
        share = max(self._share, _SHARE_OF_BATCHES) if self._share and operation == _BATCH else self._share
        if self._random.random() >= share:
            self._streak = ("", "", 0)
            return ""
        kind = self._random.choice(possible)
        self._streak = (operation, kind, self._random.choice(_REPEATS))
        return kind

    def _hold_back(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        """Leave a part of a batch or of a page for later; what the answer says of a batch's rest."""
        if kind == "short page":
            body["Limit"] = self._random.randint(1, 3)
            return {}
        if kind not in ("unprocessed keys", "unprocessed items"):
            return {}
        ((table, asked),) = body["RequestItems"].items()
        whole = asked["Keys"] if kind == "unprocessed keys" else asked
        kept = self._random.randint(1, len(whole) - 1)
        rest = whole[kept:]
        del whole[kept:]
        if kind == "unprocessed keys":
            return {"UnprocessedKeys": {table: {**asked, "Keys": rest}}}
        return {"UnprocessedItems": {table: rest}}

    def _carry_out(self, request: AWSPreparedRequest, operation: str, body: dict[str, Any]) -> AWSResponse:
        items = []
        for put in _puts(operation, body):
            put["Item"] = self._rewrite(put["Item"])
            items.append(put["Item"])
        request.body = json.dumps(body).encode()
        request.headers["Content-Length"] = str(len(request.body))
        response = self.sender.send(request)
        token = body.get("ClientRequestToken")
        # A transaction that is repeated with its token is answered as before, and writes nothing.
        if response.status_code == HTTPStatus.OK and token not in self._tokens:
            self._written(items)
            if token is not None:
                self._tokens.add(token)
        return response


def _kinds_of(operation: str, body: dict[str, Any]) -> list[str]:
    """Return the kinds of faults that a call can have, so that every fault that is drawn can take effect."""
    kinds = ["throttled", "not sent"]
    if operation in _WRITES:
        kinds.append("answer lost")
    if operation == "TransactWriteItems":
        kinds += _OF_TRANSACTIONS * 2
    elif operation == "PutItem":
        kinds.append("conflict")
    elif operation == "Query":
        kinds.append("short page")
    elif operation == "BatchGetItem" and all(len(asked["Keys"]) > 1 for asked in body["RequestItems"].values()):
        kinds += ["unprocessed keys"] * 2
    elif operation == _BATCH and all(len(asked) > 1 for asked in body["RequestItems"].values()):
        kinds += ["unprocessed items"] * 2
    return kinds


def _puts(operation: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a request that hold an item to write."""
    if operation == "PutItem":
        return [body]
    if operation == "TransactWriteItems":
        return [action["Put"] for action in body["TransactItems"] if "Put" in action]
    return []


def _refusal(kind: str, body: dict[str, Any], random: Random) -> tuple[str, dict[str, Any]]:
    """The exception's name and what its answer says besides."""
    if kind == "throttled":
        return random.choice(("ProvisionedThroughputExceededException", "ThrottlingException")), {}
    if "TransactItems" not in body:
        return "TransactionConflictException", {}
    codes = ["None"] * len(body["TransactItems"])
    codes[random.randrange(len(codes))] = "TransactionConflict" if kind == "conflict" else "ThrottlingError"
    return "TransactionCanceledException", {"CancellationReasons": [{"Code": code} for code in codes]}


def _error(request: AWSPreparedRequest, name: str, more: dict[str, Any]) -> AWSResponse:
    return answer_of(request, HTTPStatus.BAD_REQUEST, {"__type": _EXCEPTION + name, "message": "on purpose", **more})


def answer_of(request: AWSPreparedRequest, status: int, body: dict[str, Any]) -> AWSResponse:
    """An answer of DynamoDB as botocore receives it."""
    headers = {"Content-Type": "application/x-amz-json-1.0"}  # without a checksum, which would be of another body
    return AWSResponse(request.url, int(status), headers, _Raw(json.dumps(body).encode()))


class _Raw(BytesIO):
    """As much of urllib3's answer as botocore reads."""

    def stream(self, *_: object) -> list[bytes]:
        return [self.read()]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
