"""The stage itself: templates and domains for all size classes, a problem per template and domain, nodes, claims."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

import msgspec
import numpy as np

from shiplap.kubernetes.objects import Pod
from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Axis, Bools, Ints
from shiplap.scheduling.packing.bulk.allotment import Allotment, TierDemand, fits_front, split_by_quotas
from shiplap.scheduling.packing.bulk.first_fit import first_fit
from shiplap.scheduling.packing.bulk.settling import ClaimBuilder
from shiplap.scheduling.packing.bulk.size_classes import SizeClass, Waiting, size_classes_of
from shiplap.scheduling.packing.bulk.tier_problems import ProblemPart, TierProblem, UnclaimedPods, tier_problem_of
from shiplap.scheduling.search.bin_packing import Filling
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.supply.claim_groups import ClaimGroup
from shiplap.scheduling.supply.open_claims import PlacementAttempt, Refusal, RefusalKind
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.topology_counts import TopologyCounts


class ExistingCapacity(Protocol):
    """Nodes that exist and claims in flight."""

    def might_take(self, attempt: PlacementAttempt, least: Ints) -> bool:
        """Whether some node with room for `least` [resources] suits."""

    def fill(self, attempt: PlacementAttempt, pods: list[Pod], inside: Bools | None) -> int:
        """Put the first of these pods there, `inside` [rooms] if given; returns how many."""


class BulkStage:
    """Places as many of the waiting pods as it can on new nodes. One instance serves one run."""

    def __init__(
        self,
        axis: Axis,
        openings: Openings,
        attempts: PlacementAttempts,
        topology_counts: TopologyCounts,
        effort: Effort,
        existing: ExistingCapacity | None,
    ) -> None:
        """`effort` is what may be spent on cheaper nodes than first-fit-decreasing finds."""
        self._axis = axis
        self._openings = openings
        self._attempts = attempts
        self._topology_counts = topology_counts
        self._start_groups: dict[tuple[int, int], ClaimGroup | RefusalKind] = {}
        self._domains: dict[tuple[int, int, str], dict[str, ClaimGroup]] = {}
        self._refusals: dict[int, tuple[Refusal, ...]] = {}
        self._effort = effort
        self._existing = existing
        self._unfilled = 0
        self._first_fit_hourly = 0.0
        self._search_changed = False
        self.baseline_hourly = np.inf
        """Lower bound of the cost of first-fit-decreasing, USD per hour; infinite where the search found nothing."""
        self._waiting: Waiting = ()
        self._sizes: Ints = np.zeros((0, len(axis)), np.int64)
        self._counts: Ints = np.zeros(0, np.int64)
        self._totals: Ints = np.ones(len(axis), np.int64)

    def run(self, waiting: Waiting) -> list[tuple[PodClass, list[Pod]]]:
        """Place pods; returns the pods that are still waiting, in the same order."""
        self._waiting = waiting
        self._sizes = self._axis.matrix([pod_class.requests for pod_class, _ in waiting])
        self._counts = np.array([len(pods) for _, pods in waiting], np.int64)
        builder = ClaimBuilder(self._openings, self._topology_counts, waiting)
        size_classes = size_classes_of(waiting, self._attempts, self._topology_counts.terms)
        if self._existing is not None:
            size_classes = self._fill_existing(self._existing, size_classes, builder)
        self._totals = np.maximum(self._counts @ self._sizes, 1)
        demands = self._with_quotas(
            [demand for size_class in size_classes for demand in self._tier_demands(size_class)]
        )
        if self._existing is not None:
            self._fill_existing_by_domain(self._existing, demands, builder)
        # Fallback templates first, so that what their nodes leave over can be used by pods that may go anywhere.
        tier_problems = self._tier_problems(demands)
        self._unfilled = sum(int(tier_problem.counts.sum()) for tier_problem in tier_problems)
        by_lane = [
            list(some) for _, some in groupby(reversed(tier_problems), lambda tier_problem: tier_problem.template.index)
        ]
        for some in by_lane:
            self._fill(some, builder)
        left = builder.finish()
        if self._search_changed:
            # Cheaper nodes may leave less free room to other templates and to the pods left over.
            self.baseline_hourly = self._first_fit_hourly if len(by_lane) == 1 and not left else 0.0
        return left

    def _fill_existing(
        self, existing: ExistingCapacity, size_classes: Sequence[SizeClass], builder: ClaimBuilder
    ) -> list[SizeClass]:
        """Fill existing nodes with pods that may use any domain; returns the size classes that continue."""
        going = []
        free: list[tuple[int, SizeClass]] = []
        for size_class in size_classes:
            if not size_class.binds(self._topology_counts.terms):
                free += [(index, size_class) for index in size_class.indexes]
            elif (not size_class.spreads or size_class.affinity or size_class.anti) and existing.might_take(
                size_class.attempt, self._sizes[size_class.indexes].min(axis=0)
            ):
                continue  # where followers start, and which pods keep apart, depends on where there is room
            going.append(size_class)
        for index, size_class in sorted(free, key=lambda pair: pair[0]):
            pod_class, pods = self._waiting[index]
            own = msgspec.structs.replace(size_class.attempt, pod_class=pod_class, requests=self._sizes[index])
            self._record_placed(index, existing.fill(own, pods, None), builder)
        return going

    def _fill_existing_by_domain(
        self, existing: ExistingCapacity, demands: Sequence[TierDemand], builder: ClaimBuilder
    ) -> None:
        """Fill existing nodes with pods in the domain they were allotted to."""
        rooms = self._topology_counts.base.existing
        for demand in demands:
            if not demand.size_class.binds(self._topology_counts.terms):
                continue
            codes = self._topology_counts.node_codes(demand.key)[:rooms]
            for share, value in zip(
                split_by_quotas([list(demand.quotas.values())], [demand.counts])[0].T, list(demand.quotas), strict=True
            ):
                inside = codes == self._topology_counts.code(demand.key, value)
                if not inside.any():
                    continue
                for at in np.flatnonzero(share).tolist():
                    index = int(demand.indexes[at])
                    pod_class, pods = self._waiting[index]
                    own = msgspec.structs.replace(
                        demand.size_class.attempt, pod_class=pod_class, requests=self._sizes[index]
                    )
                    start = builder.placed_count(index)
                    number = existing.fill(own, pods[start : start + int(share[at])], inside)
                    self._record_placed(index, number, builder)
                    demand.counts[at] -= number
                    demand.quotas[value] -= number

    def _record_placed(self, index: int, number: int, builder: ClaimBuilder) -> None:
        """Note that some pods of a class have a place."""
        self._counts[index] -= number
        builder.record_placed(index, number)

    def _fill(self, tier_problems: Sequence[TierProblem], builder: ClaimBuilder) -> None:
        """Fill the problems of one template and open claims for them."""
        unclaimed_pods = [UnclaimedPods(tier_problem) for tier_problem in tier_problems]
        problems = [
            builder.fill_open_claims(tier_problem, unclaimed)
            for tier_problem, unclaimed in zip(tier_problems, unclaimed_pods, strict=True)
        ]
        plain = [first_fit(problem) for problem in problems]
        fillings: Sequence[Filling] = plain
        if not self._effort.spent:
            # It is of use only where there is a budget.
            from shiplap.scheduling.search.improve import improve_cached  # noqa: PLC0415

            part = self._effort.share(
                sum(int(tier_problem.counts.sum()) for tier_problem in tier_problems) / max(self._unfilled, 1)
            )
            fillings = improve_cached(problems, plain, part)
            self._effort.give_back(part)
            self._search_changed |= any(filling is not first for filling, first in zip(fillings, plain, strict=True))
            self._first_fit_hourly += sum(
                filling.hourly(problem) for problem, filling in zip(problems, plain, strict=True)
            )
        self._unfilled -= sum(int(tier_problem.counts.sum()) for tier_problem in tier_problems)
        prepared = [
            builder.prepare(tier_problem, filling)
            for tier_problem, filling in zip(tier_problems, fillings, strict=True)
        ]
        if not builder.affordable(prepared):
            prepared = [builder.with_smaller_types(one) for one in prepared]
        if any(tier_problem.domain_matters for tier_problem in tier_problems) and not builder.affordable(prepared):
            return  # the domains that still get a node decide where the pods of the others may go
        for one, unclaimed in zip(prepared, unclaimed_pods, strict=True):
            builder.settle(one, unclaimed)

    def _tier_demands(self, size_class: SizeClass) -> list[TierDemand]:
        """The classes of a size class by the first template that holds them, as far as that is certain."""
        indexes = np.array(size_class.indexes, np.int64)
        indexes = indexes[self._counts[indexes] > 0]
        taken: list[tuple[NodeClaimTemplate, Ints]] = []
        for template in self._openings.templates:
            if not len(indexes):
                break
            group = self._start(template, size_class.attempt)
            if isinstance(group, RefusalKind):
                self._record_refusal(template, size_class.attempt, group, indexes)
                continue
            if group.minimums or template.counted:
                break  # the packer's order decides which pods fit such nodes
            fits = fits_front(self._sizes[indexes], group.front)
            if fits.any():
                taken.append((template, indexes[fits]))
            indexes = indexes[~fits]
            if template.table.explores and len(indexes):
                hopeful = self._openings.start(template, size_class.attempt)
                if not isinstance(hopeful, RefusalKind):  # pods that fit by an estimate only are left to the packer
                    indexes = indexes[~fits_front(self._sizes[indexes], hopeful.front)]
            self._record_refusal(template, size_class.attempt, RefusalKind.TYPES, indexes)
        return [self._tier_demand(size_class, template, some) for template, some in taken]

    def _tier_demand(self, size_class: SizeClass, template: NodeClaimTemplate, indexes: Ints) -> TierDemand:
        demand = TierDemand(
            size_class, template, size_class.key, indexes, self._counts[indexes], (), frozenset(), self._weight(indexes)
        )
        if size_class.key:
            self._open_domains(demand, size_class.key)
        return demand

    def _open_domains(self, demand: TierDemand, key: str) -> None:
        """Let a demand choose among the domains of a label."""
        demand.key = key
        known = self._domains_of(demand.template, demand.size_class.attempt, key)
        sizes = self._sizes[demand.indexes]
        demand.domains = tuple(value for value, group in known.items() if fits_front(sizes, group.front).all())
        if demand.size_class.spreads:
            reached: set[str] = set()
            for template in self._openings.templates:
                for value, group in self._domains_of(template, demand.size_class.attempt, key).items():
                    if value not in reached and fits_front(sizes, group.front).any():
                        reached.add(value)
            demand.reachable = frozenset(reached)

    def _weight(self, indexes: Ints) -> float:
        return float(
            (self._counts[indexes] @ self._sizes[indexes] / self._totals).sum() / max(self._counts[indexes].sum(), 1)
        )

    def _start(self, template: NodeClaimTemplate, attempt: PlacementAttempt) -> ClaimGroup | RefusalKind:
        key = (template.index, attempt.constraint)
        known = self._start_groups.get(key)
        if known is None:
            known = self._start_groups[key] = self._openings.start(template, attempt, careful=True)
        return known

    def _domains_of(self, template: NodeClaimTemplate, attempt: PlacementAttempt, key: str) -> dict[str, ClaimGroup]:
        """The values of a label that nodes of a template can have for these pods, with the groups they start in."""
        identity = (template.index, attempt.constraint, key)
        known = self._domains.get(identity)
        if known is None:
            known = self._domains[identity] = {}
            for value in template.values_of(key):
                pinned = self._pinned(attempt, key, value)
                group = self._start(template, pinned) if pinned is not None else RefusalKind.REQUIREMENTS
                if not isinstance(group, RefusalKind) and not group.minimums:
                    known[value] = group
        return known

    def _record_refusal(
        self, template: NodeClaimTemplate, attempt: PlacementAttempt, kind: RefusalKind, indexes: Ints
    ) -> None:
        left = self._openings.pool_limits[template.pool.metadata.name].left.copy()
        for index in indexes.tolist():
            pod_class = self._waiting[index][0]
            own = msgspec.structs.replace(attempt, pod_class=pod_class, requests=self._sizes[index])
            self._refusals[index] = (*self._refusals.get(index, ()), Refusal(template, kind, own, left))

    def _with_quotas(self, demands: Sequence[TierDemand]) -> list[TierDemand]:
        """Demands with their quotas; the domain is "" where none has to be decided."""
        keys: dict[int, set[str]] = {}
        for demand in demands:
            keys.setdefault(demand.template.index, set()).update({demand.key} - {""})
        for demand in demands:
            known = keys[demand.template.index]
            if not demand.key and len(known) == 1:
                self._open_domains(demand, next(iter(known)))
        settled: list[TierDemand] = []
        for key in sorted({demand.key for demand in demands}):
            some = [demand for demand in demands if demand.key == key]
            if key:
                settled += Allotment(key, some, self._topology_counts).run()
                continue
            for demand in some:
                demand.quotas = {"": demand.number}
            settled += some
        return settled

    def _tier_problems(self, demands: Sequence[TierDemand]) -> list[TierProblem]:
        """The problems of these demands, by template and domain."""
        order = sorted({(demand.template.index, demand.key, value) for demand in demands for value in demand.quotas})
        number = {identity: index for index, identity in enumerate(order)}
        tier_problems: list[list[ProblemPart]] = [[] for _ in order]
        shares = split_by_quotas(
            [list(demand.quotas.values()) for demand in demands], [demand.counts for demand in demands]
        )
        for demand, share in zip(demands, shares, strict=True):
            for column, value in enumerate(demand.quotas):
                attempt = self._pinned(demand.size_class.attempt, demand.key, value)
                start = self._start(demand.template, attempt) if attempt is not None else RefusalKind.REQUIREMENTS
                if attempt is None or isinstance(start, RefusalKind):
                    continue
                some = np.flatnonzero(share[:, column])
                if not len(some):
                    continue
                part = ProblemPart(demand.size_class, attempt, start, demand.indexes[some], share[some, column])
                tier_problems[number[demand.template.index, demand.key, value]].append(part)
        return [tier_problem_of(parts, self._sizes, self._openings, self._refusals) for parts in tier_problems if parts]

    def _pinned(self, attempt: PlacementAttempt, key: str, value: str) -> PlacementAttempt | None:
        return self._attempts.pinned(attempt, (Requirement(key, False, frozenset((value,))),)) if key else attempt
