"""A small language for cases of the AWS side: given an EC2NodeClass, expect instance types, templates, user data.

Figures are of EC2's own types, as unverified formulas give them: nothing has been learned.
"""

from __future__ import annotations

import json
import tomllib
from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from email import message_from_string
from typing import Any

import msgspec

from shiplap.aws.ec2 import fleet_requests
from shiplap.aws.ec2.launch_templates import LaunchTemplate
from shiplap.instances.capacity.capacity_setting import CapacitySetting
from shiplap.instances.catalog.ec2_catalog import Ec2InstanceType
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass, Subnet
from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.instances.resolve import instance_types
from shiplap.kubernetes.objects import Taint
from shiplap.kubernetes.quantity import format_resources
from shiplap.manifests.custom_resources import EC2NodeClass, RequirementSpec
from shiplap.ports import FleetOverride, FleetRequest
from tests.builders.claims import node_claim
from tests.builders.node_classes import node_class
from tests.conformance.real_types import catalog

SUBNETS = (Subnet("subnet-a", "us-east-1a", free_ips=10),)
EFA = "vpc.amazonaws.com/efa"


def sold(
    *names: str,
    under: EC2NodeClass | None = None,
    reserved_enis: int = 0,
    resolved: ResolvedNodeClass | None = None,
    unavailable: Collection[tuple[str, str, str]] = (),
    beside: tuple[Ec2InstanceType, ...] = (),
) -> tuple[InstanceType, ...]:
    """EC2's types of these names (all without any) under an EC2NodeClass, their formulas taken for facts.

    `beside` are types the embedded catalogue lacks, sold wherever m5.large is.
    """
    whole = catalog()
    kept = tuple(kind for kind in whole.types if not names or kind.instance_type in names)
    assert not set(names) - {kind.instance_type for kind in kept}
    zones = {**whole.zones, **{kind.instance_type: whole.zones["m5.large"] for kind in beside}}
    kept = tuple(sorted((*kept, *beside), key=lambda kind: kind.instance_type))
    found = instance_types(
        msgspec.structs.replace(whole, types=kept, zones=zones),
        under or node_class(),
        CapacitySetting(reserved_enis=reserved_enis),
        resolved=resolved,
        learned=(),
        unavailable=unavailable,
    )
    return tuple(msgspec.structs.replace(item, verified=True, careful={}) for item in found)


def like(name: str, **changes: Any) -> Ec2InstanceType:
    """EC2's record of a type with some of its fields changed."""
    (kind,) = (kind for kind in catalog().types if kind.instance_type == name)
    return msgspec.structs.replace(kind, **changes)


def one(name: str, **options: Any) -> InstanceType:
    """One of them."""
    (found,) = sold(name, **options)
    return found


def shown(amounts: Mapping[str, int]) -> dict[str, str]:
    """Resources as Kubernetes quantities."""
    return format_resources(dict(amounts))


@dataclass
class Launch:
    """The request to EC2 for one claim: the launch templates, and properties of the first."""

    templates: tuple[LaunchTemplate, ...]
    overrides: tuple[tuple[FleetOverride, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(template.name for template in self.templates)

    @property
    def data(self) -> dict[str, Any]:
        return dict(self.templates[0].data)

    @property
    def text(self) -> str:
        """User data, decoded."""
        return b64decode(self.data["UserData"]).decode()

    @property
    def volumes(self) -> dict[str, int]:
        """Sizes in GiB by device."""
        mappings = self.data.get("BlockDeviceMappings", [])
        return {item["DeviceName"]: item["Ebs"].get("VolumeSize", 0) for item in mappings}

    @property
    def parts(self) -> list[tuple[str, str]]:
        """Content type and text of each part of a MIME document."""
        message = message_from_string(self.text)
        return [(part.get_content_type(), str(part.get_payload())) for part in message.get_payload()]  # type: ignore[union-attr]

    @property
    def node_config(self) -> dict[str, Any]:
        """Return the spec of the user data's last part, which nodeadm reads."""
        return dict(json.loads(self.parts[-1][1])["spec"])

    @property
    def settings(self) -> dict[str, Any]:
        """Bottlerocket's settings."""
        return dict(tomllib.loads(self.text)["settings"])


def launch(
    under: EC2NodeClass | None = None,
    *names: str,
    capacity_type: str = "on-demand",
    requests: Mapping[str, int] | None = None,
    requirements: tuple[RequirementSpec, ...] = (),
    labels: Mapping[str, str] | None = None,
    taints: tuple[Taint, ...] = (),
    max_pods: int = 29,
    resolved: Mapping[str, Any] | None = None,
) -> Launch:
    """Launch a claim that any of these types suits (m5.large without names) from an EC2NodeClass."""
    under = under or node_class()
    answered = ResolvedNodeClass(
        name=under.metadata.name,
        family=under.spec.ami_family,
        amis=(),
        subnets=SUBNETS,
        security_groups=("sg-1",),
        instance_profile="nodes",
        cluster_endpoint="https://demo.example",
        cluster_ca="Q0E=",
        service_cidr="10.100.0.0/16",
        cluster_dns="10.100.0.10",
    )
    answered = msgspec.structs.replace(answered, **(resolved or {}))
    claim = node_claim(
        cluster="demo",
        name="default-1",
        node_pool="default",
        node_class=under.metadata.name,
        requirements=requirements,
        labels=dict(labels or {}),
        taints=taints,
    )
    wants_fabric = bool((requests or {}).get(EFA))
    overrides = tuple(
        FleetOverride(
            price=1.0,
            instance_type=item.name,
            zone="us-east-1a",
            ami="ami-1",
            max_pods=item.capacity["pods"] if names else max_pods,
            kubelet_hash=item.kubelet_hash,
            kubelet_values=item.kubelet_values,
            fabric_adapters=item.capacity.get(EFA, 0) if wants_fabric else 0,
        )
        for item in sold(*(names or ("m5.large",)), under=under)
    )
    request = FleetRequest(
        claims=(claim,),
        node_class=under,
        resolved=answered,
        capacity_type=capacity_type,
        overrides=overrides,
        token="token",
    )
    configs = fleet_requests.fleet_configs(request)
    return Launch(tuple(config.template for config in configs), tuple(config.overrides for config in configs))
