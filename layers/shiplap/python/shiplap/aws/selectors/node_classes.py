"""An EC2NodeClass's selectors answered by AWS, each by itself, so that all problems are reported at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec

from shiplap.aws.eks import ControlPlane, control_plane
from shiplap.aws.expiring import ExpiringCache
from shiplap.aws.instance_profiles import InstanceProfileClient, is_missing, profile_parameter
from shiplap.aws.selectors import capacity_reservations, network
from shiplap.aws.selectors.amis import AmiResolver
from shiplap.aws.selectors.parameters import Parameters
from shiplap.errors import InvalidInput, NodeClassNotReady
from shiplap.instances.catalog.ami_families import FAMILIES, family_of
from shiplap.instances.catalog.resolved_nodeclass import (
    ACTIVE,
    Ami,
    CapacityReservation,
    NodeClassProblem,
    PlacementGroup,
    ResolvedNodeClass,
    SecurityGroup,
    Subnet,
)
from shiplap.instances.readiness import nodeclass_status
from shiplap.manifests.custom_resources import EC2NodeClass
from shiplap.manifests.live.allowed_resources import outside
from shiplap.settings import ClusterSettings

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_eks import EKSClient
    from types_boto3_ssm import SSMClient

_SELECTORS_S = 60.0
_CONTROL_PLANE_S = 300.0

_Found = TypeVar("_Found")


class NodeClassResolver:
    """For one cluster. Answers are kept for a minute; `clock` gives epoch seconds."""

    def __init__(
        self,
        settings: ClusterSettings,
        *,
        ec2: EC2Client,
        ssm: Callable[[], SSMClient],
        eks: Callable[[], EKSClient],
        iam: Callable[[], InstanceProfileClient] | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._ec2 = ec2
        self._eks = eks
        self._clock = clock
        self._iam = iam
        self._parameters = Parameters(ssm, clock)
        self._images = AmiResolver(ec2, self._parameters, clock, settings.allowed.image_owners)
        self._control_plane: ExpiringCache[ControlPlane] = ExpiringCache(_CONTROL_PLANE_S, clock)
        self._amis: ExpiringCache[tuple[Ami, ...]] = ExpiringCache(_SELECTORS_S, clock)
        self._subnets: ExpiringCache[tuple[Subnet, ...]] = ExpiringCache(_SELECTORS_S, clock)
        self._groups: ExpiringCache[tuple[SecurityGroup, ...]] = ExpiringCache(_SELECTORS_S, clock)
        self._reservations: ExpiringCache[tuple[CapacityReservation, ...]] = ExpiringCache(_SELECTORS_S, clock)
        self._placement: ExpiringCache[PlacementGroup | None] = ExpiringCache(_SELECTORS_S, clock)

    def resolve(self, node_class: EC2NodeClass, *, fresh: bool = False) -> ResolvedNodeClass:
        """Everything a launch needs; `fresh` forgets what was answered before.

        Raises:
            NodeClassNotReady: a selector matches nothing, or the node class contradicts itself.
            AwsThrottled, AwsError: AWS refused.
        """
        if fresh:
            answers = (self._amis, self._subnets, self._groups, self._reservations, self._placement)
            self._parameters.clear()
            for known in answers:
                known.clear()
        resolved = self._answers(node_class)
        if resolved.problems:
            raise NodeClassNotReady(resolved.problems[0].message, code=resolved.problems[0].reason)
        return resolved

    def inspect(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        """As far as it can be answered, with a problem for each part that cannot; such parts are empty.

        Unlike a launch, it also checks whether the instance profile exists.

        Raises:
            AwsThrottled, AwsError: AWS refused.
        """
        resolved = self._answers(node_class)
        name = resolved.instance_profile
        if self._iam is None or not name or not is_missing(self._iam(), name):
            return resolved
        missing = _profile_not_found(f"there is no instance profile {name}")
        return msgspec.structs.replace(resolved, problems=(*resolved.problems, missing))

    def _answers(self, node_class: EC2NodeClass) -> ResolvedNodeClass:
        name, spec = node_class.metadata.name, node_class.spec
        problems: list[NodeClassProblem] = []
        family = _family(node_class, problems)
        plane = self._control_plane.get(self._settings.name, lambda: control_plane(self._settings, self._eks))
        amis = _part(
            nodeclass_status.AMIS,
            lambda: self._amis.get(
                _key(name, spec.ami_selector_terms, plane.version),
                lambda: self._images.resolve(node_class, plane.version),
            ),
            problems,
        )
        subnets = _part(
            nodeclass_status.SUBNETS,
            lambda: self._subnets.get(
                _key(name, spec.subnet_selector_terms), lambda: network.subnets(self._ec2, node_class)
            ),
            problems,
        )
        groups = _part(
            nodeclass_status.SECURITY_GROUPS,
            lambda: self._groups.get(
                _key(name, spec.security_group_selector_terms), lambda: network.security_groups(self._ec2, node_class)
            ),
            problems,
        )
        placement = _part(
            nodeclass_status.PLACEMENT_GROUP,
            lambda: self._placement.get(
                _key(name, spec.placement_group_selector),
                lambda: capacity_reservations.placement_group(self._ec2, node_class),
            ),
            problems,
        )
        bounds = self._settings.allowed
        subnets = within_allowed(subnets, bounds.subnets, nodeclass_status.SUBNETS, problems)
        groups = within_allowed(groups, bounds.security_groups, nodeclass_status.SECURITY_GROUPS, problems)
        placements = within_allowed(
            (placement,) if placement else (), bounds.placement_groups, nodeclass_status.PLACEMENT_GROUP, problems
        )
        os = FAMILIES[family].os if family else "linux"
        reserved = self._reservations.get(
            _key(name, spec.capacity_reservation_selector_terms, os),
            lambda: capacity_reservations.capacity_reservations(self._ec2, node_class, os),
            lambda known: capacity_reservations.lifetime_s(known, _SELECTORS_S, self._clock()),
        )
        upcoming = tuple(
            held for held in reserved if held.state != ACTIVE and not outside([held.id], bounds.capacity_reservations)
        )
        reserved = within_allowed(
            [held for held in reserved if held.state == ACTIVE],
            bounds.capacity_reservations,
            nodeclass_status.CAPACITY_RESERVATIONS,
            problems,
        )
        return ResolvedNodeClass(
            name=name,
            family=family,
            amis=amis or (),
            subnets=subnets,
            security_groups=tuple(group.id for group in groups),
            security_group_names=tuple(group.name for group in groups),
            instance_profile=self._instance_profile(node_class, problems),
            cluster_endpoint=plane.endpoint,
            cluster_ca=plane.ca,
            service_cidr=plane.service_cidr,
            cluster_dns=plane.dns,
            kubernetes_version=plane.version,
            capacity_reservations=reserved,
            placement_group=placements[0] if placements else None,
            problems=tuple(problems),
            upcoming_reservations=upcoming,
        )

    def _instance_profile(self, node_class: EC2NodeClass, problems: list[NodeClassProblem]) -> str:
        """The name as written, else that of the one that the stack made for the role.

        Empty where no install is asked about: files alone do not say which one will launch.
        """
        spec, own = node_class.spec, self._settings
        if spec.instance_profile or not own.install:
            return spec.instance_profile
        parameter = profile_parameter(own.install, own.name, spec.role)
        name = self._parameters.value(parameter)
        if not name:
            text = f"role {spec.role} has no instance profile: there is no SSM parameter {parameter}"
            remedy = "deploy the stack with the role in an EC2NodeClass of its manifests or in `nodeRoles`"
            problems.append(_profile_not_found(f"{text}; {remedy}"))
        return name


def _profile_not_found(text: str) -> NodeClassProblem:
    return NodeClassProblem(nodeclass_status.INSTANCE_PROFILE, "InstanceProfileNotFound", text)


def _family(node_class: EC2NodeClass, problems: list[NodeClassProblem]) -> str:
    try:
        return family_of(node_class).name
    except InvalidInput as error:
        problems.append(NodeClassProblem(nodeclass_status.VALIDATION, "AMIFamilyUnknown", str(error)))
        return ""


def _part(condition: str, fetch: Callable[[], _Found], problems: list[NodeClassProblem]) -> _Found | None:
    try:
        return fetch()
    except NodeClassNotReady as error:
        problems.append(NodeClassProblem(condition, error.code, str(error)))
        return None


_Selected = TypeVar("_Selected", Subnet, SecurityGroup, CapacityReservation, PlacementGroup)


def within_allowed(
    selected: Sequence[_Selected] | None, allowed: Sequence[str], condition: str, problems: list[NodeClassProblem]
) -> tuple[_Selected, ...]:
    """Return the resources that a selector matches; none if the cluster may not use one of the matched resources."""
    matched = tuple(selected or ())
    refused = outside([each.id for each in matched], allowed)
    if not refused:
        return matched
    text = f"selects {', '.join(refused)}, which shiplap.yaml does not allow in this cluster"
    problems.append(NodeClassProblem(condition, "NotAllowed", text))
    return ()


def _key(name: str, terms: object, version: str = "") -> bytes:
    return msgspec.json.encode((name, terms, version), order="deterministic")
