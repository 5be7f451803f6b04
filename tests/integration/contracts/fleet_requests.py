"""Requests for fleets that the contract of EC2 makes."""

from __future__ import annotations

from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import (
    AmiSelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    SecurityGroupSelectorTerm,
    SubnetSelectorTerm,
)
from shiplap.ports import Compute, FleetOverride, FleetRequest
from tests.builders.claims import node_claim
from tests.integration.contracts.emulated_ec2 import ZONES

DISCOVERY = {"karpenter.sh/discovery": "*"}


NODE_CLASS = EC2NodeClass(
    ObjectMeta(name="default"),
    EC2NodeClassSpec(
        subnet_selector_terms=(SubnetSelectorTerm(tags=DISCOVERY),),
        security_group_selector_terms=(SecurityGroupSelectorTerm(tags=DISCOVERY),),
        ami_selector_terms=(AmiSelectorTerm(alias="al2023@latest"),),
        role="node-role",
    ),
)


def request_for(
    compute: Compute,
    claim: str = "default-1",
    *,
    cluster: str = "demo",
    offerings: tuple[tuple[float, str, str], ...] = ((0.096, "m5.large", ZONES[0]),),
    capacity_type: str = "on-demand",
    token: str = "",
    beside: tuple[str, ...] = (),
) -> FleetRequest:
    resolved = compute.resolve(NODE_CLASS)
    ami = next(ami.id for ami in resolved.amis if _runs_amd64(ami.requirements))
    return FleetRequest(
        claims=tuple(
            node_claim(cluster=cluster, name=name, node_pool="default", node_class="default")
            for name in (claim, *beside)
        ),
        node_class=NODE_CLASS,
        resolved=resolved,
        capacity_type=capacity_type,
        overrides=tuple(FleetOverride(price, name, zone, ami, 29) for price, name, zone in offerings),
        token=token or f"token-{cluster}-{claim}",
    )


def _runs_amd64(requirements: tuple[tuple[str, str, tuple[str, ...]], ...]) -> bool:
    standard = all(operator != "Exists" for _, operator, _ in requirements)
    return standard and all("arm64" not in values for _, _, values in requirements)
