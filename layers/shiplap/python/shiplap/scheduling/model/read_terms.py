"""Bounds how many topology constraints a decision reads.

Each constraint takes a count per node, and a place in what each pod matches.

Required constraints and preferences have a bound each. Specifications with the fewest are read first, so that those
beyond the bound are of pods that ask for most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

MOST_TERMS = 8_192
"""Different required topology constraints, and as many different preferred ones, of all waiting pods of a decision."""

TOO_MANY = f"a decision reads {MOST_TERMS:,} different topology constraints, and those of this pod are beyond them"
UNREAD_PREFERENCES = f"what pods prefer of topology, beyond the {MOST_TERMS:,} preferences that a decision reads"


def beyond_the_bound(numbers: Sequence[int], written: Callable[[int], Hashable]) -> frozenset[int]:
    """The places of the specifications whose constraints, so many of each, are not read.

    `written` says what the constraints of the one at a place are: of equal ones only the first counts.
    """
    if sum(numbers) <= MOST_TERMS:
        return frozenset()
    left, known, beyond = MOST_TERMS, set[Hashable](), set[int]()
    for place in sorted(range(len(numbers)), key=lambda place: (numbers[place], place)):
        text = written(place)
        if not numbers[place] or text in known:
            continue
        if numbers[place] > left:
            beyond.add(place)
            continue
        known.add(text)
        left -= numbers[place]
    return frozenset(beyond)
