"""The memory of one decision: which gangs rest, and what is to be remembered of those that are short.

It saves plans, and decides nothing else: without it each gang is tried in each decision that has a plan left for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from shiplap.policies.gangs.gang import GangMembers
from shiplap.policies.gangs.memory.gang_tries import MOST_REMEMBERED, GangSupply, GangTries, shortened_reason

See = Callable[[GangMembers], GangSupply | None]
"""Looks at the room for a gang; None where a plan says what is wrong with its pods."""


class RememberedGangs:
    """The gangs of one decision as they are remembered."""

    def __init__(self, known: Iterable[GangTries], gangs: Sequence[GangMembers], see: See, now: float) -> None:
        """Find out which gangs rest. A gang that has lost a node never does."""
        self._see, self._now, self._gangs = see, now, gangs
        tries = {(item.gang, item.created_at): item for item in known}
        found = ((members, tries.get((members.gang.key, members.gang.created_at))) for members in gangs)
        self._before = {id(members): item for members, item in found if item is not None}
        self.resting: dict[int, GangTries] = {}
        """The tries for gangs that are not tried now, by the id of their members."""
        self._tried: dict[int, GangTries] = {}
        for members in gangs:
            item = self._before.get(id(members))
            if item is None or members.placed or not item.at <= now < item.next_at:
                continue
            seen = see(members)
            if seen is not None and item.rests(seen, now):
                self.resting[id(members)] = item.since(seen)

    def tried(self, members: GangMembers, short: str, lacks: Callable[[], Collection[str]]) -> str:
        """Note that a gang was tried and is short; return what is said of it."""
        if len(self._tried) >= MOST_REMEMBERED or (seen := self._see(members)) is None:
            return short
        before, gang = self._before.get(id(members)), members.gang
        item = GangTries(
            gang=gang.key,
            created_at=gang.created_at,
            number=before.number + 1 if before is not None else 1,
            at=int(self._now),
            short=shortened_reason(short),
            supply=seen.digest,
            room=dict(seen.room),
            lacks=tuple(sorted(lacks())),
        )
        self._tried[id(members)] = item
        return item.text

    def after(self) -> tuple[GangTries, ...]:
        """Return what is to be remembered after the decision: the first gangs of the queue that have been tried."""
        newest: Mapping[int, GangTries] = {**self._before, **self.resting, **self._tried}
        return tuple(newest[id(members)] for members in self._gangs if id(members) in newest)[:MOST_REMEMBERED]
