"""The order in which classes are placed so that pods come after those whose company they require.

A pod that requires its own kind may start a series only while no such pod is anywhere. Other pods that its terms count
therefore go first: whichever of them binds first, the series finds it where it is. While a series has no pod yet, its
classes are drawn to the domain that most of them can reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.pod_classes import PodClass

Entry = tuple[PodClass, list[Pod]]
_MOST_SERIES, _MOST_CLASSES = 8, 8
"""For how many series it is worked out what attracts them, and by how many of their classes."""

Attractions = Mapping[int, Mapping[str, int]]
"""Per affinity term whose series several classes may start or join: how many of them can reach each domain."""


def starts_series(item: PodClass) -> bool:
    """Whether pods of a class meet their own required affinity, so that the first of them may start a series."""
    return bool(item.constraints.affinity) and item.selected.issuperset(item.constraints.affinity)


def attractions_of(
    waiting: Sequence[Entry], open_series: set[int], reach: Callable[[PodClass, int], frozenset[str]]
) -> Attractions:
    """How domains attract the classes of one series.

    Args:
        waiting: classes with pods.
        open_series: the affinity terms of which no pod is anywhere yet.
        reach: the domains of a term's label in which a class can have a node now.
    """
    started = {term for item, _ in waiting if starts_series(item) for term in item.constraints.affinity} & open_series
    shared = [(term, places) for term, places in sorted(_classes_counted(waiting, started).items()) if len(places) > 1]
    return {
        term: Counter(value for place in places[:_MOST_CLASSES] for value in reach(waiting[place][0], term))
        for term, places in shared[:_MOST_SERIES]
    }


def followers_last(
    waiting: Sequence[Entry],
    drawn: Iterable[int],
    pull: Callable[[PodClass], int],
    *,
    by_priority: bool = False,
) -> list[Entry]:
    """The same entries, those that required affinity follows before their followers, as far as there is no circle.

    Args:
        waiting: classes with pods, in placing order.
        drawn: the terms of which it is known what attracts their series.
        pull: how many classes of its series can reach the best domain that a class can reach.
        by_priority: leave pods behind those that are more important.
    """
    followed = {term for item, _ in waiting for term in item.constraints.affinity}
    counted = _classes_counted(waiting, followed)
    if all(counted[term] == [place] for place, (item, _) in enumerate(waiting) for term in item.constraints.affinity):
        return list(waiting)
    starting = [starts_series(item) for item, _ in waiting]
    company = {term: _with_starters_last(places, starting) for term, places in counted.items()}
    for term in drawn:
        if term in company:
            strength = {place: pull(waiting[place][0]) if starting[place] else 0 for place in company[term]}
            company[term].sort(key=lambda place, of=strength: (starting[place], -of[place], place))  # type: ignore[misc]
    return [waiting[place] for place in _ordered(waiting, company, by_priority=by_priority)]


def _classes_counted(waiting: Sequence[Entry], terms: set[int]) -> dict[int, list[int]]:
    """The places of the classes that each of these terms counts."""
    counted: dict[int, list[int]] = {term: [] for term in terms}
    for place, (item, _) in enumerate(waiting):
        for term in item.selected & terms:
            counted[term].append(place)
    return counted


def _with_starters_last(places: Sequence[int], starting: Sequence[bool]) -> list[int]:
    return [place for place in places if not starting[place]] + [place for place in places if starting[place]]


def _ordered(waiting: Sequence[Entry], company: Mapping[int, Sequence[int]], *, by_priority: bool) -> list[int]:
    """Depth first. Each term is looked at once, so that the work grows with classes and terms, not with their pairs."""
    done: dict[int, None] = {}
    entered: set[int] = set()
    looked_at: set[int] = set()

    def visit(place: int) -> Iterator[int]:
        """Yields the places to visit before this one is done."""
        item = waiting[place][0]
        for term in item.constraints.affinity:
            if term in looked_at:
                continue
            looked_at.add(term)
            for other in company[term]:
                if other == place:
                    done.setdefault(place)
                elif not by_priority or waiting[other][0].priority >= item.priority:
                    yield other
        done.setdefault(place)

    for root in range(len(waiting)):
        walks = [visit(root)] if root not in entered else []
        entered.add(root)
        while walks:
            following = next(walks[-1], None)
            if following is None:
                walks.pop()
            elif following not in entered:
                entered.add(following)
                walks.append(visit(following))
    return list(done)
