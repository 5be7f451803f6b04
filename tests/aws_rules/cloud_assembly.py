"""A synthesised cloud assembly as an account would get it: all templates, nested ones too, with references resolved."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ACCOUNT = "123456789012"
REGION = "eu-west-1"

_PSEUDO_PARAMETERS = {
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::StackName": "Shiplap",
}
_ARNS = {
    "AWS::CloudFormation::Stack": "cloudformation:{region}:{account}:stack/{name}/0",
    "AWS::CloudWatch::Alarm": "cloudwatch:{region}:{account}:alarm:{name}",
    "AWS::DynamoDB::GlobalTable": "dynamodb:{region}:{account}:table/{name}",
    "AWS::DynamoDB::Table": "dynamodb:{region}:{account}:table/{name}",
    "AWS::Events::EventBus": "events:{region}:{account}:event-bus/{name}",
    "AWS::Events::Rule": "events:{region}:{account}:rule/{name}",
    "AWS::IAM::InstanceProfile": "iam::{account}:instance-profile{path}{name}",
    "AWS::IAM::ManagedPolicy": "iam::{account}:policy/{name}",
    "AWS::IAM::Role": "iam::{account}:role{path}{name}",
    "AWS::KMS::Key": "kms:{region}:{account}:key/{name}",
    "AWS::Lambda::Alias": "lambda:{region}:{account}:function:{name}:live",
    "AWS::Lambda::Function": "lambda:{region}:{account}:function:{name}",
    "AWS::Lambda::LayerVersion": "lambda:{region}:{account}:layer:{name}:1",
    "AWS::Lambda::Version": "lambda:{region}:{account}:function:{name}:1",
    "AWS::Logs::LogGroup": "logs:{region}:{account}:log-group:{name}:*",
    "AWS::S3::Bucket": "s3:::{name}",
    "AWS::SNS::Topic": "sns:{region}:{account}:{name}",
    "AWS::SQS::Queue": "sqs:{region}:{account}:{name}",
    "AWS::Scheduler::Schedule": "scheduler:{region}:{account}:schedule/{group}/{name}",
    "AWS::Scheduler::ScheduleGroup": "scheduler:{region}:{account}:schedule-group/{name}",
}
"""ARNs by the type of the resource, as the Service Authorization Reference gives them."""

_REFERENCES_ARE_ARNS = {
    "AWS::CloudFormation::Stack",
    "AWS::IAM::ManagedPolicy",
    "AWS::Lambda::Alias",
    "AWS::Lambda::LayerVersion",
    "AWS::Lambda::Version",
    "AWS::SNS::Topic",
}
_NAMES = (
    "QueueName",
    "Name",
    "LogGroupName",
    "FunctionName",
    "RoleName",
    "InstanceProfileName",
    "ManagedPolicyName",
    "BucketName",
    "TableName",
    "TopicName",
    "AlarmName",
    "LayerName",
)


class Resource(NamedTuple):
    """One resource with its properties resolved."""

    template: Template
    logical_id: str
    type: str
    properties: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.template.name}/{self.logical_id} ({self.type})"


class Template:
    """One template; a nested one knows its parent and its resource there."""

    def __init__(self, path: Path, name: str, parent: Template | None = None, stack: str = "") -> None:
        self.path = path
        self.name = name
        self._parent = parent
        self._stack = stack
        self._body: dict[str, Any] = json.loads(path.read_text())
        self._raw: dict[str, Any] = self._body["Resources"]
        self._nested = {
            logical_id: Template(
                _asset(path.parent, self.resolved(item["Properties"]["TemplateURL"])),
                f"{name}/{logical_id}",
                self,
                logical_id,
            )
            for logical_id, item in self._raw.items()
            if item["Type"] == "AWS::CloudFormation::Stack"
        }

    def with_nested(self) -> Iterator[Template]:
        """This template and all below it."""
        yield self
        for nested in self._nested.values():
            yield from nested.with_nested()

    def resources(self) -> Iterator[Resource]:
        """All resources of this template, without those of nested ones."""
        for logical_id, item in self._raw.items():
            yield Resource(self, logical_id, item["Type"], self.resolved(item.get("Properties", {})))

    def arn(self, logical_id: str) -> str:
        """The ARN of a resource once deployed. Raises NotImplementedError for types that have none here."""
        kind = self._raw[logical_id]["Type"]
        if kind not in _ARNS:
            raise NotImplementedError(f"{kind} has no ARN in {__name__}._ARNS")
        raw = self._raw[logical_id].get("Properties", {})
        name = self.physical_name(logical_id)
        if kind == "AWS::Events::Rule" and "EventBusName" in raw:
            name = f"{self.resolved(raw['EventBusName']).rpartition('/')[2]}/{name}"
        return "arn:aws:" + _ARNS[kind].format(
            region=REGION,
            account=ACCOUNT,
            name=name,
            path=self.resolved(raw.get("Path", "/")),
            group=self.resolved(raw.get("GroupName", "default")),
        )

    def resolved(self, value: Any) -> Any:
        """A value of this template without intrinsic functions."""
        if isinstance(value, list):
            return [self.resolved(item) for item in value if item != {"Ref": "AWS::NoValue"}]
        if not isinstance(value, dict):
            return value
        match value:
            case {"Ref": str(name)} if len(value) == 1:
                return self._reference(name)
            case {"Fn::GetAtt": [str(name), str(attribute)]}:
                return self._attribute(name, attribute)
            case {"Fn::Join": [str(separator), list(parts)]}:
                return separator.join(map(str, self.resolved(parts)))
            case {"Fn::Select": [int() | str() as index, parts]}:
                return self.resolved(parts)[int(index)]
            case {"Fn::Split": [str(separator), text]}:
                return self.resolved(text).split(separator)
            case {"Fn::Sub": str(text)} if "${" not in text.replace("${AWS::", ""):
                for name, known in _PSEUDO_PARAMETERS.items():
                    text = text.replace(f"${{{name}}}", known)
                return text
        unknown = [key for key in value if key.startswith("Fn::")]
        if unknown:
            raise NotImplementedError(f"{unknown} in {self.name}")
        return {key: self.resolved(item) for key, item in value.items()}

    def _reference(self, name: str) -> Any:
        if name in _PSEUDO_PARAMETERS:
            return _PSEUDO_PARAMETERS[name]
        if name in self._raw:
            kind = self._raw[name]["Type"]
            if kind == "AWS::SQS::Queue":
                return f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/{self.physical_name(name)}"
            return self.arn(name) if kind in _REFERENCES_ARE_ARNS else self.physical_name(name)
        parameter = self._body["Parameters"][name]
        if self._parent is None:
            return parameter.get("Default", name)
        given = self._parent._raw[self._stack]["Properties"].get("Parameters", {})
        return self._parent.resolved(given[name]) if name in given else parameter["Default"]

    def _attribute(self, name: str, attribute: str) -> Any:
        if attribute.startswith("Outputs."):
            nested = self._nested[name]
            return nested.resolved(nested._body["Outputs"][attribute.removeprefix("Outputs.")]["Value"])
        if attribute in ("Arn", "TableArn"):
            return self.arn(name)
        return f"{self.physical_name(name)}.{attribute}" if attribute not in _NAMES else self.physical_name(name)

    def physical_name(self, logical_id: str) -> str:
        """The physical name; for what CloudFormation names the logical id, in IAM behind that of a nested stack.

        IAM's names are those of the account, and stacks of two clusters have the same logical ids.
        """
        raw = self._raw[logical_id].get("Properties", {})
        kind = self._raw[logical_id]["Type"]
        of_alias = kind == "AWS::Lambda::Alias"
        names = ("FunctionName",) if of_alias else _NAMES
        given = next((raw[field] for field in names if field in raw), logical_id)
        if given == logical_id and self._stack and kind in ("AWS::IAM::Role", "AWS::IAM::InstanceProfile"):
            return f"{self._stack}-{logical_id}"
        name = str(self.resolved(given)).rpartition("function:")[2]
        return name.lower() if kind == "AWS::S3::Bucket" else name


def _asset(folder: Path, url: str) -> Path:
    """The file of an assembly that will be at an address in the bucket of assets."""
    key = url.rpartition("/")[2]
    for manifest in folder.glob("*.assets.json"):
        for asset in json.loads(manifest.read_text())["files"].values():
            if any(place["objectKey"].endswith(key) for place in asset["destinations"].values()):
                return folder / asset["source"]["path"]
    raise FileNotFoundError(url)


def templates(folder: Path) -> list[Template]:
    """All templates of a cloud assembly, assemblies within it and nested stacks included."""
    found: list[Template] = []
    for name, artifact in json.loads((folder / "manifest.json").read_text())["artifacts"].items():
        properties = artifact.get("properties", {})
        if artifact["type"] == "aws:cloudformation:stack":
            found += Template(folder / properties["templateFile"], name).with_nested()
        elif artifact["type"] == "cdk:cloud-assembly":
            found += templates(folder / properties["directoryName"])
    return found
