"""What EC2's refusals mean, and what becomes of botocore's exceptions."""

from __future__ import annotations

import pytest
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError
from botocore.parsers import ResponseParserError

from shiplap.aws.ec2_errors import aws_error, aws_errors, classify, launch_errors
from shiplap.errors import AwsError, AwsThrottled, NodeClassNotReady


def refusal(code: str, message: str = "", status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "CreateFleet")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("InsufficientInstanceCapacity", "capacity"),
        ("UnfulfillableCapacity", "capacity"),
        ("Unsupported", "capacity"),
        ("InsufficientFreeAddressesInSubnet", "subnet"),
        ("InsufficientCidrBlocks", "subnet"),
        ("VcpuLimitExceeded", "quota"),
        ("MaxSpotInstanceCountExceeded", "quota"),
        ("MaxFleetCountExceeded", "quota"),
        ("AuthFailure.ServiceLinkedRoleCreationNotPermitted", "quota"),
        ("OptInRequired", "quota"),
        ("NetworkInterfaceLimitExceeded", "quota"),
        ("PendingVerification", "quota"),
        ("InvalidKMSKey.InvalidState", "configuration"),
        ("InvalidCapacityReservationId.NotFound", "configuration"),
        ("InvalidSecurityGroupID.NotFound", "configuration"),
        ("ReservationCapacityExceeded", "capacity"),
        ("EC2ThrottledException", "throttled"),
        ("InvalidAMIID.NotFound", "configuration"),
        ("InvalidUserData.Malformed", "configuration"),
        ("UnauthorizedOperation", "configuration"),
        ("RequestLimitExceeded", "throttled"),
        ("InternalError", "unknown"),
        ("SomethingNew", "unknown"),
        ("", "unknown"),
    ],
)
def test_codes_have_kinds(code: str, kind: str) -> None:
    assert classify(code) == kind


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "InvalidFleetConfiguration",
            "Your instance type (m5.large) is not supported in your requested Availability Zone (us-east-1e).",
        ),
        ("InvalidParameterValue", "Invalid value 'zz9.large' for InstanceType."),
    ],
)
def test_what_blames_one_type_or_zone_is_capacity(code: str, message: str) -> None:
    assert classify(code, message) == "capacity"
    assert classify(code, "something else") == "configuration"


def test_a_subnet_without_addresses_is_no_mistake_of_the_node_class() -> None:
    message = "There aren't sufficient free Ipv4 addresses or prefixes"
    assert classify("InvalidParameterValue", message) == "subnet"


def test_throttling_is_worth_another_try() -> None:
    error = aws_error("launch", refusal("RequestLimitExceeded", "slow down", 503))
    assert isinstance(error, AwsThrottled)
    assert error.code == "RequestLimitExceeded"
    assert str(error) == "could not launch: RequestLimitExceeded: slow down"


def test_a_failing_service_leaves_the_outcome_open() -> None:
    assert aws_error("launch", refusal("503", status=503)).code == "ServiceUnavailable"
    assert (
        aws_error("launch", refusal("InsufficientInstanceCapacity", status=500)).code == "InsufficientInstanceCapacity"
    )
    no_answer: BotoCoreError = EndpointConnectionError(endpoint_url="http://x")
    assert aws_error("launch", no_answer).code == ""


def test_an_answer_that_cannot_be_read_is_none() -> None:
    with pytest.raises(AwsError, match="could not launch: a proxy's page") as raised, aws_errors("launch"):
        raise ResponseParserError("a proxy's page")
    assert raised.value.code == ""


def test_launches_tell_bad_manifests_from_other_refusals() -> None:
    with pytest.raises(NodeClassNotReady), launch_errors("launch"):
        raise refusal("InvalidParameterValue", "hop limit")
    with pytest.raises(AwsError) as raised, launch_errors("launch"):
        raise refusal("SomethingNew")
    assert not isinstance(raised.value, NodeClassNotReady)
    with pytest.raises(AwsError), aws_errors("describe"):
        raise refusal("InvalidParameterValue")
