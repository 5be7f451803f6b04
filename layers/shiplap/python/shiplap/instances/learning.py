"""What nodes really reported, merged into what is remembered, and what it says about types and siblings.

Everything is pure: the stores call `observe` inside a conditional write and try again when somebody was faster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from shiplap.instances.capacity import FIXED_OVERHEAD
from shiplap.instances.types import LearnedCapacity, Observation
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

RECENT = 10
"""Observations kept of one (AMI, type, kubelet settings)."""

MAX_AGE_S = 60 * 24 * 3600
"""Observations older than this, seen from the newest, no longer count."""

_ALWAYS_REPORTED = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def observe(known: LearnedCapacity | None, observation: Observation) -> LearnedCapacity:
    """`known` with one more observation; the order in which observations arrive does not matter.

    A node reporting again replaces what it reported before, so that repeated messages count once.
    """
    if known is None:
        known = LearnedCapacity(observation.ami, observation.instance_type, observation.kubelet_hash)
    seen = (observation.cluster, observation.node)
    before = [each for each in known.recent if (each.cluster, each.node) == seen]
    newest_of_node = max([*before, observation], key=_age_key)
    others = [each for each in known.recent if (each.cluster, each.node) != seen]
    ordered = sorted([*others, newest_of_node], key=_age_key)
    oldest = ordered[-1].observed_at - MAX_AGE_S
    recent = tuple(each for each in ordered if each.observed_at >= oldest)[-RECENT:]
    return msgspec.structs.replace(known, recent=recent, count=known.count + (not before), version=known.version + 1)


def missed(relied_on: Mapping[str, int], allocatable: Mapping[str, int]) -> dict[str, int]:
    """By how much a node falls short of what the plan relied on, per resource; empty when it does not.

    An extended resource that is absent or zero is not short: its device plugin has not reported yet.
    """
    short = {}
    for resource in sorted(relied_on):
        there = allocatable.get(resource, 0)
        if there < relied_on[resource] and (there or resource in _ALWAYS_REPORTED):
            short[resource] = relied_on[resource] - there
    return short


def capacity(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest capacity reported lately, per resource."""
    return _smallest(each.capacity for each in learned.recent)


def allocatable(learned: LearnedCapacity) -> dict[str, int]:
    """The smallest allocatable reported lately, per resource."""
    return _smallest(each.allocatable for each in learned.recent)


class Knowledge:
    """All learned capacity, arranged for questions about one (AMI, instance type, kubelet settings) after another.

    An empty AMI means that it is not known which one a node will boot (planning from files); then what any AMI gave
    counts, and the smallest figure wins.
    """

    def __init__(self, learned: Iterable[LearnedCapacity], nominal_memory: Mapping[str, int]) -> None:
        """`nominal_memory`: bytes EC2 states for each type; what was learned of a type it lacks teaches nothing."""
        self._exact: dict[tuple[str, str, str], list[LearnedCapacity]] = {}
        self._memory: dict[str, list[_Seen]] = {}
        self._worst: dict[str, float] = {}
        for entry in learned:
            nominal = nominal_memory.get(entry.instance_type)
            memory = capacity(entry).get(MEMORY)
            if not nominal or not memory:
                continue
            seen = _Seen(entry.instance_type, entry.instance_type.partition(".")[0], nominal, memory)
            for ami in {entry.ami, ""}:
                self._exact.setdefault((ami, entry.instance_type, entry.kubelet_hash), []).append(entry)
                self._memory.setdefault(ami, []).append(seen)
                self._worst[ami] = max(self._worst.get(ami, 0.0), seen.overhead_ratio)

    def exact(self, ami: str, instance_type: str, kubelet_hash: str) -> tuple[dict[str, int], dict[str, int]] | None:
        """Smallest capacity and allocatable reported for exactly this combination, or None when nobody has run it."""
        entries = self._exact.get((ami, instance_type, kubelet_hash))
        if not entries:
            return None
        return _smallest(map(capacity, entries)), _smallest(map(allocatable, entries))

    def inferred_memory(self, ami: str, instance_type: str, nominal: int, formula: int) -> int | None:
        """Memory in bytes by what siblings on the same AMI gave, or None when there are none.

        The same type under other kubelet settings is the best witness, then its family, then all types. Witnesses are
        scaled by the smallest share of its stated memory that any of them had. The missing share shrinks as machines
        grow, so witnesses that are all larger than the type never raise it above `formula`.
        """
        seen = self._memory.get(ami)
        if not seen:
            return None
        same = [each.memory for each in seen if each.instance_type == instance_type]
        if same:
            return min(same)
        family = instance_type.partition(".")[0]
        witnesses = [each for each in seen if each.family == family] or seen
        inferred = min(nominal * each.memory // each.nominal for each in witnesses)
        if all(each.nominal > nominal for each in witnesses):
            return min(inferred, formula)
        return inferred

    def worst_overhead_ratio(self, ami: str) -> float:
        """The largest share of stated memory that a type lacked on this AMI, beyond a fixed amount; 0 if unseen."""
        return self._worst.get(ami, 0.0)


class _Seen(msgspec.Struct, frozen=True):
    instance_type: str
    family: str
    nominal: int
    memory: int

    @property
    def overhead_ratio(self) -> float:
        return max(self.nominal - self.memory - FIXED_OVERHEAD, 0) / self.nominal


def _age_key(observation: Observation) -> tuple[float, str, str]:
    return (observation.observed_at, observation.cluster, observation.node)


def _smallest(lists: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Per resource the smallest amount; zeroes do not count, a device plugin that was not up yet reports them."""
    least: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            if amount > 0 and amount < least.get(resource, amount + 1):
                least[resource] = amount
    return dict(sorted(least.items()))
