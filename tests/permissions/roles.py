"""Reads the rights of a synthesised install's roles, with every reference resolved to its value once deployed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.aws_rules.cloud_assembly import Resource, Template
from tests.permissions.authorizations import ACCOUNT


class Roles:
    """The roles of all templates of an install, nested ones too; what has no name is called by its logical id.

    A function goes by its name without the install's; one of a network group ends in the group's, as `schedule-blue`.
    """

    def __init__(self, templates: Sequence[Template]) -> None:
        self._resources = [resource for template in templates for resource in template.resources()]
        self._functions = {
            resource.properties["FunctionName"].removeprefix("shiplap-"): resource
            for resource in self._of("AWS::Lambda::Function")
        }

    def functions(self) -> list[str]:
        """All functions, sorted."""
        return sorted(self._functions)

    def policies(self, function: str) -> Iterator[Resource]:
        """The policies of a function's role, inline or attached; all are in the function's own template."""
        made = self._functions[function]
        role = made.properties["Role"].rpartition("/")[2]
        for kind in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            of_template = (policy for policy in self._of(kind) if policy.template is made.template)
            yield from (policy for policy in of_template if role in policy.properties["Roles"])

    def statements(self, function: str) -> list[dict[str, Any]]:
        """Return the policy statements of a function's role."""
        documents = [policy.properties["PolicyDocument"] for policy in self.policies(function)]
        return [statement for document in documents for statement in document["Statement"]]

    def environment(self, function: str) -> dict[str, str]:
        """The environment variables of a function."""
        found: dict[str, str] = self._functions[function].properties["Environment"]["Variables"]
        return found

    def role_of_profile(self) -> dict[str, str]:
        """ARNs of the roles that instance profiles carry, by the profile's name."""
        made = {
            role.template.physical_name(role.logical_id): role.template.arn(role.logical_id)
            for role in self._of("AWS::IAM::Role")
        }
        found = {}
        for profile in self._of("AWS::IAM::InstanceProfile"):
            (role,) = profile.properties["Roles"]
            name = profile.template.physical_name(profile.logical_id)
            found[name] = made.get(role, f"arn:aws:iam::{ACCOUNT}:role/{role}")
        return found

    def parameters(self) -> dict[str, str]:
        """The SSM parameters that the stack makes, by name."""
        return {item.properties["Name"]: item.properties["Value"] for item in self._of("AWS::SSM::Parameter")}

    def _of(self, kind: str) -> Iterator[Resource]:
        return (resource for resource in self._resources if resource.type == kind)
