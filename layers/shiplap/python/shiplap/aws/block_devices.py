"""Block device mappings of a launch template: the EC2NodeClass's own, else those of its AMI family."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from shiplap.api.types import BlockDevice, BlockDeviceMapping, EC2NodeClass
from shiplap.errors import NodeClassNotReady
from shiplap.instances.families import FAMILIES
from shiplap.kubernetes.quantity import parse_quantity

if TYPE_CHECKING:
    from types_boto3_ec2.type_defs import (
        LaunchTemplateBlockDeviceMappingRequestTypeDef,
        LaunchTemplateEbsBlockDeviceRequestTypeDef,
    )

_GIB = 2**30


def block_devices(node_class: EC2NodeClass, family: str) -> list[LaunchTemplateBlockDeviceMappingRequestTypeDef]:
    """The mappings; empty for family Custom without any, where the AMI's own count.

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
