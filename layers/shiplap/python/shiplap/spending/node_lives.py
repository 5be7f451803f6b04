"""Estimates how long the nodes of a NodePool live, from which a launch's reservation follows.

Nodes that still run have lived at least as long as they are old. Leaving them out would take a pool of long-lived nodes
for one of short-lived ones, because only the short lives have ended. So the estimate is that of Kaplan and Meier, over
lives in classes that grow by an eighth.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import msgspec

FEWEST_ENDED = 20
"""Ended lives without which nothing is known: a reservation then is for the rest of the month."""

_OLD_PERCENT = 5
"""Of a hundred nodes, so many live longer than the life that is reserved."""

_FORGET_ABOVE = 2_000
"""Ended lives from which all counts are halved, so that a pool whose use changes is known anew."""


def _classes() -> tuple[int, ...]:
    bounds = [300]
    while bounds[-1] < 31 * 24 * 3600:
        bounds.append(bounds[-1] * 9 // 8)
    return tuple(bounds)


CLASSES = _classes()
"""Upper bounds of the classes of lives, in seconds: five minutes and on to a month."""


class NodeLives(msgspec.Struct, frozen=True, omit_defaults=True):
    """Numbers of lives by class, those after the last one left out: of nodes that ended, and of those that run.

    A life that is longer than all classes is in one more.
    """

    ended: tuple[int, ...] = ()
    running: tuple[int, ...] = ()

    def after(self, ended_s: Iterable[float], ages_s: Iterable[float]) -> NodeLives:
        """With nodes that ended after `ended_s` seconds, and just those running that are `ages_s` old."""
        ended = _added(self.ended, ended_s)
        if sum(ended) > _FORGET_ABOVE:
            ended = tuple(number // 2 for number in ended)
        return NodeLives(ended, _added((), ages_s))

    def p95_s(self) -> int | None:
        """Seconds that 95 of 100 nodes do not outlive; None if too little is known, or if it is longer than a month."""
        if sum(self.ended) < FEWEST_ENDED:
            return None
        at_risk = sum(self.ended) + sum(self.running)
        surviving = 1.0
        for place, bound in enumerate(CLASSES):
            ended = self.ended[place] if place < len(self.ended) else 0
            if ended:
                surviving *= 1 - ended / at_risk
            if surviving * 100 <= _OLD_PERCENT + 1e-9:  # the product is not exact
                return bound
            at_risk -= ended + (self.running[place] if place < len(self.running) else 0)
        return None


def _added(counts: Sequence[int], lives_s: Iterable[float]) -> tuple[int, ...]:
    places = [bisect_left(CLASSES, life) for life in lives_s]
    grown = [*counts, *[0] * (max(places, default=-1) + 1 - len(counts))]
    for place in places:
        grown[place] += 1
    return tuple(grown)
