"""Fillings become claims, each checked like one that the packer opens; pods of claims that fail stay waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools, Ints
from shiplap.scheduling.model.topology_constraints import Constraints
from shiplap.scheduling.packing.bulk.size_classes import Waiting
from shiplap.scheduling.packing.bulk.tier_problems import TierProblem, UnclaimedPods
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class PreparedFilling(msgspec.Struct, frozen=True, eq=False):
    """A filling with the groups, loads and charges of its nodes.

    The entries of node `n` are from `edges[n]` to `edges[n + 1]`. `groups` [nodes] are the groups of all its pods
    together, None where they exclude each other. `used` [nodes, resources] is the load. `held` [nodes] says whether
    some row holds it, `charges` [nodes, resources] is the largest capacity of those rows where there are limits.
    """

    tier_problem: TierProblem
    filling: Filling
    groups: Sequence[ClaimGroup | None]
    edges: Ints
    used: Ints
    held: Bools
    charges: Ints


class ClaimBuilder:
    """Turns the problems of one stage into claims, one after the other."""

    def __init__(self, openings: Openings, topology_counts: TopologyCounts, waiting: Waiting) -> None:
        self._openings = openings
        self._topology_counts = topology_counts
        self._waiting = waiting
        self._placed = [0] * len(waiting)
        self._on_claim: dict[int, list[int]] = {}

    def placed_count(self, index: int) -> int:
        """How many pods of a class have a place: the first ones."""
        return self._placed[index]

    def record_placed(self, index: int, number: int) -> None:
        """Note that the next pods of a class got a place elsewhere."""
        self._placed[index] += number

    def fill_open_claims(self, tier_problem: TierProblem, unclaimed: UnclaimedPods) -> BinPackingProblem:
        """Put pods into paid room on claims of other templates; returns the problem that is left.

        Only pods that come after the pods of the claim in placing order, and that no rule on nodes counts.
        """
        open_claims, template = self._openings.open, tier_problem.template
        claims = [at for at, claim in enumerate(open_claims.claims) if claim.group.template is not template]
        if not claims:
            return tier_problem.problem
        rows = [_launch_row(open_claims.claims[at].group, open_claims.used[at]) for at in claims]
        nets = [open_claims.claims[at].group.template.net[row] for at, row in zip(claims, rows, strict=True)]
        free = np.array(nets, np.int64) - open_claims.used[claims]
        left = tier_problem.problem.counts.copy()
        ruled = (
            tier_problem.problem.capped.any(axis=0)
            | tier_problem.problem.owners.any(axis=0)
            | tier_problem.problem.clash.any(axis=0)
        )
        for item in np.flatnonzero(~ruled).tolist():
            size, attempt = tier_problem.problem.sizes[item], tier_problem.attempts[item]
            for spot in np.flatnonzero((free >= size).all(axis=1)).tolist():
                claim = open_claims.claims[claims[spot]]
                target = self._openings.merge(claim.group, attempt)
                if target is None or rows[spot] not in target.rows:
                    continue
                if claim.pods[0][0].index > self._waiting[unclaimed.index(item)][0].index:
                    continue
                number = min(int(left[item]), int((free[spot] // np.maximum(size, 1))[size > 0].min()))
                free[spot] -= number * size
                left[item] -= number
                for pod_class, pods in self._hand_out(unclaimed, item, number, claims[spot]):
                    own = msgspec.structs.replace(attempt, pod_class=pod_class, requests=size)
                    open_claims.add(claims[spot], target, own, pods)
                if not left[item]:
                    break
        return msgspec.structs.replace(tier_problem.problem, counts=left)

    def prepare(self, tier_problem: TierProblem, filling: Filling) -> PreparedFilling:
        """Compute the groups, loads and charges of a filling's nodes."""
        edges = np.searchsorted(filling.node, np.arange(len(filling.rows) + 1))
        groups = self._groups(tier_problem, filling, edges)
        return PreparedFilling(tier_problem, filling, groups, edges, *_loads(tier_problem, filling, groups))

    def affordable(self, prepared: Sequence[PreparedFilling]) -> bool:
        """Whether the limits of their pool allow all nodes of these fillings of one template."""
        if not prepared:
            return True
        limits = self._openings.pool_limits[prepared[0].tier_problem.template.pool.metadata.name]
        if sum(int(one.held.sum()) for one in prepared) > limits.nodes_left:
            return False
        spent = np.sum([one.charges[one.held].sum(axis=0) for one in prepared], axis=0)
        return bool((spent <= limits.left)[limits.columns].all())

    def with_smaller_types(self, prepared: PreparedFilling) -> PreparedFilling:
        """The same nodes without types larger than the one that each would launch, where the limits count size."""
        template, columns = prepared.tier_problem.template, prepared.tier_problem.template.limits.columns
        groups = list(prepared.groups)
        for group, members in _by_group(prepared.groups):
            some = members[prepared.held[members]]
            launched = template.table.row_type[group.rows[group.cheapest(prepared.used[some])]]
            for index in np.unique(launched).tolist():
                small = (template.table.capacity[:, columns] <= template.table.capacity[index, columns]).all(axis=1)
                allowed = group.allowed & small[template.table.row_type]
                less = self._openings.open.groups.get(template, group.requirements, allowed, group.minimums)
                for node in some[launched == index].tolist():
                    groups[node] = less
        loads = _loads(prepared.tier_problem, prepared.filling, groups)
        return PreparedFilling(prepared.tier_problem, prepared.filling, groups, prepared.edges, *loads)

    def settle(self, prepared: PreparedFilling, unclaimed: UnclaimedPods) -> None:
        """Open a claim for every node that all its pods can share and that the limits allow."""
        limits = self._openings.pool_limits[prepared.tier_problem.template.pool.metadata.name]
        held, charges = prepared.held, prepared.charges
        within = held & (np.cumsum(held) <= limits.nodes_left)
        if len(limits.columns):
            spent = np.cumsum(np.where(held[:, None], charges, 0), axis=0)[:, limits.columns]
            within &= (spent <= limits.left[limits.columns]).all(axis=1)
        # Later nodes are smaller: they must not overtake a node that the limits refuse.
        kept = np.flatnonzero(within & (np.cumsum(held & ~within) == 0))
        if len(kept):
            limits.charge(charges[kept].sum(axis=0))
            limits.nodes_left -= len(kept) - 1
            self._open(prepared, unclaimed, kept)

    def finish(self) -> list[tuple[PodClass, list[Pod]]]:
        """Record the placements for topology counts; returns the pods that no claim holds."""
        alike: dict[tuple[frozenset[int], Constraints], tuple[PodClass, list[int]]] = {}
        for index, pairs in self._on_claim.items():
            item = self._waiting[index][0]
            if item.topological:
                alike.setdefault((item.selected, item.constraints), (item, []))[1].extend(pairs)
        for item, pairs in alike.values():
            flat = np.array(pairs, np.int64).reshape(-1, 2)
            self._topology_counts.record_claims(item, flat[:, 0], flat[:, 1])
        return [
            (item, pods[placed_count:])
            for (item, pods), placed_count in zip(self._waiting, self._placed, strict=True)
            if placed_count < len(pods)
        ]

    def _groups(self, tier_problem: TierProblem, filling: Filling, edges: Ints) -> list[ClaimGroup | None]:
        """The group of each node with all its pods; None when their requirements exclude each other."""
        constraints: dict[int, int] = {}
        numbers = np.array(
            [constraints.setdefault(attempt.constraint, len(constraints)) for attempt in tier_problem.attempts],
            np.int64,
        )
        if len(constraints) == 1:
            return [tier_problem.groups[0]] * (len(edges) - 1)
        entry = numbers[filling.item]
        known: dict[tuple[int, ...], ClaimGroup | None] = {}
        attempts = dict(zip(numbers.tolist(), tier_problem.attempts, strict=True))
        starts = dict(zip(numbers.tolist(), tier_problem.groups, strict=True))
        result = []
        for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            key = tuple(sorted(set(entry[start:stop].tolist())))
            if key not in known:
                group: ClaimGroup | None = starts[key[0]]
                for number in key[1:]:
                    group = self._openings.merge(group, attempts[number]) if group is not None else None
                known[key] = group
            result.append(known[key])
        return result

    def _open(self, prepared: PreparedFilling, unclaimed: UnclaimedPods, kept: Ints) -> None:
        items, numbers = prepared.filling.item.tolist(), prepared.filling.number.tolist()
        edges = prepared.edges.tolist()
        for claim, node in enumerate(kept.tolist(), len(self._openings.open)):
            entries = range(edges[node], edges[node + 1])
            group = prepared.groups[node]
            if group is None:
                continue
            skipped = prepared.tier_problem.refusals.get(unclaimed.index(items[entries[0]]), ())
            attempts = (
                [prepared.tier_problem.attempts[items[entry]] for entry in entries]
                if group.template.table.explores
                else ()
            )
            group, charge = self._widened(group, prepared.charges[node], prepared.used[node], attempts)
            opened = self._openings.open.install(group, charge, prepared.used[node], skipped)
            self._openings.take_estimates(group, claim)
            for entry in entries:
                for item, pods in self._hand_out(unclaimed, items[entry], numbers[entry], claim):
                    opened.pods.append((item, pods))
                    if item.ports:
                        opened.ports |= item.ports

    def _widened(
        self, group: ClaimGroup, charge: Ints, used: Ints, attempts: Sequence[PlacementAttempt]
    ) -> tuple[ClaimGroup, Ints]:
        """The group with the estimates that no claim relies on yet, so that a launch verifies them, and its charge."""
        template = group.template
        hopeful = template.table.row_estimate
        for attempt in attempts:
            hopeful = hopeful & self._openings.allowed_rows(template, attempt)
        if not attempts or not hopeful.any():
            return group, charge
        wider = self._openings.open.groups.get(template, group.requirements, group.allowed | hopeful, group.minimums)
        limits = self._openings.pool_limits[template.pool.metadata.name]
        larger = template.table.capacity[template.table.row_type[wider.rows[wider.holding(used)]]].max(axis=0)
        extra = np.maximum(larger - charge, 0)
        if (extra > limits.left)[limits.columns].any():
            return group, charge
        limits.left[limits.columns] -= extra[limits.columns]
        return wider, np.maximum(larger, charge)

    def _hand_out(
        self, unclaimed: UnclaimedPods, item: int, number: int, claim: int
    ) -> Iterator[tuple[PodClass, list[Pod]]]:
        """The next pods of an item, oldest first within each class."""
        for index, some in unclaimed.take(item, number):
            pod_class, pods = self._waiting[index]
            start = self._placed[index]
            self._placed[index] = start + some
            self._on_claim.setdefault(index, []).extend((claim, some))
            yield pod_class, pods[start : start + some]


def _by_group(groups: Sequence[ClaimGroup | None]) -> list[tuple[ClaimGroup, Ints]]:
    """The different groups of nodes, each with the nodes in it."""
    found: dict[int, tuple[ClaimGroup, list[int]]] = {}
    for node, group in enumerate(groups):
        if group is not None:
            found.setdefault(group.index, (group, []))[1].append(node)
    return [(group, np.array(members, np.int64)) for group, members in found.values()]


def _launch_row(group: ClaimGroup, used: Ints) -> int:
    """The row that a claim would launch now."""
    return int(group.rows[group.cheapest(used[None, :])[0]])


def _loads(
    tier_problem: TierProblem, filling: Filling, groups: Sequence[ClaimGroup | None]
) -> tuple[Ints, Bools, Ints]:
    """`used`, `held` and `charges` of these nodes."""
    sizes = tier_problem.problem.sizes
    used = np.zeros((len(groups), sizes.shape[1]), np.int64)
    np.add.at(used, filling.node, filling.number[:, None] * sizes[filling.item])
    held = np.zeros(len(groups), np.bool_)
    charges = np.zeros_like(used)
    for group, some in _by_group(groups):
        holds = np.ones((len(some), len(group.rows)), np.bool_)
        for column in range(used.shape[1]):
            holds &= group.net[None, :, column] >= used[some, None, column]
        held[some] = holds.any(axis=1)
        for column in tier_problem.template.limits.columns.tolist():
            capacity = tier_problem.template.table.capacity[tier_problem.template.table.row_type[group.rows], column]
            largest = np.argsort(-capacity, kind="stable")
            charges[some, column] = capacity[largest][holds[:, largest].argmax(axis=1)]
    return used, held, charges
