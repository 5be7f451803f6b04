"""Current prices of the instance types of each NodePool: for running nodes and for claims that might replace them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.offerings.node_prices import NodePrices, offering_price, offerings_by_type
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.shiplap_annotations import price_rules
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.supply.pool_catalogs import accepted_overlays, as_seen_by

_CHEAPEST_KIND_FIRST = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)


class PoolMarket(msgspec.Struct, frozen=True, eq=False):
    """The instance types of each NodePool by name, NodeOverlays and rules about prices applied."""

    by_pool: Mapping[str, Mapping[str, InstanceType]]
    _cache: dict[tuple[str, str, tuple[Requirement | None, ...]], tuple[Offering, ...]] = {}

    def type_of(self, pool: str, name: str) -> InstanceType | None:
        """An instance type as this pool sees it, if its catalogue has it."""
        return self.by_pool.get(pool, {}).get(name)

    def price_of(self, pool: str, node: Node) -> float:
        """USD per hour of just the offering a node runs on, as decisions compare it; 0 when the catalogue lacks it.

        `node_prices` has the prices that people see.
        """
        instance_type = self.type_of(pool, node.metadata.labels.get(labels.INSTANCE_TYPE, ""))
        return offering_price(instance_type.offerings, node) if instance_type is not None else 0.0

    def buyable(self, pool: str, name: str, wanted: Requirements) -> tuple[Offering, ...]:
        """The offerings of a type that a launch under these requirements may get, of the capacity type requested.

        A reservation is taken where there is one, else spot where it is allowed, else on-demand. Cheapest first, then
        by zone; any of them may be the one with capacity.
        """
        key = (
            pool,
            name,
            tuple(wanted.get(mark) for mark in (labels.ZONE, labels.CAPACITY_TYPE, labels.RESERVATION_ID)),
        )
        if key not in self._cache:
            self._cache[key] = self._buyable(pool, name, wanted)
        return self._cache[key]

    def _buyable(self, pool: str, name: str, wanted: Requirements) -> tuple[Offering, ...]:
        instance_type = self.type_of(pool, name)
        fitting = (
            [o for o in instance_type.offerings if o.available and _meets(o, wanted)]
            if instance_type is not None
            else []
        )
        for kind in _CHEAPEST_KIND_FIRST:
            found = [offering for offering in fitting if offering.capacity_type == kind]
            if found:
                return tuple(sorted(found, key=lambda offering: (offering.price, offering.zone)))
        return ()


def market_of(snapshot: Snapshot) -> PoolMarket:
    """The market that a scheduling decision on this snapshot sees."""
    by_class = {catalog.node_class: catalog.instance_types for catalog in snapshot.catalogs}
    shared = {name: {instance_type.name: instance_type for instance_type in types} for name, types in by_class.items()}
    overlays = accepted_overlays(snapshot)
    by_pool: dict[str, Mapping[str, InstanceType]] = {}
    for pool in snapshot.manifests.node_pools:
        name = pool.spec.template.spec.node_class_ref.name
        seen = as_seen_by(pool, by_class.get(name, ()), overlays, price_rules(pool))
        unchanged = seen is by_class.get(name)
        by_pool[pool.metadata.name] = shared[name] if unchanged else {item.name: item for item in seen}
    return PoolMarket(by_pool)


def node_prices(snapshot: Snapshot) -> NodePrices:
    """The prices of nodes in this cluster; nodes of no pool have EC2's prices, without NodeOverlays."""
    of_pools = {
        pool: {name: instance_type.offerings for name, instance_type in types.items()}
        for pool, types in market_of(snapshot).by_pool.items()
    }
    return NodePrices(of_pools, offerings_by_type(*(catalog.instance_types for catalog in snapshot.catalogs)))


def _meets(offering: Offering, wanted: Requirements) -> bool:
    return (
        _allows(wanted.get(labels.ZONE), offering.zone)
        and _allows(wanted.get(labels.CAPACITY_TYPE), offering.capacity_type)
        and (not offering.reservation_id or _allows(wanted.get(labels.RESERVATION_ID), offering.reservation_id))
    )


def _allows(entry: Requirement | None, value: str) -> bool:
    return entry is None or entry.has(value)
