"""The catalogue as the planner sees it: instance types, their offerings and where each number comes from."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import HUGE_PAGES, MEMORY
from shiplap.kubernetes.requirements import Requirement

RESERVED_PRICE_FACTOR = 1e-7
"""Reserved capacity is paid for whether it is used or not: this part of the on-demand price only keeps the order."""


class Offering(msgspec.Struct, frozen=True, omit_defaults=True):
    """One way to buy an instance type: zone × capacity type (× reservation); price in USD per hour.

    `reservation_capacity` is how many instances the reservation can still take, whatever the other offerings of the
    type say; `reservation_type` is `default` or `capacity-block`. `overlaid`: a NodeOverlay states the price,
    which EC2 does not know. `reservation_state` is EC2's word for a reservation that is not active yet, and `starts_at`
    when it will be, epoch seconds; 0 if that is not known.
    """

    zone: str
    capacity_type: str
    price: float
    available: bool = True
    zone_id: str = ""
    reservation_id: str = ""
    reservation_capacity: int = 0
    price_estimated: bool = False
    reservation_type: str = ""
    reservation_interruptible: bool = False
    overlaid: bool = False
    reservation_state: str = ""
    starts_at: float = 0.0

    @property
    def reservation_labels(self) -> dict[str, str]:
        """The labels of a node that was launched into the reservation; none without one."""
        if not self.reservation_id:
            return {}
        return {
            labels.RESERVATION_ID: self.reservation_id,
            labels.RESERVATION_TYPE: self.reservation_type or "default",
            labels.RESERVATION_INTERRUPTIBLE: "true" if self.reservation_interruptible else "false",
        }


def pilot_key(ami: str, instance_type: str, kubelet_hash: str) -> str:
    """Names an (AMI, instance type, kubelet settings), as `Snapshot.piloted` does."""
    return f"{ami}/{instance_type}#{kubelet_hash}"


class InstanceType(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instance type under one EC2NodeClass. Resources are canonical integers (see `kubernetes.quantity`).

    `capacity` is the best estimate and `overhead` what kubelet keeps back. While `verified` is false no node of this
    (AMI, type, kubelet settings) has been seen, and only one node at a time may rely on more than `careful`, a lower
    bound of `capacity` that is not expected to be undercut. `sources` names, per resource, where the number came from:
    `override`, `learned`, `imported`, `sibling`, `formula` or `catalog`. `overhead_fraction` is the part of an overhead
    that grows with the capacity (eviction thresholds in per cent). `kubelet_values` holds the values of expressions in
    the kubelet settings: (map, name, quantity). `voices` is how many nodes of the cluster and how many other clusters
    had reported when an unverified estimate was made: more may know better.
    """

    name: str
    requirements: tuple[Requirement, ...]
    capacity: dict[str, int]
    overhead: dict[str, int]
    offerings: tuple[Offering, ...]
    careful: dict[str, int] = {}
    verified: bool = True
    sources: dict[str, str] = {}
    ami: str = ""
    kubelet_hash: str = ""
    overhead_fraction: dict[str, float] = {}
    kubelet_values: tuple[tuple[str, str, str], ...] = ()
    voices: int = 0

    @property
    def allocatable(self) -> dict[str, int]:
        """The amounts that kubelet leaves to pods, per resource, canonical units; may be negative on tiny types."""
        return left_to_pods(self.capacity, self.overhead)

    @property
    def careful_allocatable(self) -> dict[str, int]:
        """Allocatable by the bound that is not expected to be undercut, canonical units."""
        bound = {name: min(amount, self.careful.get(name, amount)) for name, amount in self.capacity.items()}
        return left_to_pods(bound, self.overhead)


def left_to_pods(capacity: Mapping[str, int], overhead: Mapping[str, int]) -> dict[str, int]:
    """`capacity − overhead` per resource, canonical units; huge pages are taken out of memory, as kubelet does."""
    left = {name: amount - overhead.get(name, 0) for name, amount in capacity.items()}
    pages = huge_pages(capacity)
    if pages and MEMORY in left:
        left[MEMORY] = max(left[MEMORY] - pages, 0)
    return left


def huge_pages(capacity: Mapping[str, int]) -> int:
    """The memory that a node sets aside as huge pages of any size, bytes."""
    return sum(amount for name, amount in capacity.items() if name.startswith(HUGE_PAGES))


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report of one kubelet for (AMI, instance type, kubelet settings), canonical units.

    `capacity` and `allocatable` are the node's own; `predicted` is the allocatable the plan relied on.
    """

    ami: str
    instance_type: str
    kubelet_hash: str
    capacity: dict[str, int]
    allocatable: dict[str, int]
    observed_at: float
    cluster: str
    node: str
    predicted: dict[str, int] = {}


class Minimum(msgspec.Struct, frozen=True):
    """An amount of a resource in canonical units, and the last day it was seen on, in days since 1970, UTC."""

    amount: int
    day: int


class ReportedAmounts(msgspec.Struct, frozen=True, omit_defaults=True):
    """The same amounts, canonical units, as nodes of one cluster have reported them.

    Zeroes are left out. `seen_at` is when a node reported so last, epoch seconds. `nodes` names the nodes that did, up
    to eight of them, sorted; it is empty in what an older release has summed up, which names no cluster either.
    """

    cluster: str
    capacity: dict[str, int]
    allocatable: dict[str, int]
    seen_at: float
    nodes: tuple[str, ...] = ()


class ImportedCapacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The smallest amounts that nodes of another install reported, canonical units, and how many nodes; 0 if unknown.

    They may be wrong, for another image or on purpose. They lower an estimate, and count for nothing once a node of
    this install has reported.
    """

    capacity: dict[str, int]
    allocatable: dict[str, int]
    nodes: int = 0


class LearnedCapacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything learned about one (AMI, instance type, kubelet settings).

    Decisions rely on `reported`. Which of it counts for which cluster is decided by `capacity/trusted_amounts.py`.

    recent: the newest observations of all clusters, oldest first, to show to people.
    count: nodes that have reported.
    version: counts the writes of the entry.
    minimum_capacity, minimum_allocatable: what an older release has kept in the place of `reported`: the smallest
        amounts and their days. They are read, and written as `reported`.
    imported: what other installs have learned. It is no observation.
    reported: all that nodes have reported in the last 60 days, by cluster.
    """

    ami: str
    instance_type: str
    kubelet_hash: str
    recent: tuple[Observation, ...] = ()
    count: int = 0
    version: int = 0
    minimum_capacity: dict[str, tuple[Minimum, ...]] = {}
    minimum_allocatable: dict[str, tuple[Minimum, ...]] = {}
    imported: ImportedCapacity | None = None
    reported: tuple[ReportedAmounts, ...] = ()
