"""Prepares an account before its first node: networks, AMIs and instance profiles, the latter as SSM names them.

The network is made through boto3 like anybody's would be. AMI ids are chosen by the scenario and public parameters
cannot be written through SSM, so those two go through the control API of the emulated EC2, which plays SSM too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.instance_profiles import profile_parameter
from shiplap.aws.selectors.ami_aliases import ami_variants
from shiplap.kubernetes import labels
from shiplap_lab.emulated_ec2.control import Ec2Control, EmulatedImage

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_ssm import SSMClient

DISCOVERY_TAG = "karpenter.sh/discovery"
_RELEASED_AT = "2026-01-01T00:00:00Z"
_MACHINES = {"amd64": "x86_64", "arm64": "arm64"}


class ClusterVpc(msgspec.Struct, frozen=True):
    """A VPC with a subnet per zone and a security group, all tagged `karpenter.sh/discovery`."""

    vpc_id: str
    subnets: dict[str, str]
    security_group: str


class PublishedImage(msgspec.Struct, frozen=True):
    """An AMI and the SSM parameters whose value it is."""

    image: EmulatedImage
    parameters: tuple[str, ...] = ()


def create_network(ec2: EC2Client, cluster: str, zones: Sequence[str], *, block: int = 0) -> ClusterVpc:
    """Make the network of a cluster: 10.<block>.0.0/16 with a /19 in each zone (at most eight)."""
    vpc_id = ec2.create_vpc(CidrBlock=f"10.{block}.0.0/16")["Vpc"]["VpcId"]
    subnets = {
        zone: ec2.create_subnet(VpcId=vpc_id, CidrBlock=f"10.{block}.{number * 32}.0/19", AvailabilityZone=zone)[
            "Subnet"
        ]["SubnetId"]
        for number, zone in enumerate(zones)
    }
    group = ec2.create_security_group(GroupName=f"{cluster}-nodes", Description=f"Nodes of {cluster}", VpcId=vpc_id)
    ec2.create_tags(Resources=[*subnets.values(), group["GroupId"]], Tags=[{"Key": DISCOVERY_TAG, "Value": cluster}])
    return ClusterVpc(vpc_id, subnets, group["GroupId"])


def register_images(control: Ec2Control, wanted: Iterable[PublishedImage]) -> None:
    """Register AMIs under their own ids and point their parameters at them."""
    parameters: dict[str, str] = {}
    for item in wanted:
        control.image(item.image)
        parameters |= dict.fromkeys(item.parameters, item.image.image_id)
    control.parameters(parameters)


def name_profile(ssm: SSMClient, install: str, cluster: str, role: str, profile: str) -> None:
    """Say in SSM, as the stack does, which instance profile a cluster's nodes with a role have."""
    ssm.put_parameter(Name=profile_parameter(install, cluster, role), Value=profile, Type="String", Overwrite=True)


def release_images(alias: str, kubernetes_version: str) -> tuple[PublishedImage, ...]:
    """Every image a release such as `al2023@latest` consists of, under ids made up from what it is."""
    by_parameter: dict[str, str] = {}
    for variant in ami_variants(alias, kubernetes_version):
        arch = next(values[0] for key, _, values in variant.requirements if key == labels.ARCH)
        by_parameter[variant.parameter] = arch
    images = []
    for number, (parameter, arch) in enumerate(by_parameter.items(), 1):
        name = parameter.removesuffix("/image_id").rpartition("/aws/service/")[2].replace("/", "-")
        image_id = f"ami-{_digits(alias + kubernetes_version)}{number:02x}"
        images.append(PublishedImage(EmulatedImage(image_id, name, _MACHINES[arch], _RELEASED_AT), (parameter,)))
    return tuple(images)


def _digits(text: str) -> str:
    """Fifteen hexadecimal digits that are always the same for a text."""
    return blake2b(text.encode(), digest_size=8).hexdigest()[:15]
