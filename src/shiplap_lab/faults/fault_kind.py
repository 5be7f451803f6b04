"""The form of a kind of fault: how it is drawn from a seed, and the points of a run at which it may do something."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import ClassVar, TypeVar

from shiplap.disruption.progress import DisruptionCommand
from shiplap.errors import ShiplapError
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.ports import Instance
from shiplap_lab.faults.active_faults import ActiveFaults
from shiplap_lab.faults.drawn_amounts import DrawnAmount, Likely
from shiplap_lab.faults.fault import Fault
from shiplap_lab.faults.fault_world import FaultWorld, FaultyEc2

Stored = TypeVar("Stored", NodeClaim, DisruptionCommand)
"""A record of table `state`."""

Resources = tuple[dict[str, int], dict[str, int]]
"""Capacity and allocatable of a machine, canonical units."""


class FaultKind:
    """A kind of fault in one run. A kind overrides the points at which it does something.

    Points below "The run" and "Machines" come for every kind, all others for kinds of which a fault is active.

    Attributes:
        name: what scenarios call it.
        amount: how a campaign draws the amount.
        targets: what a campaign draws the target from; without any it is `*`, and nothing is drawn.
        is_momentary: a campaign draws it without minutes.
        lasts: it is active from its beginning to its end; otherwise `begin` does all.
        is_of_manifests: it needs manifests that are objects of the clusters.
        place: among the kinds at one point, in ascending order; equal ones keep the order of the registry.
        afterwards_s: how long its work has effects once it is over, in seconds.
    """

    name: ClassVar[str]
    amount: ClassVar[DrawnAmount] = Likely()
    targets: ClassVar[tuple[str, ...]] = ()
    is_momentary: ClassVar[bool] = False
    lasts: ClassVar[bool] = True
    is_of_manifests: ClassVar[bool] = False
    place: ClassVar[int] = 0
    afterwards_s: ClassVar[float] = 0.0

    world: FaultWorld

    def __init__(self, faults: ActiveFaults) -> None:
        self.faults = faults

    @classmethod
    def drawn(cls, chance: Random, begin: float, last: float) -> Fault:
        """Draw a fault that begins within `begin` minutes and is over after half of `last` minutes at most."""
        at, minutes = round(chance.uniform(0, begin), 2), round(chance.uniform(0.5, last / 2), 2)
        likely = round(chance.uniform(0.1, 0.9), 2)
        target = chance.choice(cls.targets) if cls.targets else "*"
        amount = cls.amount.draw(chance, likely)
        return Fault(cls.name, at, 0.0 if cls.is_momentary else minutes, target, amount)

    @property
    def is_active(self) -> bool:
        """True while a fault of this kind is active."""
        return bool(self.faults.active_of(self.name))

    def took_effect(self) -> None:
        """Count one effect."""
        self.faults.effects[self.name] += 1

    # The run

    def connect(self, world: FaultWorld) -> None:
        """The run is set up."""
        self.world = world

    def begin(self, number: int, fault: Fault) -> None:
        """A fault of this kind begins; it is active already, if it lasts."""

    def end(self, number: int, fault: Fault) -> None:
        """A fault of this kind is over; it is not active any more."""

    def adjust(self) -> None:
        """Faults of any kind have begun or ended: make EC2 as the active faults of this kind want it."""

    def dies_at(self, function: str) -> int | None:
        """Return the number of the effect at which the invocation that begins now dies; None if it lives on."""
        return None

    def launched(self, instance: Instance) -> None:
        """An instance was launched."""

    def ended(self, instance: Instance) -> None:
        """An instance has ended."""

    # Machines

    def yields(self, machine: Instance, found: Resources) -> Resources | None:
        """Return what a machine has instead of `found`; None if that is right. The first kind counts."""
        return None

    def taints(self, machine: Instance) -> Sequence[dict[str, str]]:
        """Return taints that a Node has from the first moment on."""
        return ()

    # Effects of functions: a name such as `state.commit`

    def slows_s(self, effect: str) -> float:
        """Return how many seconds longer an effect takes."""
        return 0.0

    def refuses(self, effect: str, invocation: str) -> ShiplapError | None:
        """Return the error that an effect fails with before it happens."""
        return None

    def loses_answer(self, effect: str, invocation: str) -> ShiplapError | None:
        """Return the error that an effect seems to have failed with after it has happened."""
        return None

    # Functions and their messages

    def clock_s(self, container: int) -> float:
        """Return how far the clock of a container is ahead, in seconds."""
        return 0.0

    def starts_late_s(self, function: str) -> float:
        """Return how long a new container takes to start; 0 if the invocation may be in a warm one."""
        return 0.0

    def invoked_again_s(self, function: str) -> float:
        """Return the seconds after which a schedule invokes a function again; 0 if it does not."""
        return 0.0

    def drops(self, queue: str, turns: int) -> bool:
        """True if a message that continues a chain of so many `turns` never arrives."""
        return False

    def sends(self, body: str) -> str:
        """Return the message that is really sent."""
        return body

    def delays_s(self, queue: str) -> float:
        """Return how many seconds later a message arrives."""
        return 0.0

    def doubles(self, queue: str) -> bool:
        """True if a message comes twice."""
        return False

    # EC2

    def forgets_launch(self, compute: FaultyEc2) -> bool:
        """True if the answer of a launch is lost."""
        return False

    def launch_failed(self, code: str) -> None:
        """EC2 has refused an offering with this code."""

    def pending_s(self) -> float:
        """Return how long the instances of a launch stay pending, in seconds."""
        return 0.0

    def ending_s(self) -> float:
        """Return how long instances stay in shutting-down that end now, in seconds."""
        return 0.0

    def described(self, *, is_late: bool) -> None:
        """EC2 has described instances; `is_late`: others than are there."""

    def named_again(self) -> None:
        """An instance was given the host name of one that has ended."""

    def price_factors(self) -> Sequence[tuple[str, float]]:
        """Return offerings, as globs of type/zone, and how many times as much spot costs."""
        return ()

    # Nodes and objects

    def joins(self, machine: Instance) -> float | None:
        """Return how many seconds later the node of an instance registers that boots now; None if it never does."""
        return 0.0

    def keeps_unready(self, machine: Instance) -> bool:
        """True if the node of an instance that boots now never becomes Ready."""
        return False

    def evictions_refused(self) -> None:
        """A PodDisruptionBudget has refused an eviction."""

    def denies_manifests(self, cluster: str) -> bool:
        """True if the API server refuses to list manifests."""
        return False

    def closes_watch(self, watched: str) -> bool:
        """True if the API server ends a watch of `watched` (nodes, pods, bound) after a change."""
        return False

    def breaks_watches(self) -> bool:
        """True if no watch can be opened or go on."""
        return False

    # Stores

    def stores(self, record: Stored) -> Stored:
        """Return the record that is really stored."""
        return record

    def index_lag_s(self) -> float:
        """Return how late the index of claims by instance is, in seconds."""
        return 0.0

    def index_was_late(self) -> None:
        """A claim was not found by its instance."""

    def loses_snapshot(self) -> bool:
        """True if a document is not in the bucket."""
        return False

    def reads_snapshot(self, document: bytes) -> bytes:
        """Return what is read of a document in the bucket."""
        return document
