"""A NodePool and an EC2NodeClass for every group of Cluster Autoscaler's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import (
    AMD_GPU,
    CPU,
    EPHEMERAL_STORAGE,
    GAUDI,
    MEMORY,
    NEURON,
    NEURON_CORE,
    NVIDIA_GPU,
    PODS,
    parse_amount,
)
from shiplap.manifests import shiplap_annotations
from shiplap.manifests.custom_resources import (
    AmiSelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    Budget,
    Disruption,
    EC2NodeClassSpec,
    MetadataOptions,
    NodeClaimTemplateSpec,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolTemplate,
    RequirementSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
    TemplateMetadata,
)
from shiplap_cli.commands.migrate.autoscaler import AutoscalerSettings
from shiplap_cli.commands.migrate.aws_groups import InstanceRequirements, TemplateData
from shiplap_cli.commands.migrate.groups import SourceGroup
from shiplap_cli.commands.migrate.migration_findings import (
    MIGRATION_TAINT,
    FindingCollector,
    FormerKind,
    FormerPool,
    KubernetesObject,
    MatchQuality,
    MigrationFinding,
    Naming,
)
from shiplap_cli.inputs.manifest_warnings import REGISTER_HINT, is_told_to_register

_STRATEGIES = {
    "price-capacity-optimized": "price-capacity-optimized",
    "capacity-optimized": "capacity-optimized",
    "lowest-price": "lowest-price",
    "capacity-optimized-prioritized": "capacity-optimized",
}
_OPTIONS_WITHOUT = "autoscaling-options"


def manifests_of(
    groups: Sequence[SourceGroup], autoscaler: AutoscalerSettings, naming: Naming, cluster: str
) -> tuple[tuple[KubernetesObject, ...], tuple[FormerPool, ...], tuple[MigrationFinding, ...]]:
    """The manifests, which group became which NodePool, and what maps how.

    Args:
        groups: the groups, by name.
        autoscaler: what applies to all of them.
        naming: how the new pools are called, and whether they are kept apart by a taint.
        cluster: its name, for the default security group and role.
    """
    classes: dict[bytes, tuple[str, EC2NodeClassSpec]] = {}
    pools: list[KubernetesObject] = []
    overlays: list[KubernetesObject] = []
    findings: list[MigrationFinding] = []
    formers: list[FormerPool] = []
    weights = _weights(groups, autoscaler)
    names = _names_of(groups)
    for group in groups:
        collector = FindingCollector(group.source)
        name = naming.pool(names[group.name])
        spec = node_class(group, cluster, collector)
        key = msgspec.json.encode(spec)
        class_name, _ = classes.setdefault(key, (names[group.name], spec))
        pools.append(
            _document(_pool(group, name, class_name, autoscaler, naming, weights.get(group.name, 0), collector))
        )
        origin = FormerKind.NODE_GROUP if group.managed else FormerKind.SCALING_GROUP
        formers.append(FormerPool(origin, group.name, name, least=group.least, desired=group.desired))
        overlays += _overlays(group, name, collector)
        findings += collector.all
    written = [_class_document(name, spec) for name, spec in classes.values()]
    return (*written, *pools, *overlays), tuple(formers), tuple(findings)


def _overlays(group: SourceGroup, pool: str, collector: FindingCollector) -> Iterator[KubernetesObject]:
    """A NodeOverlay with the devices that tags promise of nodes, as a device plugin shows them later."""
    promised: dict[str, str] = {}
    for resource, amount in sorted(group.resources.items()):
        field = f"tag node-template/resources/{resource}"
        if resource in _OF_THE_MACHINE or resource in _OF_EC2:
            collector.approximate(field, "none", "EC2 and the volumes say it, and nodes correct it once they report")
            continue
        try:
            parse_amount(resource, amount)
        except ValueError as error:
            collector.not_mapped(field, str(error))
            continue
        promised[resource] = amount
        collector.exact(field, f"NodeOverlay/{pool} spec.capacity: {resource}: {amount}")
    if promised:
        yield {
            "apiVersion": "karpenter.sh/v1alpha1",
            "kind": "NodeOverlay",
            "metadata": {"name": pool},
            "spec": {
                "requirements": [{"key": labels.NODE_POOL, "operator": "In", "values": [pool]}],
                "capacity": promised,
            },
        }


_OF_THE_MACHINE = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_OF_EC2 = (NVIDIA_GPU, AMD_GPU, GAUDI, NEURON, NEURON_CORE)


def _weights(groups: Sequence[SourceGroup], autoscaler: AutoscalerSettings) -> dict[str, int]:
    """Weights in the order of the expander's priorities, as far apart as NodePools allow."""
    found = {group.name: autoscaler.priority_of(group.name) for group in groups}
    ranks = sorted({priority for priority in found.values() if priority is not None})
    step = 100 // max(len(ranks), 1) or 1
    return {
        name: min((ranks.index(priority) + 1) * step, 100) for name, priority in found.items() if priority is not None
    }


def _pool(
    group: SourceGroup,
    name: str,
    class_name: str,
    autoscaler: AutoscalerSettings,
    naming: Naming,
    weight: int,
    collector: FindingCollector,
) -> NodePool:
    most = next((autoscaler.bounds[name][1] for name in group.scaling_groups if name in autoscaler.bounds), group.most)
    if group.least:
        note = "a NodePool has no minimum: nodes follow the pods; keep room free by a CapacityBuffer if that is needed"
        collector.approximate(f"minimum size {group.least}", "none", note)
    collector.exact("maximum size", f"spec.limits.nodes: {most}")
    if weight:
        collector.exact("priority of the expander", f"spec.weight: {weight}")
    for text in group.leftovers:
        field, _, note = text.partition(": ")
        collector.not_mapped(field, note)
    taints = group.taints
    if taints:
        collector.exact("taints", "spec.template.spec.taints")
    spec = NodeClaimTemplateSpec(
        NodeClassReference(class_name),
        requirements=tuple(_requirements(group, collector)),
        taints=(*taints, MIGRATION_TAINT) if naming.taint else taints,
    )
    return NodePool(
        ObjectMeta(name=name, annotations=dict(_annotations(group, collector))),
        NodePoolSpec(
            NodePoolTemplate(spec, TemplateMetadata(labels=_labels(group, collector))),
            disruption=_disruption(group, autoscaler, collector),
            limits={"nodes": str(most)},
            weight=weight,
        ),
    )


def _requirements(group: SourceGroup, collector: FindingCollector) -> Iterator[RequirementSpec]:
    if group.types:
        yield RequirementSpec(labels.INSTANCE_TYPE, "In", tuple(dict.fromkeys(group.types)))
        note = "wider lists find cheaper and steadier capacity: try a family, such as m7*, with `shiplap plan`"
        collector.exact("instance types", f"{labels.INSTANCE_TYPE} In {', '.join(dict.fromkeys(group.types))}", note)
    elif group.attributes is not None:
        yield from _attributes(group.attributes, collector)
    kinds = [labels.SPOT] if group.spot_percent else []
    kinds += [labels.ON_DEMAND] if group.spot_percent < 100 or not kinds else []
    yield RequirementSpec(labels.CAPACITY_TYPE, "In", tuple(kinds))
    if group.zones:
        yield RequirementSpec(labels.ZONE, "In", group.zones)
    arch = next((arch for part, arch in _ARCH_OF_IMAGE.items() if part in group.ami_type), "")
    if arch and not group.types:
        yield RequirementSpec(labels.ARCH, "In", (arch,))
    if group.ami_type.startswith("WINDOWS"):
        yield RequirementSpec(labels.OS, "In", ("windows",))


_ARCH_OF_IMAGE = {"ARM_64": "arm64", "x86_64": "amd64"}


def _attributes(wanted: InstanceRequirements, collector: FindingCollector) -> Iterator[RequirementSpec]:
    """Attributes as far as instance types carry them as labels."""
    if wanted.allowed_instance_types:
        yield RequirementSpec(labels.INSTANCE_TYPE, "In", wanted.allowed_instance_types)
    plain = tuple(name for name in wanted.excluded_instance_types if "*" not in name)
    if plain:
        yield RequirementSpec(labels.INSTANCE_TYPE, "NotIn", plain)
    if len(plain) < len(wanted.excluded_instance_types):
        collector.not_mapped(
            "ExcludedInstanceTypes", "patterns cannot be excluded; name the families under instance-family"
        )
    for key, bounds in ((_CPU, wanted.v_cpu_count), (_MEMORY, wanted.memory_mib)):
        if bounds.min is not None and bounds.min > 0:
            yield RequirementSpec(key, "Gt", (str(int(bounds.min) - 1),))
        if bounds.max is not None:
            yield RequirementSpec(key, "Lt", (str(int(bounds.max) + 1),))
    makers = tuple(name.replace("amazon-web-services", "aws") for name in wanted.cpu_manufacturers if name != "apple")
    if makers:
        yield RequirementSpec(_MAKER, "In", makers)
    elif wanted.cpu_manufacturers:
        collector.not_mapped("CpuManufacturers", f"no type that nodes run on is made by {wanted.cpu_manufacturers[0]}")
    for name in wanted.unread:
        collector.not_mapped(f"InstanceRequirements.{name}", "is not read: without it, more types are allowed")
    note = "as labels of instance types say it; look at `shiplap explain instance-types` for what is meant"
    collector.approximate("InstanceRequirements", "requirements on vCPUs, memory and manufacturer", note)
    for field in ("instance_generations", "bare_metal", "burstable_performance", "local_storage"):
        if getattr(wanted, field):
            collector.not_mapped(
                field, f"{getattr(wanted, field)!r}: write it as a requirement on instance-family or -category"
            )


_CPU, _MEMORY = "karpenter.k8s.aws/instance-cpu", "karpenter.k8s.aws/instance-memory"
_MAKER = "karpenter.k8s.aws/instance-cpu-manufacturer"


def _annotations(group: SourceGroup, collector: FindingCollector) -> Iterator[tuple[str, str]]:
    distribution = group.distribution
    if price := _spot_max_price(group):
        if group.spot_percent == 100:
            yield shiplap_annotations.MAX_NODE_PRICE, price
            collector.exact("SpotMaxPrice", f"{shiplap_annotations.MAX_NODE_PRICE}: {price}")
        elif group.spot_percent:
            collector.not_mapped(
                "SpotMaxPrice",
                f"{price}: it bounds spot alone, and {shiplap_annotations.MAX_NODE_PRICE} would bound on-demand nodes, "
                "too; write a NodePool for spot with it, and another one for on-demand",
            )
    if 0 < group.spot_percent < 100:
        yield shiplap_annotations.MIN_ON_DEMAND, f"{100 - group.spot_percent}%"
        collector.exact(
            "OnDemandPercentageAboveBaseCapacity", f"{shiplap_annotations.MIN_ON_DEMAND}: {100 - group.spot_percent}%"
        )
    if distribution is None:
        return
    if distribution.on_demand_base_capacity and group.spot_percent:
        collector.not_mapped(
            "OnDemandBaseCapacity",
            "a share can be said, not a number; a second pool of on-demand with a higher "
            f"weight and limits.nodes {distribution.on_demand_base_capacity} comes to the same",
        )
    if group.spot_percent:
        strategy = _STRATEGIES.get(distribution.spot_allocation_strategy, "price-capacity-optimized")
        if strategy != "price-capacity-optimized":
            yield shiplap_annotations.ALLOCATION_STRATEGY, strategy
        collector.exact("SpotAllocationStrategy", strategy)
    elif distribution.on_demand_allocation_strategy == "prioritized" and len(group.types) > 1:
        note = "the cheapest type that fits is taken; an order is written as tiers or as pools with weights"
        collector.approximate("OnDemandAllocationStrategy prioritized", "by price", note)


def _spot_max_price(group: SourceGroup) -> str:
    if group.distribution is not None:
        return group.distribution.spot_max_price
    options = group.template.instance_market_options if group.template is not None else None
    return options.spot_options.max_price if options is not None and options.spot_options is not None else ""


_RESERVED_DOMAINS = ("kubernetes.io", "k8s.io", "eks.amazonaws.com", "karpenter.sh", "karpenter.k8s.aws")
_ALLOWED_DOMAINS = ("node-restriction.kubernetes.io", "kops.k8s.io", "node.kubernetes.io")


def _labels(group: SourceGroup, collector: FindingCollector) -> dict[str, str]:
    """Labels that a NodePool may set; the others say what EC2, the kubelet or EKS say themselves."""
    kept: dict[str, str] = {}
    for key, value in sorted(group.labels.items()):
        domain = key.partition("/")[0] if "/" in key else ""
        reserved = any(domain == name or domain.endswith(f".{name}") for name in _RESERVED_DOMAINS)
        if reserved and not any(domain == name or domain.endswith(f".{name}") for name in _ALLOWED_DOMAINS[:2]):
            collector.not_mapped(
                f"label {key}={value}", "is set by EC2, the kubelet or EKS; select nodes by a label of your own"
            )
        else:
            kept[key] = value
    if kept:
        collector.exact("labels", "spec.template.metadata.labels")
    return kept


def _disruption(group: SourceGroup, autoscaler: AutoscalerSettings, collector: FindingCollector) -> Disruption:
    after = autoscaler.consolidate_after
    for key, value in sorted(group.options.items()):
        if key == "scaledownunneededtime" and _is_duration(value):
            after = value
            collector.approximate(
                f"{_OPTIONS_WITHOUT}/{key}", f"spec.disruption.consolidateAfter: {value}", "of this pool"
            )
        else:
            note = (
                f"{value!r} is no duration" if key == "scaledownunneededtime" else "there is no such setting of a pool"
            )
            collector.not_mapped(f"{_OPTIONS_WITHOUT}/{key}", note)
    budgets = (Budget(),)
    if not autoscaler.scale_down:
        budgets = (Budget("0"),)
    elif autoscaler.budget_nodes:
        budgets = (Budget(str(autoscaler.budget_nodes)),)
    return Disruption(after, "WhenEmptyOrUnderutilized", budgets)


def _name_of(text: str) -> str:
    """As Kubernetes names objects: lower-case letters, digits and dashes; short enough to be a label with a suffix."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:50].strip("-") or "group"


def _is_duration(text: str) -> bool:
    """True if a NodePool takes a text as `consolidateAfter`."""
    return re.fullmatch(r"([0-9]+(s|m|h))+", text) is not None


def _names_of(groups: Sequence[SourceGroup]) -> dict[str, str]:
    """A name for each group; where names become equal, a number tells them apart."""
    taken: dict[str, str] = {}
    for group in groups:
        base = name = _name_of(group.name)
        number = 2
        while name in taken.values():
            name, number = f"{base}-{number}", number + 1
        taken[group.name] = name
    return taken


def _document(pool: NodePool) -> KubernetesObject:
    body = _as_written(pool)
    claim = body["spec"]["template"]["spec"]
    claim["nodeClassRef"] = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"} | claim["nodeClassRef"]
    claim.setdefault("requirements", [])
    body["spec"]["disruption"] = _spelled_out(pool.spec.disruption)
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"} | _plain(body)


def _spelled_out(disruption: Disruption) -> dict[str, Any]:
    """Defaults included: they are what a reader of the file looks for first."""
    return {
        "consolidationPolicy": disruption.consolidation_policy,
        "consolidateAfter": disruption.consolidate_after,
        "budgets": [{"nodes": budget.nodes} for budget in disruption.budgets],
    }


def _class_document(name: str, spec: EC2NodeClassSpec) -> KubernetesObject:
    return {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": _plain(_as_written(spec)),
    }


def _as_written(item: msgspec.Struct) -> dict[str, Any]:
    """With lists, as a reader of files finds them, where a struct has tuples."""
    written: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(item))
    return written


def _plain(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is empty."""
    return {key: value for key, value in body.items() if value not in ({}, [], None, "")}


_ALIASES = (
    ("AL2023", "al2023@latest"),
    ("AL2", "al2023@latest"),
    ("BOTTLEROCKET", "bottlerocket@latest"),
    ("WINDOWS_CORE_2019", "windows2019@latest"),
    ("WINDOWS_FULL_2019", "windows2019@latest"),
    ("WINDOWS_CORE_2022", "windows2022@latest"),
    ("WINDOWS_FULL_2022", "windows2022@latest"),
    ("WINDOWS_CORE_2025", "windows2025@latest"),
    ("WINDOWS_FULL_2025", "windows2025@latest"),
)
_ROOT_DEVICES = {"bottlerocket": "/dev/xvdb", "windows": "/dev/sda1"}


def node_class(group: SourceGroup, cluster: str, collector: FindingCollector) -> EC2NodeClassSpec:
    """The EC2NodeClass of a group; groups that boot alike get equal ones."""
    template = group.template
    if group.template_name and template is None:
        collector.not_mapped(
            f"launch template {group.template_name}",
            "was not given: security groups, volumes, image and user "
            "data are defaults; `aws ec2 describe-launch-template-versions` prints it",
        )
    family, terms, user_data = _image(group, collector)
    profile = template.iam_instance_profile if template is not None else None
    instance_profile = (
        (profile.name or profile.arn.rpartition("/")[2]) if profile is not None and not group.role else ""
    )
    if instance_profile:
        collector.profile(instance_profile)
    role = group.role or ("" if instance_profile else f"shiplap-node-{cluster}")
    if not group.role and not instance_profile:
        collector.approximate(
            "role of nodes", role, "a role that the stack makes; the group did not say which one its nodes have"
        )
    return EC2NodeClassSpec(
        subnet_selector_terms=tuple(SubnetSelectorTerm(id=subnet) for subnet in group.subnets)
        or (SubnetSelectorTerm(tags={f"kubernetes.io/cluster/{cluster}": "*"}),),
        security_group_selector_terms=_security_groups(template, cluster, collector),
        ami_selector_terms=terms,
        ami_family=family,
        user_data=user_data,
        role=role,
        instance_profile=instance_profile,
        tags=_tags(group, collector),
        associate_public_ip_address=_public_address(template),
        block_device_mappings=_devices(group, terms),
        metadata_options=_metadata_options(group, collector),
        detailed_monitoring=True
        if template is not None and template.monitoring and template.monitoring.enabled
        else None,
        kubelet={"maxPods": group.boot.max_pods} if group.boot.max_pods else {},
    )


def _tags(group: SourceGroup, collector: FindingCollector) -> dict[str, str]:
    """The tags that the group puts on its instances."""
    if group.instance_tags:
        collector.exact("tags of instances", "EC2NodeClass spec.tags")
    return group.instance_tags


def _public_address(template: TemplateData | None) -> bool | None:
    interfaces = template.network_interfaces if template is not None else ()
    return next((item.associate_public_ip_address for item in interfaces), None)


def _image(group: SourceGroup, collector: FindingCollector) -> tuple[str, tuple[AmiSelectorTerm, ...], str | None]:
    """AMI family, selector terms and user data."""
    alias = next((alias for prefix, alias in _ALIASES if group.ami_type.startswith(prefix)), "")
    if alias:
        becomes = f"amiSelectorTerms alias {alias}"
        of_al2 = group.ami_type.startswith("AL2_")
        collector.alias(f"amiType {group.ami_type}", becomes, "the variant follows the instance type", of_al2=of_al2)
        return "", (AmiSelectorTerm(alias=alias),), group.boot.text or None
    image = group.template.image_id if group.template is not None else ""
    if not image:
        collector.approximate("image", "alias al2023@latest", "the group did not say which image its nodes boot from")
        return "", (AmiSelectorTerm(alias="al2023@latest"),), None
    seen = {"AL2": "al2023@latest", "AL2023": "al2023@latest", "Bottlerocket": "bottlerocket@latest"}.get(
        group.boot.family
    )
    hint = f"; to follow new images write alias {seen} instead and leave the user data out" if seen else ""
    match = MatchQuality.APPROXIMATE if is_told_to_register(group.boot.text) else MatchQuality.NONE
    lacks = "" if match is MatchQuality.APPROXIMATE else f"; its user data or image has to {REGISTER_HINT}"
    becomes = "amiFamily Custom, with the user data it has"
    collector.add(match, f"image {image}", becomes, f"nodes stay at this image{lacks}{hint}")
    return "Custom", (AmiSelectorTerm(id=image),), group.boot.text or None


def _security_groups(
    template: TemplateData | None, cluster: str, collector: FindingCollector
) -> tuple[SecurityGroupSelectorTerm, ...]:
    written = template.security_group_ids if template is not None else ()
    if not written and template is not None:
        written = tuple(group for interface in template.network_interfaces for group in interface.groups)
    if written:
        collector.exact("security groups", ", ".join(dict.fromkeys(written)))
        return tuple(SecurityGroupSelectorTerm(id=group) for group in dict.fromkeys(written))
    collector.exact("security groups", f"the cluster's own (tag aws:eks:cluster-name={cluster})")
    return (SecurityGroupSelectorTerm(tags={"aws:eks:cluster-name": cluster}),)


def _devices(group: SourceGroup, terms: Sequence[AmiSelectorTerm]) -> tuple[BlockDeviceMapping, ...]:
    template = group.template
    if template is not None and template.block_device_mappings:
        return tuple(
            BlockDeviceMapping(
                device_name=device.device_name,
                ebs=BlockDevice(
                    delete_on_termination=device.ebs.delete_on_termination,
                    encrypted=device.ebs.encrypted,
                    iops=device.ebs.iops,
                    kms_key_id=device.ebs.kms_key_id,
                    snapshot_id=device.ebs.snapshot_id,
                    throughput=device.ebs.throughput,
                    volume_size=f"{device.ebs.volume_size}Gi" if device.ebs.volume_size else None,
                    volume_type=device.ebs.volume_type,
                ),
            )
            for device in template.block_device_mappings
            if device.ebs is not None
        )
    if group.disk_gib is None:
        return ()
    alias = terms[0].alias if terms else ""
    name = next((name for family, name in _ROOT_DEVICES.items() if alias.startswith(family)), "/dev/xvda")
    volume = BlockDevice(volume_size=f"{group.disk_gib}Gi", volume_type="gp3", encrypted=True)
    return (BlockDeviceMapping(device_name=name, ebs=volume),)


_TOKENS_BY_IMAGE = ("AL2023", "BOTTLEROCKET")
"""EKS's images that demand tokens of the metadata service where nothing else is said."""


def _metadata_options(group: SourceGroup, collector: FindingCollector) -> MetadataOptions:
    written = group.template.metadata_options if group.template is not None else None
    if not (written is not None and written.http_tokens) and not group.ami_type.startswith(_TOKENS_BY_IMAGE):
        note = (
            "the group does not say it, so image or account decided; pods that ask the metadata service without a"
            " token (IMDSv1) need `optional`"
        )
        collector.approximate("MetadataOptions.HttpTokens", "spec.metadataOptions.httpTokens: required", note)
    if written is None:
        # What EC2 and EKS give a node whose template says nothing: containers may ask the metadata service.
        return MetadataOptions(http_put_response_hop_limit=2)
    default = MetadataOptions()
    return MetadataOptions(
        http_endpoint=written.http_endpoint or default.http_endpoint,
        http_protocol_ipv6=written.http_protocol_ipv6 or default.http_protocol_ipv6,
        http_put_response_hop_limit=written.http_put_response_hop_limit or default.http_put_response_hop_limit,
        http_tokens=written.http_tokens or default.http_tokens,
    )
