"""Launch templates, named after what they hold: equal content is one template, and a change makes a new one.

A template is never altered, so any number of functions may make and use it at the same time; they agree only on its
name. It holds an EC2NodeClass's settings, and those that instance type and pool add.

The sweep deletes unused templates, because an account may have at most 5,000 in a region. A template is in use while an
instance that was launched from it lives, or while it is young: its maker may be about to launch from it. A template
that is deleted too early is made again when it is needed.
"""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from math import ceil
from typing import TYPE_CHECKING

import msgspec
from botocore.exceptions import ClientError

from shiplap.aws import tags
from shiplap.aws.ec2_errors import TEMPLATE_EXISTS, TEMPLATE_GONE, aws_errors, launch_errors
from shiplap.aws.failures import code_of
from shiplap.aws.instance_profiles import shortened
from shiplap.aws.userdata.bootstrap import bootstrap_of_claim
from shiplap.aws.userdata.render import user_data
from shiplap.errors import NodeClassNotReady
from shiplap.instances.capacity.described_capacity import ENCLAVES
from shiplap.instances.catalog.ami_families import FAMILIES
from shiplap.instances.catalog.resolved_nodeclass import CapacityReservation, ResolvedNodeClass
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import parse_quantity
from shiplap.manifests.custom_resources import (
    BlockDevice,
    BlockDeviceMapping,
    ConnectionTracking,
    EC2NodeClass,
    NetworkInterface,
    RequirementSpec,
)
from shiplap.ports import FleetOverride, FleetRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from types_boto3_ec2 import EC2Client
    from types_boto3_ec2.type_defs import (
        ConnectionTrackingSpecificationRequestTypeDef,
        LaunchTemplateBlockDeviceMappingRequestTypeDef,
        LaunchTemplateEbsBlockDeviceRequestTypeDef,
        LaunchTemplateInstanceMetadataOptionsRequestTypeDef,
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
        LaunchTemplatePlacementRequestTypeDef,
        LaunchTemplateTagSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

_NAMES_PER_CALL = 200
_LONGEST_NAME = 128


class LaunchTemplate(msgspec.Struct, frozen=True):
    """A launch template as it should be. `tags` are the template's own."""

    name: str
    data: RequestLaunchTemplateDataTypeDef
    tags: dict[str, str]


class LaunchTemplates:
    """Makes sure that templates exist, and remembers which do."""

    def __init__(self, ec2: EC2Client) -> None:
        self._ec2 = ec2
        self._known: set[str] = set()

    def ensure(self, wanted: Iterable[LaunchTemplate]) -> None:
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
        """Look again next time: others may have deleted them."""
        self._known.difference_update(names)

    def _existing(self, names: list[str]) -> list[str]:
        # By filter, because a request by name fails as a whole when one of the names does not exist.
        with aws_errors("describe launch templates"):
            answer = self._ec2.describe_launch_templates(
                Filters=[{"Name": "launch-template-name", "Values": names}], MaxResults=_NAMES_PER_CALL
            )
        return [found["LaunchTemplateName"] for found in answer["LaunchTemplates"]]

    def _create(self, template: LaunchTemplate) -> None:
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


def pool_tags(request: FleetRequest, install: str) -> dict[str, str]:
    """Tags of everything made for the NodePool of a launch."""
    plan = request.claim.plan
    return tags.of_pool(request.claim.cluster, plan.node_pool, plan.node_class, request.node_class.spec.tags, install)


def launch_template(request: FleetRequest, override: FleetOverride, install: str) -> LaunchTemplate:
    """The launch template for one override of a request, and for all that boot like it.

    Raises:
        NodeClassNotReady: user data cannot be made, or a volume size is wrong.
    """
    own_tags = pool_tags(request, install)
    data = template_data(request, override, own_tags)
    digest = sha256(msgspec.json.encode((data, own_tags), order="deterministic")).hexdigest()[:20]
    # The tags, and with them the whole name of the cluster, are part of the digest.
    cluster = shortened(request.claim.cluster, _LONGEST_NAME - len("shiplap//") - len(digest))
    return LaunchTemplate(f"shiplap/{cluster}/{digest}", data, own_tags)


UNUSED_FOR_S = 24 * 3600
"""How old a template must be, in seconds."""

MOST_AT_ONCE = 10
"""Templates deleted by one sweep: as many as may be sent at once, so that pods do not wait for it."""

_MADE_FROM = "aws:ec2launchtemplate:id"
_ALIVE = ["pending", "running", "stopping", "stopped"]


def sweep_templates(ec2: EC2Client, cluster: str, now: float, install: str = "") -> int:
    """Delete what nothing uses of a cluster's launch templates, oldest first; returns how many. `now` is epoch seconds.

    Templates of other installs are theirs to delete. One without an install's tag is older than that tag, and any
    install deletes it when it is unused: it counts as used while an instance of any install was made from it.

    Raises:
        AwsThrottled, AwsError: EC2 refused.
    """
    old = _old(ec2, cluster, now, install)
    if not old:
        return 0
    used = _used(ec2, cluster)
    unused = [template_id for template_id in old if template_id not in used][:MOST_AT_ONCE]
    for template_id in unused:
        with aws_errors(f"delete launch template {template_id}"):
            try:
                ec2.delete_launch_template(LaunchTemplateId=template_id)
            except ClientError as error:
                if code_of(error) not in TEMPLATE_GONE:
                    raise
    return len(unused)


def _old(ec2: EC2Client, cluster: str, now: float, install: str) -> list[str]:
    """Ids of the cluster's templates that are old enough and no other install's, oldest first."""
    pages = ec2.get_paginator("describe_launch_templates").paginate(
        Filters=tags.owned_by(cluster), PaginationConfig={"PageSize": 200}
    )
    with aws_errors("describe launch templates"):
        made = sorted(
            (found["CreateTime"].timestamp(), found["LaunchTemplateId"])
            for page in pages
            for found in page["LaunchTemplates"]
            if not tags.is_foreign(tags.read(found.get("Tags", [])), install)
        )
    return [template_id for created, template_id in made if created + UNUSED_FOR_S < now]


def _used(ec2: EC2Client, cluster: str) -> set[str]:
    """Ids of the templates that living instances of the cluster were launched from."""
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[*tags.owned_by(cluster), {"Name": "instance-state-name", "Values": _ALIVE}],
        PaginationConfig={"PageSize": 1000},
    )
    with aws_errors("describe instances"):
        return {
            tags.read(seen.get("Tags", [])).get(_MADE_FROM, "")
            for page in pages
            for reservation in page["Reservations"]
            for seen in reservation["Instances"]
        }


_GIB = 2**30


def block_devices(node_class: EC2NodeClass, family: str) -> list[LaunchTemplateBlockDeviceMappingRequestTypeDef]:
    """The mappings of the EC2NodeClass, else of its AMI family; empty for Custom, where the AMI's own count.

    Raises:
        NodeClassNotReady: a volume size is not a quantity.
    """
    wanted = node_class.spec.block_device_mappings or FAMILIES[family].block_devices
    return [_mapping(mapping) for mapping in wanted]


def _mapping(mapping: BlockDeviceMapping) -> LaunchTemplateBlockDeviceMappingRequestTypeDef:
    shown: LaunchTemplateBlockDeviceMappingRequestTypeDef = {"DeviceName": mapping.device_name}
    if mapping.ebs is not None:
        shown["Ebs"] = _ebs(mapping.ebs)
    return shown


def _ebs(ebs: BlockDevice) -> LaunchTemplateEbsBlockDeviceRequestTypeDef:
    shown = {
        "DeleteOnTermination": ebs.delete_on_termination,
        "Encrypted": ebs.encrypted,
        "Iops": ebs.iops,
        "KmsKeyId": ebs.kms_key_id,
        "SnapshotId": ebs.snapshot_id,
        "Throughput": ebs.throughput,
        "VolumeInitializationRate": ebs.volume_initialization_rate,
        "VolumeSize": None if ebs.volume_size is None else size_gib(ebs.volume_size),
        "VolumeType": ebs.volume_type,
    }
    return {name: value for name, value in shown.items() if value is not None}  # type: ignore[return-value]


def size_gib(size: str) -> int:
    """A volume size such as `20Gi` or `2T` in whole GiB, rounded up.

    Raises:
        NodeClassNotReady: not a quantity.
    """
    try:
        return ceil(parse_quantity(size) / _GIB)
    except ValueError as error:
        raise NodeClassNotReady(f"volumeSize: {error}", code="BlockDeviceMappingInvalid") from error


_TENANCY = labels.AWS_PREFIX + "instance-tenancy"
_ISOLATED = "us-iso"
"""Prefix of Regions without IPv6 for instance metadata."""


def template_data(
    request: FleetRequest, override: FleetOverride, own_tags: dict[str, str]
) -> RequestLaunchTemplateDataTypeDef:
    """The content of the template for one override of a request; what it leaves out, EC2's defaults and the AMI decide.

    Raises:
        NodeClassNotReady: user data cannot be made, or a volume size is wrong.
    """
    node_class, resolved = request.node_class, request.resolved
    spec = node_class.spec
    bootstrap = bootstrap_of_claim(
        request.claim,
        node_class,
        resolved,
        request.capacity_type,
        override.max_pods,
        override.kubelet_values,
        override.ami,
    )
    data: RequestLaunchTemplateDataTypeDef = {
        "ImageId": override.ami,
        "IamInstanceProfile": {"Name": resolved.instance_profile},
        "NetworkInterfaces": _interfaces(request, override.fabric_adapters),
        "MetadataOptions": _metadata(request),
        "TagSpecifications": _tag_specifications(request, own_tags),
    }
    if text := user_data(bootstrap):
        data["UserData"] = b64encode(text.encode()).decode()
    if devices := block_devices(node_class, resolved.family):
        data["BlockDeviceMappings"] = devices
    if spec.detailed_monitoring is not None:
        data["Monitoring"] = {"Enabled": spec.detailed_monitoring}
    if spec.cpu_options is not None and spec.cpu_options.nested_virtualization is not None:
        data["CpuOptions"] = {"NestedVirtualization": spec.cpu_options.nested_virtualization}  # type: ignore[typeddict-item]
    has_enclaves = spec.enclave_options is not None and spec.enclave_options.enabled
    if has_enclaves or request.claim.plan.requests.get(ENCLAVES, 0) > 0:
        data["EnclaveOptions"] = {"Enabled": True}
    if placement := _placement(request.claim.plan.requirements, resolved):
        data["Placement"] = placement
    _reserve(data, resolved, override.reservation)
    return data


def _metadata(request: FleetRequest) -> LaunchTemplateInstanceMetadataOptionsRequestTypeDef:
    options = request.node_class.spec.metadata_options
    shown = {
        "HttpEndpoint": options.http_endpoint,
        "HttpProtocolIpv6": options.http_protocol_ipv6,
        "HttpPutResponseHopLimit": options.http_put_response_hop_limit,
        "HttpTokens": options.http_tokens,
        "InstanceMetadataTags": "disabled",
    }
    if any(subnet.zone.startswith(_ISOLATED) for subnet in request.resolved.subnets):
        del shown["HttpProtocolIpv6"]
    return shown  # type: ignore[return-value]  # the values were checked when manifests were read


def _placement(
    requirements: Sequence[RequirementSpec], resolved: ResolvedNodeClass
) -> LaunchTemplatePlacementRequestTypeDef:
    """Hardware of one's own only where the pool takes no other; the group, and the partition a claim is bound to."""
    placement: LaunchTemplatePlacementRequestTypeDef = {}
    if _only(requirements, _TENANCY) == "dedicated":
        placement["Tenancy"] = "dedicated"
    if resolved.placement_group is not None:
        placement["GroupId"] = resolved.placement_group.id
        if partition := _only(requirements, labels.PARTITION):
            placement["PartitionNumber"] = int(partition)
    return placement


def _only(requirements: Iterable[RequirementSpec], key: str) -> str:
    """The one value that requirements leave of a label, empty when there are none or several."""
    allowed = [frozenset(item.values) for item in requirements if item.key == key and item.operator == "In"]
    left = frozenset.intersection(*allowed) if allowed else frozenset()
    return next(iter(left)) if len(left) == 1 else ""


def _reserve(data: RequestLaunchTemplateDataTypeDef, resolved: ResolvedNodeClass, reservation_id: str) -> None:
    """Into the reservation that was chosen, else into none: an instance that the plan bought on demand must not use up
    an open reservation that others count on.
    """
    chosen = next((item for item in resolved.capacity_reservations if item.id == reservation_id), None)
    if chosen is None:
        data["CapacityReservationSpecification"] = {"CapacityReservationPreference": "none"}
        return
    data["CapacityReservationSpecification"] = {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": chosen.id},
    }
    if market := _market(chosen):
        data["InstanceMarketOptions"] = {"MarketType": market}  # type: ignore[typeddict-item]  # newer than the stubs


def _market(reservation: CapacityReservation) -> str:
    if reservation.type == "capacity-block":
        return "capacity-block"
    return "interruptible-capacity-reservation" if reservation.interruptible else ""


def _tag_specifications(
    request: FleetRequest, own_tags: dict[str, str]
) -> list[LaunchTemplateTagSpecificationRequestTypeDef]:
    """Return the tags for resources that CreateFleet cannot tag itself: network interfaces and spot requests."""
    written = tags.written(own_tags)
    specifications: list[LaunchTemplateTagSpecificationRequestTypeDef] = [
        {"ResourceType": "network-interface", "Tags": written}
    ]
    if request.capacity_type == labels.SPOT:
        specifications.append({"ResourceType": "spot-instances-request", "Tags": written})
    return specifications


def _interfaces(
    request: FleetRequest, fabric_adapters: int
) -> list[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef]:
    """The interfaces asked for; else one elastic fabric adapter per network card, where pods want them; else one.

    Security groups sit on each, never on the template itself, which then could name no interface. An interface for
    elastic fabric alone has no addresses, and nothing that is about them.
    """
    spec = request.node_class.spec
    adapters = tuple(NetworkInterface(card, int(card > 0), "efa") for card in range(fabric_adapters))
    return [_interface(request, item) for item in spec.network_interfaces or adapters or (NetworkInterface(),)]


def _interface(
    request: FleetRequest, interface: NetworkInterface
) -> LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef:
    spec = request.node_class.spec
    shown: LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef = {
        "DeviceIndex": interface.device_index,
        "NetworkCardIndex": interface.network_card_index,
        "InterfaceType": interface.interface_type,
        "Groups": list(request.resolved.security_groups),
        "DeleteOnTermination": True,
    }
    if interface.interface_type == "efa-only":
        return shown
    if spec.associate_public_ip_address is not None:
        shown["AssociatePublicIpAddress"] = spec.associate_public_ip_address
    if spec.connection_tracking is not None:
        shown["ConnectionTrackingSpecification"] = _tracking(spec.connection_tracking)
    ipv6 = ":" in request.resolved.service_cidr
    if ipv6:
        shown["PrimaryIpv6"] = True
        shown["Ipv6AddressCount"] = 1
    is_primary = interface.device_index == 0 and interface.network_card_index == 0
    if is_primary and spec.ip_prefix_count:
        shown["Ipv6PrefixCount" if ipv6 else "Ipv4PrefixCount"] = spec.ip_prefix_count
    return shown


def _tracking(wanted: ConnectionTracking) -> ConnectionTrackingSpecificationRequestTypeDef:
    timeouts = {
        "TcpEstablishedTimeout": wanted.tcp_established_timeout,
        "UdpStreamTimeout": wanted.udp_stream_timeout,
        "UdpTimeout": wanted.udp_timeout,
    }
    return {name: timeout_s for name, timeout_s in timeouts.items() if timeout_s is not None}  # type: ignore[return-value]
