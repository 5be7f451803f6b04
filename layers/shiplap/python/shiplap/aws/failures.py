"""What botocore raises when a store refuses, in the words of `shiplap.errors`; the one place that translates it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as NoConnection

from shiplap.errors import ConditionFailed, StoreError, StoreThrottled

CONDITION_FAILED = "ConditionalCheckFailedException"
TRANSACTION_CANCELED = "TransactionCanceledException"

_TRY_LATER = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)


def code_of(error: ClientError) -> str:
    """The service's error code, for example `ConditionalCheckFailedException`; empty when it sent none."""
    return str(error.response.get("Error", {}).get("Code", ""))


def store_error(action: str, error: ClientError | BotoCoreError) -> StoreError:
    """The StoreError that says what an answer means; `action` says what was tried, for example `read table x`.

    No answer at all counts as throttled: like that, it is worth another try later.
    """
    message = f"could not {action}: {error}"
    if isinstance(error, ClientError):
        code = code_of(error)
        if code == CONDITION_FAILED:
            return ConditionFailed(message)
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        return StoreThrottled(message) if code in _TRY_LATER or status >= 500 else StoreError(message)
    return StoreThrottled(message) if isinstance(error, HTTPClientError | NoConnection) else StoreError(message)


@contextmanager
def store_errors(action: str) -> Iterator[None]:
    """Translate what botocore raises in the body. Raises ConditionFailed, StoreThrottled or StoreError."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise store_error(action, error) from error
