"""Functions of the emulated Region that fail or do not answer are told by their name."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError

from shiplap.errors import ShiplapError
from shiplap_lab.dev.local_region import invoke


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            ReadTimeoutError(endpoint_url="http://localhost"),
            "catalog did not answer: Read timeout",
        ),
        (
            ClientError({"Error": {"Code": "Busy", "Message": "later"}}, "Invoke"),
            "catalog did not answer: .*later",
        ),
    ],
)
def test_a_function_that_does_not_answer(error: BotoCoreError | ClientError, said: str) -> None:
    def fails(**_: Any) -> None:
        raise error

    with pytest.raises(ShiplapError, match=said):
        invoke(SimpleNamespace(invoke=fails), "catalog", {})


def test_a_function_that_fails() -> None:
    answer = {"FunctionError": "Unhandled", "Payload": io.BytesIO(b"it broke")}
    with pytest.raises(ShiplapError, match="function catalog failed: it broke"):
        invoke(SimpleNamespace(invoke=lambda **_: answer), "catalog", {})
