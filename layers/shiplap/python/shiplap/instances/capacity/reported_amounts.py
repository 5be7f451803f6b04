"""Reports of nodes as an entry of learned capacity keeps them: equal ones as one, bounded in number and size.

A cluster can fill its own share alone, whatever its nodes report and however often.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from shiplap.instances.catalog.type_catalog import LearnedCapacity, Observation, ReportedAmounts
from shiplap.kubernetes.quantity import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

DAY_S = 24 * 3600
MAX_AGE_DAYS = 60
"""Reports older than this, seen from the newest one of any cluster, no longer count."""

ALWAYS_REPORTED = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""What every kubelet reports; all other resources come from device plugins and the settings of a cluster."""

MOST_NODES = 8
"""Nodes that a report counts: enough to outvote, and few enough to store."""
_MOST_OF_A_CLUSTER = 32
_MOST_OF_ALL = 96
_MOST_OTHER_RESOURCES = 12
_LONGEST_NAME = 80
"""Together with the two limits above: at most 300 KB of the 400 KB that DynamoDB stores in an item."""
_LONGEST_NODE_NAME = 63
_NEAR = 16


def near(one: int, other: int) -> bool:
    """Two amounts that differ by a sixteenth at most: machines of one type differ less, broken ones differ more."""
    return abs(one - other) * _NEAR <= max(one, other)


def slightly_less(amount: int) -> int:
    """The smallest amount that is near to another."""
    return amount - amount // _NEAR


def stored_name(node: str) -> str:
    """The name by which a node is counted: no name of EC2's is longer."""
    return node[:_LONGEST_NODE_NAME]


def within_bounds(observation: Observation) -> Observation:
    """The observation without resources that would let one node fill the entry."""
    names = {*observation.capacity, *observation.allocatable} - {*ALWAYS_REPORTED}
    kept = {*ALWAYS_REPORTED, *sorted(name for name in names if len(name) <= _LONGEST_NAME)[:_MOST_OTHER_RESOURCES]}

    def bounded(amounts: Mapping[str, int]) -> dict[str, int]:
        return {name: amount for name, amount in amounts.items() if name in kept}

    return msgspec.structs.replace(
        observation,
        capacity=bounded(observation.capacity),
        allocatable=bounded(observation.allocatable),
        predicted=bounded(observation.predicted),
    )


def reports_of(entry: LearnedCapacity) -> tuple[ReportedAmounts, ...]:
    """All reports that an entry holds, in whatever form the release that wrote it has kept them."""
    seen = [
        ReportedAmounts(
            each.cluster,
            _positive(each.capacity),
            _positive(each.allocatable),
            each.observed_at,
            (stored_name(each.node),),
        )
        for each in map(within_bounds, entry.recent)
    ]
    return united((*entry.reported, *seen, *_of_minima(entry, seen)))


def united(reports: Iterable[ReportedAmounts]) -> tuple[ReportedAmounts, ...]:
    """Equal reports of a cluster as one, those that are too old left out; the order of the reports does not matter."""
    found: dict[tuple[object, ...], ReportedAmounts] = {}
    for report in reports:
        key = _key(report)
        found[key] = _both(found[key], report) if key in found else report
    if not found:
        return ()
    newest_day = max(_day(report) for report in found.values())
    lately = [report for report in found.values() if _day(report) >= newest_day - MAX_AGE_DAYS]
    return tuple(sorted(_bounded(lately), key=_key))


def _of_minima(entry: LearnedCapacity, seen: Iterable[ReportedAmounts]) -> list[ReportedAmounts]:
    """The smallest amounts that an older release has kept, a report for each day; it names no cluster.

    Amounts that nodes are named for are left out: their report must not seem to be that of a second node.
    """
    named = {
        (place, *amount)
        for report in seen
        for place, amounts in enumerate((report.capacity, report.allocatable))
        for amount in amounts.items()
    }
    of_days: dict[int, tuple[dict[str, int], dict[str, int]]] = {}
    for place, minima in enumerate((entry.minimum_capacity, entry.minimum_allocatable)):
        for resource, lowest in minima.items():
            for minimum in lowest:
                if (place, resource, minimum.amount) not in named:
                    of_days.setdefault(minimum.day, ({}, {}))[place][resource] = minimum.amount
    return [ReportedAmounts("", *amounts, float(day * DAY_S)) for day, amounts in of_days.items()]


def _bounded(reports: list[ReportedAmounts]) -> list[ReportedAmounts]:
    by_cluster: dict[str, list[ReportedAmounts]] = {}
    for report in sorted(reports, key=_key):
        by_cluster.setdefault(report.cluster, []).append(report)
    kept = [report for own in by_cluster.values() for report in _bounded_of_cluster(own)]
    while len(kept) > _MOST_OF_ALL:
        number = Counter(report.cluster for report in kept)
        most = max(number.values())
        kept.remove(min((report for report in kept if number[report.cluster] == most), key=_weight))
    return kept


def _bounded_of_cluster(reports: list[ReportedAmounts]) -> list[ReportedAmounts]:
    """The report with the fewest nodes becomes part of the one that is nearest to it, or goes if none is near."""
    kept = list(reports)
    while len(kept) > _MOST_OF_A_CLUSTER:
        weakest = min(kept, key=_weight)
        kept.remove(weakest)
        alike = [report for report in kept if _alike(weakest, report)]
        if alike:
            nearest = min(alike, key=lambda report: (_distance(weakest, report), _key(report)))
            kept[kept.index(nearest)] = _both(nearest, weakest)
    return kept


def _both(one: ReportedAmounts, other: ReportedAmounts) -> ReportedAmounts:
    """Two reports as one, with the smaller of their amounts."""
    return ReportedAmounts(
        one.cluster,
        {name: min(amount, other.capacity[name]) for name, amount in sorted(one.capacity.items())},
        {name: min(amount, other.allocatable[name]) for name, amount in sorted(one.allocatable.items())},
        max(one.seen_at, other.seen_at),
        tuple(sorted({*one.nodes, *other.nodes})[:MOST_NODES]),
    )


def _alike(one: ReportedAmounts, other: ReportedAmounts) -> bool:
    same = one.capacity.keys() == other.capacity.keys() and one.allocatable.keys() == other.allocatable.keys()
    return same and all(near(mine, theirs) for mine, theirs in _pairs(one, other))


def _distance(one: ReportedAmounts, other: ReportedAmounts) -> float:
    """The largest difference of an amount, as a share, of two reports of the same resources."""
    return max((abs(mine - theirs) / max(mine, theirs) for mine, theirs in _pairs(one, other)), default=0.0)


def _pairs(one: ReportedAmounts, other: ReportedAmounts) -> Iterator[tuple[int, int]]:
    for mine, theirs in ((one.capacity, other.capacity), (one.allocatable, other.allocatable)):
        for name, amount in mine.items():
            yield amount, theirs[name]


def _weight(report: ReportedAmounts) -> tuple[object, ...]:
    return (len(report.nodes), report.seen_at, _key(report))


def _key(report: ReportedAmounts) -> tuple[object, ...]:
    return (report.cluster, tuple(sorted(report.capacity.items())), tuple(sorted(report.allocatable.items())))


def _day(report: ReportedAmounts) -> int:
    return int(report.seen_at // DAY_S)


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    """Without zeroes: a device plugin that is not up yet reports them."""
    return {name: amount for name, amount in sorted(amounts.items()) if amount > 0}
