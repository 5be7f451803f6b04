"""Evidence about spot: node-hours, interruptions, rebalance recommendations and refusals, by zone id and instance type.

Zones are named by their ids, which mean the same in every account. Old evidence counts less: half as much after
`HALF_LIFE_S`. It is stored with growing weights instead of shrinking ones, so that a sum can be added to without being
read: what happens at a time t is added with the weight 2^((t - ORIGIN_S) / HALF_LIFE_S), and whoever reads a sum
divides it by the weight of now. The order in which evidence arrives does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import msgspec

HALF_LIFE_S = 45 * 24 * 3600.0
"""Seconds after which evidence counts half."""

ORIGIN_S = 1_767_225_600.0
"""Epoch seconds at which evidence is stored with weight 1: 2026-01-01T00:00:00Z."""

DAY_PARTS = 8
"""The parts of a day, UTC, that are told apart: three hours each."""

DAY_S = 24 * 3600.0
_PART_S = DAY_S / DAY_PARTS
_NOTHING = (0.0,) * DAY_PARTS
_HELD_BACK = 4


class OfferingEvidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """The evidence on one instance type as spot in one zone, in weights of the time at which it was read.

    `node_hours` and `interruptions` are by part of the day; a quarter of the nodes is held back: theirs are in
    `held_back_node_hours` and `held_back_interruptions`, which tell whether the parts of the day differ.
    """

    zone_id: str
    instance_type: str
    node_hours: tuple[float, ...] = _NOTHING
    interruptions: tuple[float, ...] = _NOTHING
    held_back_node_hours: tuple[float, ...] = _NOTHING
    held_back_interruptions: tuple[float, ...] = _NOTHING
    rebalances: float = 0.0
    refusals: float = 0.0

    @property
    def family(self) -> str:
        """The part of the type before the dot."""
        return family_of_type(self.instance_type)

    @property
    def total_node_hours(self) -> float:
        """Of all nodes and parts of the day."""
        return sum(self.node_hours) + sum(self.held_back_node_hours)

    @property
    def total_interruptions(self) -> float:
        """Of all nodes and parts of the day."""
        return sum(self.interruptions) + sum(self.held_back_interruptions)


class EvidenceChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Evidence to add to one offering: what happened at `at`, epoch seconds, or ended then.

    `node_hours` are by part of the day. `node` names the node or claim that it is about, which decides whether it is
    held back.
    """

    zone_id: str
    instance_type: str
    at: float
    node: str = ""
    node_hours: tuple[float, ...] = ()
    interruptions: int = 0
    rebalances: int = 0
    refusals: int = 0

    def weighted(self) -> dict[str, float]:
        """Return the amounts to add to the stored sums, by their names, in stored weights."""
        weight, held_back = weight_at(self.at), is_held_back(self.node)
        sums = {
            f"{'H' if held_back else 'h'}{part}": hours * weight for part, hours in enumerate(self.node_hours) if hours
        }
        if self.interruptions:
            sums[f"{'I' if held_back else 'i'}{day_part(self.at)}"] = self.interruptions * weight
        if self.rebalances:
            sums["r"] = self.rebalances * weight
        if self.refusals:
            sums["f"] = self.refusals * weight
        return sums


def summed(changes: Iterable[EvidenceChange]) -> dict[str, float]:
    """Return the amounts that some changes of one offering add to its stored sums, together."""
    sums: dict[str, float] = {}
    for change in changes:
        for name, amount in change.weighted().items():
            sums[name] = sums.get(name, 0.0) + amount
    return sums


def evidence_of_sums(zone_id: str, instance_type: str, sums: dict[str, float], now: float) -> OfferingEvidence:
    """The evidence in stored sums, in weights of `now`, rounded so that a record of it is short."""
    weight = weight_at(now)

    def parts(letter: str) -> tuple[float, ...]:
        return tuple(round(sums.get(f"{letter}{part}", 0.0) / weight, 4) for part in range(DAY_PARTS))

    return OfferingEvidence(
        zone_id=zone_id,
        instance_type=instance_type,
        node_hours=parts("h"),
        interruptions=parts("i"),
        held_back_node_hours=parts("H"),
        held_back_interruptions=parts("I"),
        rebalances=round(sums.get("r", 0.0) / weight, 4),
        refusals=round(sums.get("f", 0.0) / weight, 4),
    )


def weight_at(at: float) -> float:
    """The weight with which evidence of an epoch second is stored."""
    return float(2.0 ** ((at - ORIGIN_S) / HALF_LIFE_S))


def day_part(at: float) -> int:
    """The part of the day, UTC, in which an epoch second is."""
    return int(at % DAY_S // _PART_S)


def is_held_back(node: str) -> bool:
    """True if the evidence of a node is held back: a quarter of all nodes, by a digest of the name."""
    return bool(node) and sha256(node.encode()).digest()[0] % _HELD_BACK == 0


def hours_by_part(begin: float, end: float) -> tuple[float, ...]:
    """The hours from one epoch second to another, by part of the day; nothing when the end comes first."""
    hours = [0.0] * DAY_PARTS
    at = begin
    while at < end:
        until = min((at // _PART_S + 1) * _PART_S, end)
        hours[day_part(at)] += (until - at) / 3600.0
        at = until
    return tuple(hours)


def family_of_type(instance_type: str) -> str:
    """The part of an instance type before the dot: `m7g` of `m7g.large`."""
    return instance_type.partition(".")[0]


def sorted_evidence(evidence: Iterable[OfferingEvidence]) -> tuple[OfferingEvidence, ...]:
    """By zone id and type."""
    return tuple(sorted(evidence, key=lambda known: (known.zone_id, known.instance_type)))
