"""Holds an account's Savings Plans and Reserved Instances in one Region, as AWS or shiplap.yaml states them.

Money is in micro-dollars per hour, times are epoch seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time

import msgspec

from shiplap.manifests.shiplap_annotations import MICROS

ANY_FAMILY = ""
"""The family of a Compute Savings Plan."""

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")
_FAMILY = re.compile(r"[a-z][a-z0-9-]{1,15}")


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


class _Written(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of what shiplap.yaml holds."""


class WrittenPlan(_Written, frozen=True, kw_only=True, omit_defaults=True):
    """A Savings Plan as shiplap.yaml states it, such as one of the payer account that this account cannot see.

    `dollars_per_hour` is the part of its commitment to count on, before the account's other instances take theirs.
    `discount` is what its rates are below on-demand
    prices, such as 28%. `family` is that of an EC2 Instance Savings Plan; without it, it is a Compute Savings Plan.
    `end`, a date, is the first day, in UTC, on which it does not count any more.
    """

    dollars_per_hour: float
    discount: str
    end: str
    family: str = ANY_FAMILY

    @property
    def ends_at(self) -> float:
        """Epoch seconds."""
        return datetime.combine(date.fromisoformat(self.end), time(), UTC).timestamp()

    def as_plan(self, name: str) -> SavingsPlan:
        """The plan, under this name."""
        rate_ppm = round((1 - (per_cent(self.discount) or 0.0)) * MICROS)
        commitment = int(self.dollars_per_hour * MICROS)
        return SavingsPlan(name, commitment, self.ends_at, self.family, rate_ppm=rate_ppm)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Invalid fields as written, and the reason."""
        if not (math.isfinite(self.dollars_per_hour) and self.dollars_per_hour > 0):
            yield "dollarsPerHour", f"{self.dollars_per_hour:g} must be above 0"
        share = per_cent(self.discount)
        if share is None or not 0 < share < 1:
            yield "discount", f"{self.discount!r} must be a percentage above 0% and below 100%, such as 28%"
        try:
            date.fromisoformat(self.end)
        except ValueError:
            yield "end", f"{self.end!r} is not a date, such as 2027-06-30"
        if self.family and not _FAMILY.fullmatch(self.family):
            yield "family", f"{self.family!r} is not a family of instance types, such as m7g"


class CommitmentSettings(_Written, frozen=True, kw_only=True, omit_defaults=True):
    """The part of the account's commitments that an install counts on.

    `counted_by` is REGION/NAME of the one install that counts them: every install that did would count the same
    dollars. `share` is the part, such as 80%, of what AWS shows for the account; without it AWS is asked only for the
    account's other instances. `written` are Savings Plans that shiplap.yaml states.
    """

    counted_by: str
    share: str = ""
    written: tuple[WrittenPlan, ...] = ()

    def problems(self, install: str) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """Invalid settings of an install, REGION/NAME: the field as written, and the reason."""
        if self.counted_by != install:
            yield (
                ("countedBy",),
                f"{self.counted_by!r} counts these commitments and this install is {install!r}: leave `commitments` out"
                " here, or name this install and leave it out there, for a plan is counted by one install",
            )
        if not self.share and not self.written:
            yield (), "counts on nothing: give `share`, such as 80%, or `written`"
        share = per_cent(self.share)
        if self.share and (share is None or not 0 < share <= 1):
            yield ("share",), f"{self.share!r} must be a percentage above 0% and at most 100%, such as 80%"
        for index, plan in enumerate(self.written):
            yield from ((("written", index, field), reason) for field, reason in plan.problems())


def family_of(instance_type: str) -> str:
    """The family of an instance type: what stands before its size."""
    return instance_type.partition(".")[0]


def per_cent(text: str) -> float | None:
    """The fraction that a percentage such as 28% is; None for another text."""
    found = _SHARE.fullmatch(text)
    return float(found[1]) / 100 if found is not None else None


OLDEST_S = 24 * 3600.0
"""Nothing is counted on if AWS was asked longer ago, in seconds."""
