"""The meaning of EC2's error codes for a launch, and botocore's exceptions in the words of `shiplap.errors`.

EC2 has hundreds of codes; the kind of a code says what to do next: try another offering (capacity), another subnet,
nothing until a limit is raised (quota), nothing until a manifest is changed (configuration), or the same again later
(throttled, transient). After an unknown code the offering rests, and nothing is taken for certain. botocore knows which
codes throttle.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws.failures import CREDENTIALS_REFUSED, FAILURES, Failure, code_of, is_throttling
from shiplap.errors import AwsError, AwsThrottled, AwsUnavailable, NodeClassNotReady

P = ParamSpec("P")
R = TypeVar("R")

_LOG = logging.getLogger(__name__)

CAPACITY = "capacity"
SUBNET = "subnet"
QUOTA = "quota"
CONFIGURATION = "configuration"
THROTTLED = "throttled"
TRANSIENT = "transient"
UNKNOWN = "unknown"

TOKEN_REUSED = "IdempotentParameterMismatch"  # noqa: S105 - an error code
TOKEN_SPENT = "IdempotentInstanceTerminated"  # noqa: S105 - an error code
TEMPLATE_GONE = ("InvalidLaunchTemplateName.NotFoundException", "InvalidLaunchTemplateId.NotFound")
NO_ADDRESSES = "InsufficientFreeAddressesInSubnet"
TEMPLATE_EXISTS = "InvalidLaunchTemplateName.AlreadyExistsException"
INSTANCE_GONE = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")

_KINDS: dict[str, str] = {
    CAPACITY: """
        InsufficientCapacity InsufficientCapacityOnHost InsufficientHostCapacity InsufficientInstanceCapacity
        InsufficientReservedInstanceCapacity InsufficientReservedInstancesCapacity InsufficientVolumeCapacity
        InsufficientAddressCapacity ReservationCapacityExceeded UnfulfillableCapacity
        SpotCapacityNotAvailable SpotMaxPriceTooLow
        InvalidInstanceType InvalidInstanceFamily Unsupported UnsupportedOperation
        InvalidAvailabilityZone InvalidZone VolumeTypeNotAvailableInZone
        AttachmentLimitExceeded PrivateIpAddressLimitExceeded InvalidInterface.IpAddressLimitExceeded
        EncryptedVolumesNotSupported NonEBSInstance InstanceCreditSpecification
        IncompatibleHostRequirements UnavailableHostRequirements UnsupportedInstanceTypeOnHost
        UnsupportedHostConfiguration ZonesMismatched
        InvalidCapacityReservationState InvalidLaunchTargets
    """,
    SUBNET: f"{NO_ADDRESSES} InsufficientCidrBlocks",
    QUOTA: """
        VcpuLimitExceeded InstanceLimitExceeded MaxSpotInstanceCountExceeded SpotInstanceCountLimitExceeded
        MaxFleetCountExceeded FleetQuotaExceeded MaxSpotFleetRequestCountExceeded TargetCapacityLimitExceededException
        MaxTemplateLimitExceeded MaxTemplateVersionLimitExceeded
        MaxIOPSLimitExceeded VolumeLimitExceeded NetworkInterfaceLimitExceeded AddressLimitExceeded HostLimitExceeded
        ResourceLimitExceeded RequestResourceCountExceeded ResourceCountExceeded
        AccountDisabled Blocked OptInRequired PendingVerification AuthFailure.ServiceLinkedRoleCreationNotPermitted
    """,
    CONFIGURATION: """
        AuthFailure UnauthorizedOperation OperationNotPermitted TagPolicyViolation
        ValidationError MissingParameter MissingInput UnknownParameter InvalidInput InvalidRequest InvalidCharacter
        InvalidParameter InvalidParameterCombination InvalidParameterDependency InvalidParameterValue
        ClientInvalidParameterValue InvalidFilter FilterLimitExceeded
        InvalidAMIID InvalidAMIName InvalidManifest InvalidProductInfo InvalidKernelId InvalidRamDiskId
        InvalidBlockDeviceMapping InvalidSnapshot InvalidSnapshotID SnapshotNotFound UnknownVolumeType
        BootForVolumeTypeUnsupported VolumeIOPSLimit InvalidKMSKey CustomerKeyHasBeenRevoked
        InvalidFleetConfiguration InvalidFleetConfig InvalidLaunchTemplateId InvalidLaunchTemplateName
        InvalidIamInstanceProfileName InvalidIamInstanceProfileArn InvalidKeyPair InvalidKey InvalidUserData
        InvalidGroup InvalidGroupId InvalidSecurityGroupID InvalidSecurityGroupId SecurityGroupLimitExceeded
        SecurityGroupsPerInstanceLimitExceeded SecurityGroupsPerInterfaceLimitExceeded
        InvalidSubnet InvalidSubnetID InvalidSubnetId InvalidVpcID VPCIdNotSpecified VPCResourceNotSpecified
        DefaultVpcDoesNotExist InvalidNetworkInterface InvalidNetworkInterfaceID InvalidNetworkInterfaceId
        InvalidCapacityReservationId InvalidPlacementGroup InvalidPlacementGroupId
        InvalidHostId InvalidHostID InvalidHostConfiguration InvalidAffinity InvalidAutoPlacement
        InvalidTenancy UnsupportedTenancy UnsupportedHibernationConfiguration InvalidCpuCredits
        InvalidTagKey TagLimitExceeded InvalidID InvalidResourceType
    """,
    TRANSIENT: f"""
        {" ".join(sorted(CREDENTIALS_REFUSED))}
        InvalidPaginationToken InvalidNextToken ConcurrentTagAccess RetryableError {TOKEN_SPENT}
        {" ".join(TEMPLATE_GONE)}
    """,
    UNKNOWN: f"""
        InternalError InternalFailure ServerInternal ServiceUnavailable Unavailable BandwidthLimitExceeded
        {TOKEN_REUSED} InvalidClientToken InvalidInstanceID InvalidInstanceState IncorrectInstanceState IncorrectState
        InvalidState DryRunOperation InvalidAction MissingAction InvalidQueryParameter MalformedQueryString
        NoSuchVersion UnsupportedProtocol UnsupportedInstanceAttribute InvalidMaxResults
    """,
}
_KIND_OF = {code: kind for kind, codes in _KINDS.items() for code in codes.split()}

_FLEET_REFUSED = ("InvalidFleetConfig", "InvalidFleetConfiguration")
"""Of these codes a type that is named is not to be had in the Region. Other codes may name a type because the image or
an option of the EC2NodeClass does not suit it: all clusters of the account would let it rest for nothing."""

_TYPE_NAME = re.compile(r"(?<![\w.-])[a-z][\w-]*\.[\w-]+(?![\w-])")
"""What may be the name of an instance type, such as `m5.large` or `u-6tb1.metal`."""

_OFFERING_PHRASES = (
    "not supported in your requested Availability Zone",
    "Invalid availability zone",
    "for InstanceType",
    "instance types do not exist",
    "is not supported in this Region",
)
_SUBNET_PHRASE = "sufficient free Ipv4 addresses or prefixes"
"""Codes of the configuration kind that blame one instance type, zone or subnet say so only in their text."""

_CREDENTIALS_PHRASE = "validate the provided access credentials"
"""AuthFailure is about an image or a subnet unless its text says this."""

_SUBSCRIPTION_PHRASE = "accept terms and subscribe"
"""OptInRequired is about the account unless its text says this of the product of one AMI."""

_ENDS = {
    "Client.InternalError": CONFIGURATION,
    "Client.InstanceInitiatedShutdown": TRANSIENT,
    "Client.InstanceTerminated": TRANSIENT,
    "Client.UserInitiatedHibernate": TRANSIENT,
    "Client.UserInitiatedShutdown": TRANSIENT,
    "Server.ScheduledStop": CAPACITY,
    "Server.SpotInstanceShutdown": CAPACITY,
    "Server.SpotInstanceTermination": CAPACITY,
}
"""Reasons for the end of an instance that mean something else than the error code of the same name, or have none.

A client error without a name is in practice a volume whose key may not be used. After an end that a person or the
instance itself asked for, the launch may simply be repeated.
"""

GROUP_FULL = "limit of instances in this spread placement group"
"""EC2 calls it missing capacity, but no other instance type would help, and no other launch is concerned."""


def named_types(message: str, instance_types: Iterable[str]) -> frozenset[str]:
    """The instance types that a message names."""
    words = frozenset(_TYPE_NAME.findall(message))
    return words.intersection(instance_types)


def classify(code: str, message: str = "", instance_types: Iterable[str] = ()) -> str:
    """The kind of a failure: capacity, subnet, quota, configuration, throttled, transient or unknown.

    A code that is not listed is judged by the part before its first dot (`InvalidAMIID.NotFound`). A type that does
    not exist or is not sold in the zone counts as missing capacity, and so does one of `instance_types`, those that
    were asked for, that a fleet cannot have: another offering may do.
    """
    kind = _KIND_OF.get(code) or _KIND_OF.get(code.partition(".")[0]) or _unlisted(code)
    if kind == CONFIGURATION and any(phrase in message for phrase in _OFFERING_PHRASES):
        return CAPACITY
    if code in _FLEET_REFUSED and named_types(message, instance_types):
        return CAPACITY
    if kind == CONFIGURATION and _SUBNET_PHRASE in message:
        return SUBNET
    if kind == CONFIGURATION and _CREDENTIALS_PHRASE in message:
        return TRANSIENT
    if kind == QUOTA and _SUBSCRIPTION_PHRASE in message:
        return CONFIGURATION
    return kind


def _unlisted(code: str) -> str:
    return THROTTLED if is_throttling(code) else UNKNOWN


def classify_end(reason: str, message: str = "") -> str:
    """The kind of failure that the end of an instance amounts to when it never became a node.

    `reason` is EC2's StateReason, for example `Client.VolumeLimitExceeded`: an error code after Client or Server.
    """
    return _ENDS.get(reason) or classify(reason.partition(".")[2], message)


def aws_error(action: str, error: Failure) -> AwsError:
    """The AwsError for what botocore raised; `action` says what was tried, for example `describe subnets`.

    Without an answer, or when the service failed, the effect may have happened: the code then is empty or
    `ServiceUnavailable`.
    """
    if not isinstance(error, ClientError):
        return AwsError(f"could not {action}: {error}")
    code = code_of(error)
    text = str(error.response.get("Error", {}).get("Message", ""))
    message = f"could not {action}: {code}: {text}"
    kind = classify(code, text)
    if kind == THROTTLED:
        return AwsThrottled(message, code=code)
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    if kind == TRANSIENT:
        return AwsUnavailable(message, code=code)
    if status >= 500 and kind == UNKNOWN:  # EC2 sends missing capacity with status 500, too
        return AwsError(message, code="ServiceUnavailable")
    return AwsError(message, code=code)


@contextmanager
def aws_errors(action: str) -> Iterator[None]:
    """Translate what botocore raises in the body. Raises AwsThrottled or AwsError."""
    try:
        yield
    except FAILURES as error:
        raise aws_error(action, error) from error


@contextmanager
def launch_errors(action: str) -> Iterator[None]:
    """Like `aws_errors`, but a refusal that only a changed manifest can end is a NodeClassNotReady."""
    try:
        yield
    except FAILURES as error:
        translated = aws_error(action, error)
        if classify(translated.code, str(translated)) == CONFIGURATION:
            raise NodeClassNotReady(str(translated), code=translated.code) from error
        raise translated from error


_UNREADABLE = (AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What botocore's parsers and the reading of an answer raise that lacks a field, or has one that says something odd."""


def readable(question: Callable[P, R]) -> Callable[P, R]:
    """Have a question to AWS raise AwsError, which says that the outcome is unknown, for an answer that is not sound.

    Whoever asks must not take what cannot be read for what does not exist. The traceback goes to the log.
    """

    @wraps(question)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            answer = question(*args, **kwargs)
            msgspec.msgpack.encode(answer)  # botocore hands on XML elements that it did not expect in place of text
        except _UNREADABLE as error:
            _LOG.exception("an answer of AWS cannot be read")
            message = f"could not {question.__name__.replace('_', ' ')}: an answer of AWS cannot be read: {error!r}"
            raise AwsError(message) from error
        return answer

    return asked
