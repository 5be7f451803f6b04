"""Parameters of CreateFleet for a request."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.aws.ec2 import fleet_requests
from shiplap.instances.catalog.resolved_nodeclass import ResolvedNodeClass, Subnet
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.manifests.custom_resources import EC2NodeClass, EC2NodeClassSpec
from shiplap.ports import FleetOverride, FleetRequest
from tests.builders.claims import node_claim

SUBNETS = (
    Subnet("subnet-a1", "a", free_ips=10),
    Subnet("subnet-a2", "a", free_ips=200),
    Subnet("subnet-b", "b", free_ips=10),
    Subnet("subnet-c", "c", free_ips=0),
)


RESOLVED = ResolvedNodeClass("default", "AL2023", (), SUBNETS, ("sg-1",), "profile", "https://e", "Q0E=", "10.0.0.0/16")


def override(name: str = "m5.large", zone: str = "a", price: float = 1, **changes: Any) -> FleetOverride:
    return msgspec.structs.replace(FleetOverride(price, name, zone, "ami-1", 29, "h"), **changes)


def request(*overrides: FleetOverride, **changes: Any) -> FleetRequest:
    wanted = FleetRequest(
        claims=(node_claim(cluster="demo", name="default-1", node_pool="default", node_class="default"),),
        node_class=EC2NodeClass(ObjectMeta(name="default"), EC2NodeClassSpec()),
        resolved=RESOLVED,
        capacity_type="on-demand",
        overrides=overrides or (override(),),
        token="t",
    )
    return msgspec.structs.replace(wanted, **changes)


def parameters_of(wanted: FleetRequest) -> dict[str, Any]:
    return fleet_requests.parameters(wanted, fleet_requests.fleet_configs(wanted), wanted.token)
