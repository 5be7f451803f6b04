"""The content of a launch template: an EC2NodeClass's settings, and those that instance type and pool add."""

from __future__ import annotations

from base64 import b64encode
from math import ceil
from typing import TYPE_CHECKING

from shiplap.aws import tags
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
    if request.claim.plan.requests.get(ENCLAVES, 0) > 0:
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
    """What CreateFleet cannot tag itself: network interfaces and spot requests."""
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
