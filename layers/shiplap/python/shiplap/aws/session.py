"""AWS clients: made when first used, kept for the life of the process, all configured alike.

They are botocore's: boto3 would add the transfer of large files and its resources, which are unused here and are
a sixth of a cold start. What makes clients is imported inside the functions: a Lambda function that never calls AWS
does not pay for it, and one that calls DynamoDB only does not load the model of EC2.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, overload

from shiplap.errors import AwsError

if TYPE_CHECKING:
    from botocore.config import Config
    from botocore.credentials import Credentials
    from botocore.session import Session
    from types_boto3_dynamodb import DynamoDBClient
    from types_boto3_ec2 import EC2Client
    from types_boto3_eks import EKSClient
    from types_boto3_events import EventBridgeClient
    from types_boto3_pricing import PricingClient
    from types_boto3_s3 import S3Client
    from types_boto3_sqs import SQSClient
    from types_boto3_ssm import SSMClient
    from types_boto3_sts import STSClient

IDLE_S = 240.0
"""Connections that were silent for longer, in seconds, are not used again: NAT gateways, load balancers and interface
endpoints forget them after 350, and a request on one may stay unanswered.
"""

_LOCK = Lock()  # a session must not make clients in two threads at once
_CLIENTS: dict[tuple[str, str, str], Any] = {}


@overload
def client(service: Literal["arc-zonal-shift"], region: str = "") -> Any: ...
@overload
def client(service: Literal["dynamodb"], region: str = "") -> DynamoDBClient: ...
@overload
def client(service: Literal["ec2"], region: str = "") -> EC2Client: ...
@overload
def client(service: Literal["eks"], region: str = "") -> EKSClient: ...
@overload
def client(service: Literal["events"], region: str = "") -> EventBridgeClient: ...
@overload
def client(service: Literal["iam"], region: str = "") -> Any: ...
@overload
def client(service: Literal["pricing"], region: str = "") -> PricingClient: ...
@overload
def client(service: Literal["s3"], region: str = "") -> S3Client: ...
@overload
def client(service: Literal["savingsplans"], region: str = "") -> Any: ...
@overload
def client(service: Literal["secretsmanager"], region: str = "") -> Any: ...
@overload
def client(service: Literal["sqs"], region: str = "") -> SQSClient: ...
@overload
def client(service: Literal["ssm"], region: str = "") -> SSMClient: ...
@overload
def client(service: Literal["sts"], region: str = "") -> STSClient: ...


def client(service: str, region: str = "") -> Any:
    """The process's client of an AWS service; without a region, in the region of the environment.

    Raises:
        AwsError: no region is configured, or the configuration cannot be used.
    """
    return _kept(service, region, config)


def hurried_client(service: str) -> Any:
    """A client in the region of the environment for what nothing waits for: one attempt, a second for each step of it.

    Raises:
        AwsError: as `client`.
    """
    return _kept(service, "", hurried)


def client_without_retries(region: str) -> EC2Client:
    """A client of EC2 that sends each request once, for what would happen twice.

    Raises:
        AwsError: as `client`.
    """
    made: EC2Client = _kept("ec2", region, unrepeated)
    return made


def _kept(service: str, region: str, configured: Callable[[], Config]) -> Any:
    with _LOCK:
        key = (service, region, configured.__name__)
        known = _CLIENTS.get(key)
        if known is None:
            known = _CLIENTS[key] = _make(service, region, configured())
        return known


def _make(service: str, region: str, configuration: Config) -> Any:
    from botocore.exceptions import BotoCoreError, NoRegionError  # noqa: PLC0415 - see the module's docstring

    # The variable that Lambda and every other SDK use; botocore by itself reads only AWS_DEFAULT_REGION.
    region = region or os.environ.get("AWS_REGION", "")
    try:
        made = session().create_client(service, region_name=region or None, config=configuration)
    except NoRegionError as error:
        raise AwsError("no AWS region is configured; set AWS_REGION or AWS_DEFAULT_REGION", code="NoRegion") from error
    except BotoCoreError as error:  # for example a profile that is not there
        raise AwsError(f"AWS cannot be asked: {error}", code=type(error).__name__) from error
    return renew_when_idle(made)


def renew_when_idle(made: Any, clock: Callable[[], float] = time.time) -> Any:
    """The client, which closes its connections before a request that comes long after the last one.

    `clock` must go on while the process is frozen, as functions are between invocations.
    """
    used_at = clock()

    def before(**_: Any) -> None:
        nonlocal used_at
        now = clock()
        if now - used_at > IDLE_S:
            made.close()
        used_at = now

    made.meta.events.register("before-send", before)
    return made


def forget_clients() -> None:
    """Make session and clients anew when they are next used: the environment that they were made in has changed."""
    with _LOCK:
        session.cache_clear()
        _CLIENTS.clear()


@cache
def session() -> Session:
    """The process's one session, which holds its credentials."""
    from botocore.session import get_session  # noqa: PLC0415

    return get_session()


def credentials() -> Credentials:
    """The process's own, refreshed by botocore when they expire.

    Raises:
        AwsError: there are none, or they cannot be read.
    """
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        with _LOCK:
            current = session().get_credentials()
    except BotoCoreError as error:
        raise AwsError(f"the AWS credentials cannot be read: {error}", code="NoCredentials") from error
    if current is None:
        raise AwsError("no AWS credentials are configured", code="NoCredentials")
    return current


@cache
def config() -> Config:
    """Standard retries, and time-outs that leave a function time to say what went wrong.

    Parameters are validated before they are sent, except inside a Lambda function: there the service does that, and it
    costs a tenth of a call.
    """
    from botocore.config import Config  # noqa: PLC0415

    return Config(
        retries={"mode": "standard", "total_max_attempts": 5},
        connect_timeout=3,
        read_timeout=15,
        parameter_validation="AWS_LAMBDA_FUNCTION_NAME" not in os.environ,
        tcp_keepalive=True,
    )


@cache
def unrepeated() -> Config:
    """One attempt."""
    from botocore.config import Config  # noqa: PLC0415

    return config().merge(Config(retries={"mode": "standard", "total_max_attempts": 1}))


@cache
def hurried() -> Config:
    """One attempt, and time-outs of a second."""
    from botocore.config import Config  # noqa: PLC0415

    return unrepeated().merge(Config(connect_timeout=1, read_timeout=1))
