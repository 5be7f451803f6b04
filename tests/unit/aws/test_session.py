"""AWS clients: lazily made, one of each, configured alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from botocore.exceptions import ParamValidationError

from shiplap.aws import session
from shiplap.errors import AwsError


@pytest.fixture(autouse=True)
def _own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_CLIENTS", {})
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")


def test_a_client_is_made_once_per_service_and_region() -> None:
    assert session.client("sqs") is session.client("sqs")
    assert session.client("sqs") is not session.client("sqs", "us-east-1")
    assert session.client("sqs", "us-east-1").meta.region_name == "us-east-1"
    assert session.client("sqs").meta.region_name == "eu-west-1"


def test_aws_region_goes_before_the_default_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert session.client("sqs").meta.region_name == "eu-north-1"


def test_clients_retry_in_standard_mode_with_short_time_outs() -> None:
    config = session.client("sqs").meta.config
    assert config.retries == {"mode": "standard", "total_max_attempts": 5}
    assert (config.connect_timeout, config.read_timeout) == (3, 15)


def test_parameters_are_validated_everywhere_but_in_a_lambda_function(monkeypatch: pytest.MonkeyPatch) -> None:
    session.config.cache_clear()
    with pytest.raises(ParamValidationError):
        session.client("sqs").send_message(QueueUrl="https://queue", MessageBody=1)
    session.config.cache_clear()
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "shiplap-schedule")
    assert not session.config().parameter_validation
    session.config.cache_clear()


def test_no_test_switches_validation_off() -> None:
    tests = Path(__file__).parents[2]
    switch = "parameter_validation" + "=False"
    assert [path.name for path in sorted(tests.rglob("*.py")) if switch in path.read_text()] == []
    assert "AWS_LAMBDA_FUNCTION_NAME" not in os.environ


def test_without_a_region_the_error_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    with pytest.raises(AwsError, match="AWS_DEFAULT_REGION"):
        session.client("dynamodb")


def test_credentials_are_those_of_the_clients() -> None:
    session.session.cache_clear()
    assert session.credentials() is session.session().get_credentials()
    assert session.credentials().access_key == "testing"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [({}, "no AWS credentials are configured"), ({"AWS_ACCESS_KEY_ID": "half"}, "cannot be read: Partial credentials")],
)
def test_credentials_that_are_missing_or_cannot_be_read_are_an_error(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reason: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "BOTO_CONFIG"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    session.session.cache_clear()
    with pytest.raises(AwsError, match=reason) as raised:
        session.credentials()
    assert raised.value.code == "NoCredentials"
    session.session.cache_clear()


def test_importing_the_session_does_not_import_botocore() -> None:
    program = "import sys, shiplap.aws.session; print('boto3' in sys.modules, 'botocore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "False False"


def test_a_profile_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nosuch")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    monkeypatch.setattr(session, "_CLIENTS", {})
    session.session.cache_clear()
    with pytest.raises(AwsError, match="nosuch") as caught:
        session.client("sqs", "eu-west-1")
    assert caught.value.code == "ProfileNotFound"
    session.session.cache_clear()
