"""Instance profiles, node roles and their access entries below the path of an install, in IAM, EC2, SSM and EKS."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from shiplap.aws.ec2_errors import aws_errors, readable
from shiplap.aws.failures import code_of
from shiplap.aws.instance_profiles import identity_path, parameters_path
from shiplap.node_identities import FoundIdentities, InstanceProfile, OwnNodeRole

if TYPE_CHECKING:
    from types_boto3_ec2 import EC2Client
    from types_boto3_eks import EKSClient
    from types_boto3_ssm import SSMClient

_PRESENT = ("pending", "running", "shutting-down", "stopping", "stopped")
_FILTER_VALUES = 200
_GONE_IN_IAM = ("NoSuchEntity",)
# A cluster that is gone took its entries along.
_NO_ENTRY = ("ResourceNotFoundException",)
_NO_ENTRIES = "authentication mode"
"""In the text of an InvalidRequestException: the cluster is of the mode CONFIG_MAP and has no access entries."""


class AwsNodeIdentities:
    """NodeIdentities of an install in a Region. Clients are made when they are first needed; `iam` is botocore's."""

    def __init__(
        self,
        install: str,
        region: str,
        *,
        iam: Any,
        ec2: EC2Client,
        ssm: Callable[[], SSMClient],
        eks: Callable[[], EKSClient],
    ) -> None:
        self._path = identity_path(install, region)
        self._parameters = parameters_path(install)
        self._iam = iam
        self._ec2 = ec2
        self._ssm = ssm
        self._eks = eks

    @readable
    def find(self) -> FoundIdentities:
        # The names in use come last: what a deployment makes meanwhile is found in use, or not found at all.
        with aws_errors(f"list instance profiles below {self._path}"):
            profiles = tuple(map(self._profile, self._listed("list_instance_profiles", "InstanceProfiles")))
        with aws_errors(f"list roles below {self._path}"):
            roles = tuple(map(self._role, self._listed("list_roles", "Roles")))
        return FoundIdentities(profiles, roles, self._current())

    @readable
    def carriers(self, profiles: Iterable[InstanceProfile]) -> dict[str, tuple[str, ...]]:
        arns = sorted(profile.arn for profile in profiles)
        found: dict[str, list[str]] = {}
        for start in range(0, len(arns), _FILTER_VALUES):
            for seen in self._instances(arns[start : start + _FILTER_VALUES]):
                name = seen["IamInstanceProfile"]["Arn"].rpartition("/")[2]
                found.setdefault(name, []).append(seen["InstanceId"])
        return {name: tuple(sorted(ids)) for name, ids in found.items()}

    @readable
    def holders(self, role: OwnNodeRole) -> tuple[str, ...]:
        with aws_errors(f"list the instance profiles of role {role.name}"):
            try:
                pages = self._iam.get_paginator("list_instance_profiles_for_role").paginate(RoleName=role.name)
                return tuple(sorted(item["InstanceProfileName"] for page in pages for item in page["InstanceProfiles"]))
            except ClientError as error:
                if code_of(error) not in _GONE_IN_IAM:
                    raise
                return ()

    def end_profile(self, profile: InstanceProfile) -> None:
        named = {"InstanceProfileName": profile.name}
        with aws_errors(f"delete instance profile {profile.name}"):
            for role in profile.holds:
                _unless_gone(self._iam.remove_role_from_instance_profile, RoleName=role, **named)
            _unless_gone(self._iam.delete_instance_profile, **named)

    def end_role(self, role: OwnNodeRole) -> None:
        named = {"RoleName": role.name}
        with aws_errors(f"delete the access entry of {role.arn} in {role.cluster}"):
            try:
                self._eks().delete_access_entry(clusterName=role.cluster, principalArn=role.arn)
            except ClientError as error:
                if code_of(error) not in _NO_ENTRY and _NO_ENTRIES not in str(error):
                    raise
        with aws_errors(f"delete role {role.name}"):
            try:
                for attached in self._pages("list_attached_role_policies", "AttachedPolicies", named):
                    arn = attached["PolicyArn"]
                    _unless_gone(self._iam.detach_role_policy, PolicyArn=arn, **named)
                for policy in self._pages("list_role_policies", "PolicyNames", named):
                    _unless_gone(self._iam.delete_role_policy, PolicyName=policy, **named)
                self._iam.delete_role(**named)
            except ClientError as error:
                if code_of(error) not in _GONE_IN_IAM:
                    raise

    def _current(self) -> frozenset[str]:
        """Names of the profiles that launches use now."""
        request: Any = {"Path": self._parameters.rstrip("/"), "Recursive": True}
        with aws_errors(f"read the SSM parameters below {self._parameters}"):
            pages = self._ssm().get_paginator("get_parameters_by_path").paginate(**request)
            return frozenset(item["Value"] for page in pages for item in page["Parameters"])

    def _listed(self, operation: str, key: str) -> list[Any]:
        found = self._pages(operation, key, {"PathPrefix": self._path})
        return [item for item in found if item["Path"].startswith(self._path)]

    def _pages(self, operation: str, key: str, request: Mapping[str, str]) -> list[Any]:
        return [item for page in self._iam.get_paginator(operation).paginate(**request) for item in page[key]]

    def _instances(self, arns: Sequence[str]) -> Iterable[Any]:
        filters: Any = [
            {"Name": "iam-instance-profile.arn", "Values": list(arns)},
            {"Name": "instance-state-name", "Values": list(_PRESENT)},
        ]
        with aws_errors("describe instances by their instance profiles"):
            for page in self._ec2.get_paginator("describe_instances").paginate(
                Filters=filters, PaginationConfig={"PageSize": 1000}
            ):
                for reservation in page["Reservations"]:
                    yield from reservation["Instances"]

    def _profile(self, item: Mapping[str, Any]) -> InstanceProfile:
        cluster, _, role = item["Path"].removeprefix(self._path).strip("/").partition("/")
        holds = tuple(held["RoleName"] for held in item["Roles"])
        return InstanceProfile(item["InstanceProfileName"], item["Arn"], cluster, role, holds)

    def _role(self, item: Mapping[str, Any]) -> OwnNodeRole:
        cluster = item["Path"].removeprefix(self._path).strip("/")
        return OwnNodeRole(item["RoleName"], item["Arn"], cluster, item["CreateDate"].timestamp())


def _unless_gone(effect: Callable[..., Any], **request: str) -> None:
    """Have an effect of IAM on what may be gone."""
    try:
        effect(**request)
    except ClientError as error:
        if code_of(error) not in _GONE_IN_IAM:
            raise
