"""Tests the hint beside an error of AWS."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, NoRegionError

from shiplap.aws.failures import store_error
from shiplap.errors import AwsError, InvalidInput, ShiplapError, StoreError
from shiplap_cli import main
from shiplap_cli.hints import with_hint


def caused(cause: Exception) -> ShiplapError:
    try:
        try:
            raise cause
        except Exception as error:
            raise AwsError(f"could not look up stack Shiplap: {error}") from error
    except AwsError as error:
        return error


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"{code}: not so"}}, "Query")


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (caused(NoCredentialsError()), "aws sso login"),
        (AwsError("no AWS credentials are configured", code="NoCredentials"), "AWS_PROFILE"),
        (caused(refusal("ExpiredToken")), "have expired"),
        (caused(refusal("UnrecognizedClientException")), "does not know these credentials"),
        (caused(refusal("AccessDeniedException")), "docs/explanation/security.md"),
        (caused(refusal("ResourceNotFoundException")), "not in this account and region"),
        (caused(EndpointConnectionError(endpoint_url="https://x.invalid")), "was not reached"),
        (caused(NoRegionError()), "set AWS_REGION"),
    ],
)
def test_an_error_of_aws_says_what_would_help(error: ShiplapError, hint: str) -> None:
    assert with_hint(error).startswith(str(error).rstrip("."))
    assert hint in with_hint(error)


def test_what_is_not_known_is_left_as_it_is() -> None:
    for error in (
        caused(refusal("SomethingNew")),
        StoreError("the bucket has no catalogue"),
        InvalidInput("--x", "no"),
    ):
        assert with_hint(error) == str(error)


def test_commands_end_with_the_hint(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    denied = refusal("AccessDeniedException")

    def fails(*_: object) -> int:
        raise store_error("read table state", denied) from denied

    monkeypatch.setattr(main, "_invoke", fails)
    assert main.run(["status"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("shiplap: could not read table state")
    assert "the permission named is missing" in said
    assert said.count("\n") == 1
