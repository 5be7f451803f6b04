"""Tests the meaning of EC2's refusals, and the errors that Shiplap makes of botocore's exceptions."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError
from botocore.parsers import ResponseParserError
from botocore.session import get_session

from shiplap.aws.ec2_errors import (
    TEMPLATE_GONE,
    aws_error,
    aws_errors,
    classify,
    classify_end,
    launch_errors,
    readable,
)
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable, NodeClassNotReady

PUBLISHED = {
    # another instance type, zone or reservation may do
    "capacity": """
        AttachmentLimitExceeded EncryptedVolumesNotSupported IncompatibleHostRequirements
        InstanceCreditSpecification.NotSupported InsufficientAddressCapacity InsufficientCapacity
        InsufficientCapacityOnHost InsufficientHostCapacity InsufficientInstanceCapacity
        InsufficientReservedInstanceCapacity InsufficientReservedInstancesCapacity InsufficientVolumeCapacity
        InvalidAvailabilityZone InvalidCapacityReservationState.PendingActivation InvalidInstanceFamily
        InvalidInstanceType InvalidInterface.IpAddressLimitExceeded InvalidLaunchTargets InvalidZone.NotFound
        NonEBSInstance PrivateIpAddressLimitExceeded ReservationCapacityExceeded SpotMaxPriceTooLow
        UnavailableHostRequirements UnfulfillableCapacity Unsupported UnsupportedHostConfiguration
        UnsupportedInstanceTypeOnHost UnsupportedOperation VolumeTypeNotAvailableInZone ZonesMismatched
    """,
    "subnet": "InsufficientFreeAddressesInSubnet",
    # people raise a limit of the account, or settle something about the account itself
    "quota": """
        AccountDisabled AddressLimitExceeded Blocked HostLimitExceeded InstanceLimitExceeded MaxIOPSLimitExceeded
        MaxSpotFleetRequestCountExceeded MaxSpotInstanceCountExceeded MaxTemplateLimitExceeded
        MaxTemplateVersionLimitExceeded NetworkInterfaceLimitExceeded OptInRequired PendingVerification
        RequestResourceCountExceeded ResourceCountExceeded ResourceLimitExceeded TargetCapacityLimitExceededException
        VcpuLimitExceeded VolumeLimitExceeded
    """,
    # people change an EC2NodeClass, or a permission
    "configuration": """
        AuthFailure BootForVolumeTypeUnsupported ClientInvalidParameterValue CustomerKeyHasBeenRevoked
        DefaultVpcDoesNotExist FilterLimitExceeded InvalidAffinity InvalidAMIID.Malformed InvalidAMIID.NotFound
        InvalidAMIID.Unavailable InvalidAMIName.Malformed InvalidAutoPlacement InvalidBlockDeviceMapping
        InvalidCapacityReservationId.Malformed InvalidCapacityReservationId.NotFound InvalidCharacter
        InvalidCpuCredits InvalidCpuCredits.Malformed InvalidFilter InvalidGroup.NotFound InvalidGroupId.Malformed
        InvalidHostConfiguration InvalidHostID.Malformed InvalidHostID.NotFound InvalidHostId InvalidHostId.Malformed
        InvalidHostId.NotFound InvalidIamInstanceProfileArn.Malformed InvalidID InvalidInput InvalidKernelId.Malformed
        InvalidKey.Format InvalidKeyPair.Format InvalidKeyPair.NotFound InvalidLaunchTemplateId.Malformed
        InvalidLaunchTemplateId.VersionNotFound InvalidLaunchTemplateName.AlreadyExistsException
        InvalidLaunchTemplateName.MalformedException InvalidManifest InvalidNetworkInterface.InUse
        InvalidNetworkInterface.NotFound InvalidNetworkInterfaceID.NotFound InvalidNetworkInterfaceId.Malformed
        InvalidParameter InvalidParameterCombination InvalidParameterDependency InvalidParameterValue
        InvalidPlacementGroup.Unknown InvalidPlacementGroupId.Malformed InvalidProductInfo InvalidRamDiskId.Malformed
        InvalidRequest InvalidResourceType.Unknown InvalidSecurityGroupID.NotFound InvalidSecurityGroupId.Malformed
        InvalidSnapshot.NotFound InvalidSnapshotID.Malformed InvalidSubnet InvalidSubnetID.Malformed
        InvalidSubnetID.NotFound InvalidSubnetId.NotFound InvalidTagKey.Malformed InvalidTenancy
        InvalidVpcID.Malformed InvalidVpcID.NotFound MissingInput MissingParameter OperationNotPermitted
        SecurityGroupLimitExceeded SecurityGroupsPerInstanceLimitExceeded SecurityGroupsPerInterfaceLimitExceeded
        TagLimitExceeded TagPolicyViolation UnauthorizedOperation UnknownParameter UnknownVolumeType
        UnsupportedHibernationConfiguration UnsupportedTenancy VPCIdNotSpecified VPCResourceNotSpecified
        ValidationError VolumeIOPSLimit
    """,
    "throttled": "RequestLimitExceeded",
    # the same again, with fresh credentials, from the first page, with another token, or once a template is visible
    "transient": """
        ConcurrentTagAccess IdempotentInstanceTerminated IncompleteSignature InvalidClientTokenId
        InvalidLaunchTemplateId.NotFound InvalidLaunchTemplateName.NotFoundException InvalidNextToken
        InvalidPaginationToken InvalidSecurity.RequestHasExpired MissingAuthenticationToken RequestExpired
        RetryableError SignatureDoesNotMatch
    """,
    # the effect may have happened, or nothing is to be learned from it
    "unknown": """
        BandwidthLimitExceeded DryRunOperation IdempotentParameterMismatch IncorrectInstanceState IncorrectState
        InternalError InternalFailure InvalidAction InvalidClientToken InvalidInstanceID InvalidInstanceID.Malformed
        InvalidInstanceID.NotFound InvalidInstanceState InvalidMaxResults InvalidQueryParameter InvalidState
        MalformedQueryString MissingAction NoSuchVersion ServerInternal ServiceUnavailable Unavailable
        UnsupportedInstanceAttribute UnsupportedProtocol
    """,
}
"""The codes of EC2's published table that the actions of the adapters can yield (CreateFleet, and RunInstances within
it, CreateLaunchTemplate, DeleteLaunchTemplate, CreateTags, TerminateInstances, Describe*), by kind."""

UNPUBLISHED = {
    "capacity": "SpotCapacityNotAvailable",
    "subnet": "InsufficientCidrBlocks",
    "quota": """
        AuthFailure.ServiceLinkedRoleCreationNotPermitted FleetQuotaExceeded MaxFleetCountExceeded
        SpotInstanceCountLimitExceeded
    """,
    "configuration": """
        InvalidFleetConfig InvalidFleetConfiguration InvalidIamInstanceProfileName.NotFound InvalidKMSKey.InvalidState
        InvalidUserData.Malformed SnapshotNotFound
    """,
    "throttled": """
        EC2ThrottledException RequestThrottled RequestThrottledException Throttling ThrottlingException
        TooManyRequestsException
    """,
    "transient": "ExpiredToken ExpiredTokenException UnrecognizedClientException",
}
"""Codes that EC2, its SDKs and other provisioners know although the table lacks them."""

OF_OTHER_ACTIONS = """
    ActiveVpcPeeringConnectionPerVpcLimitExceeded AsnConflict CannotDelete ConcurrentSnapshotLimitExceeded
    CustomerGatewayLimitExceeded DependencyViolation DiskImageSizeTooLarge FlowLogAlreadyExists Gateway.NotAttached
    InstanceEventStartTimeCannotChange InternetGatewayLimitExceeded InvalidAddress.NotFound InvalidAttachment.NotFound
    InvalidConversionTaskId InvalidDhcpOptionID.NotFound InvalidGatewayID.NotFound InvalidPermission.NotFound
    InvalidReservationID.NotFound InvalidRoute.NotFound InvalidSpotDatafeed.NotFound InvalidVolume.NotFound
    InvalidVpnGatewayID.NotFound KeyPairLimitExceeded NatGatewayNotFound NetworkAclLimitExceeded
    OutstandingVpcPeeringConnectionLimitExceeded PlacementGroupLimitExceeded Resource.AlreadyAssociated
    RouteAlreadyExists RouteTableLimitExceeded SnapshotLimitExceeded SubnetLimitExceeded
    TrafficMirrorFilterInUse VolumeInUse VpcLimitExceeded VpnConnectionLimitExceeded
"""


def refusal(code: str, message: str = "", status: int = 400) -> ClientError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "CreateFleet")  # type: ignore[arg-type]


def codes_of(table: dict[str, str]) -> list[tuple[str, str]]:
    return [(code, kind) for kind, codes in table.items() for code in codes.split()]


@pytest.mark.parametrize(("code", "kind"), [*codes_of(PUBLISHED), *codes_of(UNPUBLISHED)])
def test_codes_have_kinds(code: str, kind: str) -> None:
    assert classify(code) == kind


def test_no_code_is_listed_twice() -> None:
    listed = [code for code, _ in (*codes_of(PUBLISHED), *codes_of(UNPUBLISHED))]
    assert len(listed) == len(set(listed))
    assert set(TEMPLATE_GONE) <= set(listed)


@pytest.mark.parametrize("code", [*OF_OTHER_ACTIONS.split(), "SomethingNew", "SomethingNew.NotFound", ""])
def test_a_code_that_is_not_expected_is_unknown(code: str) -> None:
    assert classify(code) == "unknown"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "InvalidFleetConfiguration",
            "Your instance type (m5.large) is not supported in your requested Availability Zone (us-east-1e).",
        ),
        ("InvalidParameterValue", "Invalid value 'zz9.large' for InstanceType."),
        ("InvalidParameterValue", "The following supplied instance types do not exist: [zz9.large]"),
        ("InvalidParameterCombination", "Instance type m5.large is not supported in this Region."),
        ("InvalidParameterValue", "Invalid availability zone: [us-east-1e]"),
    ],
)
def test_what_blames_one_type_or_zone_is_capacity(code: str, message: str) -> None:
    assert classify(code, message) == "capacity"
    assert classify(code, "something else") == "configuration"


@pytest.mark.parametrize(
    ("message", "types", "kind"),
    [
        ("The hpc6a.48xlarge instance type does not support this.", ("hpc6a.48xlarge",), "capacity"),
        ("Unsupported instancetypes [ResourcePoolType(instanceType=f2.6xlarge, os=a)]", ("f2.6xlarge",), "capacity"),
        ("Not for u-6tb1.metal.", ("m5.large", "u-6tb1.metal"), "capacity"),
        ("Not for m5.large.", ("m5.xlarge",), "configuration"),
        ("Not for m5.large.", (), "configuration"),
        ("Not for im5.large nor m5.large-flex.", ("m5.large",), "configuration"),
    ],
)
def test_what_names_a_type_that_was_asked_for_is_about_that_type(
    message: str, types: tuple[str, ...], kind: str
) -> None:
    assert classify("InvalidFleetConfig", message, types) == kind
    assert classify("InvalidFleetConfiguration", message, types) == kind


def test_an_image_that_does_not_suit_a_type_is_no_reason_to_rest_the_type_for_other_clusters() -> None:
    message = "Enhanced networking with ENA is required for the 'm5.large' instance type."
    assert classify("InvalidParameterCombination", message, ("m5.large",)) == "configuration"


def test_a_subnet_without_addresses_is_no_mistake_of_the_node_class() -> None:
    message = "There aren't sufficient free Ipv4 addresses or prefixes"
    assert classify("InvalidParameterValue", message) == "subnet"


def test_credentials_that_are_refused_are_no_mistake_of_the_node_class() -> None:
    assert classify("AuthFailure", "AWS was not able to validate the provided access credentials") == "transient"
    assert classify("AuthFailure", "Not authorized for images: [ami-1]") == "configuration"


def test_a_product_that_is_not_subscribed_to_stops_its_node_class_and_no_other() -> None:
    message = "In order to use this AWS Marketplace product you need to accept terms and subscribe."
    assert classify("OptInRequired", message) == "configuration"
    assert classify("OptInRequired", "You are not subscribed to this service.") == "quota"


@pytest.mark.parametrize("code", ["ExpiredToken", "RequestExpired", "RetryableError"])
def test_a_request_that_did_not_count_is_worth_another_try_and_keeps_its_code(code: str) -> None:
    error = aws_error("launch", refusal(code))
    assert isinstance(error, AwsUnavailable)
    assert error.code == code


ENDS = {
    "Client.InstanceInitiatedShutdown": "transient",
    "Client.InstanceTerminated": "transient",
    "Client.InternalError": "configuration",
    "Client.InvalidSnapshot.NotFound": "configuration",
    "Client.UserInitiatedHibernate": "transient",
    "Client.UserInitiatedShutdown": "transient",
    "Client.VolumeLimitExceeded": "quota",
    "Server.InsufficientInstanceCapacity": "capacity",
    "Server.InternalError": "unknown",
    "Server.ScheduledStop": "capacity",
    "Server.SpotInstanceShutdown": "capacity",
    "Server.SpotInstanceTermination": "capacity",
}
"""The reasons of EC2 for the end of an instance, as its model documents them, by the kind of failure they amount to."""


def test_every_documented_reason_for_the_end_of_an_instance_has_a_kind() -> None:
    model = get_session().get_service_model("ec2").shape_for("StateReason").members["Message"]
    documented = set(re.findall(r"<code>((?:Client|Server)\.[\w.]+)</code>", model.documentation))
    assert documented == set(ENDS)
    assert {reason: classify_end(reason) for reason in ENDS} == ENDS


@pytest.mark.parametrize("reason", ["Client.InvalidKMSKey.InvalidState", "Client.CustomerKeyHasBeenRevoked"])
def test_reasons_that_are_not_documented_are_judged_as_the_error_of_their_name(reason: str) -> None:
    assert classify_end(reason) == "configuration"
    assert classify_end("Server.SomethingNew") == "unknown"
    assert classify_end("") == "unknown"


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


@pytest.mark.parametrize(
    "error",
    [
        KeyError("InstanceId"),
        IndexError("no first one"),
        TypeError("no list"),
        ValueError("no number"),
        AttributeError("no text"),
        RuntimeError("nested too deep"),
    ],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_aws(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    @readable
    def some_instances() -> None:
        raise error

    with pytest.raises(AwsError, match=r"could not some instances: an answer of AWS cannot be read: ") as caught:
        some_instances()
    assert caught.value.code == ""
    assert caught.value.__cause__ is error
    assert "an answer of AWS cannot be read" in caplog.text


def test_errors_on_purpose_stay_what_they_are() -> None:
    @readable
    def images() -> None:
        raise NodeClassNotReady("no image", code="AMINotFound")

    with pytest.raises(NodeClassNotReady, match="no image"):
        images()


def test_an_answer_with_something_else_than_text_is_an_error_of_aws() -> None:
    @readable
    def instance() -> dict[str, object]:
        return {"InstanceId": ElementTree.Element("instanceId")}

    with pytest.raises(AwsError, match="could not instance: an answer of AWS cannot be read: TypeError"):
        instance()
