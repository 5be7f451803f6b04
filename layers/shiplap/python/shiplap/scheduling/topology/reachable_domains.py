"""Reach: with which values of a label a new node could be launched for a class, whatever the counts say.

Asked for every domain of every label of every attempt, so that answers are shared as far as they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shiplap.kubernetes.requirements import Requirement
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.resources import Bools
from shiplap.scheduling.supply.claim_groups import Group
from shiplap.scheduling.supply.open_claims import Kind, Want
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.placement_attempts import Wants
from shiplap.scheduling.supply.templates import Lane


class Reach:
    """Answers for one packing."""

    def __init__(self, openings: Openings, wants: Wants) -> None:
        self._openings = openings
        self._wants = wants
        self._values: dict[tuple[int, str], list[str]] = {}
        self._opening: dict[tuple[int, int, str], Bools] = {}
        self._labelled: dict[tuple[int, str], Bools] = {}
        self._suiting_values: dict[tuple[int, int, str], Bools] = {}
        self._entries: dict[tuple[int, int], list[tuple[Want, Group | Kind]]] = {}
        self._launching: dict[tuple[int, Requirement], bool] = {}
        self._suiting: dict[int, list[Lane]] = {}

    def forget(self) -> None:
        """Claims or limits have changed."""
        self._opening.clear()
        self._entries.clear()

    def may_launch(self, want: Want, pin: Requirement) -> bool:
        """Whether taints and requirements let some lane's nodes have a label as pinned and take pods of a class."""
        key = (want.constraint, pin)
        known = self._launching.get(key)
        if known is None:
            known = self._launching[key] = self._may_launch(want, pin)
        return known

    def _may_launch(self, want: Want, pin: Requirement) -> bool:
        lanes = self._suiting.get(want.constraint)
        if lanes is None:
            suits = self._openings.suits
            lanes = self._suiting[want.constraint] = [lane for lane in self._openings.lanes if suits(lane, want)]
        return any(_suits(lane, want, pin) for lane in lanes)

    def opening(self, item: PodClass, lane: Lane, key: str) -> Bools:
        """With which values [values] of a label a claim could be opened in a lane for what a class requires."""
        identity = (item.index, lane.index, key)
        known = self._opening.get(identity)
        if known is None:
            known = np.zeros(len(self.values_of(lane, key)), np.bool_)
            for want, entry in self._entries_of(item, lane):
                known |= self._opens(want, entry, lane, key)
            self._opening[identity] = known
        return known

    def values_of(self, lane: Lane, key: str) -> list[str]:
        """The values of a label, by name, that nodes of a lane may have."""
        known = self._values.get((lane.index, key))
        if known is None:
            known = self._values[lane.index, key] = lane.values_of(key)
        return known

    def _opens(self, want: Want, entry: Group | Kind, lane: Lane, key: str) -> Bools:
        """The answer of one attempt; read off the rows of its `entry`, as far as a pin does no more than leave some."""
        table = lane.table
        if isinstance(entry, Kind) or entry.minimums or not (table.tells_types(key) or table.tells_columns(key)):
            return np.array(
                [self._opens_pinned(want, lane, key, value) for value in self.values_of(lane, key)], np.bool_
            )
        types = table.row_type[entry.rows[entry.holding(want.requests)]]
        if table.tells_types(key):
            left = self._labels_of(lane, key)[:, types].any(axis=1)
        else:
            bought = table.bought(entry.requirements, types, key)
            left = np.array([value in bought for value in self.values_of(lane, key)], np.bool_)
        opens: Bools = left & self._suits(want, lane, key)
        return opens

    def _opens_pinned(self, want: Want, lane: Lane, key: str, value: str) -> bool:
        pinned = self._wants.pinned(want, (_pin(key, value),))
        return pinned is not None and self._openings.opens(lane, pinned)

    def _labels_of(self, lane: Lane, key: str) -> Bools:
        """Which types may have which value of a label [values, types]."""
        known = self._labelled.get((lane.index, key))
        if known is None:
            masks = [lane.table.with_label(_pin(key, value), lane.given) for value in self.values_of(lane, key)]
            shape = (len(masks), len(lane.table.types))
            known = self._labelled[lane.index, key] = np.array(masks, np.bool_).reshape(shape)
        return known

    def _suits(self, want: Want, lane: Lane, key: str) -> Bools:
        """Which values [values] of a label an attempt and a lane that suits it leave."""
        identity = (want.constraint if key in want.term else -1, lane.index, key)
        known = self._suiting_values.get(identity)
        if known is None:
            suits = [_suits(lane, want, _pin(key, value)) for value in self.values_of(lane, key)]
            known = self._suiting_values[identity] = np.array(suits, np.bool_)
        return known

    def _entries_of(self, item: PodClass, lane: Lane) -> list[tuple[Want, Group | Kind]]:
        """The attempts that hold to what a class requires and open a claim whatever its labels, with its group.

        A pin narrows what a claim may become, so it opens nothing that is closed without it; but where counts decide
        what a claim may be bought as, it may choose what is still open.
        """
        known = self._entries.get((item.index, lane.index))
        if known is None:
            known = self._entries[item.index, lane.index] = list(self._asked(item, lane))
        return known

    def _asked(self, item: PodClass, lane: Lane) -> Iterable[tuple[Want, Group | Kind]]:
        for want in self._wants.relaxed(item):
            if lane.counted:
                yield want, Kind.SPOT_SHARE
            elif self._openings.opens(lane, want):
                yield want, self._openings.entry(lane, want)


def _pin(key: str, value: str) -> Requirement:
    return Requirement(key, False, frozenset((value,)))


def _suits(lane: Lane, want: Want, pin: Requirement) -> bool:
    """Whether a lane that suits an attempt does so with a label pinned: nothing but this label can differ."""
    wanted = want.term.get(pin.key)
    if wanted is None:
        return lane.template.compatible({pin.key: pin}, lane.allow_undefined)
    if not want.term.compatible({pin.key: pin}):
        return False
    return lane.template.compatible({pin.key: wanted.intersection(pin)}, lane.allow_undefined)
