"""The attempts to place a class: its node-affinity terms and preferences in turn, domains pinned where topology asks.

Order, as Karpenter relaxes: the required node-affinity terms one after the other with every preference held to; then,
for the last of them, one preference less each time (see `preferences`); then with PreferNoSchedule tolerated. Because
no preference may keep a pod out, the other terms come once more at the very end, with nothing preferred.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

import msgspec

from shiplap.kubernetes.requirements import Requirement, Requirements, contradiction
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.preferences import Level, levels
from shiplap.scheduling.model.resources import Axis, Ints
from shiplap.scheduling.model.topology_constraints import Constraints
from shiplap.scheduling.supply.daemons import Company, DaemonTerms
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.open_claims import PlacementAttempt
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class _Step(msgspec.Struct, frozen=True, eq=False):
    """A PlacementAttempt without its class; equal for all classes of equal constraints."""

    term: Requirements
    soft: bool
    constraint: int
    constraints: Constraints
    level: int
    preferred: Requirements | None
    company: Company


class PlacementAttempts:
    """Makes the attempts to place a class, numbering their constraints."""

    def __init__(
        self, templates: Sequence[NodeClaimTemplate], nodes: ExistingNodes, axis: Axis, daemons: DaemonTerms
    ) -> None:
        self._daemons = daemons
        self._axis = axis
        self._numbers: dict[object, int] = {}
        self._steps: dict[object, tuple[_Step, ...]] = {}
        self._pinned: dict[tuple[int, tuple[Requirement, ...]], tuple[Requirements, int] | None] = {}
        self._soft_possible = nodes.has_preferences or any(
            taint.effect == "PreferNoSchedule"
            for template in templates
            for taint in template.pool.spec.template.spec.taints
        )

    def of(self, pod_class: PodClass) -> list[PlacementAttempt]:
        """All attempts in turn."""
        requests = self._axis.vector(pod_class.requests)
        return [_attempt(pod_class, step, requests) for step in self._steps_of(pod_class)]

    def relaxed(self, pod_class: PodClass) -> list[PlacementAttempt]:
        """The attempts that hold to nothing but what is required."""
        requests = self._axis.vector(pod_class.requests)
        steps = self._steps_of(pod_class)
        return [_attempt(pod_class, step, requests) for step in steps if step.level == steps[-1].level]

    def _steps_of(self, pod_class: PodClass) -> tuple[_Step, ...]:
        key = (
            pod_class.terms,
            pod_class.own_terms,
            pod_class.tolerations,
            pod_class.ports,
            pod_class.missed,
            pod_class.constraints,
            pod_class.preferences,
            pod_class.selected if self._daemons.keeping else None,
        )
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = tuple(self._walk(pod_class))
        return known

    def _walk(self, pod_class: PodClass) -> Iterator[_Step]:
        ladder = list(levels(pod_class.constraints, pod_class.preferences))
        last = [
            term
            for term, own in zip(pod_class.terms, pod_class.own_terms, strict=True)
            if own == pod_class.own_terms[-1]
        ]
        others = [term for term in pod_class.terms if term not in last]
        yield from self._at(pod_class, ladder[0], self._held_to(ladder[0], pod_class.terms), soft=False)
        # Most levels differ in topology only; those that hold to one node preference follow each other.
        for _, alike in groupby(ladder[1:], key=lambda level: id(level.node)):
            same = list(alike)
            held = self._held_to(same[0], last)
            for level in same:
                yield from self._at(pod_class, level, held, soft=False)
        lowest = ladder[-1]
        if self._soft_possible:
            lowest = msgspec.structs.replace(lowest, step=lowest.step + 1)
            yield from self._at(pod_class, lowest, self._held_to(lowest, last), soft=True)
        if lowest.step:
            yield from self._at(pod_class, lowest, self._held_to(lowest, others), soft=self._soft_possible)

    def _held_to(self, level: Level, terms: Iterable[Requirements]) -> list[Requirements]:
        """The terms with a level's node preference, those aside that contradict it."""
        if level.node is None:
            return list(terms)
        preferred = level.node.values()
        return [term.and_(preferred) for term in terms if contradiction([*term.values(), *preferred]) is None]

    def _at(self, pod_class: PodClass, level: Level, held: Iterable[Requirements], *, soft: bool) -> Iterator[_Step]:
        company = self._daemons.company(level.constraints, pod_class.selected)
        for term in held:
            number = self._number(pod_class, term, company, soft=soft)
            yield _Step(term, soft, number, level.constraints, level.step, level.node, company)

    def _number(self, pod_class: PodClass, term: Requirements, company: Company, *, soft: bool) -> int:
        key = (term, pod_class.tolerations, pod_class.ports, pod_class.missed, soft, company)
        return self._numbers.setdefault(key, len(self._numbers))

    def pinned(self, attempt: PlacementAttempt, pins: Iterable[Requirement]) -> PlacementAttempt | None:
        """The attempt with labels pinned to one value each, or None when the class excludes one of them."""
        pins = tuple(pins)
        if not pins:
            return attempt
        key = (attempt.constraint, pins)
        if key not in self._pinned:
            self._pinned[key] = None
            if attempt.term.compatible({pin.key: pin for pin in pins}, [pin.key for pin in pins]):
                term = attempt.term.and_(pins)
                self._pinned[key] = (term, self._number(attempt.pod_class, term, attempt.company, soft=attempt.soft))
        known = self._pinned[key]
        return msgspec.structs.replace(attempt, term=known[0], constraint=known[1]) if known is not None else None


def _attempt(pod_class: PodClass, step: _Step, requests: Ints) -> PlacementAttempt:
    return PlacementAttempt(
        pod_class,
        step.term,
        step.soft,
        requests,
        step.constraint,
        step.constraints,
        step.level,
        step.preferred,
        step.company,
    )
