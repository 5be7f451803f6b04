"""A launch that is asked for and not made: EC2 answers a dry run by whether the caller may.

CreateFleet tells whether it may be called at all; what becomes of its instances (the subnet, the role they get, the
tags, an organisation's policies) is RunInstances' to answer. Both are of the template that a launch would use, which
EC2 must know for that; it is kept for the launch to come, or swept.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2_errors import THROTTLED, TRANSIENT, UNKNOWN, aws_error, classify
from shiplap.aws.failures import NO_ANSWER, code_of
from shiplap.errors import AwsError, NodeClassNotReady
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.offerings.remedies import ENCODED, with_remedy
from shiplap.instances.readiness import nodeclass_status
from shiplap.kubernetes import labels

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_ec2 import EC2Client

    from shiplap.aws.ec2.launch_templates import LaunchTemplate, LaunchTemplates
    from shiplap.ports import FleetRequest

_LOG = logging.getLogger(__name__)

_WOULD_DO = "DryRunOperation"
_FORBIDDEN = ("UnauthorizedOperation", "AuthFailure")
"""The latter is about images that are not shared with the account."""
_TOO_LARGE = "User data is limited to"
_NO_PROFILE = "Invalid IAM Instance Profile"
_MOST_SUBNETS = 3
"""A policy may forbid some subnets; where the first ones are forbidden, hardly any is allowed."""


def dry_run_launch(
    ec2: EC2Client, templates: LaunchTemplates, request: FleetRequest, install: str
) -> NodeClassProblem | None:
    """Return why EC2 would not launch the request; None when it would, or when the refusal is not about permissions.

    Raises:
        NodeClassNotReady: user data or volumes cannot be made of what is written.
        AwsThrottled, AwsError: EC2 did not answer the question.
    """
    configs = fleet_requests.fleet_configs(request, install)
    if not configs:
        return None
    try:
        templates.ensure([configs[0].template])
    except NodeClassNotReady as error:
        return _problem(_of_template(error), with_remedy(error.code, str(error)))
    asked = fleet_requests.parameters(request, configs, request.token, install) | {"DryRun": True}
    asked["LaunchTemplateConfigs"] = asked["LaunchTemplateConfigs"][:1]
    del asked["ClientToken"]  # it belongs to launches
    try:
        if refusal := _refusal("create a fleet", lambda: ec2.create_fleet(**asked)):
            return _problem("CreateFleetAuthCheckFailed", refusal)
        return _run(ec2, request, configs[0], install)
    except AwsError:
        templates.forget([configs[0].template.name])  # it may have been swept since it was known
        raise


def _of_template(error: NodeClassNotReady) -> str:
    if error.code in _FORBIDDEN:
        return "CreateLaunchTemplateAuthCheckFailed"
    return "UserDataSizeLimitExceeded" if _TOO_LARGE in str(error) else error.code


def _run(
    ec2: EC2Client, request: FleetRequest, config: fleet_requests.FleetConfig, install: str
) -> NodeClassProblem | None:
    """The same of an instance: a subnet that would do is enough, else the refusal of the first one counts."""
    overrides = {override.zone: override for override in reversed(config.overrides)}
    subnets = fleet_requests.subnet_ids(request)
    refusals: list[str] = []
    for zone in sorted(overrides)[:_MOST_SUBNETS]:
        asked = run_instances_parameters(
            request, config.template, overrides[zone].instance_type, subnets[zone], install
        )
        refusal = _refusal("run instances", lambda asked=asked: ec2.run_instances(**asked))  # type: ignore[misc]
        if not refusal:
            return None
        refusals.append(refusal)
    if _NO_PROFILE in refusals[0]:
        return _problem("InstanceProfileNotFound", refusals[0])
    return _problem("RunInstancesAuthCheckFailed", refusals[0])


def run_instances_parameters(
    request: FleetRequest, template: LaunchTemplate, instance_type: str, subnet_id: str, install: str
) -> dict[str, Any]:
    """RunInstances' parameters; the subnet goes on each interface, as a template with interfaces wants it."""
    interfaces = [item | {"SubnetId": subnet_id} for item in template.data.get("NetworkInterfaces", ())]
    common = tags.written(fleet_requests.launch_tags(request, install))
    asked: dict[str, Any] = {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": template.name, "Version": "$Latest"},
        "InstanceType": instance_type,
        "NetworkInterfaces": interfaces,
        "TagSpecifications": [
            *({"ResourceType": kind, "Tags": common} for kind in ("instance", "volume")),
            *template.data.get("TagSpecifications", ()),
        ],
    }
    if request.capacity_type == labels.SPOT:
        asked["InstanceMarketOptions"] = {"MarketType": "spot"}
    return asked


def _refusal(action: str, ask: Callable[[], object]) -> str:
    """Return EC2's refusal of a request if it is about permissions or the instance profile; else empty.

    A launch finds any other refusal, such as missing capacity, and gets around it.
    """
    try:
        ask()
    except ClientError as error:
        code, text = code_of(error), str(error.response.get("Error", {}).get("Message", ""))
        if code != _WOULD_DO and classify(code, text) in (THROTTLED, TRANSIENT, UNKNOWN):
            raise aws_error(f"try to {action}", error) from error
        if code in _FORBIDDEN or _NO_PROFILE in text:
            return with_remedy(code, text)
    except NO_ANSWER as error:
        raise aws_error(f"try to {action}", error) from error
    return ""


def _problem(reason: str, refusal: str) -> NodeClassProblem:
    # The encoded part is thousands of characters long: it is in the log, for those who may decode it.
    _LOG.warning("EC2 refuses a dry run: %s: %s", reason, refusal)
    return NodeClassProblem(nodeclass_status.VALIDATION, reason, refusal.partition(ENCODED)[0].rstrip())
