"""Decides which reports of nodes count for which cluster: pure, of reports, EC2's description and the time.

A node can be broken, or lie. A report is *far* if it lies outside what EC2's description of the type allows. Three
rules hold for each resource, capacity and allocatable apart:

1. In its own cluster, more than half of the nodes decide. Within the range that is allowed, the smallest report counts,
   because machines differ. A far amount counts only if a second node confirms it.
2. For another cluster, a cluster has one vote, however many nodes it has. A far amount counts only if a second cluster
   confirms it. An amount far below what a cluster has seen itself counts there only if two other clusters report it.
3. A far amount is forgotten after a time that grows with the nodes that confirm it. So launches that it stops are tried
   again, though no node can report meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

from shiplap.instances.capacity.reported_amounts import ALWAYS_REPORTED, DAY_S, near
from shiplap.instances.catalog.type_catalog import ReportedAmounts, huge_pages
from shiplap.kubernetes.quantity import HUGE_PAGES, MEMORY

FAR_COUNTS_S = (3600, DAY_S, 7 * DAY_S, 60 * DAY_S)
"""Seconds for which a far amount counts after it was last reported: by one node, by two, by three, by four and more.

A type that really has less costs a launch after each of the first three times: four within nine days. A broken node
costs its own cluster an hour.
"""

_CONFIRMING = 2
"""Nodes of the cluster itself, or clusters, that make a far amount count."""


class AllowedRange(NamedTuple):
    """The amounts of a resource that EC2's description of a type allows, canonical units, both ends included."""

    least: int
    most: int

    def holds(self, amount: int) -> bool:
        return self.least <= amount <= self.most


class AllowedAmounts(msgspec.Struct, frozen=True):
    """The amounts that a node of a type can have.

    Resources that EC2 does not describe are absent: no amount of these resources is far.
    """

    capacity: dict[str, AllowedRange]
    allocatable: dict[str, AllowedRange]


class TrustedAmounts(msgspec.Struct, frozen=True):
    """The amounts that one cluster relies on, canonical units.

    `capacity` and `allocatable` are settled: the resources that are absent have not been reported, or are in doubt.
    `doubted_capacity` and `doubted_allocatable` are far below what is allowed, reported by the cluster's own nodes, and
    not confirmed yet: only a pilot may rely on more. Of memory, allocatable includes huge pages. `fading` are settled
    resources that EC2 does not describe, if their amounts would be forgotten by now as far ones are.
    """

    capacity: dict[str, int]
    allocatable: dict[str, int]
    doubted_capacity: dict[str, int]
    doubted_allocatable: dict[str, int]
    fading: frozenset[str] = frozenset()

    @property
    def in_doubt(self) -> bool:
        """True if a node of the cluster has reported far less, and no second node has confirmed it."""
        return bool(self.doubted_capacity or self.doubted_allocatable)


NOTHING_TRUSTED = TrustedAmounts({}, {}, {}, {})
"""No node has reported."""


class _Vote(NamedTuple):
    """The amount of a resource that one node has reported; `voter` is the node's cluster and its name."""

    amount: int
    voter: tuple[str, str]
    seen_at: float


class _Figure(NamedTuple):
    """The amount that voters agree on, and the number of voters that support it.

    There is no amount while the voters do not agree. `doubted` is a far amount below the range.
    """

    amount: int | None
    supporters: int = 0
    doubted: int | None = None
    is_fading: bool = False


class _Amounts(NamedTuple):
    """By resource: what is settled, and what is in doubt; the settled resources that are `fading`."""

    settled: dict[str, int]
    doubted: dict[str, int]
    fading: set[str]


_NONE = AllowedRange(1, 0)
"""Every amount is far of it."""

_Amounted = tuple[ReportedAmounts, Mapping[str, int]]
"""A report, and its capacity or its allocatable."""

_OfClusters = dict[str, list[_Amounted]]


def trusted_amounts(
    reports: Iterable[ReportedAmounts], cluster: str, allowed: AllowedAmounts, now: float
) -> TrustedAmounts:
    """Return the amounts that a cluster relies on.

    Args:
        reports: of one AMI, instance type and kubelet settings.
        cluster: the one that plans; empty when planning from files: then every report counts as its own.
        allowed: by EC2's description.
        now: epoch seconds; 0 when planning from files: then far amounts are not forgotten.
    """
    capacity: _OfClusters = {}
    allocatable: _OfClusters = {}
    for report in reports:
        name = report.cluster if cluster else ""
        capacity.setdefault(name, []).append((report, report.capacity))
        allocatable.setdefault(name, []).append((report, _with_huge_pages(report)))
    of_capacity = _settled(capacity, cluster, allowed.capacity, now)
    of_allocatable = _settled(allocatable, cluster, allowed.allocatable, now)
    return TrustedAmounts(
        of_capacity.settled,
        of_allocatable.settled,
        of_capacity.doubted,
        of_allocatable.doubted,
        frozenset(of_capacity.fading | of_allocatable.fading),
    )


class FarStanding(StrEnum):
    """The standing of a far report in its own cluster; for other clusters the report counts for nothing."""

    DOUBTED = "doubted"
    """One node: a pilot may rely on more."""
    CONFIRMED = "confirmed"
    """A second node has reported about as much, and not fewer nodes than all others: plans rely on it."""
    OUTVOTED = "outvoted"
    """At least as many nodes have reported what is allowed."""
    FORGOTTEN = "forgotten"
    """Its time is over."""


class FarReport(msgspec.Struct, frozen=True):
    """An amount outside what EC2's description allows, canonical units.

    cluster: whose nodes have reported it.
    of_allocatable: it is an amount of allocatable, else of capacity.
    nodes: their names, up to eight of each report.
    until: epoch seconds at which it is forgotten.
    """

    cluster: str
    resource: str
    of_allocatable: bool
    amount: int
    nodes: tuple[str, ...]
    standing: FarStanding
    until: float


def far_reports(reports: Iterable[ReportedAmounts], allowed: AllowedAmounts, now: float) -> tuple[FarReport, ...]:
    """The reports that are set aside for other clusters, by cluster, resource and amount, to show to people."""
    of_clusters: dict[str, list[ReportedAmounts]] = {}
    for report in reports:
        of_clusters.setdefault(report.cluster, []).append(report)
    found = []
    for cluster, own in sorted(of_clusters.items()):
        for of_allocatable, ranges in ((False, allowed.capacity), (True, allowed.allocatable)):
            amounted: list[_Amounted] = [
                (each, _with_huge_pages(each) if of_allocatable else each.capacity) for each in own
            ]
            for resource in sorted({name for _, amounts in amounted for name in amounts}):
                votes, range_ = _votes(amounted, resource), _range_of(resource, ranges)
                figure = _of_cluster(resource, votes, range_, now)
                for amount, until in sorted(_counting_until(votes, range_).items()):
                    nodes = tuple(vote.voter[1] for vote in votes if vote.amount == amount)
                    standing = FarStanding.FORGOTTEN if now > until else _standing(amount, figure, range_)
                    found.append(FarReport(cluster, resource, of_allocatable, amount, nodes, standing, until))
    return tuple(found)


def _standing(amount: int, figure: _Figure, allowed: AllowedRange | None) -> FarStanding:
    if figure.amount is None:
        return FarStanding.DOUBTED
    is_far = allowed is not None and not allowed.holds(figure.amount)
    return FarStanding.CONFIRMED if is_far and near(figure.amount, amount) else FarStanding.OUTVOTED


def voices(reports: Iterable[ReportedAmounts], cluster: str) -> int:
    """Return the number of nodes of the cluster plus the number of other clusters that have reported.

    Only these reports can change the amounts that the cluster relies on.
    """
    reports = tuple(reports)
    own = sum(max(len(each.nodes), 1) for each in reports if each.cluster == cluster)
    return own + len({each.cluster for each in reports} - {cluster})


def trusted_memory(
    reports: Iterable[ReportedAmounts], cluster: str, allowed: AllowedRange, now: float
) -> TrustedAmounts:
    """As `trusted_amounts`, of the capacity of memory alone."""
    memory = (
        msgspec.structs.replace(
            each, capacity={MEMORY: each.capacity[MEMORY]} if MEMORY in each.capacity else {}, allocatable={}
        )
        for each in reports
    )
    return trusted_amounts(memory, cluster, AllowedAmounts({MEMORY: allowed}, {}), now)


def _settled(of_clusters: _OfClusters, cluster: str, allowed: Mapping[str, AllowedRange], now: float) -> _Amounts:
    """The settled amounts and those in doubt."""
    found = _Amounts({}, {}, set())
    resources = {name for reports in of_clusters.values() for _, amounts in reports for name in amounts}
    for resource in sorted(resources):
        range_ = _range_of(resource, allowed)
        figures = {
            name: _of_cluster(resource, _votes(reports, resource), range_, now) for name, reports in of_clusters.items()
        }
        own = figures.pop(cluster, _Figure(None))
        amount = _with_peers(resource, own, _of_peers(figures.values(), range_))
        if amount:
            found.settled[resource] = amount
        if own.doubted is not None:
            found.doubted[resource] = own.doubted
        if own.is_fading:
            found.fading.add(resource)
    return found


def _range_of(resource: str, allowed: Mapping[str, AllowedRange]) -> AllowedRange | None:
    """Huge pages are taken out of memory: one node must not show that there is next to none."""
    if resource.startswith(HUGE_PAGES) and MEMORY in allowed:
        return AllowedRange(0, allowed[MEMORY].most // 2)
    return allowed.get(resource)


def _votes(reports: Iterable[_Amounted], resource: str) -> list[_Vote]:
    """One vote for each node, sorted by amount.

    A node that reports again may have more of a device, whose plugin was not complete; of all else the smaller counts.
    A node that does not name a device may be waiting for its plugin. One that does not name huge pages has none.
    """
    votes: dict[tuple[str, str], _Vote] = {}
    for number, (report, amounts) in enumerate(reports):
        if resource not in amounts and not resource.startswith(HUGE_PAGES):
            continue
        for node in report.nodes or (f"/{number}",):  # no node has a slash in its name
            vote = _Vote(amounts.get(resource, 0), (report.cluster, node), report.seen_at)
            known = votes.get(vote.voter, vote)
            votes[vote.voter] = min(known, vote) if resource in ALWAYS_REPORTED else max(known, vote)
    return sorted(votes.values())


def _of_cluster(resource: str, votes: list[_Vote], allowed: AllowedRange | None, now: float) -> _Figure:
    """Return the amount that the nodes of one cluster agree on."""
    until = _counting_until(votes, allowed)
    amounts = [vote.amount for vote in votes if now <= until.get(vote.amount, now)]
    if not amounts:
        return _Figure(None)
    middle = _median(amounts, allowed)
    if allowed is None or (allowed.holds(middle) and resource.startswith(HUGE_PAGES)):
        alike = _smallest([amount for amount in amounts if near(amount, middle)])
        return alike if allowed is not None else alike._replace(is_fading=now > _counting_until(votes, _NONE)[middle])
    if allowed.holds(middle):
        return _smallest([amount for amount in amounts if allowed.holds(amount)])
    supporters = [amount for amount in amounts if near(amount, middle) and not allowed.holds(amount)]
    if len(supporters) >= _CONFIRMING:
        return _smallest(supporters)
    return _Figure(None, doubted=next((amount for amount in amounts if amount < allowed.least), None))


def _of_peers(figures: Iterable[_Figure], allowed: AllowedRange | None) -> _Figure:
    """Return the amount that other clusters agree on, one vote each."""
    amounts = sorted(figure.amount for figure in figures if figure.amount is not None)
    if not amounts:
        return _Figure(None)
    middle = _median(amounts, allowed)
    supporters = [amount for amount in amounts if near(amount, middle)]
    if (allowed is not None and allowed.holds(middle)) or len(supporters) >= _CONFIRMING:
        return _smallest(supporters)
    return _Figure(None)


def _with_peers(resource: str, own: _Figure, peers: _Figure) -> int | None:
    """Own reports come first: of devices they decide alone, of all else a confirmed or near report may be lower."""
    if own.amount is None or peers.amount is None:
        return own.amount if own.amount is not None else peers.amount
    is_confirmed = near(own.amount, peers.amount) or peers.supporters >= _CONFIRMING
    return min(own.amount, peers.amount) if resource in ALWAYS_REPORTED and is_confirmed else own.amount


def _smallest(supporters: list[int]) -> _Figure:
    return _Figure(min(supporters), len(supporters))


def _median(amounts: list[int], allowed: AllowedRange | None) -> int:
    """The median of sorted amounts; of two in the middle the one that is allowed, else the larger."""
    low, high = amounts[(len(amounts) - 1) // 2], amounts[len(amounts) // 2]
    return low if allowed is not None and allowed.holds(low) and not allowed.holds(high) else high


def _counting_until(votes: list[_Vote], allowed: AllowedRange | None) -> dict[int, float]:
    """Until when each far amount counts, epoch seconds: the longer, the more nodes have reported about as much."""
    if allowed is None:
        return {}
    nodes: Counter[int] = Counter()
    seen_at: dict[int, float] = {}
    for vote in votes:
        if not allowed.holds(vote.amount):
            nodes[vote.amount] += 1
            seen_at[vote.amount] = max(vote.seen_at, seen_at.get(vote.amount, 0.0))
    until = {}
    for amount in nodes:
        alike = [each for each in nodes if near(each, amount)]
        counts_s = FAR_COUNTS_S[min(sum(nodes[each] for each in alike), len(FAR_COUNTS_S)) - 1]
        until[amount] = max(seen_at[each] for each in alike) + counts_s
    return until


def _with_huge_pages(report: ReportedAmounts) -> Mapping[str, int]:
    """Allocatable with the huge pages that were taken out of memory, so that they do not look like missing memory."""
    pages = huge_pages(report.capacity)
    if not pages or MEMORY not in report.allocatable:
        return report.allocatable
    return {**report.allocatable, MEMORY: report.allocatable[MEMORY] + pages}
