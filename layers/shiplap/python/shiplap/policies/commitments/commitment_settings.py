"""The settings of commitments: the part of what AWS shows to count on, and Savings Plans that shiplap.yaml states.

Money is in micro-dollars per hour unless a name says dollars; times are epoch seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from typing import Annotated, ClassVar

import msgspec

from shiplap.manifests.decoding import demands
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import ANY_FAMILY, SavingsPlan
from shiplap.policies.policy_settings import PolicySettings

_SHARE = re.compile(r"([0-9]{1,3}(?:\.[0-9]+)?)%")
_PERCENTAGE = "a percentage"
_FAMILY = re.compile(r"[a-z][a-z0-9-]{1,15}")


class _Written(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of what shiplap.yaml holds."""


class WrittenPlan(_Written, frozen=True, kw_only=True, omit_defaults=True):
    """A Savings Plan as shiplap.yaml states it, such as one of the payer account that this account cannot see."""

    dollars_per_hour: Annotated[float, demands(above=0)]
    """The part of its commitment to count on, before the account's other instances take theirs."""
    discount: Annotated[str, demands(pattern=rf"^{_SHARE.pattern}\Z", form=f"{_PERCENTAGE}, such as 28%", unit="%")]
    """What its rates are below on-demand prices."""
    end: str
    """The first day, in UTC, on which it does not count any more."""
    family: Annotated[str, demands(pattern=rf"^(|{_FAMILY.pattern})\Z", form="a family such as m7g")] = ANY_FAMILY
    """That of an EC2 Instance Savings Plan; without it, it is a Compute Savings Plan."""

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
        share = per_cent(self.discount)
        if share is None or not 0 < share < 1:
            yield "discount", f"{self.discount!r} must be a percentage above 0% and below 100%, such as 28%"
        try:
            date.fromisoformat(self.end)
        except ValueError:
            yield "end", f"{self.end!r} is not a date, such as 2027-06-30"


class CommitmentSettings(PolicySettings, _Written, frozen=True, kw_only=True, omit_defaults=True):
    """The part of the account's commitments that an install counts on.

    Every install that counted them would count the same dollars.
    """

    policy: ClassVar[str] = "commitments"

    counted_by: str
    """REGION/NAME of the one install that counts them."""
    share: Annotated[str, demands(pattern=rf"^(|{_SHARE.pattern})\Z", form=f"{_PERCENTAGE}, such as 80%", unit="%")] = (
        ""
    )
    """The part of what AWS shows for the account; without it AWS is asked only for the account's other instances."""
    written: tuple[WrittenPlan, ...] = ()
    """Savings Plans that shiplap.yaml states."""

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


def per_cent(text: str) -> float | None:
    """The fraction that a percentage such as 28% is; None for another text."""
    found = _SHARE.fullmatch(text)
    return float(found[1]) / 100 if found is not None else None
