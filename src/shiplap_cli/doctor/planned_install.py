"""An install as shiplap.yaml describes it, as far as AWS has to be ready for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.ami_families import family_of
from shiplap.kubernetes import labels
from shiplap.manifests.custom_resources import NodePool

if TYPE_CHECKING:
    from infra.settings import InstallConfig, ServedCluster

_CHECKOUT = Path(__file__).resolve().parents[3]


class NodeRole(msgspec.Struct, frozen=True, order=True):
    """A role of nodes that the stack does not make: by `role`, or by the `profile` that holds it; `os` runs with it."""

    node_class: str
    role: str
    profile: str
    os: str


class PlannedCluster(msgspec.Struct, frozen=True):
    """One cluster. Without `subnets` its functions are outside of any VPC."""

    name: str
    in_eks: bool
    access_entry: bool
    audit: bool
    kubeconfig_secret: bool
    zonal_shift: bool
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    node_roles: tuple[NodeRole, ...]


class PlannedInstall(msgspec.Struct, frozen=True):
    """The whole install. `account` is empty where any will do; `spot` when a NodePool may launch spot instances."""

    region: str
    account: str
    clusters: tuple[PlannedCluster, ...]
    volume_keys: tuple[str, ...]
    spot: bool


def read_planned_install(path: Path) -> PlannedInstall:
    """Read shiplap.yaml and its manifests, as the CDK app reads them.

    Raises:
        InvalidInput: this is not a checkout of Shiplap, or the file cannot be read.
        InvalidManifests: the file, or a manifest, says something wrong.
    """
    if not (_CHECKOUT / "infra" / "settings.py").exists():
        raise InvalidInput("--before-deploy", "run this from the checkout that the stack is deployed from")
    if str(_CHECKOUT) not in sys.path:
        sys.path.append(str(_CHECKOUT))
    from infra.settings import read  # noqa: PLC0415 - the CDK app is beside the package, not within it

    return planned_install_of(read(path))


def planned_install_of(install: InstallConfig) -> PlannedInstall:
    """What an install asks of AWS."""
    pools = [pool for cluster in install.clusters for pool in cluster.settings.manifests.node_pools]
    return PlannedInstall(
        region=install.document.region,
        account=install.document.account,
        clusters=tuple(map(_planned_cluster, install.clusters)),
        volume_keys=tuple(sorted({key for cluster in install.clusters for key in cluster.volume_keys})),
        spot=any(map(_allows_spot, pools)),
    )


def _planned_cluster(cluster: ServedCluster) -> PlannedCluster:
    document = cluster.document
    return PlannedCluster(
        name=cluster.name,
        in_eks=not document.endpoint,
        access_entry=cluster.access_entry,
        audit=document.audit,
        kubeconfig_secret=bool(document.kubeconfig_secret),
        zonal_shift=document.zonal_shift,
        subnets=document.vpc.subnets if document.vpc else (),
        security_groups=document.vpc.security_groups if document.vpc else (),
        node_roles=tuple(
            NodeRole(item.metadata.name, item.spec.role, item.spec.instance_profile, family_of(item).os)
            for item in cluster.settings.manifests.node_classes
            if item.spec.role != cluster.own_node_role
        ),
    )


def _allows_spot(pool: NodePool) -> bool:
    for rule in pool.spec.template.spec.requirements:
        if rule.key == labels.CAPACITY_TYPE:
            listed = "spot" in rule.values
            if (rule.operator == "In" and not listed) or (rule.operator == "NotIn" and listed):
                return False
    return True
