"""What the instance types of each NodePool cost now: of nodes that run, and of claims that might replace them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shiplap.instances.types import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.scheduling.catalogues import accepted_overlays, as_seen_by
from shiplap.scheduling.snapshot import Snapshot

_CHEAPEST_KIND_FIRST = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)


class Market(msgspec.Struct, frozen=True, eq=False):
    """The instance types of each NodePool by name, NodeOverlays and rules about prices applied."""

    by_pool: Mapping[str, Mapping[str, InstanceType]]
    _bought: dict[tuple[str, str, tuple[Requirement | None, ...]], tuple[Offering, ...]] = {}

    def type_of(self, pool: str, name: str) -> InstanceType | None:
        """An instance type as this pool sees it, if its catalogue has it."""
        return self.by_pool.get(pool, {}).get(name)

    def price_of(self, pool: str, node: Node) -> float:
        """USD per hour of a node by its labels, available or not; 0 when the catalogue does not know its offering."""
        marks = node.metadata.labels
        item = self.type_of(pool, marks.get(labels.INSTANCE_TYPE, ""))
        zone, kind = marks.get(labels.ZONE, ""), marks.get(labels.CAPACITY_TYPE, "")
        offerings = item.offerings if item is not None else ()
        return min((o.price for o in offerings if (o.zone, o.capacity_type) == (zone, kind)), default=0.0)

    def buyable(self, pool: str, name: str, wanted: Requirements) -> tuple[Offering, ...]:
        """The offerings of a type that a launch under these requirements may get, of the kind that EC2 is asked for.

        A reservation is taken where there is one, else spot where it is allowed, else on-demand. Cheapest first, then
        by zone; within the kind any of them may be the one that has room.
        """
        key = (
            pool,
            name,
            tuple(wanted.get(mark) for mark in (labels.ZONE, labels.CAPACITY_TYPE, labels.RESERVATION_ID)),
        )
        if key not in self._bought:
            self._bought[key] = self._buyable(pool, name, wanted)
        return self._bought[key]

    def _buyable(self, pool: str, name: str, wanted: Requirements) -> tuple[Offering, ...]:
        item = self.type_of(pool, name)
        fitting = [o for o in item.offerings if o.available and _meets(o, wanted)] if item is not None else []
        for kind in _CHEAPEST_KIND_FIRST:
            found = [offering for offering in fitting if offering.capacity_type == kind]
            if found:
                return tuple(sorted(found, key=lambda offering: (offering.price, offering.zone)))
        return ()


def market_of(snapshot: Snapshot) -> Market:
    """The market that a scheduling decision on this snapshot sees."""
    by_class = {catalog.node_class: catalog.instance_types for catalog in snapshot.catalogs}
    shared = {name: {item.name: item for item in types} for name, types in by_class.items()}
    overlays = accepted_overlays(snapshot)
    by_pool: dict[str, Mapping[str, InstanceType]] = {}
    for pool in snapshot.manifests.node_pools:
        name = pool.spec.template.spec.node_class_ref.name
        seen = as_seen_by(pool, by_class.get(name, ()), overlays)
        unchanged = seen is by_class.get(name)
        by_pool[pool.metadata.name] = shared[name] if unchanged else {item.name: item for item in seen}
    return Market(by_pool)


def _meets(offering: Offering, wanted: Requirements) -> bool:
    return (
        _allows(wanted.get(labels.ZONE), offering.zone)
        and _allows(wanted.get(labels.CAPACITY_TYPE), offering.capacity_type)
        and (not offering.reservation_id or _allows(wanted.get(labels.RESERVATION_ID), offering.reservation_id))
    )


def _allows(entry: Requirement | None, value: str) -> bool:
    return entry is None or entry.has(value)
