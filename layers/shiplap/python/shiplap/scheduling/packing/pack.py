"""First-fit-decreasing over classes of pods, placing all pods of a class at once.

Order of targets: nodes that exist or are in flight, claims opened by this decision, then a new claim in the first
template that can hold the pod. Counts are closed-form per node and claim, so the cost does not grow with the number of
pods.

Attempts that place nothing are counted by class, so that no pod can keep a decision busy.

An attempt is one look for room of one kind (nodes, open claims, a new claim) under one set of constraints. Those that
place something are not counted: pods bound their number. Preferences are given up all at once when their attempts are
spent; what a class requires has attempts of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby, islice

import msgspec
import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import PLENTY, Bools, Ints, places_with
from shiplap.scheduling.packing.bulk_stage import BulkStage
from shiplap.scheduling.packing.compiled_snapshot import CompiledSnapshot
from shiplap.scheduling.packing.shortened_lists import limits_aside, shorten
from shiplap.scheduling.packing.size_classes import Waiting
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.open_claims import (
    ClaimGroup,
    ClaimGroups,
    OpenClaim,
    OpenClaims,
    PlacementAttempt,
    Refusal,
    RefusalKind,
)
from shiplap.scheduling.supply.openings import CheapestPlace, Openings, PossibleNodes, estimates, room_on_launch_row
from shiplap.scheduling.supply.placement_attempts import PlacementAttempts
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap.scheduling.topology.crowded_spreads import any_crowded
from shiplap.scheduling.topology.domains import Domains, HostnameBounds
from shiplap.scheduling.topology.even_spread import EvenSpread
from shiplap.scheduling.topology.followers import followers_last
from shiplap.scheduling.topology.late_domains import late_domains
from shiplap.scheduling.topology.reachable_domains import DomainChoice
from shiplap.scheduling.topology.topology_counts import ExpectedDomains, TopologyCounts

LEAST_PREFERRING = BOUNDS.all_preferring_attempts // 1000
"""The least of each class, however many classes there are."""

ALL_DEAD_ENDS, LEAST_DEAD_ENDS = BOUNDS.all_preferring_attempts, LEAST_PREFERRING
"""Levels of preferences that leave no domain, of all classes together, and the least of each class."""

_MANY_FAILURES = BOUNDS.all_preferring_attempts
"""Failed attempts of any kind after which a packing is laborious; half as many while it leaves limits aside, as it is
then made again."""

MOST_REQUIRING, ALL_REQUIRING = 4 * BOUNDS.preferring_attempts, 4 * BOUNDS.all_preferring_attempts
LEAST_REQUIRING = 4 * LEAST_PREFERRING
"""With required constraints alone a class may fail more often: nothing else can be given up."""


class _FreshClaim(msgspec.Struct, frozen=True, eq=False):
    """A claim of a group that is opened for pods of one size: it takes `each`, and may be of `rows` [n].

    `charge` [resources] is the largest capacity of these, `price` the lowest price in USD per hour.
    """

    each: int
    rows: Ints
    charge: Ints
    price: float


class AttemptBudget:
    """The failed attempts of one packing, by class."""

    def __init__(self, classes: int, *, leaves_limits: bool = False) -> None:
        number = max(classes, 1)
        self._many = _MANY_FAILURES // 2 if leaves_limits else _MANY_FAILURES
        self._most = {
            True: max(LEAST_PREFERRING, min(BOUNDS.preferring_attempts, BOUNDS.all_preferring_attempts // number)),
            False: max(LEAST_REQUIRING, min(MOST_REQUIRING, ALL_REQUIRING // number)),
        }
        self._most_dead_ends = max(LEAST_DEAD_ENDS, ALL_DEAD_ENDS // number)
        self.dead_ends: dict[int, int] = {}
        self.failures: dict[tuple[int, bool], int] = {}
        self._failed = 0
        self.spent: set[int] = set()
        """Classes whose attempts with required constraints alone are spent."""

    def left(self, pod_class: PodClass, *, preferring: bool) -> bool:
        """True if a class may try once more. It may try every required node-affinity term at least once."""
        if preferring and self.dead_ends.get(pod_class.index, 0) >= self._most_dead_ends:
            return False
        most = self._most[preferring] + (0 if preferring else 2 * len(pod_class.terms))
        if self.failures.get((pod_class.index, preferring), 0) < most:
            return True
        if not preferring:
            self.spent.add(pod_class.index)
        return False

    def failed(self, pod_class: PodClass, *, preferring: bool) -> None:
        """Count an attempt that placed nothing."""
        key = (pod_class.index, preferring)
        self.failures[key] = self.failures.get(key, 0) + 1
        self._failed += 1

    def no_domain(self, pod_class: PodClass, *, preferring: bool) -> None:
        """Count a level of preferences that left no domain, so that nothing was tried."""
        if preferring:
            self.dead_ends[pod_class.index] = self.dead_ends.get(pod_class.index, 0) + 1

    @property
    def is_laborious(self) -> bool:
        """True if so many attempts placed nothing that the pods are not placed again for a better plan alone."""
        return self._failed > self._many


class Packing(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The outcome: claims with their loads [claims, resources], filled nodes, and pods that fit nowhere by class.

    `openings` still knows what is left of limits and estimates, `attempts` how it numbers constraints, `counts` which
    pods are counted where, and `attempt_budget` the failed attempts. `waits`: some pods are left that would be placed
    once the claims are there: this packing gave away the last instances of their reservations, or its claims may still
    become so large that limits leave them no node.
    `floor` is a lower bound of the cost without the cost search, in USD per hour; infinite when the search changed
    nothing. `over_limits` are the NodePools whose limits were left aside and do not allow their claims. `find_late`
    finds the domains that its spreads did not reckon with, which only the packing that is chosen is asked for.
    `find_crowded` finds out whether a spread would not let its pods bind after all others, which decides only between
    packings.
    """

    claims: list[OpenClaim]
    used: Ints
    nodes: ExistingNodes
    unplaced: dict[int, list[Pod]]
    openings: Openings
    attempts: PlacementAttempts
    counts: TopologyCounts
    attempt_budget: AttemptBudget
    waits: bool = False
    baseline_hourly: float = np.inf
    has_free: bool = False
    over_limits: frozenset[str] = frozenset()
    find_late: Callable[[], ExpectedDomains] = dict
    find_crowded: Callable[[], bool] = bool

    @cached_property
    def crowded(self) -> bool:
        """True if a spread would not let its pods bind after all others."""
        return self.find_crowded()

    @cached_property
    def hourly(self) -> float:
        """USD per hour of all claims as they would be launched."""
        members: dict[int, list[int]] = {}
        for place, claim in enumerate(self.claims):
            members.setdefault(claim.group.index, []).append(place)
        return sum(
            float(self.claims[places[0]].group.launch_prices(self.used[places]).sum()) for places in members.values()
        )


class Way(msgspec.Struct, frozen=True):
    """How a packing places pods.

    bulk_s: with a number, the bulk stage first places the pods it understands, and spends effort of so many seconds on
        cheaper nodes. Without it the order is by priority.
    free_last: the bulk stage gives pods that no constraint concerns no domain.
    cheaply: every pod goes where it adds least to the price, onto an open claim rather than a new one that
        adds as much.
    joining: a pod may enlarge a claim of a lighter NodePool although a heavier one could open a claim for it.
    most_hourly: once the claims cost so many USD per hour, the pods that are left stay out: the plan is of no use.
    """

    bulk_s: float | None = None
    free_last: bool = False
    cheaply: bool = False
    joining: bool = False
    most_hourly: float = np.inf


class Packer:
    """One run over all classes, in the order given to `run`."""

    def __init__(
        self,
        compiled: CompiledSnapshot,
        way: Way,
        *,
        best_effort: bool,
        strictly_reserved: bool,
        last: Sequence[PodClass],
        most_types: int,
    ) -> None:
        """With `strictly_reserved` pods wait for a reservation whose last instances this plan takes.

        The classes `last` are placed after all others.
        `most_types` is the length of a claim's list of types.
        """
        templates, nodes, axis = compiled.templates, compiled.nodes, compiled.axis
        self._way = way
        self._least_hourly = 0.0
        self._fresh_claims: dict[tuple[int, bytes], _FreshClaim] = {}
        self._last = last
        self._attempt_budget = AttemptBudget(0)
        self._strictly_reserved = strictly_reserved
        self._waits = False
        self._baseline_hourly = np.inf
        self._has_free = False
        self.nodes = nodes.copy()
        self.axis = axis
        self.open = OpenClaims(len(axis), compiled.groups)
        limits = limits_aside(templates, compiled.limits, compiled.bound)
        self._aside = {pool: left for pool, left in compiled.limits.items() if limits[pool] is not left}
        self._bound = compiled.bound
        self._most_types = most_types
        self.openings = Openings(templates, limits, self.open, best_effort=best_effort)
        self._attempts = PlacementAttempts(templates, nodes, axis, compiled.daemon_terms)
        self._counts = TopologyCounts(compiled.base_counts, self.open, compiled.expected_domains)
        self._possible = self.openings.possible
        if compiled.domain_templates is not templates:
            self._possible = PossibleNodes(compiled.domain_templates, ClaimGroups(), best_effort=best_effort)
        self._domains = Domains(self._counts, self.openings, self._possible, self._attempts, self.nodes)
        self._even_spread = EvenSpread(
            self._counts,
            self.openings,
            self._attempts,
            self._domains,
            self.nodes,
            strictly_reserved=strictly_reserved,
        )

    def run(self, classes: Iterable[PodClass]) -> Packing:
        """Place the members of each class, in this order; pods promised a claim in flight come first."""
        classes = list(classes)
        self._attempt_budget = AttemptBudget(len(classes) + len(self._last), leaves_limits=bool(self._aside))
        self.openings.share_merges(len(classes) + len(self._last))
        kept = self._place_promised(classes)
        waiting: Waiting = [
            (pod_class, [pod for pod in pod_class.members if id(pod) not in kept] if kept else list(pod_class.members))
            for pod_class in classes
        ]
        if self._way.bulk_s is not None and not _is_lone(waiting):
            waiting = self._in_bulk(waiting, Effort.of(self._way.bulk_s))
        waiting = self._place_until_stuck(waiting)
        if waiting and self._counts.forget_absent([pod_class for pod_class, _ in waiting]):
            waiting = self._place_until_stuck(waiting)
        over_limits = self._over_limits()
        self._aside = {}
        waiting += self._place_until_stuck([(pod_class, list(pod_class.members)) for pod_class in self._last])
        self._waits |= bool(waiting) and self._some_open_once_launched([pod_class for pod_class, _ in waiting])
        self.openings.reservations.settle()
        unplaced = {pod_class.index: left for pod_class, left in waiting}
        return Packing(
            self.open.claims,
            self.open.used,
            self.nodes,
            unplaced,
            self.openings,
            self._attempts,
            self._counts,
            self._attempt_budget,
            self._waits,
            self._baseline_hourly,
            self._has_free,
            over_limits,
            partial(self._late_domains, classes, unplaced),
            partial(any_crowded, classes, self.open.claims, self.nodes.placed, self._domains, self._counts),
        )

    def _late_domains(self, classes: Sequence[PodClass], unplaced: Mapping[int, Sequence[Pod]]) -> ExpectedDomains:
        """The domains that spreads did not reckon with; none where pods are not placed again for them."""
        placed = [
            pod_class
            for pod_class in classes
            if pod_class.constraints.spreads and len(unplaced.get(pod_class.index, ())) < len(pod_class.members)
        ]
        groups = len(set(self.open.group_of.tolist()))
        if self._attempt_budget.is_laborious or len(placed) * groups > BOUNDS.late_comparisons:
            return {}
        return late_domains(placed, self._domains, self._counts)

    def _some_open_once_launched(self, classes: Sequence[PodClass]) -> bool:
        """True if any of these classes gets a claim once the claims of this plan are what they would launch.

        Until then limits are charged with the largest type on their lists, which minValues may forbid to shorten.
        """
        gains = self.openings.gains_of_launches()
        templates = [template for template in self.openings.templates if template.pool.metadata.name in gains]
        return any(
            self.openings.opens_with(gains[template.pool.metadata.name], template, attempt)
            for pod_class in (classes if templates else ())
            for attempt in self._attempts.of(pod_class)
            for template in templates
        )

    def _over_limits(self) -> frozenset[str]:
        """Let the limits that were left aside count from now on; returns the pools whose claims exceed them."""
        if self._is_in_vain():
            return frozenset(self._aside)
        shortened = shorten(self.open, self._aside, self._most_types)
        self.openings.pool_limits |= shortened.left
        return shortened.over

    def _place_until_stuck(self, pending: Iterable[tuple[PodClass, list[Pod]]]) -> list[tuple[PodClass, list[Pod]]]:
        waiting = list(pending)
        attempts = {pod_class.index: self._attempts.of(pod_class) for pod_class, _ in waiting}
        before = -1
        while waiting and (number := sum(len(pods) for _, pods in waiting)) != before:
            # Claims that were filled further may need less of a limit, so that another round can place more.
            before = number
            if any(pod_class.topological for pod_class, _ in waiting):
                self._domains.draw_together(waiting)
                waiting = followers_last(
                    waiting, self._domains.drawn, self._domains.pull, by_priority=self._way.bulk_s is None
                )
            placed = ((pod_class, self._place(attempts[pod_class.index], pods)) for pod_class, pods in waiting)
            waiting = [(pod_class, left) for pod_class, left in placed if left]
        return waiting

    def _in_bulk(self, waiting: Waiting, effort: Effort) -> Waiting:
        existing = _NodeFiller(self.nodes, self._fill_nodes, self._domains) if self.nodes.all else None
        bulk = BulkStage(
            self.axis,
            self.openings,
            self._attempts,
            self._counts,
            self._possible,
            effort,
            existing,
            free_last=self._way.free_last,
            bound=self._bound,
        )
        left = bulk.run(waiting)
        self._baseline_hourly, self._has_free = bulk.baseline_hourly, bulk.has_free
        return left

    def _place(self, attempts: Sequence[PlacementAttempt], pods: list[Pod]) -> list[Pod]:
        previous_level = -1
        for attempt in () if self._is_in_vain() else attempts:
            if self._is_of_no_use():
                break
            pod_class = attempt.pod_class
            preferring = attempt.level < attempts[-1].level
            if not self._attempt_budget.left(pod_class, preferring=preferring):
                continue
            before = len(pods)
            if pod_class.topological:
                pods = self._place_by_domain(attempt, pods, preferring=preferring)
            else:
                if attempt.level != previous_level:  # nodes are asked for all terms at once
                    pods = self._fill_nodes(attempt, pods)
                    previous_level = attempt.level
                if pods:
                    if self._way.cheaply:
                        anywhere = DomainChoice(attempt, np.ones(len(self.nodes.all), np.bool_), PLENTY)
                        pods = pods[self._place_cheaply((anywhere,), None, pods, once=False) :]
                    else:
                        pods = self._fill_claims(attempt, pods)
                if pods:
                    pods = self._open_claims(attempt, pods)
                if len(pods) == before:
                    self._attempt_budget.failed(pod_class, preferring=preferring)
            if not pods:
                break
        return pods

    def _is_of_no_use(self) -> bool:
        """True if the claims cost so much already that the pods that are left stay out."""
        return self._least_hourly >= self._way.most_hourly

    def _is_in_vain(self) -> bool:
        """True if a laborious packing would have to be repeated, because it leaves limits aside."""
        return bool(self._aside) and self._attempt_budget.is_laborious

    def _place_by_domain(self, attempt: PlacementAttempt, pods: list[Pod], *, preferring: bool) -> list[Pod]:
        """Place pods that topology constraints bind or count, a few at a time: each placement changes the counts."""
        if self._domains.dead_end(attempt):
            self._attempt_budget.no_domain(attempt.pod_class, preferring=preferring)
            return pods
        pods = pods if self._way.cheaply else self._place_evenly(attempt, pods)
        while pods and not self._is_of_no_use():
            number = self._next_by_domain(attempt, pods, preferring=preferring)
            if not number:
                break
            pods = pods[number:]
        return pods

    def _place_cheaply(
        self, choices: Iterable[DomainChoice], bounds: HostnameBounds | None, pods: list[Pod], *, once: bool
    ) -> int:
        """Place the first of these pods where each adds least to the price; returns how many were placed.

        With `once` only as many as go to one place before all choices have to be looked at again.
        """
        placed = 0
        while placed < len(pods) and not self._is_of_no_use():
            target = self._cheapest_target(choices, bounds)
            if target is None:
                break
            attempt, some = target.attempt, pods[placed : placed + target.most]
            if target.place is None or target.group is None:
                some = some[: len(some) - len(self._open_claims(attempt, some, bounds))]
            elif some:
                self.openings.fill(target.place, target.group, attempt, some)
                if attempt.pod_class.topological:
                    self._counts.record(attempt.pod_class, target.place, len(some), claim=True)
                self._least_hourly += target.added
            placed += len(some)
            if once or not some:
                break
        return placed

    def _cheapest_target(self, choices: Iterable[DomainChoice], bounds: HostnameBounds | None) -> CheapestPlace | None:
        """The open claim, or a new one, whose price a pod raises least; the first choice of domains among equals.

        Several pods go there only if they add nothing: each node that grows may be cheaper for the next pod.
        """
        best: CheapestPlace | None = None
        for choice in choices:
            attempt = choice.attempt
            if attempt is None:
                continue
            target = self.openings.cheapest_claim(
                attempt,
                None if bounds is None else bounds.claims,
                choice.claims,
                choice.most,
                joining=self._way.joining,
            )
            if target is not None and (best is None or target.added < best.added):
                best = target
            if best is not None and best.added <= 0:
                break
            opened = self.openings.new_price(attempt) if bounds is None or bounds.new else np.inf
            if np.isfinite(opened) and (best is None or opened < best.added):
                best = CheapestPlace(attempt, opened)
        return best

    def _place_evenly(self, attempt: PlacementAttempt, pods: list[Pod]) -> list[Pod]:
        """Place as many spread pods evenly over their domains as surely keeps the constraints; returns the others."""
        left: list[Pod] = []
        done = 0
        for choice, share in self._even_spread.quotas(attempt, len(pods)):
            bounds = self._domains.bounds(attempt)
            some = self._fill_nodes(attempt, pods[done : done + share], bounds, choice.nodes)
            if some and choice.attempt is not None:
                some = self._fill_claims(choice.attempt, some, bounds)
            if some and choice.attempt is not None:
                some = self._open_claims(choice.attempt, some, bounds)
            left += some
            done += share
        return [*left, *pods[done:]]

    def _next_by_domain(self, attempt: PlacementAttempt, pods: list[Pod], *, preferring: bool) -> int:
        """Place the first of these pods where the constraints allow it now; returns how many were placed.

        Room that exists anywhere goes before new claims. But where several labels have to be kept in balance at once,
        the best combination goes first: filling one label's domains could close the other's.
        """
        pod_class, bounds = attempt.pod_class, self._domains.bounds(attempt)
        choices = self._domains.choices(attempt)
        takes = self._nodes_that_take(attempt, bounds)
        balances = len({spread.key for spread in attempt.constraints.spreads} - {labels.HOSTNAME}) > 1

        def nodes(choice: DomainChoice, some: list[Pod]) -> list[Pod]:
            return self._fill_nodes(attempt, some, bounds, choice.nodes) if (choice.nodes & takes).any() else some

        def cheaply(choice: DomainChoice, some: list[Pod]) -> list[Pod]:
            return some[self._place_cheaply((choice,) if by_choice else choices, bounds, some, once=True) :]

        def claims(choice: DomainChoice, some: list[Pod]) -> list[Pod]:
            return (
                self._fill_claims(choice.attempt, some, bounds, choice.claims) if choice.attempt is not None else some
            )

        def new(choice: DomainChoice, some: list[Pod]) -> list[Pod]:
            return self._open_claims(choice.attempt, some, bounds) if choice.attempt is not None else some

        fills = (cheaply,) if self._way.cheaply and not bounds.single else (claims, new)
        fills = (nodes, *fills) if takes.any() else fills
        by_choice = balances or any(choice.drawn for choice in islice(choices, 1))
        tries = (
            ((fill, choice) for choice in choices for fill in fills)
            if by_choice
            else ((fill, choice) for fill in fills for choice in islice(choices, 1 if fill is cheaply else None))
        )
        for fill, choice in tries:
            some = pods[: choice.most]
            placed = len(some) - len(fill(choice, some))
            if placed:
                return placed
            self._attempt_budget.failed(pod_class, preferring=preferring)
            if not self._attempt_budget.left(pod_class, preferring=preferring):
                break
        return 0

    def _nodes_that_take(self, attempt: PlacementAttempt, bounds: HostnameBounds) -> Bools:
        """Return a mask of the rooms [rooms] that take a pod of a class, whatever their domain."""
        if not self.nodes.all:
            return np.zeros(0, np.bool_)
        fits = self.nodes.fits(attempt.pod_class, soft=attempt.soft, preferred=attempt.preferred)
        takes: Bools = np.minimum(self.nodes.count(attempt.pod_class, fits, attempt.requests), bounds.nodes) > 0
        return takes

    def _fill_nodes(
        self,
        attempt: PlacementAttempt,
        pods: list[Pod],
        bounds: HostnameBounds | None = None,
        inside: Bools | None = None,
    ) -> list[Pod]:
        if not self.nodes.all:
            return pods
        fits = self.nodes.fits(attempt.pod_class, soft=attempt.soft, preferred=attempt.preferred)
        many = self.nodes.count(attempt.pod_class, fits if inside is None else fits & inside, attempt.requests)
        if bounds is not None:
            many = _bounded(many, bounds.nodes, len(pods), single=bounds.single)
        taken = _first_fit(many, len(pods))
        for place in np.flatnonzero(taken).tolist():
            number = int(taken[place])
            self.nodes.place(attempt.pod_class, place, pods[:number], attempt.requests)
            if attempt.pod_class.topological:
                self._counts.record(attempt.pod_class, place, number, claim=False)
            pods = pods[number:]
        return pods

    def _fill_claims(
        self,
        attempt: PlacementAttempt,
        pods: list[Pod],
        bounds: HostnameBounds | None = None,
        inside: Bools | None = None,
    ) -> list[Pod]:
        """Put pods on open claims."""
        many = self.openings.takers(attempt, None if bounds is None else bounds.claims, inside)
        groups = self.open.group_of
        merged: dict[int, ClaimGroup] = {}
        for number in sorted(set(groups[many > 0].tolist())):
            target = self.openings.merge(self.open.groups.all[number], attempt)
            if target is None:
                continue
            merged[number] = target
            if self.openings.keeps_size(target.template, attempt, joining=self._way.joining):
                members = np.flatnonzero((groups == number) & (many > 0))
                many[members] = np.minimum(
                    many[members],
                    room_on_launch_row(self.open.groups.all[number], target, self.open.used[members], attempt.requests),
                )
        if bounds is not None and bounds.single:
            many = _roomiest(many, len(pods))
        taken = _first_fit(many, len(pods))
        for place in np.flatnonzero(taken).tolist():
            number = int(taken[place])
            self.openings.fill(place, merged[int(groups[place])], attempt, pods[:number])
            if attempt.pod_class.topological:
                self._counts.record(attempt.pod_class, place, number, claim=True)
            pods = pods[number:]
        return pods

    def _open_claims(
        self, attempt: PlacementAttempt, pods: list[Pod], bounds: HostnameBounds | None = None
    ) -> list[Pod]:
        if bounds is not None and not bounds.new:
            return pods
        skipped: list[Refusal] = []
        number = len(pods) if bounds is None else min(len(pods), bounds.new)
        templates, place = self.openings.in_order(attempt, number), 0
        while pods and place < len(templates):
            template = templates[place]
            limits = self.openings.pool_limits[template.pool.metadata.name]
            entry = self.openings.entry(template, attempt)
            if isinstance(entry, RefusalKind):
                entry = self.openings.make_way(template, attempt, entry)
            if isinstance(entry, RefusalKind):
                skipped.append(Refusal(template, entry, attempt, limits.left.copy()))
                if entry is RefusalKind.RESERVED and self._strictly_reserved:
                    self._waits = True
                    break
                place += 1
                continue
            pods = self._open(template, entry, attempt, pods, tuple(skipped), bounds)
            if bounds is not None and bounds.single:
                break
            if template.steady:  # which makes room for spot again
                place, skipped = 0, []
        return pods

    def _open(
        self,
        template: NodeClaimTemplate,
        group: ClaimGroup,
        attempt: PlacementAttempt,
        pods: list[Pod],
        skipped: tuple[Refusal, ...],
        bounds: HostnameBounds | None,
    ) -> list[Pod]:
        """Open as many claims as are certain to be equal; at least one."""
        limits = self.openings.pool_limits[template.pool.metadata.name]
        fresh = self._fresh_claim(group, attempt.requests)
        each, holding, charge = 1 if attempt.pod_class.ports else fresh.each, fresh.rows, fresh.charge
        # A claim that relies on estimates is one of a kind: the next may not.
        if bounds is not None:
            each = min(each, bounds.new)
        alone = bounds is not None and bounds.single
        most = min(max(limits.openable(charge), 1), self.openings.openable(template, group))
        claims = 1 if estimates(group) or alone else min(-(-len(pods) // each), most)
        for _ in range(claims):
            place = self.open.open(group, charge, skipped)
            self.openings.take_estimates(group, place)
            self.openings.fill(place, group, attempt, pods[:each])
            if attempt.pod_class.topological:
                self._counts.record(attempt.pod_class, place, len(pods[:each]), claim=True)
            pods = pods[each:]
        limits.charge(charge, claims)
        self.openings.opened(template, group, claims, holding)
        self._least_hourly += claims * fresh.price
        return pods

    def _fresh_claim(self, group: ClaimGroup, requests: Ints) -> _FreshClaim:
        key = (group.index, requests.tobytes())
        known = self._fresh_claims.get(key)
        if known is None:
            table, holds = group.template.table, group.holding(requests)
            rows = group.rows[holds]
            known = self._fresh_claims[key] = _FreshClaim(
                each=int(group.room(np.zeros((1, len(self.axis)), np.int64), requests)[0]),
                rows=rows,
                charge=table.capacity[table.row_type[rows]].max(axis=0),
                price=float(np.min(group.price[holds])),
            )
        return known

    def _place_promised(self, classes: Sequence[PodClass]) -> set[int]:
        """Put pods on the claims in flight that were opened for them; returns the identities of those that still fit.

        Otherwise another pod could take their room, and Shiplap would launch for them a second time.
        """
        kept: set[int] = set()
        tokens = frozenset().union(*(room.promised for room in self.nodes.all))
        if not tokens:
            return kept
        waiting = _promised_pods(classes, tokens)
        suits: dict[int, tuple[Bools, Ints]] = {}
        for place, room in enumerate(self.nodes.all):
            promised = [waiting[token] for token in sorted(room.promised) if token in waiting]
            for pod_class, pods in _grouped_by_class(promised):
                if pod_class.index not in suits:
                    suits[pod_class.index] = self.nodes.fits(pod_class, soft=True), self.axis.vector(pod_class.requests)
                fits, requests = suits[pod_class.index]
                left = [pod for pod in pods if id(pod) not in kept]
                if not left or not fits[place]:
                    continue
                staying = left[: self.nodes.takes(pod_class, place, requests, len(left))]
                if staying:
                    self.nodes.place(pod_class, place, staying, requests)
                    if pod_class.topological:
                        self._counts.record(pod_class, place, len(staying), claim=False)
                    kept.update(map(id, staying))
        return kept


def _is_lone(waiting: Waiting) -> bool:
    """True for one pod that no topology constraint concerns: the first template that holds it decides all."""
    return len(waiting) == 1 and len(waiting[0][1]) == 1 and not waiting[0][0].topological


def _promised_pods(classes: Iterable[PodClass], tokens: frozenset[str]) -> dict[str, tuple[PodClass, Pod]]:
    """The pods that are promised a place, by their uid, or by the namespace and name in the promise."""
    promised = {}
    by_key = any("/" in token for token in tokens)
    for pod_class in classes:
        for pod in pod_class.members:
            if by_key and (key := pod.key) in tokens:
                promised[key] = (pod_class, pod)
            if (uid := pod.metadata.uid) in tokens:
                promised[uid] = (pod_class, pod)
    return promised


def _grouped_by_class(promised: Iterable[tuple[PodClass, Pod]]) -> Iterable[tuple[PodClass, list[Pod]]]:
    """Pods of one class that follow one another, together; each pod once."""
    for _, some in groupby(promised, key=lambda entry: entry[0].index):
        members = list(some)
        yield members[0][0], list({id(pod): pod for _, pod in members}.values())


class _NodeFiller:
    """Fills existing nodes for the bulk stage."""

    def __init__(
        self,
        nodes: ExistingNodes,
        fill: Callable[[PlacementAttempt, list[Pod], HostnameBounds | None, Bools | None], list[Pod]],
        domains: Domains,
    ) -> None:
        self._nodes = nodes
        self._fill = fill
        self._domains = domains

    def might_take(self, attempt: PlacementAttempt, least: Ints) -> bool:
        """True if some node suits that has room for `least` [resources]."""
        roomy = places_with(self._nodes.free, least)
        return bool(roomy.any()) and bool((self._nodes.fits(attempt.pod_class, soft=attempt.soft) & roomy).any())

    def fill(self, attempt: PlacementAttempt, pods: list[Pod], inside: Bools | None) -> int:
        """Put pods on nodes, those `inside` [rooms] if given; returns how many of them, the first ones."""
        roomy = places_with(self._nodes.free, attempt.requests)
        if inside is not None:
            roomy &= inside
        if not roomy.any():
            return 0
        bounds = self._domains.bounds(attempt) if attempt.pod_class.topological else None
        return len(pods) - len(self._fill(attempt, pods, bounds, roomy))


def _first_fit(many: Ints, number: int) -> Ints:
    """Return how many of `number` pods each target takes if pods fill the targets in order; each could take `many`."""
    many = np.minimum(many, number)
    before = np.cumsum(many) - many
    taken: Ints = np.clip(number - before, 0, many)
    return taken


def _bounded(many: Ints, bound: Ints, number: int, *, single: bool) -> Ints:
    """Counts within bounds; with `single` only the first target that takes all `number` pods, or else the roomiest."""
    many = np.minimum(many, bound)
    return _roomiest(many, number) if single else many


def _roomiest(many: Ints, number: int) -> Ints:
    only = np.zeros_like(many)
    if len(many):
        best = int(np.argmax(np.minimum(many, number)))
        only[best] = many[best]
    return only
