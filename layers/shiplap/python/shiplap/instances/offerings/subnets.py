"""Which subnets a launch may use: those with free addresses, the emptiest of each zone first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from shiplap.instances.catalog.resolved_nodeclass import Subnet


def emptiest_subnets(subnets: Iterable[Subnet]) -> dict[str, Subnet]:
    """For each zone the subnet with most free addresses; ties go to the smaller id, full subnets are left out."""
    best: dict[str, Subnet] = {}
    for subnet in sorted(subnets, key=lambda subnet: (-subnet.free_ips, subnet.id)):
        if subnet.free_ips > 0:
            best.setdefault(subnet.zone, subnet)
    return best


def open_subnets(subnets: Iterable[Subnet], resting: Collection[str], taken: Mapping[str, int]) -> tuple[Subnet, ...]:
    """Those worth a launch, with the addresses that launches in flight leave them.

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
