"""Launch templates, named after what they hold: equal content is one template, and a change makes a new one.

A template is never altered, so any number of functions may make and use it at the same time without agreeing on
anything but its name. None is ever deleted here; one that others delete is made again when it is needed.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shiplap.api.types import NetworkInterface
from shiplap.aws import tags
from shiplap.aws.block_devices import block_devices
from shiplap.aws.ec2_errors import TEMPLATE_EXISTS, aws_errors, launch_errors
from shiplap.aws.failures import code_of
from shiplap.aws.userdata.bootstrap import of_claim
from shiplap.aws.userdata.render import user_data
from shiplap.kubernetes import labels
from shiplap.ports import FleetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import (
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
        LaunchTemplateTagSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

_NAMES_PER_CALL = 200


class Template(msgspec.Struct, frozen=True):
    """A launch template as it should be. `tags` are the template's own."""

    name: str
    data: RequestLaunchTemplateDataTypeDef
    tags: dict[str, str]


class LaunchTemplates:
    """Makes sure that templates exist, and remembers which do."""

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2
        self._known: set[str] = set()

    def ensure(self, wanted: Iterable[Template]) -> None:
        """Create those that do not exist yet.

        Raises:
            NodeClassNotReady: EC2 refuses what the EC2NodeClass asks for.
            AwsThrottled, AwsError: EC2 refused.
        """
        missing = {template.name: template for template in wanted if template.name not in self._known}
        names = sorted(missing)
        for start in range(0, len(names), _NAMES_PER_CALL):
            for found in self._existing(names[start : start + _NAMES_PER_CALL]):
                missing.pop(found, None)
                self._known.add(found)
        for name in sorted(missing):
            self._create(missing[name])
            self._known.add(name)

    def forget(self, names: Iterable[str]) -> None:
        """Look again next time: somebody may have deleted them."""
        self._known.difference_update(names)

    def _existing(self, names: list[str]) -> list[str]:
        # By filter, because a request by name fails as a whole when one of the names does not exist.
        with aws_errors("describe launch templates"):
            answer = self._ec2.describe_launch_templates(
                Filters=[{"Name": "launch-template-name", "Values": names}], MaxResults=_NAMES_PER_CALL
            )
        return [found["LaunchTemplateName"] for found in answer["LaunchTemplates"]]

    def _create(self, template: Template) -> None:
        with launch_errors(f"create launch template {template.name}"):
            try:
                self._ec2.create_launch_template(
                    LaunchTemplateName=template.name,
                    LaunchTemplateData=template.data,
                    TagSpecifications=[{"ResourceType": "launch-template", "Tags": tags.written(template.tags)}],
                )
            except ClientError as error:
                if code_of(error) != TEMPLATE_EXISTS:  # another function was faster: its content is the same
                    raise


def template(request: FleetRequest, ami: str, max_pods: int) -> Template:
    """The launch template of a request for one AMI and one number of pods.

    Raises:
        NodeClassNotReady: user data cannot be made, or a volume size is wrong.
    """
    own_tags = tags.of_pool(request.claim, request.node_class)
    data = _data(request, ami, max_pods, own_tags)
    digest = sha256(msgspec.json.encode((data, own_tags), order="deterministic")).hexdigest()[:20]
    return Template(f"shiplap/{request.claim.cluster}/{digest}", data, own_tags)


def _data(request: FleetRequest, ami: str, max_pods: int, own_tags: dict[str, str]) -> RequestLaunchTemplateDataTypeDef:
    node_class, resolved = request.node_class, request.resolved
    spec = node_class.spec
    bootstrap = of_claim(request.claim, node_class, resolved, request.capacity_type, max_pods)
    encoded = b64encode(user_data(bootstrap).encode()).decode()
    options = spec.metadata_options
    data: RequestLaunchTemplateDataTypeDef = {
        "ImageId": ami,
        "IamInstanceProfile": {"Name": resolved.instance_profile},
        "NetworkInterfaces": _interfaces(request),
        "MetadataOptions": {
            "HttpEndpoint": options.http_endpoint,  # type: ignore[typeddict-item]  # checked when manifests are read
            "HttpProtocolIpv6": options.http_protocol_ipv6,  # type: ignore[typeddict-item]
            "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
            "HttpTokens": options.http_tokens,  # type: ignore[typeddict-item]
            "InstanceMetadataTags": "disabled",
        },
        "TagSpecifications": _tag_specifications(request, own_tags),
    }
    if encoded:
        data["UserData"] = encoded
    devices = block_devices(node_class, resolved.family)
    if devices:
        data["BlockDeviceMappings"] = devices
    if spec.detailed_monitoring is not None:
        data["Monitoring"] = {"Enabled": spec.detailed_monitoring}
    return data


def _tag_specifications(
    request: FleetRequest, own_tags: dict[str, str]
) -> list[LaunchTemplateTagSpecificationRequestTypeDef]:
    """What CreateFleet cannot tag itself: network interfaces and spot requests."""
    written = tags.written(own_tags)
    specifications: list[LaunchTemplateTagSpecificationRequestTypeDef] = [
        {"ResourceType": "network-interface", "Tags": written}
    ]
    if request.capacity_type == labels.SPOT:
        specifications.append({"ResourceType": "spot-instances-request", "Tags": written})
    return specifications


def _interfaces(request: FleetRequest) -> list[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef]:
    """The interfaces asked for, else the primary one; security groups sit on each, never on the template itself."""
    spec = request.node_class.spec
    groups = list(request.resolved.security_groups)
    shown: list[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef] = []
    for interface in spec.network_interfaces or (NetworkInterface(),):
        one: LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef = {
            "DeviceIndex": interface.device_index,
            "NetworkCardIndex": interface.network_card_index,
            "InterfaceType": interface.interface_type,
            "Groups": groups,
            "DeleteOnTermination": True,
        }
        primary = interface.device_index == 0 and interface.network_card_index == 0
        if interface.interface_type == "interface" and spec.associate_public_ip_address is not None:
            one["AssociatePublicIpAddress"] = spec.associate_public_ip_address
        if primary and spec.ip_prefix_count:
            one["Ipv4PrefixCount"] = spec.ip_prefix_count
        shown.append(one)
    return shown
