"""Failed calls of AWS: translates botocore's exceptions for stores into `shiplap.errors`, and bounds retries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection
from botocore.parsers import ResponseParserError
from botocore.retries.standard import RetryContext, ThrottledRetryableChecker, TransientRetryableChecker

from shiplap.errors import ConditionFailed, StoreError, StoreThrottled

Sleep = Callable[[float], None]

NO_ANSWER = (BotoCoreError, ResponseParserError)
"""What botocore raises when there is no answer, or none that can be read: a proxy's page, half a document. The latter
is no BotoCoreError."""

FAILURES = (ClientError, *NO_ANSWER)
"""All that a call through botocore raises on purpose."""

Failure = ClientError | BotoCoreError | ResponseParserError

CONDITION_FAILED = "ConditionalCheckFailedException"
TRANSACTION_CANCELED = "TransactionCanceledException"

CREDENTIALS_REFUSED = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity.RequestHasExpired",
        "InvalidSignatureException",
        "InvalidToken",
        "MissingAuthenticationToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
"""Codes by which services refuse credentials that have run out or a clock that is wrong: botocore renews them."""

_SERVICE_FAILED = frozenset({"InternalFailure", "InternalServerError", "ServiceUnavailable"})
"""These come with a status from 500 on, and within answers that have none."""

_PASSES = frozenset({"KmsThrottled", "OperationAborted", "OverLimit", "TransactionConflictException"})
"""What botocore leaves to its callers: the key is asked for too often, another request or transaction has the object,
or too many messages of a queue are in flight."""

_THROTTLING = ThrottledRetryableChecker()
_PASSING = TransientRetryableChecker()


def is_throttling(code: str) -> bool:
    """True if an error code asks to slow down, by botocore's own list; `KMS.ThrottlingException` as its last part."""
    return _THROTTLING.is_retryable(RetryContext(1, parsed_response={"Error": {"Code": code.rpartition(".")[2]}}))


def is_worth_a_retry(code: str) -> bool:
    """True if the same request may succeed a little later."""
    if code in CREDENTIALS_REFUSED | _SERVICE_FAILED | _PASSES:
        return True
    return is_throttling(code) or _PASSING.is_retryable(RetryContext(1, parsed_response={"Error": {"Code": code}}))


def code_of(error: ClientError) -> str:
    """The service's error code, for example `ConditionalCheckFailedException`; empty when it sent none."""
    return str(error.response.get("Error", {}).get("Code", ""))


def store_error(action: str, error: Failure) -> StoreError:
    """The StoreError that says what an answer means; `action` says what was tried, for example `read table x`.

    No answer, or none that can be read, counts as throttled: like that, it is worth another try later.
    """
    message = f"could not {action}: {error}"
    if isinstance(error, ClientError):
        code = code_of(error)
        if code == CONDITION_FAILED:
            return ConditionFailed(message)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return StoreThrottled(message) if status >= 500 or is_worth_a_retry(code) else StoreError(message)
    unanswered = isinstance(error, HTTPClientError | NoConnection | ResponseParserError)
    return StoreThrottled(message) if unanswered else StoreError(message)


@contextmanager
def store_errors(action: str) -> Iterator[None]:
    """Translate what botocore raises in the body. Raises ConditionFailed, StoreThrottled or StoreError."""
    try:
        yield
    except FAILURES as error:
        raise store_error(action, error) from error


def attempts(count: int, *, first_s: float = 0.02, longest_s: float = 0.5, sleep: Sleep = time.sleep) -> Iterator[int]:
    """The numbers 0 … count − 1 with a pause before each but the first.

    A pause is a random part of `first_s`, doubled each time, of at most `longest_s` seconds ("full jitter"), so that
    writers in conflict once are not in conflict again.
    """
    for number in range(count):
        if number:
            sleep(random.uniform(0, min(first_s * 2**number, longest_s)))  # noqa: S311 - not a secret
        yield number
