"""Holds an account's Savings Plans and Reserved Instances in one Region, as AWS states them.

Money is in micro-dollars per hour, times are epoch seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from shiplap.manifests.shiplap_annotations import MICROS

ANY_FAMILY = ""
"""The family of a Compute Savings Plan."""


class SavingsPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Savings Plan: `commitment` is paid each hour whether it is used or not.

    `family` is that of an EC2 Instance Savings Plan, ANY_FAMILY for a Compute Savings Plan. `rates` are what an hour of
    a Linux instance of shared tenancy takes of the commitment, by instance type; types without a rate are not covered.
    Where no rates are known, `rate_ppm` is what they are of on-demand prices, in parts per million.
    """

    id: str
    commitment: int
    ends_at: float
    family: str = ANY_FAMILY
    rates: dict[str, int] = {}
    rate_ppm: int = 0

    def rate(self, instance_type: str, listed: int) -> int:
        """Return the part of the commitment that an hour of a type takes; 0: not covered.

        `listed` is its on-demand price.
        """
        if self.family and family_of(instance_type) != self.family:
            return 0
        return -(-listed * self.rate_ppm // MICROS) if self.rate_ppm else self.rates.get(instance_type, 0)


class ReservedInstances(msgspec.Struct, frozen=True, omit_defaults=True):
    """Reserved Instances of one purchase: Linux, shared tenancy. With a `zone` they are zonal, else regional."""

    id: str
    instance_type: str
    count: int
    ends_at: float
    zone: str = ""


class UncountedCommitment(msgspec.Struct, frozen=True):
    """A commitment that is not counted on, and why."""

    id: str
    reason: str


class InstanceUse(msgspec.Struct, frozen=True, order=True):
    """On-demand instances that run, or are about to: Linux, shared tenancy. `zone` is empty where it is open yet."""

    instance_type: str
    zone: str
    count: int


def merged(*uses: Iterable[InstanceUse]) -> tuple[InstanceUse, ...]:
    """All uses together, those of one type and zone added up, sorted."""
    total: dict[tuple[str, str], int] = {}
    for use in (item for some in uses for item in some):
        key = (use.instance_type, use.zone)
        total[key] = total.get(key, 0) + use.count
    return tuple(InstanceUse(*key, count) for key, count in sorted(total.items()) if count > 0)


class AccountCommitments(msgspec.Struct, frozen=True, omit_defaults=True):
    """All commitments of the account that apply to one Region, as they were at `fetched_at`.

    `others` are the account's on-demand instances in the Region that are not nodes of the install.
    """

    region: str
    fetched_at: float
    savings_plans: tuple[SavingsPlan, ...] = ()
    reserved_instances: tuple[ReservedInstances, ...] = ()
    others: tuple[InstanceUse, ...] = ()
    left_out: tuple[UncountedCommitment, ...] = ()


def family_of(instance_type: str) -> str:
    """The family of an instance type: what stands before its size."""
    return instance_type.partition(".")[0]


OLDEST_S = 24 * 3600.0
"""Nothing is counted on if AWS was asked longer ago, in seconds."""
