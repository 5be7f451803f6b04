"""How the nodes of a group boot and where they stand: its EC2NodeClass."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.manifests.custom_resources import (
    AmiSelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    EC2NodeClassSpec,
    MetadataOptions,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shiplap_cli.migration.aws_groups import TemplateData
from shiplap_cli.migration.groups import SourceGroup
from shiplap_cli.migration.migration_findings import FindingCollector

_ALIASES = (
    ("AL2023", "al2023@latest"),
    ("AL2", "al2@latest"),
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
        block_device_mappings=_devices(group, terms),
        metadata_options=_metadata_options(template),
        detailed_monitoring=True
        if template is not None and template.monitoring and template.monitoring.enabled
        else None,
        kubelet={"maxPods": group.boot.max_pods} if group.boot.max_pods else {},
    )


def _image(group: SourceGroup, collector: FindingCollector) -> tuple[str, tuple[AmiSelectorTerm, ...], str | None]:
    """AMI family, selector terms and user data."""
    alias = next((alias for prefix, alias in _ALIASES if group.ami_type.startswith(prefix)), "")
    if alias:
        collector.exact(
            f"amiType {group.ami_type}", f"amiSelectorTerms alias {alias}", "the variant follows the instance type"
        )
        return "", (AmiSelectorTerm(alias=alias),), group.boot.text or None
    image = group.template.image_id if group.template is not None else ""
    if not image:
        collector.approximate("image", "alias al2023@latest", "the group did not say which image its nodes boot from")
        return "", (AmiSelectorTerm(alias="al2023@latest"),), None
    seen = {"AL2": "al2@latest", "AL2023": "al2023@latest", "Bottlerocket": "bottlerocket@latest"}.get(
        group.boot.family
    )
    hint = f"; to follow new images write alias {seen} instead and leave the user data out" if seen else ""
    collector.approximate(
        f"image {image}",
        "amiFamily Custom, with the user data it has",
        f"it boots as before, and stays at this image{hint}",
    )
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


def _metadata_options(template: TemplateData | None) -> MetadataOptions:
    written = template.metadata_options if template is not None else None
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
