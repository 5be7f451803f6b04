"""The emulated AWS passes trace headers on as AWS does: that is how a chain of invocations is counted."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiplap.errors import ShiplapError
from shiplap_lab.emulated_aws import cdk
from shiplap_lab.emulated_aws.emulator import AwsEmulator
from shiplap_lab.emulated_aws.lineage import HEADER, invoked

CODE = """
import os, boto3

def handle(event, context):
    boto3.client("sqs", endpoint_url=event["endpoint"]).send_message(QueueUrl=event["queue"], MessageBody="next")
    return os.environ.get("_X_AMZN_TRACE_ID", "")
"""


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsEmulator]:
    try:
        cdk.executable()
    except ShiplapError as error:
        pytest.skip(f"the CDK cannot run: {error}")
    with AwsEmulator("eu-west-1", folder=tmp_path_factory.mktemp("aws")) as emulator:
        yield emulator


def invoke(client: Any, trace: str, event: dict[str, str]) -> str:
    client.meta.events.register(
        "before-call.lambda.Invoke", lambda params, **_: params["headers"].update({HEADER: trace})
    )
    answer = client.invoke(FunctionName="asked", Payload=json.dumps(event))
    said = json.loads(answer["Payload"].read())
    assert "FunctionError" not in answer, said
    return str(said)


def received(aws: AwsEmulator, url: str) -> dict[str, str]:
    (message,) = aws.client("sqs").receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
    attributes: dict[str, str] = message["Attributes"]
    return attributes


def test_a_message_carries_the_trace_of_the_invocation_that_sent_it(aws: AwsEmulator) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("asked.py", CODE)
    lambda_ = aws.client("lambda")
    lambda_.create_function(
        FunctionName="asked",
        Runtime="python3.13",
        Role="arn:aws:iam::123456789012:role/any",
        Handler="asked.handle",
        Code={"ZipFile": archive.getvalue()},
    )
    url = aws.client("sqs").create_queue(QueueName="traced")["QueueUrl"]
    trace = invoked("", "asked")

    assert invoke(lambda_, trace, {"queue": url, "endpoint": aws.url}) == trace
    assert received(aws, url)["AWSTraceHeader"] == trace


def test_a_message_that_no_function_sent_carries_none(aws: AwsEmulator) -> None:
    url = aws.client("sqs").create_queue(QueueName="plain")["QueueUrl"]
    aws.client("sqs").send_message(QueueUrl=url, MessageBody="first")

    assert "AWSTraceHeader" not in received(aws, url)


def test_functions_that_may_invoke_themselves_are_read_from_the_templates(aws: AwsEmulator) -> None:
    functions = {
        name: {"Type": "AWS::Lambda::Function", "Properties": {"FunctionName": name} | loop}
        for name, loop in {"a": {}, "b": {"RecursiveLoop": "Allow"}, "c": {"RecursiveLoop": "Terminate"}}.items()
    }
    folder = Path(aws.state) / "cdk.out"
    folder.mkdir(exist_ok=True)
    (folder / "Any.template.json").write_text(json.dumps({"Resources": functions}))

    assert aws._cdk.recursive_functions() == ["b"]
