"""How campaigns draw the amount of a fault."""

from __future__ import annotations

from random import Random
from typing import NamedTuple, Protocol


class DrawnAmount(Protocol):
    """A draw. `likely` is a probability that is drawn for every kind of fault."""

    def draw(self, chance: Random, likely: float) -> float: ...


class Likely(NamedTuple):
    """The probability."""

    def draw(self, chance: Random, likely: float) -> float:  # noqa: ARG002 - others draw
        return likely


class Always(NamedTuple):
    """The same amount."""

    amount: float = 1.0

    def draw(self, chance: Random, likely: float) -> float:  # noqa: ARG002 - as above
        return self.amount


class Between(NamedTuple):
    """Any amount, rounded to so many digits; None: to whole ones."""

    low: float
    high: float
    digits: int | None = None

    def draw(self, chance: Random, likely: float) -> float:  # noqa: ARG002 - no probability
        return round(chance.uniform(self.low, self.high), self.digits)


class Whole(NamedTuple):
    """An integer below `end`."""

    first: int
    end: int

    def draw(self, chance: Random, likely: float) -> float:  # noqa: ARG002 - no probability
        return chance.randrange(self.first, self.end)


class OneOf(NamedTuple):
    """One of these amounts."""

    amounts: tuple[float, ...]

    def draw(self, chance: Random, likely: float) -> float:  # noqa: ARG002 - no probability
        return chance.choice(self.amounts)
