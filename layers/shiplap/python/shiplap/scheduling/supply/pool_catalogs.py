"""The catalogue of each NodePool: its EC2NodeClass's instance types as overlays and price rules make them look."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from shiplap.instances.catalog.memory_probes import apply as with_stated_memory
from shiplap.instances.catalog.memory_probes import probes
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import NodeOverlay, NodePool
from shiplap.manifests.shiplap_annotations import PriceRules, price_rules
from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.model.resources import Axis
from shiplap.scheduling.model.snapshot import NodeClassCatalog, Snapshot
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.templates import PoolCatalog, usable_pools


class _Compiled(NamedTuple):
    """A catalogue and what it was compiled from. The types hold it valid: equal ones are the same tuple."""

    types: Sequence[InstanceType]
    resources: tuple[str, ...]
    explore: bool
    piloted: frozenset[str]
    table: TypeTable


_COMPILED: deque[_Compiled] = deque(maxlen=BOUNDS.remembered_catalogues)


def catalogues_of(snapshot: Snapshot, pools: Sequence[NodePool], axis: Axis) -> dict[str, PoolCatalog]:
    """The catalogue of each pool by name. Pools of one EC2NodeClass share it unless something sets them apart.

    Raises:
        ValueError: an annotation about prices or a requirement is malformed.
    """
    by_class = {catalog.node_class: catalog for catalog in snapshot.catalogs}
    accepted = accepted_overlays(snapshot)
    shared: dict[str, PoolCatalog] = {}
    result = {}
    for pool in pools:
        name = pool.spec.template.spec.node_class_ref.name
        catalog = by_class.get(
            name,
            NodeClassCatalog(name, not_ready="there is no such EC2NodeClass, or its status says why it cannot be used"),
        )
        not_ready = f"EC2NodeClass {name} is not ready: {catalog.not_ready}" if catalog.not_ready else ""
        rules = _rules(pool, snapshot)
        apart = bool(accepted) or probes(pool) or rules.changes_types
        if apart or rules.max_hourly_micros is not None or rules.min_on_demand_vcpus:
            table = _table(as_seen_by(pool, catalog.instance_types, accepted, rules), snapshot, axis)
            if rules.max_hourly_micros is not None:
                table.charge_prices(Requirements.of(pool.spec.template.spec.requirements))
            if rules.min_on_demand_vcpus:
                table.charge_spot()
            if not rules.on_demand_discount:  # a discount says what is paid
                _price(table, snapshot)
            result[pool.metadata.name] = PoolCatalog(table, not_ready, rules)
            continue
        if name not in shared:
            table = _table(catalog.instance_types, snapshot, axis)
            _price(table, snapshot)
            shared[name] = PoolCatalog(table, not_ready)
        result[pool.metadata.name] = shared[name]
    return result


def _price(table: TypeTable, snapshot: Snapshot) -> None:
    """Let the policies of a decision price on-demand offerings."""
    for policy in snapshot.policies:
        if (pricing := policy.pricing()) is not None:
            table.price_on_demand(pricing)


def _rules(pool: NodePool, snapshot: Snapshot) -> PriceRules:
    """The rules of a pool about prices, with the bound of this decision. Raises ValueError as `price_rules`."""
    rules, most = price_rules(pool), snapshot.most_node_price.get(pool.metadata.name)
    if most is None:
        return rules
    return replace(rules, max_node_price=most if rules.max_node_price is None else min(rules.max_node_price, most))


def as_seen_by(
    pool: NodePool, types: Sequence[InstanceType], accepted: Sequence[NodeOverlay], rules: PriceRules
) -> Sequence[InstanceType]:
    """The instance types of a pool's EC2NodeClass as the pool sees them.

    Overlays come first, then what the pool says about types nobody has run, then `rules` about prices.
    """
    if accepted:
        from shiplap.instances.catalog import overlays  # noqa: PLC0415 - few installs have overlays; others need not load it

        types = overlays.apply(types, pool, accepted)
    if probes(pool):
        types = with_stated_memory(types)
    if rules.changes_types:
        from shiplap.instances.catalog import overlays  # noqa: PLC0415 - as above

        types = overlays.with_price_rules(types, rules)
    return types


class SoldTypes:
    """The instance types that each NodePool of a snapshot sees of an EC2NodeClass, computed once for each pair."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
        self._sold = {catalog.node_class: catalog.instance_types for catalog in snapshot.catalogs}
        self._seen: dict[tuple[str, str], Mapping[str, InstanceType]] = {}

    def of(self, node_class: str, node_pool: str) -> Mapping[str, InstanceType]:
        """Return by name what is sold now; without such a NodePool, as nobody in particular sees it."""
        key = (node_class, node_pool)
        if key not in self._seen:
            self._seen[key] = self.seen_by(node_pool, self._sold.get(node_class, ()))
        return self._seen[key]

    def seen_by(self, node_pool: str, types: Sequence[InstanceType]) -> dict[str, InstanceType]:
        """Return these types by name as a NodePool sees them."""
        pool = self._pools.get(node_pool)
        seen = types if pool is None else self._as_seen_by(pool, types)
        return {instance_type.name: instance_type for instance_type in seen}

    def _as_seen_by(self, pool: NodePool, types: Sequence[InstanceType]) -> Sequence[InstanceType]:
        return as_seen_by(pool, types, accepted_overlays(self._snapshot), _rules(pool, self._snapshot))


def meets(offering: Offering, wanted: Requirements) -> bool:
    """True if the requirements of a claim allow an offering."""
    facts = {
        labels.ZONE: offering.zone,
        labels.CAPACITY_TYPE: offering.capacity_type,
        labels.ZONE_ID: offering.zone_id,
        **offering.reservation_labels,
    }
    return all(wanted[key].has(value) for key, value in facts.items() if value and key in wanted)


def accepted_overlays(snapshot: Snapshot) -> tuple[NodeOverlay, ...]:
    """The overlays that plans apply: one that conflicts in any usable pool is applied nowhere."""
    if not snapshot.manifests.node_overlays:
        return ()
    from shiplap.instances.catalog import overlays  # noqa: PLC0415 - as above

    by_class = {catalog.node_class: catalog for catalog in snapshot.catalogs}
    seen = _types_seen(usable_pools(snapshot.manifests.node_pools), by_class)
    return overlays.without_conflicts(seen, snapshot.manifests.node_overlays)


def _types_seen(
    pools: Sequence[NodePool], by_class: Mapping[str, NodeClassCatalog]
) -> list[tuple[NodePool, Sequence[InstanceType]]]:
    """Each pool with the instance types of its EC2NodeClass."""
    return [
        (pool, by_class[name].instance_types if name in by_class else ())
        for pool in pools
        for name in (pool.spec.template.spec.node_class_ref.name,)
    ]


def _table(types: Sequence[InstanceType], snapshot: Snapshot, axis: Axis) -> TypeTable:
    """A catalogue compiled. Tuples cannot change, so the same one is compiled once."""
    explore, piloted = snapshot.settings.explore, snapshot.piloted
    for known in tuple(_COMPILED):
        if known.types is types and known[1:4] == (axis.names, explore, piloted):
            return known.table.for_another_decision()
    table = TypeTable(types, axis, explore=explore, piloted=piloted)
    if isinstance(types, tuple):
        _COMPILED.appendleft(_Compiled(types, axis.names, explore, piloted, table))
        return table.for_another_decision()
    return table
