"""Templates: the tiers of all NodePools in the order they are tried, each with its catalogue compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.requirements import Requirement, Requirements
from shiplap.manifests.custom_resources import Manifests, NodePool
from shiplap.manifests.shiplap_annotations import NO_RULES, PriceRules
from shiplap.manifests.tiers import Tier, expand
from shiplap.scheduling.model.resources import Bools, Floats, Ints
from shiplap.scheduling.supply.daemons import Daemon, DaemonLoad, load_of, tolerant
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap.scheduling.supply.node_variants import NodeVariants, variants_of

RESERVED_ONLY = Requirement.one_of(labels.CAPACITY_TYPE, labels.RESERVED)
NOT_RESERVED = Requirement(labels.CAPACITY_TYPE, True, frozenset((labels.RESERVED,)))
NOT_SPOT = Requirement(labels.CAPACITY_TYPE, True, frozenset((labels.SPOT,)))
NO_UNITS: Mapping[str, int] = {}

FILTERED_OUT = "nodepool requirements filtered out all available instance types"


class NodeClaimTemplate(msgspec.Struct, frozen=True, eq=False):
    """One tier of one NodePool.

    `requirements` are those of its nodes, `given` the labels that the pool puts on them. The rows of `table` are types
    in each of `variants`. `net` [rows, resources] is allocatable minus daemons; `level` orders templates by preference,
    equal for pools of equal weight. `blocked` says why nothing can be launched here at all. `rules` are those about
    prices by which the offerings of `table` were chosen.

    A tier that may use capacity reservations is two templates, the first of which is `reserved`. Its claims go
    into one of `reservations`, largest instances first, and `units` is what all reservations have left. With a share of
    spot a tier is two templates as well: the second, `steady`, is for when another node of spot would be one too many.
    """

    index: int
    pool: NodePool
    tier: Tier
    level: tuple[int, int]
    requirements: Requirements
    given: frozenset[str]
    allow_undefined: frozenset[str]
    table: TypeTable
    daemons: DaemonLoad
    net: Ints
    limits: PoolLimits
    blocked: str = ""
    reserved: bool = False
    reservations: tuple[str, ...] = ()
    units: Mapping[str, int] = {}
    steady: bool = False
    variants: NodeVariants = NodeVariants()
    rules: PriceRules = NO_RULES

    @property
    def name(self) -> str:
        """The name of this template in reasons."""
        pool = self.pool.metadata.name
        notes = [self.tier.text, "reserved" if self.reserved else "", "not spot" if self.steady else ""]
        text = ", ".join(filter(None, notes))
        return f"pool {pool} ({text})" if text else f"pool {pool}"

    @property
    def label_keys(self) -> frozenset[str]:
        """The labels that nodes of this template may have."""
        return self.given | frozenset(self.requirements) | self.allow_undefined

    @property
    def telling(self) -> frozenset[str]:
        """The labels that decide which rows a node may be of and what they cost."""
        return self.table.told.union(*self.variants.all)

    @property
    def counted(self) -> bool:
        """True if claims of this template are opened one by one, by a count that every other claim can change."""
        return self.reserved or self.limits.shares

    @property
    def row_prices(self) -> Floats:
        """USD per hour of the cheapest offering that a node may take of each row [rows], infinite without one."""
        return self.prices_of_rows(self.requirements)

    def prices_of_rows(self, requirements: Requirements) -> Floats:
        """As `row_prices`, for a node that has to meet these requirements."""
        prices: Floats = np.full(len(self.table.row_type), np.inf)
        every = self.variants.all
        for place, variant in enumerate(every):
            if requirements.compatible(variant, self.allow_undefined):
                offered = self.table.offered(requirements.and_(variant.values()), self.given)
                types = self.table.row_type[place :: len(every)]
                prices[place :: len(every)] = np.where(offered.suits, offered.price, np.inf)[types]
        return prices

    @property
    def variant_of_rows(self) -> Ints:
        """The place in `variants` of each row [rows]."""
        return np.arange(len(self.table.row_type)) % len(self.variants.all)

    def rows_of_variants(self, requirements: Requirements) -> Bools:
        """True for each row [rows] that stands for a variant that a node with these requirements may be."""
        every = self.variants.all
        may = [requirements.compatible(variant, self.allow_undefined) for variant in every]
        return np.tile(np.array(may, np.bool_), len(self.table.row_type) // len(every))

    def daemons_of_types(self, types: Sequence[int], requirements: Requirements) -> Ints:
        """The most that daemons take [types, resources] of a node of these types with these requirements."""
        return self._most_of_daemons(types, self.rows_of_variants(requirements))

    def daemons_of_sold_types(self, types: Sequence[int], requirements: Requirements) -> Ints:
        """As `daemons_of_types`, of nodes that are sold now: a type may be sold out where a daemon runs."""
        if len(self.variants.all) == 1:
            return self.daemons_of_types(types, requirements)
        return self._most_of_daemons(types, np.isfinite(self.prices_of_rows(requirements)))

    def _most_of_daemons(self, types: Sequence[int], may: Bools) -> Ints:
        overhead = np.where(may[:, None], self.daemons.overhead, 0)
        most = np.zeros((len(self.table.types), overhead.shape[1]), np.int64)
        np.maximum.at(most, self.table.row_type, overhead)
        return most[list(types)]

    def values_of(self, key: str) -> list[str]:
        """The values of a label that nodes of this template may have, by name, as far as they are known beforehand."""
        known = self.requirements.get(key)
        values = self.table.values_of(key)
        if known is not None and not known.complement and (not values or key in self.given):
            values = known.values
        return sorted(value for value in values if known is None or known.has(value))


class PoolCatalog(msgspec.Struct, frozen=True, eq=False):
    """The catalogue of a NodePool, and the rules about prices by which it was made.

    `not_ready` holds the reason why the NodePool can launch nothing.
    """

    table: TypeTable
    not_ready: str = ""
    rules: PriceRules = NO_RULES


def usable_pools(pools: Iterable[NodePool]) -> list[NodePool]:
    """Pools that pods may use, by weight, then name, both descending, as Karpenter tries them.

    Among pools of equal weight the price goes before the name, see `Openings.in_order`. Pools that are being deleted
    and static ones (`replicas`) take no part.
    """
    dynamic = [pool for pool in pools if pool.spec.replicas is None and not pool.metadata.deletion_timestamp]
    return sorted(dynamic, key=lambda pool: (pool.spec.weight, pool.metadata.name), reverse=True)


def may_launch_without_pods(manifests: Manifests) -> bool:
    """True if there may be nodes to launch although no pod waits for one."""
    static = any(pool.spec.replicas is not None for pool in manifests.node_pools)
    return static or bool(manifests.capacity_buffers)


def templates_of(
    pools: Sequence[NodePool],
    catalogues: Mapping[str, PoolCatalog],
    daemons: Sequence[Daemon],
    pool_limits: Mapping[str, PoolLimits],
    units: Mapping[str, int] = NO_UNITS,
) -> tuple[NodeClaimTemplate, ...]:
    """The templates of these pools, in the order given.

    The other arguments are keyed by pool name, but for `units`: how many instances each capacity reservation has left.
    """
    templates: list[NodeClaimTemplate] = []
    for pool in pools:
        name = pool.metadata.name
        for tier in expand(pool, catalogues[name].table.values_of):
            whole = _template(len(templates), pool, tier, catalogues[name], pool_limits[name])
            templates += [
                replace(_with_daemons(template, daemons), index=len(templates) + place)
                for place, template in enumerate(_templates_of_tier(whole, units))
            ]
    return tuple(templates)


def _templates_of_tier(template: NodeClaimTemplate, units: Mapping[str, int]) -> list[NodeClaimTemplate]:
    """The templates of one tier: reserved capacity, then as written, then without spot if its share is bounded."""
    if template.blocked:
        return [template]
    parts = []
    reserved = template.requirements.and_((RESERVED_ONLY,))
    usable_ids = _reservations(template, reserved)
    if any(usable_ids):
        # Variety among types serves where capacity has to be found; a reservation holds it.
        free = Requirements(replace(entry, min_values=None) for entry in reserved.values())
        table = template.table.steady()
        parts.append(
            replace(template, requirements=free, table=table, reserved=True, reservations=usable_ids, units=units)
        )
        open_market = template.requirements.and_((NOT_RESERVED,))
        if _no_offering_left(open_market, template.given, template.table):
            return parts
        template = replace(template, requirements=open_market)
    if not template.limits.shares:
        return [*parts, template]
    if not may_be_spot(template.requirements):
        return [*parts, replace(template, table=template.table.steady())]
    parts.append(template)
    steady = template.requirements.and_((NOT_SPOT,))
    if not _no_offering_left(steady, template.given, template.table):
        parts.append(replace(template, requirements=steady, table=template.table.steady(), steady=True))
    return parts


def may_be_spot(requirements: Requirements) -> bool:
    """True if a claim with these requirements may be launched as spot."""
    entry = requirements.get(labels.CAPACITY_TYPE)
    return entry is None or entry.has(labels.SPOT)


def _reservations(template: NodeClaimTemplate, reserved: Requirements) -> tuple[str, ...]:
    """The reservations that a template may use, those of the largest instances first, then by id."""
    table = template.table
    if not any(table.reservations) or not reserved[labels.CAPACITY_TYPE].has(labels.RESERVED):
        return ()
    suits = table.offered(reserved, template.given).suits
    buyable = np.isfinite(table.prices) & table.cells(reserved) & suits[:, None, None]
    reservations = []
    for column, reservation in enumerate(table.reservations):
        places = np.flatnonzero(buyable[:, :, column].any(axis=1))
        if reservation and len(places):
            size = max(tuple(row) for row in table.capacity[places, :2].tolist())
            reservations.append((tuple(-amount for amount in size), reservation))
    return tuple(reservation for _, reservation in sorted(reservations))


def _with_daemons(template: NodeClaimTemplate, daemons: Sequence[Daemon]) -> NodeClaimTemplate:
    """The template with what daemons take of its nodes, and with the variants between which they differ."""
    running = tolerant(daemons, template.pool.spec.template.spec.taints)
    terms = [term for daemon in running for term in daemon.terms]
    variants = variants_of(terms, template.requirements, template.table)
    every = variants.all
    table = template.table.in_variants(len(every)) if len(every) > 1 else template.table
    narrowed = [template.requirements.and_(variant.values()) for variant in every]
    load = load_of(running, narrowed, template.given, table, template.allow_undefined)
    return replace(template, table=table, variants=variants, daemons=load, net=table.allocatable - load.overhead)


def _template(index: int, pool: NodePool, tier: Tier, catalogue: PoolCatalog, limits: PoolLimits) -> NodeClaimTemplate:
    """A tier as if there were no daemons."""
    table = catalogue.table
    template_spec = pool.spec.template
    given = {
        **template_spec.metadata.labels,
        labels.NODE_POOL: label_value_of(pool.metadata.name),
        labels.NODE_CLASS: label_value_of(template_spec.spec.node_class_ref.name),
    }
    # The marks of a finished node count while simulating, so that daemons which select them are reckoned with.
    marks = {labels.REGISTERED: "true", labels.INITIALIZED: "true"}
    requirements = tier.requirements.and_(Requirements.of_labels({**given, **marks}).values())
    allow_undefined = labels.WELL_KNOWN | table.label_keys
    load = load_of((), (requirements,), frozenset(given), table, allow_undefined)
    return NodeClaimTemplate(
        index,
        pool,
        tier,
        (-pool.spec.weight, tier.index),
        requirements,
        frozenset(given),
        allow_undefined,
        table,
        load,
        table.allocatable,
        limits,
        blocked=catalogue.not_ready or _no_offering_left(requirements, frozenset(given), table),
        rules=catalogue.rules,
    )


def _no_offering_left(requirements: Requirements, given: frozenset[str], table: TypeTable) -> str:
    offered = table.offered(requirements, given)
    if bool((offered.suits & np.isfinite(offered.price)).any()):
        return ""
    return FILTERED_OUT
