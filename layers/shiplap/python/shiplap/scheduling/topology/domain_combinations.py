"""Combinations of domains, one per label: made up as they are looked at, because usually the first one will do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush

import msgspec

from shiplap.scheduling.model.resources import Bools
from shiplap.scheduling.supply.open_claims import PlacementAttempt


class DomainOption(msgspec.Struct, frozen=True, order=True):
    """One domain of one label; no label comes last.

    First comes what attracts the most classes of a series that no pod has begun (`pull`, negative), then the fewest
    counted pods, then the name.
    """

    absent: bool
    pull: int
    count: int
    value: str
    code: int
    most: int


class DomainChoice(msgspec.Struct, frozen=True, eq=False):
    """One combination of domains. `nodes` [nodes] are in it; `attempt` is pinned to it, None if its pods exclude it.

    Claims other than `claims` [claims], None for all, are in another one.

    At most `most` pods may go there before the choice has to be made again. `drawn`: pods of a series that has not
    begun should go there rather than elsewhere.
    """

    attempt: PlacementAttempt | None
    nodes: Bools
    most: int
    drawn: bool = False
    claims: Bools | None = None


class DomainChoices:
    """Choices in the order in which combinations come; each is made once, when it is asked for first."""

    def __init__(
        self, ranked: Iterator[Sequence[DomainOption]], make: Callable[[Sequence[DomainOption]], DomainChoice]
    ) -> None:
        self._ranked = ranked
        self._make = make
        self._made: list[DomainChoice] = []

    def __iter__(self) -> Iterator[DomainChoice]:
        index = 0
        while index < len(self._made) or self._more():
            yield self._made[index]
            index += 1

    def _more(self) -> bool:
        chosen = next(self._ranked, None)
        if chosen is not None:
            self._made.append(self._make(chosen))
        return chosen is not None


def weight(chosen: Sequence[DomainOption]) -> tuple[int, int, int]:
    """Combinations are compared by this first: labels that are absent, attraction, pods counted."""
    return sum(o.absent for o in chosen), sum(o.pull for o in chosen), sum(o.count for o in chosen)


def best_first(options: Sequence[Sequence[DomainOption]]) -> Iterator[Sequence[DomainOption]]:
    """All combinations of one option per label, by weight and then by options; each label's options come sorted.

    Made one after the other, so that the first of very many cost little.
    """

    def entry(
        indexes: tuple[int, ...], last: int
    ) -> tuple[tuple[int, int, int], list[DomainOption], tuple[int, ...], int]:
        chosen = [some[index] for some, index in zip(options, indexes, strict=True)]
        return weight(chosen), chosen, indexes, last

    heap = [entry((0,) * len(options), 0)]
    heapify(heap)
    while heap:
        _, chosen, indexes, last = heappop(heap)
        yield chosen
        # Only labels from the last one changed on move further, so that every combination comes up once.
        for label in range(last, len(options)):
            if indexes[label] + 1 < len(options[label]):
                moved = (*indexes[:label], indexes[label] + 1, *indexes[label + 1 :])
                heappush(heap, entry(moved, label))
