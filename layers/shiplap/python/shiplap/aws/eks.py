"""The control plane's data that nodes need: endpoint, certificate authority, version and service addresses."""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING

import msgspec

from shiplap.aws.ec2_errors import aws_errors
from shiplap.errors import AwsError, ClusterGone
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from types_boto3_eks import EKSClient


class ControlPlane(msgspec.Struct, frozen=True):
    """`ca` is base64; `version` the minor such as `1.34`; `service_cidr` and with it `dns` may be empty outside EKS."""

    endpoint: str
    ca: str
    version: str
    service_cidr: str
    dns: str


def control_plane(settings: ClusterSettings, eks: Callable[[], EKSClient]) -> ControlPlane:
    """From the settings when they name an endpoint, else from EKS.

    Raises:
        AwsThrottled, AwsError: EKS does not answer, the cluster is not active, or its service range is none.
    """
    if settings.endpoint:
        return _plane(
            settings.endpoint, settings.certificate_authority, settings.kubernetes_version, settings.service_cidr
        )
    with aws_errors(f"describe EKS cluster {settings.name}"):
        cluster = eks().describe_cluster(name=settings.name)["cluster"]
    if not cluster.get("endpoint"):
        raise AwsError(f"EKS cluster {settings.name} is {cluster.get('status', 'unknown')}: no endpoint yet")
    network = cluster.get("kubernetesNetworkConfig", {})
    return _plane(
        cluster["endpoint"],
        cluster.get("certificateAuthority", {}).get("data", ""),
        cluster.get("version", ""),
        network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr", ""),
    )


def api_server(settings: ClusterSettings, eks: Callable[[], EKSClient]) -> tuple[str, str]:
    """Endpoint and certificate authority of the cluster.

    Raises:
        ClusterGone: EKS knows no cluster of this name. Being denied the answer is another error.
        AwsThrottled, AwsError: as `control_plane`.
    """
    try:
        plane = control_plane(settings, eks)
    except AwsError as error:
        if error.code != "ResourceNotFoundException":
            raise
        raise ClusterGone(str(error)) from error
    return plane.endpoint, plane.ca


def _plane(endpoint: str, ca: str, version: str, service_cidr: str) -> ControlPlane:
    return ControlPlane(endpoint, ca, version, service_cidr, _dns(service_cidr) if service_cidr else "")


def _dns(service_cidr: str) -> str:
    """Address of the cluster's DNS: the tenth of the service range, as EKS assigns it."""
    try:
        return str(ip_network(service_cidr, strict=False)[10])
    except (ValueError, IndexError) as error:
        raise AwsError(f"{service_cidr!r} is not the service range of a cluster: {error}") from error
