"""An EC2NodeClass with its selectors answered: the AMIs, subnets and security groups that exist right now.

On the wire the parts are called as in the status of Karpenter's EC2NodeClass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec.structs import replace

BLOCK_TAIL_S = 30 * 60
"""How long before a capacity block ends EC2 begins to end its instances, in seconds."""

LEAST_DRAIN_S = 10 * 60
EXPIRING_S = BLOCK_TAIL_S + LEAST_DRAIN_S
"""A capacity block that ends this soon takes no new nodes, and those it has are emptied, in seconds; earlier, where a
NodePool gives its pods more time (`drain_times.py`)."""

ACTIVE = "active"
UPCOMING_STATES = ("assessing", "delayed", "payment-pending", "pending", "scheduled")
FAILED_STATES = ("failed", "payment-failed", "unsupported")
"""States of a capacity reservation as EC2 names them: it can be launched into, may be later, never will be."""


class Subnet(msgspec.Struct, frozen=True):
    id: str
    zone: str
    zone_id: str = msgspec.field(default="", name="zoneID")
    free_ips: int = msgspec.field(default=0, name="freeIPs")


class SecurityGroup(msgspec.Struct, frozen=True):
    id: str
    name: str = ""


class Ami(msgspec.Struct, frozen=True, omit_defaults=True):
    """`requirements` are written as (key, operator, values); `created` RFC 3339, newest sorts last."""

    id: str
    name: str
    created: str
    deprecated: bool = False
    requirements: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


class CapacityReservation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capacity reservation or capacity block. Only one whose `state` is active can be launched into.

    `match_criteria` is open or targeted, `type` default or capacity-block; `starts_at` and `ends_at` epoch seconds, 0
    when unknown or never. `available` counts the instances that it still holds, as EC2 said when it was asked.
    """

    id: str
    instance_type: str = msgspec.field(name="instanceType")
    zone: str = msgspec.field(name="availabilityZone")
    owner: str = msgspec.field(default="", name="ownerID")
    match_criteria: str = msgspec.field(default="open", name="instanceMatchCriteria")
    type: str = msgspec.field(default="default", name="reservationType")
    interruptible: bool = False
    available: int = 0
    ends_at: float = msgspec.field(default=0.0, name="endTime")
    starts_at: float = msgspec.field(default=0.0, name="startTime")
    state: str = ACTIVE

    def is_expiring(self, now: float, drain_s: float = LEAST_DRAIN_S) -> bool:
        """True if the reservation is a capacity block about to end: it takes no new nodes, those it has are emptied.

        An ordinary reservation may end at any time: its instances stay.
        """
        drains_at = self.drains_at(drain_s)
        return bool(drains_at) and now >= drains_at

    def drains_at(self, drain_s: float = LEAST_DRAIN_S) -> float:
        """Epoch seconds from which nodes of a block are emptied, if that may take `drain_s` seconds; 0 for never."""
        return self.instances_end_at - drain_s if self.type == "capacity-block" and self.ends_at else 0.0

    @property
    def instances_end_at(self) -> float:
        """Epoch seconds at which EC2 begins to end the instances of a block."""
        return self.ends_at - BLOCK_TAIL_S


class PlacementGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """`strategy` is cluster, partition or spread; `partitions` counts those of a partition group."""

    id: str
    name: str
    strategy: str
    partitions: int = 0


class SelectedResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """The resources that the selectors of an EC2NodeClass match, by id, each tuple sorted."""

    subnets: tuple[str, ...] = ()
    security_groups: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    placement_group: str = ""


class NodeClassProblem(msgspec.Struct, frozen=True):
    """The cause of a False condition of an EC2NodeClass; `reason` as Karpenter names it, `message` a sentence."""

    condition: str
    reason: str
    message: str


class ResolvedNodeClass(msgspec.Struct, frozen=True, omit_defaults=True):
    """An EC2NodeClass with its selectors answered by AWS. `amis` in order of preference.

    With `problems`, something that nodes need is missing and nothing can be launched.
    """

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
    capacity_reservations: tuple[CapacityReservation, ...] = ()
    placement_group: PlacementGroup | None = None
    security_group_names: tuple[str, ...] = ()
    problems: tuple[NodeClassProblem, ...] = ()
    upcoming_reservations: tuple[CapacityReservation, ...] = ()
    """Those that are selected and cannot be launched into: not yet, or never."""

    @property
    def group(self) -> str:
        """The id of its placement group, empty without one."""
        return self.placement_group.id if self.placement_group is not None else ""

    @property
    def selection(self) -> SelectedResources:
        """The matched resources, whether or not they have capacity now."""
        return SelectedResources(
            subnets=tuple(sorted(subnet.id for subnet in self.subnets)),
            security_groups=tuple(sorted(self.security_groups)),
            reservations=tuple(sorted(held.id for held in self.capacity_reservations)),
            placement_group=self.placement_group.id if self.placement_group is not None else "",
        )


def emptiest_subnets(subnets: Iterable[Subnet]) -> dict[str, Subnet]:
    """For each zone the subnet with most free addresses; ties go to the smaller id, full subnets are left out."""
    best: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda subnet: (-subnet.free_ips, subnet.id)):
        if subnet.free_ips > 0:
            best.setdefault(subnet.zone, subnet)
    return best


def open_subnets(subnets: Iterable[Subnet], resting: Collection[str], taken: Mapping[str, int]) -> tuple[Subnet, ...]:
    """Return the subnets worth a launch, with the addresses that launches in flight leave them.

    A subnet that describing shows with room stays, as the last resort of its zone: those launches may have failed.

    Args:
        subnets: as EC2 described them a moment ago.
        resting: ids of those that had no addresses for a launch lately.
        taken: addresses that launches in flight will take, by subnet id.
    """
    return tuple(
        replace(subnet, free_ips=max(subnet.free_ips - taken.get(subnet.id, 0), 1))
        for subnet in subnets
        if subnet.free_ips > 0 and subnet.id not in resting
    )
