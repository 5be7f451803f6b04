"""Tests the translation of botocore's exceptions into the errors of shiplap.errors."""

from __future__ import annotations

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from botocore.parsers import ResponseParserError
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from shiplap.aws.failures import Failure, code_of, store_error, store_errors
from shiplap.errors import ConditionFailed, StoreError, StoreThrottled


def client_error(code: str, status: int = 400) -> ClientError:
    response = {"Error": {"Code": code, "Message": "why"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "PutItem")


TRY_LATER = """
    InternalFailure InternalServerError ProvisionedThroughputExceededException RequestLimitExceeded RequestThrottled
    RequestTimeout ServiceUnavailable SlowDown Throttling ThrottlingException TooManyRequestsException
    KMS.ThrottlingException KmsThrottled OperationAborted OverLimit TransactionConflictException
    TransactionInProgressException
    ExpiredToken ExpiredTokenException InvalidAccessKeyId InvalidSignatureException InvalidToken RequestExpired
    RequestTimeTooSkewed SignatureDoesNotMatch UnrecognizedClientException
"""
"""By the lists of common errors of DynamoDB, S3, SQS and EventBridge."""

RETRIED = (*ThrottledRetryableChecker._THROTTLED_ERROR_CODES, *TransientRetryableChecker._TRANSIENT_ERROR_CODES)
"""What botocore sends again by itself."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (client_error("ConditionalCheckFailedException"), ConditionFailed),
        *((client_error(code), StoreThrottled) for code in sorted({*TRY_LATER.split(), *RETRIED})),
        (client_error("SomethingNew", 500), StoreThrottled),
        (client_error("SomethingNew", 499), StoreError),
        (client_error("AccessDeniedException"), StoreError),
        (client_error("ValidationException"), StoreError),
        (EndpointConnectionError(endpoint_url="https://dynamodb"), StoreThrottled),
        (ReadTimeoutError(endpoint_url="https://dynamodb"), StoreThrottled),
        (ResponseParserError("a proxy's page"), StoreThrottled),
        (NoCredentialsError(), StoreError),
    ],
)
def test_every_refusal_becomes_the_store_error_that_says_what_to_do(error: Failure, kind: type[StoreError]) -> None:
    translated = store_error("read table state", error)
    assert type(translated) is kind
    assert str(translated).startswith("could not read table state: ")


def test_the_original_error_stays_the_cause() -> None:
    original = client_error("ValidationException")
    with pytest.raises(StoreError, match="could not try") as caught, store_errors("try"):
        raise original
    assert caught.value.__cause__ is original


def test_what_is_not_of_botocore_passes() -> None:
    with pytest.raises(KeyError), store_errors("try"):
        raise KeyError("a bug")


def test_an_answer_without_a_code_has_none() -> None:
    assert code_of(ClientError({}, "PutItem")) == ""
    assert type(store_error("try", ClientError({}, "PutItem"))) is StoreError
