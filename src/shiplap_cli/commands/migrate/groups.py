"""One view of Auto Scaling groups and managed node groups: the properties of their nodes, from all sources.

A managed node group says most things itself and the rest in its launch template. A self-managed one says them in the
template, in the tags that Cluster Autoscaler reads when a group is empty, and in its user data: by
`--kubelet-extra-args` of the AL2 bootstrap script, by a NodeConfig or by Bottlerocket's settings.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence

import msgspec

from shiplap.kubernetes.objects import Taint
from shiplap_cli.commands.migrate.autoscaler import NO_CLUSTER, AutoscalerSettings
from shiplap_cli.commands.migrate.aws_groups import (
    AutoScalingGroup,
    AwsGroups,
    Distribution,
    InstanceRequirements,
    Nodegroup,
    Override,
    TemplateData,
    TemplateReference,
)

_LABELS = re.compile(r"--node-labels[= ]['\"]?([^\s'\"]+)")
_TAINTS = re.compile(r"--register-with-taints[= ]['\"]?([^\s'\"]+)")
_MAX_PODS = re.compile(r"(?:--max-pods[= ]['\"]?|max-pods\s*=\s*|maxPods:\s*)(\d+)")


class UserData(msgspec.Struct, frozen=True):
    """`family` is the AMI family that the user data is written for, empty when it cannot be told."""

    text: str = ""
    family: str = ""
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    max_pods: int | None = None


def read_user_data(user_data: str) -> UserData:
    """Read a launch template's user data (base64); return empty user data when it is not text."""
    try:
        text = base64.b64decode(user_data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return UserData()
    if not text:
        return UserData()
    pods = _MAX_PODS.search(text)
    labels, taints = _flags(text)
    if _family(text) == "Bottlerocket":
        labels, taints = _bottlerocket(text)
    return UserData(text, _family(text), labels, taints, int(pods[1]) if pods else None)


def _family(text: str) -> str:
    if "/etc/eks/bootstrap.sh" in text:
        return "AL2"
    if "node.eks.aws" in text:
        return "AL2023"
    if "[settings.kubernetes" in text:
        return "Bottlerocket"
    return "Windows" if "Start-EKSBootstrap" in text else ""


def _flags(text: str) -> tuple[dict[str, str], tuple[Taint, ...]]:
    labels: dict[str, str] = {}
    for found in _LABELS.findall(text):
        for pair in found.split(","):
            key, _, value = pair.partition("=")
            if key:
                labels[key] = value
    taints = [taint for found in _TAINTS.findall(text) for part in found.split(",") if (taint := _parsed_taint(part))]
    return labels, tuple(taints)


class _Kubernetes(msgspec.Struct, frozen=True, rename="kebab"):
    node_labels: dict[str, str] = {}
    node_taints: dict[str, str | tuple[str, ...]] = {}


class _Settings(msgspec.Struct, frozen=True):
    kubernetes: _Kubernetes = _Kubernetes()


class _Bottlerocket(msgspec.Struct, frozen=True):
    settings: _Settings = _Settings()


def _bottlerocket(text: str) -> tuple[dict[str, str], tuple[Taint, ...]]:
    """Labels and taints of Bottlerocket's settings; nothing of settings that it would refuse, too."""
    try:
        kubernetes = msgspec.toml.decode(text, type=_Bottlerocket).settings.kubernetes
    except msgspec.DecodeError:
        return {}, ()
    pairs = (
        f"{key}={value}"
        for key, values in kubernetes.node_taints.items()
        for value in ((values,) if isinstance(values, str) else values)
    )
    return kubernetes.node_labels, tuple(filter(None, map(_parsed_taint, pairs)))


def _parsed_taint(text: str) -> Taint | None:
    """`key=value:Effect`, as a taint is written on command lines; None when it is not one."""
    rest, colon, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key, effect, value) if colon and key and effect else None


_TEMPLATE_TAG = "k8s.io/cluster-autoscaler/node-template/"
_CLUSTER_TAGS = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_MANAGED_BY = "eks:nodegroup-name"


class SourceGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one group.

    `spot_percent` is the share of spot, 0 to 100; `template` None when it was not among the inputs; `ami_type` is
    EKS's name of the image, empty for self-managed groups; `options` are Cluster Autoscaler's settings for the group;
    `scaling_groups` its names in Auto Scaling, and `tags` theirs; `types_missing` says why its types are unknown.
    """

    name: str
    source: str
    managed: bool
    cluster: str = ""
    least: int = 0
    most: int = 0
    desired: int = 0
    types: tuple[str, ...] = ()
    attributes: InstanceRequirements | None = None
    spot_percent: int = 0
    distribution: Distribution | None = None
    subnets: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    ami_type: str = ""
    role: str = ""
    template: TemplateData | None = None
    template_name: str = ""
    boot: UserData = UserData()
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    resources: dict[str, str] = {}
    options: dict[str, str] = {}
    disk_gib: int | None = None
    instance_tags: dict[str, str] = {}
    leftovers: tuple[str, ...] = ()
    scaling_groups: tuple[str, ...] = ()
    tags: dict[str, str] = {}
    types_missing: str = ""


def source_groups(groups: AwsGroups) -> tuple[SourceGroup, ...]:
    """All groups by name; the Auto Scaling group behind a managed node group is not a second one."""
    tags = {group.auto_scaling_group_name: group for group in groups.groups}
    behind = {entry.name for node_group in groups.node_groups for entry in node_group.resources.auto_scaling_groups}
    names = {node_group.nodegroup_name for node_group in groups.node_groups}
    result = [_managed(node_group, groups, tags) for node_group in groups.node_groups]
    result += [
        _self_managed(group, groups)
        for group in groups.groups
        if group.auto_scaling_group_name not in behind and group.tag(_MANAGED_BY) not in names
    ]
    return tuple(sorted(result, key=lambda group: group.name))


def _managed(node_group: Nodegroup, groups: AwsGroups, by_name: dict[str, AutoScalingGroup]) -> SourceGroup:
    written = node_group.launch_template
    reference = TemplateReference(written.id, written.name, written.version) if written is not None else None
    template = groups.template(reference) if reference is not None else None
    booted = read_user_data(template.user_data) if template is not None else UserData()
    behind = [by_name[entry.name] for entry in node_group.resources.auto_scaling_groups if entry.name in by_name]
    hints = _hints(behind)
    types = node_group.instance_types or ((template.instance_type,) if template and template.instance_type else ())
    by_default = reference is None or (template is not None and template.instance_requirements is None)
    if not types and by_default and "ARM_64" not in node_group.ami_type:
        types = (_TYPE_OF_EKS,)
    attributes = template.instance_requirements if template is not None and not types else None
    return SourceGroup(
        name=node_group.nodegroup_name,
        source=f"node group {node_group.nodegroup_name}",
        managed=True,
        cluster=node_group.cluster_name,
        least=node_group.scaling_config.min_size,
        most=node_group.scaling_config.max_size,
        desired=node_group.scaling_config.desired_size,
        types=types,
        attributes=attributes,
        spot_percent=100 if node_group.capacity_type == "SPOT" else 0,
        subnets=node_group.subnets,
        ami_type=node_group.ami_type,
        role=node_group.node_role.rpartition("/")[2],
        template=template,
        template_name="" if reference is None else reference.launch_template_name or reference.launch_template_id,
        boot=booted,
        labels=hints.labels | booted.labels | node_group.labels,
        taints=_unique(
            [*(Taint(t.key, _EFFECTS.get(t.effect, t.effect), t.value) for t in node_group.taints), *hints.taints]
        ),
        resources=hints.resources,
        options=hints.options,
        disk_gib=node_group.disk_size,
        leftovers=(*hints.unread, *_unmapped_of_template(template)),
        scaling_groups=tuple(entry.name for entry in node_group.resources.auto_scaling_groups),
        tags=_tags_by_eks(node_group.cluster_name) | {tag.key: tag.value for group in behind for tag in group.tags},
        types_missing="" if types or attributes is not None else _where_types_stand(reference),
    )


def _self_managed(group: AutoScalingGroup, groups: AwsGroups) -> SourceGroup:
    mixed = group.mixed_instances_policy
    reference = mixed.launch_template.launch_template_specification if mixed is not None else group.launch_template
    template = groups.template(reference) if reference is not None else None
    booted = read_user_data(template.user_data) if template is not None else UserData()
    hints = _hints([group])
    overrides = mixed.launch_template.overrides if mixed is not None else ()
    types = tuple(override.instance_type for override in overrides if override.instance_type)
    attributes = next((o.instance_requirements for o in overrides if o.instance_requirements is not None), None)
    if template is not None and not types and attributes is None:
        types = (template.instance_type,) if template.instance_type else ()
        attributes = template.instance_requirements
    subnets = tuple(filter(None, group.vpc_zone_identifier.replace(" ", "").split(",")))
    return SourceGroup(
        name=group.auto_scaling_group_name,
        source=f"Auto Scaling group {group.auto_scaling_group_name}",
        managed=False,
        cluster=_cluster(group),
        least=group.min_size,
        most=group.max_size,
        desired=group.desired_capacity,
        types=types,
        attributes=attributes,
        spot_percent=_spot_percent(mixed.instances_distribution if mixed is not None else None, template),
        distribution=mixed.instances_distribution if mixed is not None else None,
        subnets=subnets,
        zones=() if subnets else group.availability_zones,
        template=template,
        template_name="" if reference is None else reference.launch_template_name or reference.launch_template_id,
        boot=booted,
        labels=booted.labels | hints.labels,
        taints=_unique([*booted.taints, *hints.taints]),
        resources=hints.resources,
        options=hints.options,
        instance_tags={tag.key: tag.value for tag in group.tags if tag.propagate_at_launch and _is_of_users(tag.key)},
        leftovers=(*_unmapped(group, overrides), *hints.unread, *_unmapped_of_template(template)),
        scaling_groups=(group.auto_scaling_group_name,),
        tags={tag.key: tag.value for tag in group.tags},
        types_missing="" if types or attributes is not None else _types_missing(group, reference, template),
    )


def _types_missing(group: AutoScalingGroup, reference: TemplateReference | None, template: TemplateData | None) -> str:
    if name := group.launch_configuration_name:
        return f"its instance types stand in launch configuration {name}: copy it to a launch template and give that"
    return _where_types_stand(reference) if template is None else "its launch template names no instance type"


def _where_types_stand(reference: TemplateReference | None) -> str:
    """The launch template whose types were not given, with the command that prints them."""
    if reference is None:
        return "it names no instance type, nor a launch template"
    by = f"--launch-template-id {reference.launch_template_id}"
    if not reference.launch_template_id:
        by = f"--launch-template-name {reference.launch_template_name}"
    name = reference.launch_template_name or reference.launch_template_id
    command = f"aws ec2 describe-launch-template-versions {by} --versions '{reference.version}'"
    where = f"launch template {name}, version {reference.version}"
    return f"its instance types stand in {where}, which was not given: add what `{command}` prints"


_TYPE_OF_EKS = "t3.medium"
"""What EKS launches for a managed node group that names no type."""


def _tags_by_eks(cluster: str) -> dict[str, str]:
    """The tags that EKS gives the Auto Scaling group behind a managed node group."""
    own = {"k8s.io/cluster-autoscaler/enabled": "true", f"k8s.io/cluster-autoscaler/{cluster}": "owned"}
    return {**own, f"kubernetes.io/cluster/{cluster}": "owned"} if cluster else {}


def left_out_because(group: SourceGroup, scaler: AutoscalerSettings, cluster: str) -> str:
    """Return why no NodePool is written for a group; empty when Cluster Autoscaler of a cluster looks after it.

    Its flags decide where they name groups; otherwise the group's tags, which say the cluster that it belongs to.
    """
    named = any(name in scaler.bounds for name in group.scaling_groups)
    if group.cluster and cluster and group.cluster != cluster and not named:
        return f"its tags say that it belongs to cluster {group.cluster}, not {cluster}"
    if scaler.bounds or scaler.discovery:
        lacks = [[key for key, value in tags if not _has_tag(group, key, value)] for tags in scaler.discovery]
        if not named and all(lacks):
            tags = f"it lacks the tags {' and '.join(lacks[0])} of --node-group-auto-discovery" if lacks else ""
            return tags or "--nodes does not name it"
    elif not group.cluster:
        return "no tag says that it belongs to a cluster (kubernetes.io/cluster/NAME, k8s.io/cluster-autoscaler/NAME)"
    return group.types_missing


def _has_tag(group: SourceGroup, key: str, value: str) -> bool:
    return key in group.tags and value in ("", group.tags[key])


class _Hints(msgspec.Struct):
    labels: dict[str, str] = {}
    taints: list[Taint] = []
    resources: dict[str, str] = {}
    options: dict[str, str] = {}
    unread: list[str] = []


def _hints(groups: Sequence[AutoScalingGroup]) -> _Hints:
    """Read the tags by which Cluster Autoscaler knows the nodes of an empty group."""
    hints = _Hints({}, [], {}, {}, [])
    for tag in (tag for group in groups for tag in group.tags if tag.key.startswith(_TEMPLATE_TAG)):
        kind, _, key = tag.key.removeprefix(_TEMPLATE_TAG).partition("/")
        match kind:
            case "label":
                hints.labels[key] = tag.value
            case "taint":
                taint = _parsed_taint(f"{key}={tag.value}")
                hints.taints += [taint] if taint is not None else []
                hints.unread += [] if taint is not None else [f"tag {tag.key}: {tag.value!r} is no taint"]
            case "resources":
                hints.resources[key] = tag.value
            case "autoscaling-options":
                hints.options[key] = tag.value
            case _:
                hints.unread.append(f"tag {tag.key}: is not read")
    return hints


def _is_of_users(tag: str) -> bool:
    """True if a tag is people's own, and not one that AWS, Kubernetes or an autoscaler finds things by."""
    return not tag.startswith(("aws:", "eks:", "k8s.io/", "kubernetes.io/", "karpenter"))


def _cluster(group: AutoScalingGroup) -> str:
    for prefix in _CLUSTER_TAGS:
        for tag in group.tags:
            name = tag.key.removeprefix(prefix)
            if tag.key.startswith(prefix) and name not in NO_CLUSTER and "/" not in name:
                return name
    return ""


def _spot_percent(distribution: Distribution | None, template: TemplateData | None) -> int:
    if distribution is not None:
        return 100 - distribution.on_demand_percentage_above_base_capacity
    options = template.instance_market_options if template is not None else None
    return 100 if options is not None and options.market_type == "spot" else 0


def _unmapped(group: AutoScalingGroup, overrides: Sequence[Override]) -> Iterator[str]:
    if any(override.weighted_capacity for override in overrides):
        yield "WeightedCapacity: nodes are counted by what pods need of them"
    by_attributes = [override.instance_requirements for override in overrides if override.instance_requirements]
    by_type = any(override.instance_type for override in overrides)
    if len(by_attributes) > 1 or (by_attributes and by_type):
        yield "Overrides: InstanceRequirements of one of them alone are read; write a NodePool for each of the others"
    for name in sorted({name for override in overrides for name in override.unread}):
        yield f"Overrides.{name}: is not read; write a NodePool of its own for it"
    if group.load_balancer_names or group.target_group_arns:
        yield "load balancers attached to the group: register nodes or pods by the AWS Load Balancer Controller"
    if group.warm_pool_configuration:
        yield "its warm pool: keep room free by a CapacityBuffer"


_KEPT_BY_LAUNCHES = ("EbsOptimized", "TagSpecifications")
"""Of a launch template: what every launch of ours does, or says by itself."""


def _unmapped_of_template(template: TemplateData | None) -> Iterator[str]:
    if template is None:
        return
    for name in template.unread:
        if name not in _KEPT_BY_LAUNCHES:
            yield f"launch template {name}: is not read; an EC2NodeClass may have a field for it"
    if template.key_name:
        yield f"launch template KeyName {template.key_name}: nodes get no key pair; use Session Manager, or user data"
    for device in template.block_device_mappings:
        if device.ebs is None:
            yield f"launch template device {device.device_name} {device.virtual_name}: is no EBS volume and left out"


def _unique(taints: Sequence[Taint]) -> tuple[Taint, ...]:
    """Each taint once: boot and tags say the same thing twice where both are right."""
    return tuple(dict.fromkeys(taints))
