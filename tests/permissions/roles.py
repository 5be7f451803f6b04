"""What the roles of a synthesised template allow, with every reference resolved to what it would be once deployed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tests.infra.synthesised import functions, resources, statements
from tests.permissions.authorizations import ACCOUNT

if TYPE_CHECKING:  # the CDK's binding starts Node.js when it is imported
    from aws_cdk.assertions import Template

_SERVICES = {
    "AWS::DynamoDB::GlobalTable": ("dynamodb", "table/{}"),
    "AWS::SQS::Queue": ("sqs", "{}"),
    "AWS::Events::EventBus": ("events", "event-bus/{}"),
    "AWS::Logs::LogGroup": ("logs", "log-group:{}:*"),
    "AWS::Lambda::Function": ("lambda", "function:{}"),
}
_NAMES = ("QueueName", "Name", "LogGroupName", "FunctionName", "RoleName", "InstanceProfileName")


class Roles:
    """The roles of one template, deployed to ACCOUNT in `region`; what has no name is called by its logical id."""

    def __init__(self, template: Template, region: str) -> None:
        self._template = template
        self._region = region
        self._resources: dict[str, Any] = template.to_json()["Resources"]

    def statements(self, function: str) -> list[dict[str, Any]]:
        """What the role of a function says."""
        found: list[dict[str, Any]] = self.resolved(statements(self._template, function))
        return found

    def environment(self, function: str) -> dict[str, str]:
        """The environment variables of a function."""
        found: dict[str, str] = self.resolved(functions(self._template)[function]["Environment"]["Variables"])
        return found

    def role_of_profile(self) -> dict[str, str]:
        """ARNs of the roles that instance profiles carry, by the profile's name."""
        found = {}
        for item in resources(self._template, "AWS::IAM::InstanceProfile").values():
            (role,) = self.resolved(item["Properties"]["Roles"])
            found[self.resolved(item["Properties"]["InstanceProfileName"])] = f"arn:aws:iam::{ACCOUNT}:role/{role}"
        return found

    def name(self, logical_id: str) -> str:
        """The physical name of a resource."""
        properties: Mapping[str, Any] = self._resources[logical_id].get("Properties", {})
        named = next((properties[field] for field in _NAMES if isinstance(properties.get(field), str)), logical_id)
        return named.lower() if self._resources[logical_id]["Type"] == "AWS::S3::Bucket" else named

    def resolved(self, value: Any) -> Any:
        """A value of the template without intrinsic functions."""
        if isinstance(value, list):
            return [self.resolved(item) for item in value]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Ref": str(name)}:
                return self._reference(name)
            case {"Fn::GetAtt": [str(name), "Arn"]}:
                return self._arn(name)
            case {"Fn::GetAtt": [str(name), "QueueName"]}:
                return self.name(name)
            case {"Fn::Join": [str(separator), list(parts)]}:
                return separator.join(self.resolved(parts))
        assert not any(key.startswith("Fn::") for key in value), value
        return {key: self.resolved(item) for key, item in value.items()}

    def _reference(self, name: str) -> str:
        pseudo = {
            "AWS::Partition": "aws",
            "AWS::Region": self._region,
            "AWS::AccountId": ACCOUNT,
            "AWS::URLSuffix": "amazonaws.com",
        }
        if name in pseudo:
            return pseudo[name]
        if self._resources[name]["Type"] == "AWS::SQS::Queue":
            return f"https://sqs.{self._region}.amazonaws.com/{ACCOUNT}/{self.name(name)}"
        return self.name(name)

    def _arn(self, logical_id: str) -> str:
        kind = self._resources[logical_id]["Type"]
        if kind == "AWS::S3::Bucket":
            return f"arn:aws:s3:::{self.name(logical_id)}"
        if kind == "AWS::IAM::Role":
            return f"arn:aws:iam::{ACCOUNT}:role/{self.name(logical_id)}"
        service, pattern = _SERVICES[kind]
        return f"arn:aws:{service}:{self._region}:{ACCOUNT}:{pattern.format(self.name(logical_id))}"
