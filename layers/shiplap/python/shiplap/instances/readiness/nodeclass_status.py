"""The status of EC2NodeClasses and NodePools: conditions, dry runs, and the resources that their selectors match.

Conditions have the names and reasons that Karpenter gives them. A dry run asks EC2 whether it would launch from an
EC2NodeClass before pods depend on it: a missing permission, or an organisation's policy, shows only in EC2's own
answer. It takes a few requests, so its answer is kept while the EC2NodeClass is unchanged; not for ever, because
policies change, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

from shiplap.instances.catalog.resolved_nodeclass import (
    LEAST_DRAIN_S,
    Ami,
    CapacityReservation,
    NodeClassProblem,
    PlacementGroup,
    SecurityGroup,
    Subnet,
)
from shiplap.manifests.custom_resources import EC2NodeClass

AMIS = "AMIsReady"
SUBNETS = "SubnetsReady"
SECURITY_GROUPS = "SecurityGroupsReady"
INSTANCE_PROFILE = "InstanceProfileReady"
PLACEMENT_GROUP = "PlacementGroupReady"
CAPACITY_RESERVATIONS = "CapacityReservationsReady"
VALIDATION = "ValidationSucceeded"
READY = "Ready"

DEPENDENCIES = (AMIS, SUBNETS, SECURITY_GROUPS, INSTANCE_PROFILE, PLACEMENT_GROUP, CAPACITY_RESERVATIONS)
"""What must hold before the rest can be validated."""

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """As in the status of a Kubernetes object; `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


def conditions(problems: Iterable[NodeClassProblem]) -> tuple[Condition, ...]:
    """Every condition, Ready last: False with the first problem of its type, else True.

    While a dependency is missing, what needs it cannot be validated, and ValidationSucceeded says so.
    """
    first: dict[str, NodeClassProblem] = {}
    for problem in problems:
        first.setdefault(problem.condition, problem)
    missing = [name for name in DEPENDENCIES if name in first]
    if missing:
        waits = NodeClassProblem(VALIDATION, "DependenciesNotReady", f"not validated: {', '.join(missing)} first")
        first.setdefault(VALIDATION, waits)
    found = [_condition(name, first.get(name)) for name in (*DEPENDENCIES, VALIDATION)]
    wrong = [condition for condition in found if condition.status != TRUE]
    if not wrong:
        return (*found, Condition(READY, TRUE))
    return (*found, Condition(READY, FALSE, wrong[0].reason, wrong[0].message))


def unknown_conditions(reason: str, message: str) -> tuple[Condition, ...]:
    """Every condition when AWS could not be asked."""
    return tuple(Condition(name, UNKNOWN, reason, message) for name in (*DEPENDENCIES, VALIDATION, READY))


def _condition(name: str, problem: NodeClassProblem | None) -> Condition:
    if problem is None:
        return Condition(name, TRUE)
    return Condition(name, FALSE, problem.reason, problem.message)


_TRUSTED_S = 2 * 3600.0
"""A problem found longer ago than this, seconds, no longer counts: the EC2NodeClass has not been inspected since."""

_FOUND_BY_INSPECTION = (INSTANCE_PROFILE, VALIDATION)
"""Conditions that a decision does not look into itself."""


class _Shown(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of what is stored as JSON."""


class NodeClassStatus(_Shown, frozen=True):
    """An EC2NodeClass's status, fields as upstream names them.

    `manifest` is the digest of what was looked at; `instance_types` counts those it can launch; `warnings` are worth
    knowing but keep nothing from being launched. `checked_at` is when it was looked at, epoch seconds.
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
    checked_at: float = 0.0
    upcoming_reservations: tuple[CapacityReservation, ...] = ()
    """Reservations that are selected and have not started, or never will."""
    drain_s: int = LEAST_DRAIN_S
    """For how many seconds nodes of a capacity block are emptied before EC2 ends them."""

    @property
    def ready(self) -> Condition:
        """The condition Ready."""
        return next(condition for condition in self.conditions if condition.type == READY)


class PoolStatus(_Shown, frozen=True):
    """A NodePool: it can launch when its EC2NodeClass is ready; `reason` says why it cannot. `limits` as written."""

    name: str
    node_class: str
    ready: str
    weight: int = 0
    reason: str = ""
    limits: dict[str, str | int] = {}


class ClusterStatus(_Shown, frozen=True):
    """One cluster's; `checked_at` is that of the EC2NodeClass that was looked at longest ago, epoch seconds.

    `features` are the names of the optional features that are on.
    """

    cluster: str
    region: str
    checked_at: float
    node_classes: tuple[NodeClassStatus, ...] = ()
    pools: tuple[PoolStatus, ...] = ()
    features: tuple[str, ...] = ()


class InstallStatus(_Shown, frozen=True):
    """That of all clusters an install serves, sorted by name."""

    clusters: tuple[ClusterStatus, ...] = ()


def is_news(found: ClusterStatus, before: ClusterStatus | None) -> bool:
    """Return True if an inspection has found more than that all is as it was."""
    known = {item.name: item for item in before.node_classes} if before is not None else {}
    return any(
        item.name not in known or msgspec.structs.replace(known[item.name], checked_at=item.checked_at) != item
        for item in found.node_classes
    )


def manifest_digest(node_class: EC2NodeClass) -> str:
    """Twelve hexadecimal digits that change with everything a user can write into an EC2NodeClass."""
    written = (node_class.metadata.name, node_class.metadata.annotations, node_class.spec)
    return sha256(msgspec.json.encode(written, order="deterministic")).hexdigest()[:12]


def known_problem(known: InstallStatus, cluster: str, node_class: EC2NodeClass, now: float) -> str:
    """Return why Shiplap should launch nothing from an EC2NodeClass as it is now written; empty if there is no reason.

    The last inspection of the EC2NodeClass decides. Only problems that a decision does not find out by itself count,
    so that a fixed problem does not block launches.
    """
    for status in (item for item in known.clusters if item.cluster == cluster and now < item.checked_at + _TRUSTED_S):
        for item in status.node_classes:
            if item.name == node_class.metadata.name and item.manifest == manifest_digest(node_class):
                return _first_problem(item)
    return ""


def _first_problem(status: NodeClassStatus) -> str:
    if any(condition.status != TRUE for condition in status.conditions if condition.type in _LOOKED_INTO):
        return ""  # what depends on it could not be validated; the decision sees the cause itself
    wrong = (condition for condition in status.conditions if condition.status == FALSE)
    return next((f"{condition.reason}: {condition.message}" for condition in wrong), "")


_LOOKED_INTO = tuple(name for name in DEPENDENCIES if name not in _FOUND_BY_INSPECTION)


ALLOWED_FOR_S = 6 * 3600.0
"""How long a permission is taken to hold, in seconds."""
REFUSED_FOR_S = 300.0
"""How long a refusal is taken to hold, in seconds: people may be fixing it."""


class DryRun(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """EC2's answer to launching from an EC2NodeClass whose content has the digest `manifest`.

    `reason` and `message` are those of the condition ValidationSucceeded, empty when there is nothing against it.
    From `again_at` on, epoch seconds, EC2 is asked again.
    """

    node_class: str
    manifest: str
    again_at: float
    reason: str = ""
    message: str = ""


class DryRuns(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The dry runs of a cluster, sorted by EC2NodeClass."""

    items: tuple[DryRun, ...] = ()

    def of(self, node_class: EC2NodeClass) -> DryRun | None:
        """Return the dry run of an EC2NodeClass as it is written now; None if there is none."""
        name, manifest = node_class.metadata.name, manifest_digest(node_class)
        return next((item for item in self.items if (item.node_class, item.manifest) == (name, manifest)), None)

    def problem(self, node_class: EC2NodeClass) -> NodeClassProblem | None:
        """Return why EC2 would not launch from an EC2NodeClass; None if no reason is known."""
        known = self.of(node_class)
        if known is None or not known.reason:
            return None
        return NodeClassProblem(VALIDATION, known.reason, known.message)

    def due(self, node_classes: Iterable[EC2NodeClass], now: float) -> tuple[EC2NodeClass, ...]:
        """Return the EC2NodeClasses that need a new dry run at `now`, epoch seconds."""
        return tuple(item for item in node_classes if (known := self.of(item)) is None or now >= known.again_at)

    def with_news(self, fresh: Iterable[DryRun], node_classes: Iterable[EC2NodeClass]) -> DryRuns:
        """The same with new answers in the place of old ones, and without EC2NodeClasses that no longer exist."""
        names = {node_class.metadata.name for node_class in node_classes}
        merged = {item.node_class: item for item in (*self.items, *fresh)}
        return DryRuns(tuple(merged[name] for name in sorted(names & merged.keys())))


def dry_run(node_class: EC2NodeClass, now: float, problem: NodeClassProblem | None = None) -> DryRun:
    """EC2's answer `now`, epoch seconds."""
    known_until = now + (ALLOWED_FOR_S if problem is None else REFUSED_FOR_S)
    reason, message = ("", "") if problem is None else (problem.reason, problem.message)
    return DryRun(node_class.metadata.name, manifest_digest(node_class), known_until, reason, message)


def untried_dry_run(node_class: EC2NodeClass, now: float) -> DryRun:
    """Nothing can be tried now, because the EC2NodeClass is not ready or its pools launch nothing."""
    return DryRun(node_class.metadata.name, manifest_digest(node_class), now + REFUSED_FOR_S)
