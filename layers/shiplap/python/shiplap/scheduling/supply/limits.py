"""The limits of NodePools, kept exactly.

A claim is charged with the largest instance type left in its list, per resource, because any of them may be launched;
so the sum of charges never exceeds a limit, whatever EC2 picks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.shiplap_annotations import PriceRules
from shiplap.scheduling.model.resources import PLENTY, Axis, Bools, Ints

NODES = "nodes"


HOURLY = "USD per hour"
"""The limit in dollars stands on the axis like a resource, in millionths of a dollar; no resource has this name."""

SPOT_VCPUS = "vCPUs of spot"
"""What a bounded share of vCPUs leaves to spot stands on the axis as well, in thousandths of a vCPU. Claims that may be
spot are charged with it; every claim that is certain not to be makes room for more of it."""


def price_limits(rules: PriceRules) -> Iterator[str]:
    """Yield the names on the axis of the limits that a pool's rules about money set."""
    if rules.max_hourly_micros is not None:
        yield HOURLY
    if rules.min_on_demand_vcpus:
        yield SPOT_VCPUS


class PoolLimits:
    """Holds what a NodePool may still launch: `left` [resources] and `nodes_left`; `PLENTY` where there is no limit.

    `spot_bound` is the least share of nodes, in hundredths of a per cent, that must not be spot; None without a rule.
    `nodes` counts the pool's nodes and claims, `steady` those among them that are certain not to be spot;
    `steady_vcpus` is the least these have, in thousandths, and `vcpu_bound` the share they must be of all.
    """

    def __init__(
        self,
        limits: Mapping[str, str | int | float],
        axis: Axis,
        *,
        hourly_micros: int | None = None,
        spot_bound: int | None = None,
        vcpu_bound: int | None = None,
    ) -> None:
        """Raises ValueError for a malformed quantity."""
        amounts = {name: parse_amount(name, text) for name, text in limits.items()}
        if hourly_micros is not None:
            amounts[HOURLY] = hourly_micros
        if vcpu_bound:
            amounts[SPOT_VCPUS] = 0
        self.spot_bound = spot_bound
        self.vcpu_bound = vcpu_bound or 0
        self.steady_vcpus = 0
        self.nodes = 0
        self.steady = 0
        self.axis = axis
        self.amounts = amounts
        self.left: Ints = axis.vector(amounts, PLENTY)
        self.nodes_left: int = amounts.get(NODES, PLENTY)
        self.columns: Ints = np.flatnonzero(self.left < PLENTY)

    def copy(self) -> PoolLimits:
        """An independent budget in the same state."""
        copied = PoolLimits.__new__(PoolLimits)
        copied.__dict__.update(self.__dict__)
        copied.left = self.left.copy()
        return copied

    def lifted(self) -> PoolLimits:
        """The same limits with room for any number of nodes; what is used up stays so."""
        free = self.copy()
        free.left[free.left > 0] = PLENTY
        free.nodes_left = PLENTY if free.nodes_left > 0 else 0
        return free

    def forbidden(self, capacity: Ints) -> Bools:
        """True for each of these capacities [n, resources] that a limit of 0 excludes, whatever is launched."""
        if self.amounts.get(NODES) == 0:
            return np.ones(len(capacity), np.bool_)
        none = [
            column
            for column in self.columns.tolist()
            if (name := self.axis.names[column]) != SPOT_VCPUS and self.amounts[name] == 0
        ]
        forbidden: Bools = (capacity[:, none] > 0).any(axis=1)
        return forbidden

    @property
    def is_bounded(self) -> bool:
        """True if there is any limit."""
        return bool(len(self.columns)) or NODES in self.amounts

    def charge(self, capacity: Ints, nodes: int = 1) -> None:
        """Take the capacity [resources] of each of `nodes` nodes."""
        self.left[self.columns] -= capacity[self.columns] * nodes
        self.nodes_left -= nodes

    def count(self, nodes: int, *, steady: bool, vcpus: int) -> None:
        """Reckon with more nodes, or fewer if negative, that are certain not to be spot, or else may be.

        `vcpus` is the least each of them has, in thousandths.
        """
        self.nodes += nodes
        self.steady += nodes if steady else 0
        if steady and self.vcpu_bound:
            before = self._room_for_spot()
            self.steady_vcpus += nodes * vcpus
            self.left[self.axis.names.index(SPOT_VCPUS)] += self._room_for_spot() - before

    def _room_for_spot(self) -> int:
        """Thousandths of vCPUs that may be spot beside those that are not."""
        return self.steady_vcpus * 10_000 // self.vcpu_bound - self.steady_vcpus

    @property
    def shares(self) -> bool:
        """True if some share of the pool must not be spot."""
        return self.spot_bound is not None or bool(self.vcpu_bound)

    def spot_openable(self) -> int:
        """Return how many more nodes may be spot before the share that is not spot is too small."""
        if not self.spot_bound:
            return PLENTY
        return max(self.steady * 10_000 // self.spot_bound - self.nodes, 0)

    def allowed(self, capacity: Ints) -> Bools:
        """True for each of these capacities [n, resources] that one more node may have."""
        return (capacity[:, self.columns] <= np.maximum(self.left[self.columns], 0)).all(axis=1)

    def exceeded_by(self, charge: Ints) -> Ints:
        """The limited resources, as columns, of which a charge [resources] takes more than is left."""
        exceeded: Ints = self.columns[charge[self.columns] > np.maximum(self.left[self.columns], 0)]
        return exceeded

    def openable(self, charge: Ints) -> int:
        """Return how many nodes of this capacity [resources] may be launched."""
        columns = self.columns[charge[self.columns] > 0]
        fits = min((self.left[columns] // charge[columns]).tolist(), default=PLENTY)
        return max(min(fits, self.nodes_left), 0)

    def resources(self) -> Iterable[str]:
        """The limited resources other than `nodes`."""
        return [self.axis.names[column] for column in self.columns.tolist()]
