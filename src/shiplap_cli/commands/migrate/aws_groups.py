"""Auto Scaling groups, managed node groups and launch templates: as the AWS command line prints them, or asked for.

Read from `aws autoscaling describe-auto-scaling-groups`, `aws eks describe-nodegroup` and `aws ec2
describe-launch-template-versions`. Only what a migration looks at is named here. Other fields that shape nodes are
counted in `unread`, so that the report names them; those of groups themselves are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from shiplap.errors import AwsError, InvalidInput
from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.manifests.files.documents import Document
from shiplap_cli.installs.find_install import aws_client

T = TypeVar("T")


class _Pascal(msgspec.Struct, frozen=True, rename="pascal"):
    """Base of what EC2 and Auto Scaling answer."""


class _Camel(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what EKS answers."""


class GroupTag(_Pascal, frozen=True):
    key: str
    value: str = ""
    propagate_at_launch: bool = False


class TemplateReference(_Pascal, frozen=True):
    launch_template_id: str = ""
    launch_template_name: str = ""
    version: str = "$Default"


class AttributeRange(_Pascal, frozen=True):
    """A range; no bound where there is None."""

    min: float | None = None
    max: float | None = None


class InstanceRequirements(_Pascal, frozen=True):
    """Attributes instead of types."""

    v_cpu_count: AttributeRange = msgspec.field(default=AttributeRange(), name="VCpuCount")
    memory_mib: AttributeRange = msgspec.field(default=AttributeRange(), name="MemoryMiB")
    cpu_manufacturers: tuple[str, ...] = ()
    allowed_instance_types: tuple[str, ...] = ()
    excluded_instance_types: tuple[str, ...] = ()
    instance_generations: tuple[str, ...] = ()
    bare_metal: str = ""
    burstable_performance: str = ""
    local_storage: str = ""
    unread: tuple[str, ...] = ()


class Override(_Pascal, frozen=True):
    instance_type: str = ""
    weighted_capacity: str = ""
    instance_requirements: InstanceRequirements | None = None
    unread: tuple[str, ...] = ()


class MixedTemplate(_Pascal, frozen=True):
    launch_template_specification: TemplateReference = TemplateReference()
    overrides: tuple[Override, ...] = ()


class Distribution(_Pascal, frozen=True):
    """The defaults are those of Auto Scaling."""

    on_demand_allocation_strategy: str = "prioritized"
    on_demand_base_capacity: int = 0
    on_demand_percentage_above_base_capacity: int = 100
    spot_allocation_strategy: str = "lowest-price"
    spot_max_price: str = ""


class MixedInstancesPolicy(_Pascal, frozen=True):
    launch_template: MixedTemplate = MixedTemplate()
    instances_distribution: Distribution = Distribution()


class AutoScalingGroup(_Pascal, frozen=True):
    auto_scaling_group_name: str
    min_size: int = 0
    max_size: int = 0
    desired_capacity: int = 0
    launch_template: TemplateReference | None = None
    launch_configuration_name: str = ""
    mixed_instances_policy: MixedInstancesPolicy | None = None
    availability_zones: tuple[str, ...] = ()
    vpc_zone_identifier: str = msgspec.field(default="", name="VPCZoneIdentifier")
    tags: tuple[GroupTag, ...] = ()
    load_balancer_names: tuple[str, ...] = ()
    target_group_arns: tuple[str, ...] = msgspec.field(default=(), name="TargetGroupARNs")
    warm_pool_configuration: dict[str, Any] | None = None

    def tag(self, key: str) -> str:
        """The value of a tag; empty when it is not there."""
        return next((tag.value for tag in self.tags if tag.key == key), "")


class ScalingConfig(_Camel, frozen=True):
    min_size: int = 0
    max_size: int = 0
    desired_size: int = 0


class GroupTaint(_Camel, frozen=True):
    key: str
    effect: str
    value: str = ""


class NodegroupTemplate(_Camel, frozen=True):
    id: str = ""
    name: str = ""
    version: str = "$Default"


class GroupName(_Camel, frozen=True):
    name: str = ""


class NodegroupResources(_Camel, frozen=True):
    auto_scaling_groups: tuple[GroupName, ...] = ()


class Nodegroup(_Camel, frozen=True):
    """A managed node group."""

    nodegroup_name: str
    cluster_name: str = ""
    scaling_config: ScalingConfig = ScalingConfig()
    instance_types: tuple[str, ...] = ()
    subnets: tuple[str, ...] = ()
    ami_type: str = ""
    capacity_type: str = "ON_DEMAND"
    node_role: str = ""
    labels: dict[str, str] = {}
    taints: tuple[GroupTaint, ...] = ()
    resources: NodegroupResources = NodegroupResources()
    disk_size: int | None = None
    launch_template: NodegroupTemplate | None = None


class Ebs(_Pascal, frozen=True):
    volume_size: int | None = None
    volume_type: str | None = None
    iops: int | None = None
    throughput: int | None = None
    encrypted: bool | None = None
    delete_on_termination: bool | None = None
    kms_key_id: str | None = None
    snapshot_id: str | None = None


class TemplateDevice(_Pascal, frozen=True):
    device_name: str = ""
    virtual_name: str = ""
    ebs: Ebs | None = None


class Profile(_Pascal, frozen=True):
    arn: str = ""
    name: str = ""


class TemplateInterface(_Pascal, frozen=True):
    groups: tuple[str, ...] = ()
    associate_public_ip_address: bool | None = None


class TemplateMetadataOptions(_Pascal, frozen=True):
    http_endpoint: str = ""
    http_tokens: str = ""
    http_put_response_hop_limit: int | None = None
    http_protocol_ipv6: str = ""


class Monitoring(_Pascal, frozen=True):
    enabled: bool = False


class SpotOptions(_Pascal, frozen=True):
    max_price: str = ""


class MarketOptions(_Pascal, frozen=True):
    market_type: str = ""
    spot_options: SpotOptions | None = None


class TemplateData(_Pascal, frozen=True):
    image_id: str = ""
    instance_type: str = ""
    iam_instance_profile: Profile | None = None
    security_group_ids: tuple[str, ...] = ()
    network_interfaces: tuple[TemplateInterface, ...] = ()
    block_device_mappings: tuple[TemplateDevice, ...] = ()
    metadata_options: TemplateMetadataOptions | None = None
    monitoring: Monitoring | None = None
    instance_market_options: MarketOptions | None = None
    user_data: str = ""
    key_name: str = ""
    instance_requirements: InstanceRequirements | None = None
    unread: tuple[str, ...] = ()


class LaunchTemplateVersion(_Pascal, frozen=True):
    launch_template_id: str = ""
    launch_template_name: str = ""
    version_number: int = 0
    default_version: bool = False
    launch_template_data: TemplateData = TemplateData()


class AwsGroups(msgspec.Struct, frozen=True):
    """Everything that was found in AWS's answers."""

    groups: tuple[AutoScalingGroup, ...] = ()
    node_groups: tuple[Nodegroup, ...] = ()
    templates: tuple[LaunchTemplateVersion, ...] = ()

    def template(self, reference: TemplateReference) -> TemplateData | None:
        """The version of a launch template that is meant, if it was given."""
        versions = [
            version
            for version in self.templates
            if (reference.launch_template_id and version.launch_template_id == reference.launch_template_id)
            or (reference.launch_template_name and version.launch_template_name == reference.launch_template_name)
        ]
        if not versions:
            return None
        match reference.version:
            case "$Latest":
                return max(versions, key=lambda version: version.version_number).launch_template_data
            case "$Default" | "":
                wanted = [version for version in versions if version.default_version]
            case number:
                wanted = [version for version in versions if str(version.version_number) == number]
        return wanted[0].launch_template_data if wanted else None


_ANSWERS = ("AutoScalingGroups", "nodegroup", "LaunchTemplateVersions")


def is_aws_answer(document: Document) -> bool:
    """True if a document is one of the answers this module reads."""
    return any(key in document.data for key in _ANSWERS)


def read(documents: Sequence[Document]) -> AwsGroups:
    """The groups and templates in AWS's answers, sorted by name.

    Raises:
        InvalidInput: a field has the wrong type or is missing.
    """
    groups: list[AutoScalingGroup] = []
    node_groups: list[Nodegroup] = []
    templates: list[LaunchTemplateVersion] = []
    for document in documents:
        data = document.data
        groups += _convert(document, data.get("AutoScalingGroups") or [], list[AutoScalingGroup], "AutoScalingGroups")
        if "nodegroup" in data:
            node_groups.append(_convert(document, data["nodegroup"], Nodegroup, "nodegroup"))
        versions = data.get("LaunchTemplateVersions") or []
        templates += _convert(document, versions, list[LaunchTemplateVersion], "LaunchTemplateVersions")
    return AwsGroups(
        tuple(sorted(groups, key=lambda group: group.auto_scaling_group_name)),
        tuple(sorted(node_groups, key=lambda group: group.nodegroup_name)),
        tuple(templates),
    )


def _convert(document: Document, data: Any, kind: type[T], field: str) -> T:
    try:
        return msgspec.convert(_with_unread(without_nulls(data), inspect.type_info(kind)), kind)
    except msgspec.ValidationError as error:
        reason = str(error).replace("`", "")
        raise InvalidInput(document.source, reason, field=field, line=document.line_of((field,))) from error


def _with_unread(data: Any, shape: inspect.Type) -> Any:
    """The data with the names of fields that are not decoded, in each struct that counts them."""
    match shape:
        case inspect.ListType(item_type=of) | inspect.VarTupleType(item_type=of) if isinstance(data, list):
            return [_with_unread(item, of) for item in data]
        case inspect.UnionType(types=types):
            return _with_unread(data, next((kind for kind in types if isinstance(kind, inspect.StructType)), types[0]))
        case inspect.StructType(fields=fields) if isinstance(data, Mapping):
            known = {field.encode_name: field for field in fields}
            read = {key: _with_unread(item, known[key].type) for key, item in data.items() if key in known}
            unread = sorted(str(key) for key, item in data.items() if key not in known and item not in ({}, [], ""))
            return read | ({"Unread": unread} if "Unread" in known else {})
    return data


_TAGS = ("k8s.io/cluster-autoscaler/{}", "kubernetes.io/cluster/{}")


def documents_of(cluster: str, region: str) -> list[Document]:
    """Node groups, Auto Scaling groups and their launch templates, as the AWS command line would print them.

    Raises:
        InvalidInput: there is no cluster of this name, or it has no group.
        AwsError: AWS refused; the message names the action that is missing.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow to import, and files need no AWS

    try:
        answers = list(_answers(cluster, region))
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ResourceNotFoundException":
            raise InvalidInput("--cluster", f"EKS knows no cluster {cluster!r} in this region") from error
        raise AwsError(f"AWS refused {error.operation_name}: {error}", code=code) from error
    except BotoCoreError as error:
        raise AwsError(f"AWS cannot be asked: {error}") from error
    if not answers:
        raise InvalidInput("--cluster", f"cluster {cluster!r} has neither node groups nor tagged Auto Scaling groups")
    return [Document("AWS", number, 0, f"answer {number + 1}", answer) for number, answer in enumerate(answers)]


def _answers(cluster: str, region: str) -> Iterator[dict[str, Any]]:
    templates: set[tuple[str, str]] = set()
    eks = aws_client("eks", region)
    for page in eks.get_paginator("list_nodegroups").paginate(clusterName=cluster):
        for name in page["nodegroups"]:
            answer = eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
            yield {"nodegroup": answer}
            written = answer.get("launchTemplate") or {}
            templates.add((written.get("id", ""), written.get("version", "$Default")))
    groups = list(_groups(cluster, region))
    if groups:
        yield {"AutoScalingGroups": groups}
    for group in groups:
        mixed = (group.get("MixedInstancesPolicy") or {}).get("LaunchTemplate", {}).get("LaunchTemplateSpecification")
        written = mixed or group.get("LaunchTemplate") or {}
        templates.add((written.get("LaunchTemplateId", ""), written.get("Version", "$Default")))
    ec2 = aws_client("ec2", region)
    for template, version in sorted(templates):
        if template:
            found = ec2.describe_launch_template_versions(LaunchTemplateId=template, Versions=[version])
            versions = [
                entry | ({"DefaultVersion": True, "VersionNumber": entry["VersionNumber"]} if "$" in version else {})
                for entry in found["LaunchTemplateVersions"]
            ]
            yield {"LaunchTemplateVersions": versions}


def _groups(cluster: str, region: str) -> Iterator[dict[str, Any]]:
    seen = set()
    paginator = aws_client("autoscaling", region).get_paginator("describe_auto_scaling_groups")
    for tag in _TAGS:
        for page in paginator.paginate(Filters=[{"Name": "tag-key", "Values": [tag.format(cluster)]}]):
            for group in page["AutoScalingGroups"]:
                if group["AutoScalingGroupName"] not in seen:
                    seen.add(group["AutoScalingGroupName"])
                    yield group
