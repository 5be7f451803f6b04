"""The status of EC2NodeClasses and NodePools: conditions, and the resources that their selectors match."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import Ami, CapacityReservation, PlacementGroup, SecurityGroup, Subnet
from shiplap.instances.readiness import conditions
from shiplap.instances.readiness.conditions import Condition
from shiplap.manifests.custom_resources import EC2NodeClass

_TRUSTED_S = 2 * 3600.0
"""A problem found longer ago than this, seconds, no longer counts: the EC2NodeClass has not been inspected since."""

_FOUND_BY_INSPECTION = (conditions.INSTANCE_PROFILE, conditions.VALIDATION)
"""Conditions that a decision does not look into itself."""


class _Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of what is stored as JSON."""


class NodeClassStatus(_Shown, frozen=True):
    """An EC2NodeClass's status, fields as upstream names them.

    `manifest` is the digest of what was looked at; `instance_types` counts those it can launch; `warnings` are worth
    knowing but keep nothing from being launched.
    """

    name: str
    manifest: str
    conditions: tuple[Condition, ...]
    family: str = ""
    subnets: tuple[Subnet, ...] = ()
    security_groups: tuple[SecurityGroup, ...] = ()
    amis: tuple[Ami, ...] = ()
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    placement_group: PlacementGroup | None = None
    instance_profile: str = ""
    instance_types: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def ready(self) -> Condition:
        """The condition Ready."""
        return next(condition for condition in self.conditions if condition.type == conditions.READY)


class PoolStatus(_Shown, frozen=True):
    """A NodePool: it can launch when its EC2NodeClass is ready; `reason` says why it cannot. `limits` as written."""

    name: str
    node_class: str
    ready: str
    weight: int = 0
    reason: str = ""
    limits: dict[str, str | int | float] = {}


class ClusterStatus(_Shown, frozen=True):
    """One cluster's; `checked_at` in epoch seconds."""

    cluster: str
    region: str
    checked_at: float
    node_classes: tuple[NodeClassStatus, ...] = ()
    pools: tuple[PoolStatus, ...] = ()


class InstallStatus(_Shown, frozen=True):
    """That of all clusters an install serves, sorted by name."""

    clusters: tuple[ClusterStatus, ...] = ()


def manifest_digest(node_class: EC2NodeClass) -> str:
    """Twelve hexadecimal digits that change with everything a user can write into an EC2NodeClass."""
    written = (node_class.metadata.name, node_class.metadata.annotations, node_class.spec)
    return sha256(msgspec.json.encode(written, order="deterministic")).hexdigest()[:12]


def known_problem(known: InstallStatus, cluster: str, node_class: EC2NodeClass, now: float) -> str:
    """Why nothing should be launched from an EC2NodeClass as it is now written, by its last inspection; empty if none.

    Only problems that a decision does not find out by itself count, so that a fixed one does not block launches.
    """
    for status in (item for item in known.clusters if item.cluster == cluster and now < item.checked_at + _TRUSTED_S):
        for item in status.node_classes:
            if item.name == node_class.metadata.name and item.manifest == manifest_digest(node_class):
                return _first_problem(item)
    return ""


def _first_problem(status: NodeClassStatus) -> str:
    if any(item.status != conditions.TRUE for item in status.conditions if item.type in _LOOKED_INTO):
        return ""  # what depends on it could not be validated; the decision sees the cause itself
    wrong = (item for item in status.conditions if item.type in _FOUND_BY_INSPECTION)
    return next((f"{item.reason}: {item.message}" for item in wrong if item.status == conditions.FALSE), "")


_LOOKED_INTO = tuple(name for name in conditions.DEPENDENCIES if name not in _FOUND_BY_INSPECTION)
