"""The order in which classes are placed so that pods come after those whose company they require.

A pod that requires its own kind may start a series only while no such pod is anywhere. Other pods that its terms count
therefore go first: whichever of them binds first, the series finds it where it is. While a series has no pod yet, its
classes are drawn to the domain that most of them can reach.

Pods that a spread counts go before those that it binds, unless it counts and binds both: these can reckon with the
counts, whichever of them binds first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from shiplap.kubernetes.objects import Pod
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.pod_classes import PodClass

Entry = tuple[PodClass, list[Pod]]
Attractions = Mapping[int, Mapping[str, int]]
"""Per affinity term whose series several classes may start or join: how many of them can reach each domain."""


def attractions_of(
    waiting: Sequence[Entry], open_series: set[int], reach: Callable[[PodClass, int], frozenset[str]]
) -> Attractions:
    """Return, by term of one series, how many classes each domain attracts.

    Args:
        waiting: classes with pods.
        open_series: the affinity terms of which no pod is anywhere yet.
        reach: the domains of a term's label in which a class can have a node now.
    """
    started = {term for pod_class, _ in waiting for term in pod_class.opening} & open_series
    shared = [
        (term, indexes) for term, indexes in sorted(_classes_counted(waiting, started).items()) if len(indexes) > 1
    ]
    return {
        term: Counter(
            value for index in indexes[: BOUNDS.attracting_series] for value in reach(waiting[index][0], term)
        )
        for term, indexes in shared[: BOUNDS.attracting_series]
    }


def followers_last(
    waiting: Sequence[Entry],
    drawn: Iterable[int],
    pull: Callable[[PodClass], int],
    *,
    by_priority: bool = False,
) -> list[Entry]:
    """The same entries, those that required affinity follows before their followers, as far as there is no circle.

    So are those that a required spread counts before those that it binds, unless it counts and binds both.

    Args:
        waiting: classes with pods, in placing order.
        drawn: the terms of which it is known what attracts their series.
        pull: how many classes of its series can reach the best domain that a class can reach.
        by_priority: leave pods behind those that are more important.
    """
    followed = {term for pod_class, _ in waiting for term in pod_class.constraints.affinity}
    counted = _classes_counted(waiting, followed)
    spread_before = _counted_by_spreads(waiting)
    if not any(spread_before) and all(
        counted[term] == [index]
        for index, (pod_class, _) in enumerate(waiting)
        for term in pod_class.constraints.affinity
    ):
        return list(waiting)
    starting = [pod_class.starts_series for pod_class, _ in waiting]
    company = {term: _with_starters_last(indexes, starting) for term, indexes in counted.items()}
    for term in drawn:
        if term in company:
            rank = {index: _rank(waiting[index][0], term, pull) for index in company[term]}
            company[term].sort(key=lambda index, of=rank: (starting[index], of[index], index))  # type: ignore[misc]
    before = [
        counted_first + [company[term] for term in pod_class.constraints.affinity]
        for (pod_class, _), counted_first in zip(waiting, spread_before, strict=True)
    ]
    return [waiting[index] for index in _ordered(waiting, before, by_priority=by_priority)]


def _counted_by_spreads(waiting: Sequence[Entry]) -> list[list[list[int]]]:
    """Per class, the indexes of those that its spreads count, only the unbound ones where it is counted, too."""
    bound = [{spread.term for spread in pod_class.constraints.spreads} for pod_class, _ in waiting]
    counted = _classes_counted(waiting, set[int]().union(*bound))
    unbound = {term: [index for index in indexes if term not in bound[index]] for term, indexes in counted.items()}
    return [
        [some for term in sorted(terms) if (some := (unbound if term in pod_class.selected else counted)[term])]
        for (pod_class, _), terms in zip(waiting, bound, strict=True)
    ]


def _classes_counted(waiting: Sequence[Entry], terms: set[int]) -> dict[int, list[int]]:
    """The indexes of the classes that each of these terms counts."""
    counted: dict[int, list[int]] = {term: [] for term in terms}
    for index, (pod_class, _) in enumerate(waiting):
        for term in pod_class.selected & terms:
            counted[term].append(index)
    return counted


def _rank(pod_class: PodClass, term: int, pull: Callable[[PodClass], int]) -> tuple[bool, int]:
    """The order of classes that a term counts: of those that share a volume, pods that follow others go first."""
    shares = term in pod_class.constraints.volumes
    return not (shares and pod_class.company), -pull(pod_class) if shares or pod_class.starts_series else 0


def _with_starters_last(indexes: Sequence[int], starting: Sequence[bool]) -> list[int]:
    return [index for index in indexes if not starting[index]] + [index for index in indexes if starting[index]]


def _ordered(waiting: Sequence[Entry], before: Sequence[Sequence[list[int]]], *, by_priority: bool) -> list[int]:
    """Depth first; `before` [classes] are lists of the indexes of the classes that go before each.

    Each list is looked at once, so that the work grows with classes and terms, not with their pairs.
    """
    done: dict[int, None] = {}
    entered: set[int] = set()
    looked_at: set[int] = set()

    def visit(index: int) -> Iterator[int]:
        """Yields the indexes to visit before this one is done."""
        pod_class = waiting[index][0]
        for others in before[index]:
            if id(others) in looked_at:
                continue
            looked_at.add(id(others))
            for other in others:
                if other == index:
                    done.setdefault(index)
                elif not by_priority or waiting[other][0].priority >= pod_class.priority:
                    yield other
        done.setdefault(index)

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
