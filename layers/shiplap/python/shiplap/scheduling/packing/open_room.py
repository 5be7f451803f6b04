"""Room on claims that a decision has opened: paid for, or added by a larger row for less than pods are worth."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from shiplap.scheduling.model.resources import ROUNDING, Floats, Ints
from shiplap.scheduling.supply.open_claims import ClaimGroup, PlacementAttempt
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.templates import NodeClaimTemplate


class Taken(msgspec.Struct, frozen=True, eq=False):
    """So many pods go onto the claim at `place`, which comes into the group `target` by it."""

    place: int
    number: int
    target: ClaimGroup


class OpenRoom:
    """The claims at `places` for pods of a template.

    Claims of another level take only pods that come after their first pod in placing order, and do not grow for them.
    """

    def __init__(self, openings: Openings, template: NodeClaimTemplate, places: Sequence[int]) -> None:
        claims = [openings.open.claims[place] for place in places]
        self._openings, self._template = openings, template
        self._places: Ints = np.array(places, np.int64)
        self._used: Ints = openings.open.used[self._places]
        paid = [claim.group.launch_price(used) for claim, used in zip(claims, self._used, strict=True)]
        self._paid: Floats = np.array(paid)
        self._row: Ints = np.zeros_like(self._places)
        self._net: Ints = np.zeros_like(self._used)
        groups = openings.open.group_of[self._places]
        for number in dict.fromkeys(groups.tolist()):
            self._look_up_row(np.flatnonzero(groups == number), openings.open.groups.all[number])
        self._first: Ints = np.array([claim.pods[0][0].index for claim in claims], np.int64)
        self._each: Floats = np.zeros(0)
        self._many: Ints = np.zeros(0, np.int64)
        self._adds: Floats = np.zeros(0)

    def take(self, attempt: PlacementAttempt, number: int, worth: float) -> list[Taken]:
        """Put up to `number` pods of a class where each adds least to the price, as long as that is below `worth`."""
        targets, size = self._targets(attempt), attempt.requests
        self._each = np.full(len(self._places), np.inf)
        self._many, self._adds = np.zeros_like(self._places), np.zeros(len(self._places))
        for members, target in targets.values():
            self._ask(members, target, size, number, grows=worth > 0)
        target_of = {member: target for members, target in targets.values() for member in members.tolist()}
        taken: list[Taken] = []
        while number:
            best = int(np.argmin(self._each))
            if self._each[best] > 0 and self._each[best] >= worth - ROUNDING:
                break
            some = min(number, int(self._many[best]))
            taken.append(Taken(int(self._places[best]), some, target_of[best]))
            number -= some
            self._used[best] += some * size
            if self._adds[best]:
                self._paid[best] += self._adds[best]
                self._look_up_row(np.array([best]), target_of[best])
            self._ask(np.array([best]), target_of[best], size, number, grows=worth > 0)
        return taken

    def _look_up_row(self, members: Ints, group: ClaimGroup) -> None:
        """Note the row that claims [n] of a group would launch, which is what is paid for."""
        self._row[members] = group.rows[group.cheapest(self._used[members])]
        self._net[members] = group.template.net[self._row[members]]

    def _targets(self, attempt: PlacementAttempt) -> dict[int, tuple[Ints, ClaimGroup]]:
        """By group, the claims [n] that may take pods of a class, and the group that they come into by that."""
        groups = self._openings.open.group_of[self._places]
        targets = {}
        for number in dict.fromkeys(groups.tolist()):
            target = self._openings.merge(self._openings.open.groups.all[number], attempt)
            if target is None or not len(target.rows):
                continue
            members = np.flatnonzero(groups == number)
            if target.template.level != self._template.level:
                members = members[self._first[members] <= attempt.pod_class.index]
            targets[number] = (members, target)
        return targets

    def _ask(self, members: Ints, target: ClaimGroup, size: Ints, number: int, *, grows: bool) -> None:
        """Note for claims [n] what each of so many pods costs there, how many do, and what these add to the price."""
        used = self._used[members]
        if not grows or target.template.level != self._template.level:
            room = _room(self._net[members] - used, size)
            paid = (room > 0) & target.has_row(self._row[members])
            self._each[members], self._many[members], self._adds[members] = np.where(paid, 0.0, np.inf), room, 0.0
            return
        net, price = target.bargains
        if not len(net):
            return
        room = np.minimum(_room(net - used[:, None, :], size), number)
        adds = np.maximum(price - self._paid[members][:, None], 0.0).round(9)
        each = np.where(room > 0, adds / np.maximum(room, 1), np.inf).round(9)
        best = np.lexsort((-room, each), axis=1)[:, 0]
        at = np.arange(len(members))
        self._each[members], self._many[members], self._adds[members] = each[at, best], room[at, best], adds[at, best]


def _room(free: Ints, size: Ints) -> Ints:
    """Return how many pods of a size [resources] fit into what is free [..., resources]."""
    wanted = size > 0
    room: Ints = np.where((free >= 0).all(axis=-1), (free[..., wanted] // size[wanted]).min(axis=-1), 0)
    return room
