"""An EC2NodeClass with its selectors answered: the AMIs, subnets and security groups that exist right now."""

from __future__ import annotations

import msgspec


class Subnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str = ""
    free_ips: int = 0


class Ami(msgspec.Struct, frozen=True, omit_defaults=True):
    """`requirements` are written as (key, operator, values); `created` RFC 3339, newest sorts last."""

    id: str
    name: str
    created: str
    deprecated: bool = False
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


class ResolvedNodeClass(msgspec.Struct, frozen=True, omit_defaults=True):
    """An EC2NodeClass with its selectors answered by AWS. `amis` in order of preference."""

    name: str
    family: str
    amis: tuple[Ami, ...]
    subnets: tuple[Subnet, ...]
    security_groups: tuple[str, ...]
    instance_profile: str
    cluster_endpoint: str = ""
    cluster_ca: str = ""
    service_cidr: str = ""
    cluster_dns: str = ""
    kubernetes_version: str = ""
