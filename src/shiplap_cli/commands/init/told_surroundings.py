"""A cluster as a person tells it, for `shiplap init` without credentials of AWS."""

from __future__ import annotations

import re
from enum import StrEnum

from shiplap.errors import InvalidInput
from shiplap.regions import exists, nearest
from shiplap_cdk.install_keys import CLUSTER_NAME, SECURITY_GROUP_ID, SUBNET_ID
from shiplap_cli.commands.init.surroundings import (
    ANYWHERE,
    ClusterSurroundings,
    NodeGroup,
    OtherProvisioners,
    VpcSubnet,
)

_ARCHITECTURES = {"amd64": "AL2023_x86_64_STANDARD", "arm64": "AL2023_ARM_64_STANDARD"}
"""The architectures of images, and an AMI type of node groups that run them."""


class EndpointKind(StrEnum):
    """The reach of a cluster's API endpoint: from everywhere, or from inside its VPC."""

    PUBLIC = "public"
    PRIVATE = "private"


def told_surroundings(
    cluster: str, region: str, endpoint: EndpointKind, subnets: str, security_group: str, arch: str
) -> ClusterSurroundings:
    """The surroundings from options; `subnets` and `arch` are lists by commas. Subnets count as private.

    Without subnets or a security group, those with the discovery tag are meant.

    Raises:
        InvalidInput: an option is missing or cannot be a name of AWS's.
    """
    if not re.fullmatch(CLUSTER_NAME, cluster):
        told = f"{cluster!r} is no name of an EKS cluster" if cluster else "is missing: AWS is not asked"
        raise InvalidInput("--cluster", told)
    if not exists(region):
        near = f"; the nearest are {', '.join(names)}" if (names := nearest(region)) else ""
        raise InvalidInput(
            "--region", f"{region!r} is not a Region{near}" if region else "is missing: AWS is not asked"
        )
    listed = _listed(subnets)
    for option, names, pattern in (
        ("--subnets", listed, SUBNET_ID),
        ("--security-group", _listed(security_group), SECURITY_GROUP_ID),
    ):
        for name in names:
            if not re.fullmatch(pattern, name):
                raise InvalidInput(option, f"{name!r} is no id such as {pattern.partition('-')[0]}-0a1b2c3d4e5f67890")
        if endpoint is EndpointKind.PRIVATE and not names:
            raise InvalidInput(option, "is missing: functions that reach a private endpoint need it")
    if len(_listed(security_group)) > 1:
        raise InvalidInput("--security-group", "names several: one is enough, the cluster's own")
    images = _listed(arch)
    if not images:
        raise InvalidInput("--arch", "names nothing; amd64, arm64, or amd64,arm64")
    if odd := [name for name in images if name not in _ARCHITECTURES]:
        raise InvalidInput("--arch", f"{odd[0]!r} is neither amd64 nor arm64")
    return ClusterSurroundings(
        region=region,
        cluster=cluster,
        status="",
        authentication_mode="",
        is_public=endpoint is EndpointKind.PUBLIC,
        is_private=endpoint is EndpointKind.PRIVATE,
        public_cidrs=(ANYWHERE,),
        cluster_subnets=(),
        security_group=security_group.strip(),
        is_group_tagged=not security_group.strip(),
        subnets=tuple(VpcSubnet(name, "") for name in listed),
        node_groups=tuple(NodeGroup(name, _ARCHITECTURES[name], listed) for name in images),
        others=OtherProvisioners(),
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(sorted({part.strip() for part in text.split(",") if part.strip()}))
