"""The tries for a gang that was short, as they are remembered: plain data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from shiplap.kubernetes.timestamps import rfc3339

GANGS = "gangs"
"""The name of gangs in records and plans."""

MOST_REMEMBERED = 200
"""Gangs of a cluster that are remembered, in the order of the queue; those behind are tried in turn, as if new.

Anybody who may make pods can make gangs. So many are one item of at most 150 KB.
"""

FIRST_PAUSE_S = 50.0
"""Seconds until a gang is tried again: the next sweep, which comes a minute later, give or take seconds. Each pause is
twice the one before."""

LONGEST_PAUSE_S = 300.0
"""No pause is longer, in seconds: a gang waits no longer for room that is not seen to have come."""

_TRIED = "; tried "

_CHARACTERS = 400
"""Of a reason that is remembered: what is short comes first."""


class GangSupply(msgspec.Struct, frozen=True):
    """What decides whether a gang has room, as far as it is cheaply known.

    `digest` changes with what its NodePools sell and allow and with what it asks for; `room` is the most that there is
    of what it needs.
    """

    digest: str
    room: Mapping[str, int]


class GangTries(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tries for one gang."""

    gang: str
    """`namespace/name`."""

    created_at: str = ""
    """When the gang was created: another one may have its name."""

    number: int = 1

    at: int
    """When the last one was, epoch seconds."""

    short: str
    """Why it got nothing."""

    supply: str = ""
    """The digest of what was sold then."""

    room: dict[str, int] = {}
    """The least room that was seen since: whatever is more has come meanwhile."""

    lacks: tuple[str, ...] = ()
    """The resources that it lacked, if NodePools can ever give them."""

    @property
    def next_at(self) -> float:
        """When it is tried again, whatever has changed by then."""
        return self.at + min(FIRST_PAUSE_S * (1 << min(self.number - 1, 8)), LONGEST_PAUSE_S)

    @property
    def text(self) -> str:
        """The reason for which the gang has nothing, the number of tries, and what ends its pause."""
        times = "once" if self.number == 1 else f"{self.number} times"
        return f"{self.short}{_TRIED}{times}, next at {rfc3339(self.next_at)} or when there is more room"

    def rests(self, seen: GangSupply, now: float) -> bool:
        """True if nothing has come that the gang may need, and its pause is not over."""
        grown = any(seen.room.get(name, amount + 1) > amount for name, amount in self.room.items())
        return self.at <= now < self.next_at and seen.digest == self.supply and not grown

    def since(self, seen: GangSupply) -> GangTries:
        """The same with the room of now, where it is less."""
        return replace(self, room={name: min(seen.room.get(name, most), most) for name, most in self.room.items()})


def says_when(reason: str) -> bool:
    """True if a reason says when a gang is tried again."""
    return _TRIED in reason


def without_tries(reason: str) -> str:
    """Return a reason without what each try changes: what stays the same need not be written anew."""
    return reason.partition(_TRIED)[0]


def shortened_reason(text: str) -> str:
    """Return a reason as it is remembered."""
    return text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}…"
