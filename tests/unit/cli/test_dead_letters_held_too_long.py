"""Dead letters that somebody else received while a command held them."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from shiplap.errors import StoreError
from shiplap_cli.installs import dead_letter_queues

EXPIRED = (
    "InvalidParameterValue",
    "Value AQEB for parameter ReceiptHandle is invalid. Reason: The handle has expired.",
)
TAKEN = [EXPIRED, ("ReceiptHandleIsInvalid", ""), ("AWS.SimpleQueueService.MessageNotInflight", "")]


class Sqs:
    """A dead-letter queue with two messages. Whatever is done with the first one's handle is refused."""

    def __init__(self, code: str, message: str) -> None:
        self.calls: list[tuple[str, str]] = []
        self._error = {"Error": {"Code": code, "Message": message}}
        self._letters = ["first", "second"]

    def receive_message(self, **_: Any) -> dict[str, Any]:
        letters, self._letters = self._letters, []
        return {"Messages": [{"MessageId": name, "ReceiptHandle": name, "Body": name} for name in letters]}

    def send_message(self, **request: Any) -> None:
        self.calls.append(("send", request["MessageBody"]))

    def delete_message(self, **request: Any) -> None:
        self._use("delete", request["ReceiptHandle"])

    def change_message_visibility(self, **request: Any) -> None:
        self._use("give back", request["ReceiptHandle"])

    def _use(self, action: str, handle: str) -> None:
        if handle == "first":
            raise ClientError(self._error, action)  # type: ignore[arg-type]
        self.calls.append((action, handle))


def queue(monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> Sqs:
    sqs = Sqs(code, message)
    monkeypatch.setattr(dead_letter_queues, "client", lambda _: sqs)
    return sqs


@pytest.mark.parametrize(("code", "message"), TAKEN)
def test_the_others_are_redriven_and_it_comes_again(monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    sqs = queue(monkeypatch, code, message)
    assert dead_letter_queues.redrive("dead", "queue") == (2, 0)
    assert sqs.calls == [("send", "first"), ("send", "second"), ("delete", "second")]


@pytest.mark.parametrize(("code", "message"), TAKEN)
def test_the_others_are_given_back(monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    sqs = queue(monkeypatch, code, message)
    assert [letter.id for letter in dead_letter_queues.peek("dead")] == ["first", "second"]
    assert sqs.calls == [("give back", "second")]


@pytest.mark.parametrize(
    ("code", "message"), [("AccessDenied", "no"), ("InvalidParameterValue", "Value 50000 for VisibilityTimeout")]
)
def test_any_other_refusal_ends_the_command(monkeypatch: pytest.MonkeyPatch, code: str, message: str) -> None:
    queue(monkeypatch, code, message)
    with pytest.raises(StoreError, match=code):
        dead_letter_queues.redrive("dead", "queue")
