"""The attempts to place a class: its node-affinity terms in turn, with domains pinned where topology asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.classes import PodClass
from shiplap.scheduling.lanes import Lane
from shiplap.scheduling.nodes import NodeTable
from shiplap.scheduling.open_claims import Want
from shiplap.scheduling.resources import Axis


class Wants:
    """Makes the attempts to place a class, numbering their constraints."""

    def __init__(self, lanes: Sequence[Lane], nodes: NodeTable, axis: Axis) -> None:
        self._axis = axis
        self._numbers: dict[object, int] = {}
        self._pinned: dict[tuple[int, tuple[Requirement, ...]], tuple[Requirements, int] | None] = {}
        self._soft_possible = nodes.has_preferences or any(
            taint.effect == "PreferNoSchedule" for lane in lanes for taint in lane.pool.spec.template.spec.taints
        )

    def of(self, item: PodClass) -> list[Want]:
        """Each term in turn, then the pod's own last, wherever its volumes can be, with PreferNoSchedule tolerated."""
        requests = self._axis.vector(item.requests)
        attempts = [(term, False) for term in item.terms]
        if self._soft_possible:
            of_terms = zip(item.terms, item.own_terms, strict=True)
            attempts += [(term, True) for term, own in of_terms if own == item.own_terms[-1]]
        return [Want(item, term, soft, requests, self._number(item, term, soft=soft)) for term, soft in attempts]

    def _number(self, item: PodClass, term: Requirements, *, soft: bool) -> int:
        key = (term, item.tolerations, item.ports, item.missed, soft)
        return self._numbers.setdefault(key, len(self._numbers))

    def pinned(self, want: Want, pins: Iterable[Requirement]) -> Want | None:
        """The attempt with labels pinned to one value each, or None when the class excludes one of them."""
        pins = tuple(pins)
        if not pins:
            return want
        key = (want.constraint, pins)
        if key not in self._pinned:
            self._pinned[key] = None
            if want.term.compatible({pin.key: pin for pin in pins}, [pin.key for pin in pins]):
                term = want.term.and_(pins)
                self._pinned[key] = (term, self._number(want.item, term, soft=want.soft))
        known = self._pinned[key]
        return Want(want.item, known[0], want.soft, want.requests, known[1]) if known is not None else None
