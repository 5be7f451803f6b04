"""The instance types of one catalogue as arrays: what each yields, costs and is labelled.

Requirements are evaluated once per distinct requirement against all types at a time, offerings once per distinct set of
requirements; both are remembered for the decision.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.instances.catalog.type_catalog import InstanceType, Offering, pilot_key
from shiplap.instances.offerings.instance_rates import unknown_rate_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.quantity import ACCELERATORS
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.shiplap_annotations import MICROS
from shiplap.scheduling.model.pod_volumes import ATTACHED
from shiplap.scheduling.model.resources import Axis, Bools, Floats, Ints
from shiplap.scheduling.model.snapshot import Pricing
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS

_RESERVATION_KEYS = (labels.RESERVATION_ID, labels.RESERVATION_TYPE, labels.RESERVATION_INTERRUPTIBLE)
_CELL_KEYS = (labels.ZONE, labels.ZONE_ID, labels.CAPACITY_TYPE, *_RESERVATION_KEYS)
_OFFERING_KEYS = frozenset(_CELL_KEYS)

_ALWAYS_PRESENT = frozenset({labels.ARCH, labels.OS, labels.REGION, labels.NODE_POOL, labels.HOSTNAME})
"""Labels every node has; a type that does not mention one may have any value of it."""


ANY_NUMBER = 1_000_000
"""Of volumes: more than any node will take, and small enough to be summed over all types."""


class Offered(msgspec.Struct, frozen=True, eq=False):
    """The part of a catalogue that a set of requirements leaves.

    `suits` [types] meets the requirements by its labels; `price` [types] is the cheapest available offering in USD per
    hour, infinite where there is none.
    """

    suits: Bools
    price: Floats


class TypeTable:
    """One catalogue compiled.

    A type has one row, or two while it is unverified: the careful row everybody may count on, and an estimate row that
    one claim may. Arrays over rows: `row_type`, `row_estimate`, `allocatable` [rows, resources]; over types: `capacity`
    [types, resources], which limits are charged with. `capacity_types` and `reservations` name the columns of `prices`
    and `sold` [types, zones, columns]; `units` is what each reservation has left, `upcoming` has those that have not
    started, by type and column. `listed` [types, zones, columns] are
    the prices that are paid, `prices` those that offerings are compared by, which policies may lower.
    """

    def __init__(
        self, instance_types: Sequence[InstanceType], axis: Axis, *, explore: bool, piloted: Collection[str]
    ) -> None:
        self.types = tuple(sorted(instance_types, key=lambda item: item.name))
        self.names = tuple(instance_type.name for instance_type in self.types)
        self.index = {name: place for place, name in enumerate(self.names)}
        self.axis = axis
        self.capacity = axis.matrix([instance_type.capacity for instance_type in self.types])
        self.exotic: Bools = np.array([is_exotic(instance_type) for instance_type in self.types], np.bool_)
        self._compile_rows(explore=explore, piloted=piloted)
        self._compile_offerings()
        self._labels: list[dict[str, Requirement]] = [
            {entry.key: entry for entry in instance_type.requirements} for instance_type in self.types
        ]
        self.label_keys: frozenset[str] = frozenset().union(*map(frozenset, self._labels))
        # The labels of which values are known.
        self.told = self.label_keys | _OFFERING_KEYS | {labels.INSTANCE_TYPE}
        # Of every decision about this catalogue: they grow with its labels and rows only.
        self._values: dict[str, frozenset[str]] = {}
        self._known: dict[str, tuple[list[Requirement | None], Ints]] = {}
        self._amounts: dict[int, dict[str, int]] = {}
        self._forget()

    def _forget(self) -> None:
        self._masks: dict[Requirement, Bools] = {}
        self._offered: dict[tuple[Requirements, frozenset[str]], Offered] = {}
        self._cells: dict[tuple[Requirement | None, ...], Bools] = {}

    def _compile_rows(self, *, explore: bool, piloted: Collection[str]) -> None:
        owners: list[int] = []
        estimates: list[bool] = []
        lists: list[Mapping[str, int]] = []
        self.row_key: list[str] = []
        for place, instance_type in enumerate(self.types):
            estimate = instance_type.allocatable
            owners.append(place)
            estimates.append(False)
            self.row_key.append("")
            if instance_type.verified:
                lists.append(estimate)
                continue
            careful = instance_type.careful_allocatable
            lists.append(careful)
            key = pilot_key(instance_type.ami, instance_type.name, instance_type.kubelet_hash)
            if explore and key not in piloted and any(estimate[r] > careful[r] for r in estimate):
                owners.append(place)
                estimates.append(True)
                lists.append(estimate)
                self.row_key.append(key)
        self.row_type: Ints = np.array(owners, np.int64)
        self.row_estimate: Bools = np.array(estimates, np.bool_)
        self.allocatable = self.axis.matrix(lists)
        self.explores = bool(self.row_estimate.any())
        self.careful_rows: Bools = ~self.row_estimate

    def _compile_offerings(self) -> None:
        self.zones = tuple(sorted({o.zone for kind in self.types for o in kind.offerings}))
        # Spot before on-demand: at equal prices the first is the choice, and spot is what a launch asks for.
        # Every reservation is a column of its own, so that a requirement can choose it like a capacity type.
        columns = sorted({(o.capacity_type, o.reservation_id) for kind in self.types for o in kind.offerings})
        columns.sort(key=lambda column: column[0], reverse=True)
        self.capacity_types = tuple(kind for kind, _ in columns)
        self.reservations = tuple(reservation for _, reservation in columns)
        self.marks: list[dict[str, str]] = [{} for _ in columns]
        self.units: dict[str, int] = {}
        self.upcoming: dict[tuple[int, int], Offering] = {}
        zone_of = {zone: place for place, zone in enumerate(self.zones)}
        kind_of = {column: place for place, column in enumerate(columns)}
        shape = (len(self.types), len(self.zones), len(self.capacity_types))
        self.prices: Floats = np.full(shape, np.inf)
        self.sold: Bools = np.zeros(shape, np.bool_)
        self.zone_ids: dict[str, str] = {}
        width, depth = shape[1], shape[2]
        prices, sold = self.prices.reshape(-1), self.sold.reshape(-1)
        for place, instance_type in enumerate(self.types):
            for offering in instance_type.offerings:
                column = kind_of[offering.capacity_type, offering.reservation_id]
                cell = (place * width + zone_of[offering.zone]) * depth + column
                sold[cell] = True
                if self.reservations[column]:
                    self._count(offering, column)
                if offering.reservation_state:
                    self.upcoming[place, column] = offering
                if offering.available and offering.price < prices[cell]:
                    prices[cell] = offering.price
                if offering.zone_id:
                    self.zone_ids[offering.zone] = offering.zone_id
        self.listed = self.prices

    def price_on_demand(self, pricing: Pricing) -> None:
        """Compare on-demand offerings by these prices, where they are below the listed ones."""
        columns = [column for column, kind in enumerate(self.capacity_types) if kind == labels.ON_DEMAND]
        self.prices = self.listed.copy()
        for place, zone, number in np.argwhere(np.isfinite(self.listed[:, :, columns])).tolist():
            listed = float(self.listed[place, zone, columns[number]])
            compared = pricing(self.types[place], self.zones[zone], listed)
            self.prices[place, zone, columns[number]] = min(compared, listed)

    def for_another_decision(self) -> TypeTable:
        """The same catalogue; what a decision charges and what it asks remain with that decision."""
        made = TypeTable.__new__(TypeTable)
        made.__dict__.update(self.__dict__)
        made.allocatable, made.capacity = self.allocatable.copy(), self.capacity.copy()
        made._forget()
        return made

    def allocatable_amounts(self, row: int) -> dict[str, int]:
        """Return what a node of a row leaves to pods and daemons.

        This is the careful bound, unless the type is verified or the row is an estimate row.
        """
        known = self._amounts.get(row)
        if known is None:
            item = self.types[self.row_type[row]]
            careful = not (self.row_estimate[row] or item.verified)
            known = self._amounts[row] = item.careful_allocatable if careful else item.allocatable
        return known

    def bound_attachments(self, limits: Mapping[str, Mapping[str, int]]) -> None:
        """Let each type take as many volumes as its nodes were seen to take, by type and driver; others any number."""
        for column, name in enumerate(self.axis.names):
            if name.startswith(ATTACHED):
                driver = name.removeprefix(ATTACHED)
                known = [limits.get(instance_type.name, {}).get(driver, ANY_NUMBER) for instance_type in self.types]
                self.allocatable[:, column] = np.array(known, np.int64)[self.row_type]

    def charge_prices(self, wanted: Requirements) -> None:
        """Let the limit in dollars be charged with a type's dearest available offering that requirements allow.

        An offering without a price counts as ceilings in dollars count it.
        """
        column = self.axis.names.index(HOURLY)
        sold = self.cells(wanted) & np.isfinite(self.listed)
        prices = np.where(sold, self.listed, 0.0).max(axis=(1, 2), initial=0.0)
        self.capacity[:, column] = np.ceil(np.round(prices * MICROS, 3)).astype(np.int64)
        for place in np.flatnonzero((sold & (self.listed <= 0)).any(axis=(1, 2))).tolist():
            estimate = unknown_rate_of(self.types[place]).micros
            self.capacity[place, column] = max(self.capacity[place, column], estimate)

    def charge_spot(self) -> None:
        """Let what may be spot of a pool's vCPUs be charged with those of a type."""
        self.capacity[:, self.axis.names.index(SPOT_VCPUS)] = self.capacity[:, 0]

    def steady(self) -> TypeTable:
        """The same catalogue for claims that are certain not to be spot, which leave the vCPUs of spot alone."""
        if SPOT_VCPUS not in self.axis.names:
            return self
        copied = TypeTable.__new__(TypeTable)
        copied.__dict__.update(self.__dict__)
        copied.capacity = self.capacity.copy()
        copied.capacity[:, self.axis.names.index(SPOT_VCPUS)] = 0
        return copied

    def in_variants(self, number: int) -> TypeTable:
        """The same catalogue with each row so many times: the variants of a row follow one another."""
        copied = TypeTable.__new__(TypeTable)
        copied.__dict__.update(self.__dict__)
        copied.allocatable = self.allocatable.repeat(number, axis=0)
        copied.row_type, copied.row_estimate = self.row_type.repeat(number), self.row_estimate.repeat(number)
        copied.row_key = [key for key in self.row_key for _ in range(number)]
        copied.careful_rows = ~copied.row_estimate
        copied._amounts = {}
        return copied

    def _count(self, offering: Offering, column: int) -> None:
        """Note a reservation: what several offerings say it has left is the least of them, as they share it."""
        self.marks[column] = offering.reservation_labels
        if offering.available:
            left = offering.reservation_capacity
            self.units[offering.reservation_id] = min(left, self.units.get(offering.reservation_id, left))

    def values_of(self, key: str) -> frozenset[str]:
        """All values that a label takes in this catalogue."""
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = self._collect_values(key)
        return known

    def _collect_values(self, key: str) -> frozenset[str]:
        if key == labels.ZONE:
            return frozenset(self.zones)
        if key == labels.ZONE_ID:
            return frozenset(self.zone_ids.values())
        if key == labels.CAPACITY_TYPE:
            return frozenset(self.capacity_types)
        if key == labels.INSTANCE_TYPE:
            return frozenset(self.names)
        if key in _RESERVATION_KEYS:
            return frozenset(marks[key] for marks in self.marks if key in marks)
        return frozenset(
            value for known in self._labels if key in known and not known[key].complement for value in known[key].values
        )

    def label(self, place: int, key: str) -> Requirement | None:
        """Return the values that a type has for a label; None when it has none."""
        if key == labels.INSTANCE_TYPE:
            return Requirement.one_of(key, self.names[place])
        requirement = self._labels[place].get(key)
        if requirement is None and key == labels.ZONE:
            sold = self.sold[place].any(axis=1)
            return Requirement(key, False, frozenset(zone for zone, has in zip(self.zones, sold, strict=True) if has))
        if requirement is None and key == labels.CAPACITY_TYPE:
            sold = self.sold[place].any(axis=0)
            kinds = zip(self.capacity_types, sold, strict=True)
            return Requirement(key, False, frozenset(kind for kind, has in kinds if has))
        return requirement

    @staticmethod
    def tells_types(key: str) -> bool:
        """True if a requirement on the label selects types; on the other labels it selects offerings."""
        return key not in _OFFERING_KEYS

    @staticmethod
    def tells_columns(key: str) -> bool:
        """True if a requirement of one value for a label leaves one zone or one kind of capacity."""
        return key in (labels.ZONE, labels.CAPACITY_TYPE)

    def bought(self, wanted: Requirements, types: Ints, key: str) -> frozenset[str]:
        """The zones, or kinds of capacity, in which one of `types` [n] can be bought as wanted."""
        there = np.isfinite(self.prices[types]) & self.cells(wanted)
        if key == labels.ZONE:
            names, found = self.zones, there.any(axis=(0, 2))
        else:
            names, found = self.capacity_types, there.any(axis=(0, 1))
        return frozenset(name for name, is_there in zip(names, found.tolist(), strict=True) if is_there)

    def with_label(self, wanted: Requirement, given: frozenset[str] = frozenset()) -> Bools:
        """True for each type [types] that may have a label as wanted.

        `given` are labels that the NodePool sets on the node.
        """
        if wanted.key == labels.INSTANCE_TYPE:
            return self.requirement_mask(wanted)
        if wanted.key not in self.label_keys:
            return np.ones(len(self.types), np.bool_)
        if wanted.key not in given:
            return self.requirement_mask(wanted)
        distinct, place = self._distinct(wanted.key)
        return np.array([known is None or known.intersects(wanted) for known in distinct], np.bool_)[place]

    def requirement_mask(self, wanted: Requirement) -> Bools:
        """True for each type [types] that a requirement on one of its labels leaves."""
        mask = self._masks.get(wanted)
        if mask is None:
            mask = self._masks[wanted] = self._evaluate(wanted)
        return mask

    def _evaluate(self, wanted: Requirement) -> Bools:
        if wanted.key == labels.INSTANCE_TYPE:
            return np.array([wanted.has(name) for name in self.names], np.bool_)
        distinct, place = self._distinct(wanted.key)
        undefined = wanted.key in _ALWAYS_PRESENT or wanted.allows_undefined
        verdicts = [
            undefined
            if known is None
            else known.intersects(wanted) or (known.allows_undefined and wanted.allows_undefined)
            for known in distinct
        ]
        return np.array(verdicts, np.bool_)[place]

    def _distinct(self, key: str) -> tuple[list[Requirement | None], Ints]:
        """The different things types say about a label, and which of them each type says."""
        known = self._known.get(key)
        if known is None:
            numbers: dict[Requirement | None, int] = {}
            place = [numbers.setdefault(entry.get(key), len(numbers)) for entry in self._labels]
            known = self._known[key] = (list(numbers), np.array(place, np.int64))
        return known

    def offered(self, wanted: Requirements, given: frozenset[str] = frozenset()) -> Offered:
        """Return the part of the catalogue that `wanted` leaves.

        Args:
            wanted: accumulated requirements of a claim.
            given: labels the NodePool sets on the node itself, which no type needs to promise.
        """
        key = (wanted, given)
        known = self._offered.get(key)
        if known is None:
            # Requirements that differ only in labels of which no type says anything leave the same.
            told = Requirements(entry for name, entry in wanted.items() if name in self.told)
            known = self._offered.get((told, given))
            if known is None:
                known = self._offered[told, given] = self._filter(told, given)
            self._offered[key] = known
        return known

    def _filter(self, wanted: Requirements, given: frozenset[str]) -> Offered:
        suits = np.ones(len(self.types), np.bool_)
        for name, entry in wanted.items():
            if self.tells_types(name) and (name in self.label_keys or name == labels.INSTANCE_TYPE):
                suits &= self.with_label(entry, given)
        cells = self.cells(wanted)
        price = np.where(cells, self.prices, np.inf).min(axis=(1, 2), initial=np.inf)
        return Offered(suits, price)

    def is_sold(self, wanted: Requirements) -> Bools:
        """Return the types [types] with an offering that requirements allow, available now or not.

        A claim in flight has an offering that may be gone by now.
        """
        sold: Bools = (self.sold & self.cells(wanted)).any(axis=(1, 2))
        return sold

    def cells(self, wanted: Requirements) -> Bools:
        """True for each zone and capacity type [1, zones, capacity types] that the requirements allow."""
        entries = tuple(wanted.get(key) for key in _CELL_KEYS)
        known = self._cells.get(entries)
        if known is None:
            known = self._cells[entries] = self._allowed_cells(wanted)
        return known

    def _allowed_cells(self, wanted: Requirements) -> Bools:
        zone_ok = np.array(
            [
                _allows(wanted, labels.ZONE, zone) and _allows(wanted, labels.ZONE_ID, self.zone_ids.get(zone))
                for zone in self.zones
            ],
            np.bool_,
        )
        named = [key for key in _RESERVATION_KEYS if key in wanted]
        kind_ok = np.array(
            [
                _allows(wanted, labels.CAPACITY_TYPE, kind)
                and all(_allows(wanted, key, marks.get(key)) for key in named)
                for kind, marks in zip(self.capacity_types, self.marks, strict=True)
            ],
            np.bool_,
        )
        return zone_ok[None, :, None] & kind_ok[None, None, :]


def is_exotic(instance_type: InstanceType) -> bool:
    """Bare metal and accelerators: not launched while something plain would do, as Karpenter's launch filter has it."""
    return ".metal" in instance_type.name or any(instance_type.capacity.get(resource) for resource in ACCELERATORS)


def _allows(wanted: Requirements, key: str, value: str | None) -> bool:
    entry = wanted.get(key)
    return entry is None or (entry.allows_undefined if value is None else entry.has(value))
