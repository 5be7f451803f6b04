"""Reports of nodes, merged into learned capacity, and figures inferred from them for other types of the same AMI.

Everything is pure: the stores call `merged_capacity` inside a conditional write and repeat it after a conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.instances.capacity.described_capacity import FIXED_OVERHEAD
from shiplap.instances.catalog.type_catalog import ImportedCapacity, LearnedCapacity, Minimum, Observation
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

RECENT = 10
"""Observations kept of one (AMI, type, kubelet settings)."""

DAY_S = 24 * 3600
MAX_AGE_DAYS = 60
"""Amounts older than this, seen from the newest observation, no longer count."""

_ALWAYS_REPORTED = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def with_observation(known: LearnedCapacity | None, observation: Observation) -> LearnedCapacity:
    """`known` with one more observation; the order in which observations arrive does not matter.

    A node reporting again replaces what it reported before, so that repeated messages count once. The smallest amounts
    stay: a figure rises only when its smallest amount is older than `MAX_AGE_DAYS`.
    """
    key = (observation.ami, observation.instance_type, observation.kubelet_hash)
    return merged_capacity(known, LearnedCapacity(*key, recent=(observation,)))


def merged_capacity(known: LearnedCapacity | None, other: LearnedCapacity) -> LearnedCapacity:
    """`known` with everything that `other` holds of the same key; `known` itself when nothing of it is new."""
    if known is None:
        known = LearnedCapacity(other.ami, other.instance_type, other.kubelet_hash)
    seen = (*known.recent, *other.recent)
    of_nodes: dict[tuple[str, str], Observation] = {}
    for each in seen:
        node = (each.cluster, each.node)
        of_nodes[node] = max(of_nodes.get(node, each), each, key=_age_key)
    ordered = sorted(of_nodes.values(), key=_age_key)
    oldest_s = ordered[-1].observed_at - MAX_AGE_DAYS * DAY_S if ordered else 0.0
    newest_day = max([0, *map(_day, ordered), *_days(known), *_days(other)])
    merged = msgspec.structs.replace(
        known,
        recent=tuple(each for each in ordered if each.observed_at >= oldest_s)[-RECENT:],
        minimum_capacity=_minima(
            (known.minimum_capacity, other.minimum_capacity),
            [(_day(each), each.capacity) for each in seen],
            newest_day,
        ),
        minimum_allocatable=_minima(
            (known.minimum_allocatable, other.minimum_allocatable),
            [(_day(each), each.allocatable) for each in seen],
            newest_day,
        ),
        imported=_merged_imports(known.imported, other.imported),
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


def _minima(
    known: Iterable[Mapping[str, Sequence[Minimum]]], seen: Iterable[tuple[int, Mapping[str, int]]], newest_day: int
) -> dict[str, tuple[Minimum, ...]]:
    """Per resource the amounts below all later ones, of the last `MAX_AGE_DAYS`; zeroes do not count."""
    amounts: dict[str, set[Minimum]] = {}
    for minima in known:
        for resource, some in minima.items():
            amounts.setdefault(resource, set()).update(some)
    for day, reported in seen:
        for resource, amount in reported.items():
            if amount > 0:
                amounts.setdefault(resource, set()).add(Minimum(amount, day))
    result = {}
    for resource in sorted(amounts):
        lowest: list[Minimum] = []
        for each in sorted(amounts[resource], key=lambda item: (-item.day, item.amount)):
            if each.day >= newest_day - MAX_AGE_DAYS and (not lowest or each.amount < lowest[-1].amount):
                lowest.append(each)
        if lowest:
            result[resource] = tuple(reversed(lowest))
    return result


def _days(learned: LearnedCapacity) -> Iterable[int]:
    for minima in (learned.minimum_capacity, learned.minimum_allocatable):
        for some in minima.values():
            yield from (each.day for each in some)


def _day(observation: Observation) -> int:
    return int(observation.observed_at // DAY_S)


def shortfall(relied_on: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, int]:
    """By how much a node falls short of what the plan relied on, per resource; empty when it does not.

    An extended resource that is absent or zero is not short: its device plugin has not reported yet.
    """
    short = {}
    for resource in sorted(relied_on):
        there = allocatable.get(resource, 0)
        if there < relied_on[resource] and (there or resource in _ALWAYS_REPORTED):
            short[resource] = relied_on[resource] - there
    return short


def is_observed(learned: LearnedCapacity) -> bool:
    """Whether a node of this install has reported; other entries only hold what was imported."""
    return bool(learned.recent or learned.minimum_capacity)


def smallest_capacity(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest capacity of the last 60 days, per resource."""
    return _smallest([*(each.capacity for each in learned.recent), _first(learned.minimum_capacity)])


def smallest_allocatable(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest allocatable of the last 60 days, per resource."""
    return _smallest([*(each.allocatable for each in learned.recent), _first(learned.minimum_allocatable)])


def _first(minima: Mapping[str, Sequence[Minimum]]) -> dict[str, int]:
    return {resource: some[0].amount for resource, some in minima.items() if some}


class LearnedCapacityIndex:
    """All learned capacity, indexed by (AMI, instance type, kubelet settings).

    An empty AMI means that the AMI is not known (planning from files); then reports on any AMI count, and the smallest
    figure wins.
    """

    def __init__(self, learned: Iterable[LearnedCapacity], nominal_memory: Mapping[str, int]) -> None:
        """`nominal_memory`: bytes EC2 states for each type; learned capacity of other types is ignored."""
        self._exact: dict[tuple[str, str, str], list[LearnedCapacity]] = {}
        self._memory: dict[str, list[_MemorySample]] = {}
        self._worst: dict[str, float] = {}
        self._imported: dict[tuple[str, str, str], list[ImportedCapacity]] = {}
        for entry in learned:
            nominal = nominal_memory.get(entry.instance_type)
            memory = smallest_capacity(entry).get(MEMORY)
            if not nominal:
                continue
            if not memory:
                if entry.imported is not None:
                    for ami in {entry.ami, ""}:
                        key = (ami, entry.instance_type, entry.kubelet_hash)
                        self._imported.setdefault(key, []).append(entry.imported)
                continue
            seen = _MemorySample(entry.instance_type, entry.instance_type.partition(".")[0], nominal, memory)
            for ami in {entry.ami, ""}:
                self._exact.setdefault((ami, entry.instance_type, entry.kubelet_hash), []).append(entry)
                self._memory.setdefault(ami, []).append(seen)
                self._worst[ami] = max(self._worst.get(ami, 0.0), seen.overhead_ratio)

    def exact(self, ami: str, instance_type: str, kubelet_hash: str) -> tuple[dict[str, int], dict[str, int]] | None:
        """Smallest capacity and allocatable of exactly this combination, or None when no node has reported."""
        entries = self._exact.get((ami, instance_type, kubelet_hash))
        if not entries:
            return None
        return _smallest(map(smallest_capacity, entries)), _smallest(map(smallest_allocatable, entries))

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
