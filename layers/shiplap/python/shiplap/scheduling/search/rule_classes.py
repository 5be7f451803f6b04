"""The rules of a bin packing problem by class of rules: pods that are bound alike are one class."""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import Bools, Ints, distinct_lines


class RuleBounds(msgspec.Struct, frozen=True):
    """The rules that bind pods of a class of rules, and the classes that its pods keep off their node."""

    owns: tuple[int, ...]
    counting: tuple[int, ...]
    counting_owns: tuple[int, ...]
    only_owns: tuple[int, ...]
    only_counting: tuple[int, ...]
    bars: tuple[int, ...]
    alone: bool
    free: bool


class Rules:
    """The class of each item, `class_of` [items], with `owners` and `capped` [classes, rules], `clash` [classes²]."""

    def __init__(self, owners: Bools, capped: Bools, clash: Bools) -> None:
        """`owners` and `capped` [rules, items], `clash` [items, items]."""
        # Most items clash with none: only those that clash have to be compared.
        clashing = np.flatnonzero(clashing_items(clash))
        key = np.concatenate([owners.T, capped.T, clash[:, clashing]], axis=1)
        key = np.concatenate([key, np.zeros((len(clash), 1), np.bool_)], axis=1)
        first, self.class_of = distinct_lines(np.packbits(key, axis=1))
        self.owners: Bools = owners[:, first].T
        self.capped: Ints = capped[:, first].T.astype(np.int64)
        self.clash: Bools = clash[np.ix_(first, first)]
        self.free: Bools = ~(self.owners.any(axis=1) | self.capped.any(axis=1) | self.clash.any(axis=1))

    @cached_property
    def bounds(self) -> list[RuleBounds]:
        """The bounds of each class."""
        classes = zip(
            marked_columns(self.owners),
            marked_columns(self.capped > 0),
            marked_columns(self.clash),
            self.clash.diagonal().tolist(),
            self.free.tolist(),
            strict=True,
        )
        return [
            RuleBounds(
                owns=tuple(owns),
                counting=tuple(counting),
                counting_owns=tuple(rule for rule in owns if rule in counting),
                only_owns=tuple(rule for rule in owns if rule not in counting),
                only_counting=tuple(rule for rule in counting if rule not in owns),
                bars=tuple(bars),
                alone=alone,
                free=free,
            )
            for owns, counting, bars, alone, free in classes
        ]


def clashing_items(clash: Bools) -> Bools:
    """Return a mask of the items [items] that `clash` with any item. Mostly none does, which one look at all shows."""
    return clash.any(axis=0) if clash.any() else np.zeros(len(clash), np.bool_)


def marked_columns(marks: Bools) -> list[list[int]]:
    """The places marked in each line [lines, places]."""
    found: list[list[int]] = [[] for _ in marks]
    for line, place in np.argwhere(marks).tolist():
        found[line].append(place)
    return found
