"""The ledger: what of the commitments counted on is left once running instances have taken theirs.

AWS applies commitments each hour to all on-demand usage of the Region: zonal Reserved Instances to instances of their
type and zone, then regional ones to their family from its smallest size on, by normalised units; then EC2 Instance
Savings Plans, then Compute Savings Plans, each to the usage with the highest saving first, at equal savings to that
with the lower rate. An instance may be covered in part.

Sources:
    https://docs.aws.amazon.com/savingsplans/latest/userguide/sp-applying.html
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/apply_ri.html

Everything here is whole numbers: micro-dollars per hour, quarters of a normalised unit, parts per million of an
instance. Where one does not divide another, more is taken than AWS would take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import msgspec
from msgspec.structs import replace

from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.policies.commitments.account_commitments import (
    OLDEST_S,
    AccountCommitments,
    InstanceUse,
    SavingsPlan,
    family_of,
)
from shiplap.policies.commitments.commitment_settings import CommitmentSettings, per_cent

QUARTERS = {"nano": 1, "micro": 2, "small": 4, "medium": 8, "large": 16, "xlarge": 32}
"""Normalised units of sizes, in quarters. N times xlarge has N times as many."""

NOT_FLEXIBLE = frozenset(
    {"g4ad", "g4dn", "g5", "g5g", "g6", "g6e", "g6f", "gr6", "gr6f", "hpc7a", "inf1", "inf2", "p5"}
    | {"u7i-6tb", "u7i-8tb"}
)
"""Families whose regional Reserved Instances apply to the size that was bought alone."""

_MULTIPLE = re.compile(r"([0-9]+)xlarge")

WHOLE = MICROS
"""An instance, in parts per million."""


class ZonalRoom(msgspec.Struct, frozen=True, order=True):
    """Zonal Reserved Instances that nothing uses."""

    instance_type: str
    zone: str
    count: int


class RegionalRoom(msgspec.Struct, frozen=True, order=True):
    """Quarters of a normalised unit that nothing uses; `scope` is a family, or a type where sizes are not flexible."""

    scope: str
    quarters: int


class CommitmentRoom(msgspec.Struct, frozen=True, omit_defaults=True):
    """The commitments left for new nodes.

    `savings_plans` are in AWS's order, each with the commitment that nothing uses.
    `weight` is what a plan takes a committed dollar for while it looks for the nodes that are worth it: less than 1
    where more is left than is worth it at full price (see `scheduling.commitment_passes`). `weights` are those of
    single commitments, by the id of a Savings Plan or the scope of regional Reserved Instances.
    """

    zonal: tuple[ZonalRoom, ...] = ()
    regional: tuple[RegionalRoom, ...] = ()
    savings_plans: tuple[SavingsPlan, ...] = ()
    weight: float = 1.0
    weights: dict[str, float] = {}

    @property
    def is_empty(self) -> bool:
        """True if nothing is left."""
        return not (self.zonal or self.regional or self.savings_plans)


class Coverage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of an instance's price that commitments pay, micro-dollars per hour.

    `uncovered` is left to be paid at its list price.
    `taken` is what it takes of Savings Plans, and the list price of what Reserved Instances cover; `weighed` is that at
    the weights of the room. `zonal`: a zonal Reserved Instance covers it.
    """

    listed: int
    uncovered: int
    taken: int = 0
    weighed: int = 0
    zonal: bool = False

    @property
    def covered(self) -> int:
        """The part of the list price that commitments pay."""
        return self.listed - self.uncovered


def quarters_of(instance_type: str) -> int:
    """The normalised units of a type, in quarters; 0 where its size has none, as with `metal`."""
    size = instance_type.partition(".")[2].removeprefix("metal-")
    found = _MULTIPLE.fullmatch(size) or _MULTIPLE.fullmatch(f"{size.removesuffix('xl')}xlarge")
    return 32 * int(found[1]) if found is not None else QUARTERS.get(size, 0)


def scope_of(instance_type: str) -> str:
    """Return the scope of regional Reserved Instances of a type: its family, or the type alone."""
    family = family_of(instance_type)
    return instance_type if family in NOT_FLEXIBLE or not quarters_of(instance_type) else family


class CommitmentLedger:
    """A room that instances are taken from, one kind at a time."""

    def __init__(self, room: CommitmentRoom) -> None:
        self._zonal = {(item.instance_type, item.zone): item.count for item in room.zonal}
        self._regional = {item.scope: item.quarters for item in room.regional}
        self._plans = room.savings_plans
        self._left = [plan.commitment for plan in room.savings_plans]
        self._weight, self._weights = room.weight, room.weights

    @property
    def room(self) -> CommitmentRoom:
        """The room that is left now."""
        return CommitmentRoom(
            tuple(ZonalRoom(*key, count) for key, count in sorted(self._zonal.items()) if count),
            tuple(RegionalRoom(scope, left) for scope, left in sorted(self._regional.items()) if left),
            tuple(
                replace(plan, commitment=left) for plan, left in zip(self._plans, self._left, strict=True) if left > 0
            ),
            self._weight,
            self._weights,
        )

    def quote(self, instance_type: str, zone: str, listed: int) -> Coverage:
        """Return the coverage of one more instance of a type in a zone, at a list price in micro-dollars per hour."""
        return self._cover(instance_type, zone, listed, take=False)

    def take(self, instance_type: str, zone: str, listed: int) -> Coverage:
        """As `quote`, and take it."""
        return self._cover(instance_type, zone, listed, take=True)

    def _cover(self, instance_type: str, zone: str, listed: int, *, take: bool) -> Coverage:
        if self._zonal.get((instance_type, zone), 0):
            if take:
                self._zonal[instance_type, zone] -= 1
            return Coverage(listed, 0, listed, round(self._weight * listed), zonal=True)
        open_ppm, taken, weighed = WHOLE, 0, 0
        scope = scope_of(instance_type)
        if quarters := min(self._regional.get(scope, 0), wanted := quarters_of(instance_type) or 1):
            open_ppm = -(-WHOLE * (wanted - quarters) // wanted)
            taken += listed * (WHOLE - open_ppm) // WHOLE
            weighed += self._weighed(scope, taken)
            if take:
                self._regional[scope] -= quarters
        for place, plan in enumerate(self._plans):
            rate = plan.rate(instance_type, listed) if open_ppm and self._left[place] > 0 else 0
            if not 0 < rate <= listed:
                continue
            part = min(self._left[place], -(-rate * open_ppm // WHOLE))
            open_ppm = max(open_ppm - part * WHOLE // rate, 0)
            taken += part
            weighed += self._weighed(plan.id, part)
            if take:
                self._left[place] -= part
        return Coverage(listed, -(-listed * open_ppm // WHOLE), taken, weighed)

    def _weighed(self, commitment: str, taken: int) -> int:
        return round(self._weights.get(commitment, self._weight) * taken)

    def settle(self, uses: Iterable[InstanceUse], listed: Mapping[str, int]) -> int:
        """Let running instances take what AWS gives them; returns what is left to be paid, micro-dollars per hour.

        `listed` are on-demand prices by type; without one, an instance takes of Reserved Instances alone.
        """
        open_ppm = self._settle_reserved(uses)
        for _, plans in groupby(range(len(self._plans)), key=lambda place: not self._plans[place].family):
            self._settle_plans(list(plans), open_ppm, listed)
        return sum(-(-listed.get(name, 0) * parts // WHOLE) for name, parts in open_ppm.items())

    def _settle_reserved(self, uses: Iterable[InstanceUse]) -> dict[str, int]:
        """Apply Reserved Instances; returns what is uncovered of each type, in millionths of an instance."""
        left: dict[str, int] = {}
        for use in sorted(uses):
            key = (use.instance_type, use.zone)
            covered = min(self._zonal.get(key, 0), use.count)
            if covered:
                self._zonal[key] -= covered
            left[use.instance_type] = left.get(use.instance_type, 0) + use.count - covered
        open_ppm: dict[str, int] = {}
        for name in sorted(left, key=lambda name: (quarters_of(name), name)):
            scope, each = scope_of(name), quarters_of(name) or 1
            taken = min(self._regional.get(scope, 0), each * left[name])
            if taken:
                self._regional[scope] -= taken
            open_ppm[name] = -(-WHOLE * (each * left[name] - taken) // each)
        return open_ppm

    def _settle_plans(self, places: Sequence[int], open_ppm: dict[str, int], listed: Mapping[str, int]) -> None:
        """Apply Savings Plans of one kind to what is uncovered, by the highest saving, then the lowest rate."""
        offers = [
            ((rate - price) / price, rate, name, place)
            for name, parts in open_ppm.items()
            if parts and (price := listed.get(name, 0))
            for place in places
            if 0 < (rate := self._plans[place].rate(name, price)) <= price
        ]
        for _, rate, name, place in sorted(offers):
            part = min(self._left[place], -(-rate * open_ppm[name] // WHOLE))
            self._left[place] -= part
            open_ppm[name] = max(open_ppm[name] - part * WHOLE // rate, 0)


def counted_on(settings: CommitmentSettings, known: AccountCommitments | None, now: float) -> CommitmentRoom:
    """The part of the commitments that an install counts on at `now`, epoch seconds, whoever uses it.

    What has ended does not count. Nothing does while AWS showed nothing since OLDEST_S: who else uses it is not known.
    """
    if known is None or now - known.fetched_at > OLDEST_S:
        return CommitmentRoom()
    plans = [plan.as_plan(f"written {index}") for index, plan in enumerate(settings.written)]
    zonal: dict[tuple[str, str], int] = {}
    regional: dict[str, int] = {}
    share = per_cent(settings.share)
    if share is not None:
        ppm = round(share * MICROS)
        plans += [replace(plan, commitment=plan.commitment * ppm // MICROS) for plan in known.savings_plans]
        for item in known.reserved_instances:
            if item.ends_at <= now:
                continue
            if item.zone:
                key = (item.instance_type, item.zone)
                zonal[key] = zonal.get(key, 0) + item.count
            else:
                scope = scope_of(item.instance_type)
                regional[scope] = regional.get(scope, 0) + item.count * (quarters_of(item.instance_type) or 1)
        zonal = {key: count * ppm // MICROS for key, count in zonal.items()}
        regional = {scope: quarters * ppm // MICROS for scope, quarters in regional.items()}
    running = [plan for plan in plans if plan.commitment > 0 and now < plan.ends_at]
    return CommitmentRoom(
        tuple(ZonalRoom(*key, count) for key, count in sorted(zonal.items()) if count),
        tuple(RegionalRoom(scope, left) for scope, left in sorted(regional.items()) if left),
        tuple(sorted(running, key=lambda plan: (not plan.family, plan.id))),
    )


def room_left(
    counted: CommitmentRoom,
    others: Iterable[InstanceUse],
    ours: Iterable[InstanceUse],
    listed: Mapping[str, int],
) -> CommitmentRoom:
    """Return the room left of the counted commitments.

    The account's `others` take their part first, then all `ours`.
    """
    ledger = CommitmentLedger(counted)
    ledger.settle(others, listed)
    ledger.settle(ours, listed)
    return ledger.room
