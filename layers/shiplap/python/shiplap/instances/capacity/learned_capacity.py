"""Reports of nodes, merged into learned capacity, and figures inferred from them for other types of the same AMI.

Everything is pure: the stores call `merged_capacity` inside a conditional write and repeat it after a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shiplap.instances.capacity.described_capacity import FIXED_OVERHEAD, least_memory
from shiplap.instances.capacity.reported_amounts import (
    ALWAYS_REPORTED,
    DAY_S,
    MAX_AGE_DAYS,
    reports_of,
    slightly_less,
    united,
    within_bounds,
)
from shiplap.instances.capacity.trusted_amounts import (
    AllowedAmounts,
    AllowedRange,
    TrustedAmounts,
    trusted_amounts,
    trusted_memory,
    voices,
)
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity, Observation, ReportedAmounts
from shiplap.kubernetes.quantity import MEMORY

RECENT = 10
"""Observations of one (AMI, type, kubelet settings) that are kept to be shown."""

_WORST_DOUBTED_RATIO = 0.25
"""The share of missing memory up to which a report in doubt makes the careful bounds of other types lower."""


def with_observation(known: LearnedCapacity | None, observation: Observation) -> LearnedCapacity:
    """`known` with one more observation; the order in which observations arrive does not matter.

    A node reporting again replaces what it reported before, so that repeated messages count once.
    """
    key = (observation.ami, observation.instance_type, observation.kubelet_hash)
    return merged_capacity(known, LearnedCapacity(*key, recent=(observation,)))


def merged_capacity(known: LearnedCapacity | None, other: LearnedCapacity) -> LearnedCapacity:
    """`known` with everything that `other` holds of the same key; `known` itself when nothing of it is new."""
    if known is None:
        known = LearnedCapacity(other.ami, other.instance_type, other.kubelet_hash)
    of_nodes: dict[tuple[str, str], Observation] = {}
    for each in map(within_bounds, (*known.recent, *other.recent)):
        node = (each.cluster, each.node)
        of_nodes[node] = max(of_nodes.get(node, each), each, key=_age_key)
    ordered = sorted(of_nodes.values(), key=_age_key)
    oldest_s = ordered[-1].observed_at - MAX_AGE_DAYS * DAY_S if ordered else 0.0
    merged = msgspec.structs.replace(
        known,
        recent=tuple(each for each in ordered if each.observed_at >= oldest_s)[-RECENT:],
        minimum_capacity={},
        minimum_allocatable={},
        imported=_merged_imports(known.imported, other.imported),
        reported=united((*reports_of(known), *reports_of(other))),
    )
    if merged == known:
        return known
    new_nodes = len(of_nodes) - len({(each.cluster, each.node) for each in known.recent})
    return msgspec.structs.replace(merged, count=known.count + new_nodes, version=known.version + 1)


def _merged_imports(known: ImportedCapacity | None, other: ImportedCapacity | None) -> ImportedCapacity | None:
    """The smaller amounts of both; a file that is imported again changes nothing."""
    if known is None or other is None:
        return known or other
    return ImportedCapacity(
        _smallest((known.capacity, other.capacity)),
        _smallest((known.allocatable, other.allocatable)),
        max(known.nodes, other.nodes),
    )


def shortfall(relied_on: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, int]:
    """By how much a node falls short of what the plan relied on, per resource; empty when it does not.

    An extended resource that is absent or zero is not short: its device plugin has not reported yet.
    """
    short = {}
    for resource in sorted(relied_on):
        there = allocatable.get(resource, 0)
        if there < relied_on[resource] and (there or resource in ALWAYS_REPORTED):
            short[resource] = relied_on[resource] - there
    return short


def is_observed(learned: LearnedCapacity) -> bool:
    """True if a node of this install has reported; other entries hold only imported amounts."""
    return bool(reports_of(learned))


def allowed_memory(nominal: int) -> AllowedRange:
    """The memory that a node may report of a type of which EC2 states `nominal`, bytes.

    Less than the careful bound is not expected of any AMI. Less than that by a sixteenth is far.
    """
    return AllowedRange(slightly_less(least_memory(nominal)), nominal)


class LearnedCapacityIndex:
    """All learned capacity as one cluster sees it, indexed by (AMI, instance type, kubelet settings).

    An empty AMI means that the AMI is not known (planning from files); then reports on any AMI count.
    """

    def __init__(
        self,
        learned: Iterable[LearnedCapacity],
        nominal_memory: Mapping[str, int],
        *,
        cluster: str = "",
        now: float = 0.0,
    ) -> None:
        """`nominal_memory`: bytes EC2 states for each type; learned capacity of other types is ignored.

        `cluster` and `now`: as in `trusted_amounts`.
        """
        self._cluster, self._now = cluster, now
        self._reports: dict[tuple[str, str, str], list[ReportedAmounts]] = {}
        self._memory: dict[str, list[_MemorySample]] = {}
        self._worst: dict[str, float] = {}
        self._imported: dict[tuple[str, str, str], list[ImportedCapacity]] = {}
        for entry in learned:
            nominal = nominal_memory.get(entry.instance_type)
            if nominal:
                self._add(entry, nominal)

    def _add(self, entry: LearnedCapacity, nominal: int) -> None:
        reports = reports_of(entry)
        memory = trusted_memory(reports, self._cluster, allowed_memory(nominal), self._now)
        for ami in {entry.ami, ""}:
            key = (ami, entry.instance_type, entry.kubelet_hash)
            self._reports.setdefault(key, []).extend(reports)
            if entry.imported is not None:
                self._imported.setdefault(key, []).append(entry.imported)
            self._add_sample(ami, entry.instance_type, nominal, memory)

    def _add_sample(self, ami: str, instance_type: str, nominal: int, memory: TrustedAmounts) -> None:
        """Record the memory of an entry as a sample for other types on the AMI.

        Far reports give no sample. They change only how careful the estimate is.
        """
        found = memory.capacity.get(MEMORY)
        if found is not None and allowed_memory(nominal).holds(found):
            seen = _MemorySample(instance_type, instance_type.partition(".")[0], nominal, found)
            self._memory.setdefault(ami, []).append(seen)
            ratio = seen.overhead_ratio
        else:
            far = (*memory.capacity.values(), *memory.doubted_capacity.values())
            least = min(far, default=nominal)
            ratio = min(max(nominal - least - FIXED_OVERHEAD, 0) / nominal, _WORST_DOUBTED_RATIO)
        self._worst[ami] = max(self._worst.get(ami, 0.0), ratio)

    def has_reports(self, ami: str, instance_type: str, kubelet_hash: str) -> bool:
        """True if a node of exactly this combination has reported, in whatever cluster."""
        return bool(self._reports.get((ami, instance_type, kubelet_hash)))

    def trusted(self, ami: str, instance_type: str, kubelet_hash: str, allowed: AllowedAmounts) -> TrustedAmounts:
        """Return the amounts that the cluster relies on for exactly this combination.

        There are no amounts when no node has reported.
        """
        return trusted_amounts(
            self._reports.get((ami, instance_type, kubelet_hash), ()), self._cluster, allowed, self._now
        )

    def voices(self, ami: str, instance_type: str, kubelet_hash: str) -> int:
        """Return the number of nodes and clusters that have reported exactly this combination, see `voices`."""
        return voices(self._reports.get((ami, instance_type, kubelet_hash), ()), self._cluster)

    def imported(self, ami: str, instance_type: str, kubelet_hash: str) -> tuple[dict[str, int], dict[str, int]] | None:
        """Smallest capacity and allocatable that other installs reported of exactly this combination, or None."""
        entries = self._imported.get((ami, instance_type, kubelet_hash))
        if not entries:
            return None
        return _smallest(item.capacity for item in entries), _smallest(item.allocatable for item in entries)

    def inferred_memory(self, ami: str, instance_type: str, nominal: int, formula: int) -> int | None:
        """Memory in bytes, inferred from siblings on the same AMI; None when there are none.

        Best is the same type under other kubelet settings, then its family, then all types. The stated
        memory is scaled by the smallest share of stated memory that any sample had. The missing share shrinks as
        machines grow, so samples that are all larger than the type never raise it above `formula`.
        """
        seen = self._memory.get(ami)
        if not seen:
            return None
        same = [each.memory for each in seen if each.instance_type == instance_type]
        if same:
            return min(same)
        family = instance_type.partition(".")[0]
        samples = [each for each in seen if each.family == family] or seen
        inferred = min(nominal * each.memory // each.nominal for each in samples)
        if all(each.nominal > nominal for each in samples):
            return min(inferred, formula)
        return inferred

    def worst_overhead_ratio(self, ami: str) -> float:
        """The largest share of stated memory that a type lacked on this AMI, beyond a fixed amount; 0 if unseen."""
        return self._worst.get(ami, 0.0)


class _MemorySample(msgspec.Struct, frozen=True):
    instance_type: str
    family: str
    nominal: int
    memory: int

    @property
    def overhead_ratio(self) -> float:
        return max(self.nominal - self.memory - FIXED_OVERHEAD, 0) / self.nominal


def _age_key(observation: Observation) -> tuple[object, ...]:
    """By age; what follows makes the order the same for everybody, whoever has merged what first."""
    amounts = (observation.capacity, observation.allocatable, observation.predicted)
    return (observation.observed_at, observation.cluster, observation.node, *(sorted(each.items()) for each in amounts))


def _smallest(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Per resource the smallest amount; zeroes do not count, a device plugin that was not up yet reports them."""
    least: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            if amount > 0 and amount < least.get(resource, amount + 1):
                least[resource] = amount
    return dict(sorted(least.items()))
