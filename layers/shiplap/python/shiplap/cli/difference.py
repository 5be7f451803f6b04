"""What two plans of one cluster differ in, as data: `shiplap plan --diff` prints and draws it."""

from __future__ import annotations

import msgspec

from shiplap.cli.totals import Totals
from shiplap.instances.node_prices import Price


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is printed; dollars in USD per hour."""


class Launches(_Part, frozen=True):
    """What one side launches of a pool or of an instance type; `estimated` when any price of it is guessed."""

    nodes: int
    hourly: float
    estimated: bool = False

    @property
    def price(self) -> Price:
        """As money is shown."""
        return Price(self.hourly, self.estimated)


class Side(_Part, frozen=True):
    """One set of manifests: what its plan comes to; `estimated` when any price of what it launches is guessed."""

    manifests: str
    nodes: int
    hourly: float
    estimated: bool
    pods_on_new: int
    pods_on_existing: int
    unschedulable: int
    ignored: int
    pools: dict[str, Launches]
    instance_types: dict[str, Launches]
    totals: Totals

    @property
    def price(self) -> Price:
        """Of what it launches, as money is shown."""
        return Price(self.hourly, self.estimated)


class LeftOut(_Part, frozen=True):
    """A pod that only one side has a place for, and what the other says."""

    pod: str
    message: str


class Difference(_Part, frozen=True):
    """`moved` counts pods that both sides launch nodes for, in different pools."""

    old: Side
    new: Side
    newly_left_out: tuple[LeftOut, ...]
    newly_placed: tuple[LeftOut, ...]
    moved: int
