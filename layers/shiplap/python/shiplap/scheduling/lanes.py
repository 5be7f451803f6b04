"""Lanes: the tiers of all NodePools in the order they are tried, each with its catalogue compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.api.tiers import Tier, expand
from shiplap.api.types import NodePool
from shiplap.kubernetes import labels
from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.daemons import Daemon, DaemonLoad, load_of
from shiplap.scheduling.limits import Budget
from shiplap.scheduling.resources import Ints
from shiplap.scheduling.universe import TypeTable

FILTERED_OUT = "nodepool requirements filtered out all available instance types"


class Lane(msgspec.Struct, frozen=True, eq=False):
    """One tier of one NodePool.

    `template` holds the requirements of its nodes, `given` the labels the pool itself puts on them. `net` [rows,
    resources] is allocatable minus daemons; `level` orders lanes by preference, equal for pools of equal weight.
    `blocked` says why nothing can be launched here at all.
    """

    index: int
    pool: NodePool
    tier: Tier
    level: tuple[int, int]
    template: Requirements
    given: frozenset[str]
    allow_undefined: frozenset[str]
    table: TypeTable
    daemons: DaemonLoad
    net: Ints
    budget: Budget
    blocked: str = ""

    @property
    def name(self) -> str:
        """How reasons call this lane."""
        pool = self.pool.metadata.name
        return f"pool {pool} ({self.tier.text})" if self.tier.text else f"pool {pool}"


class Catalogue(msgspec.Struct, frozen=True, eq=False):
    """What a NodePool can launch; `not_ready` says why it cannot."""

    table: TypeTable
    not_ready: str = ""


def usable(pools: Iterable[NodePool]) -> list[NodePool]:
    """Pools that pods may use, in the order they are tried: by weight, then name, both descending, as Karpenter does.

    Pools that are being deleted and static ones (`replicas`) take no part.
    """
    dynamic = [pool for pool in pools if pool.spec.replicas is None and not pool.metadata.deletion_timestamp]
    return sorted(dynamic, key=lambda pool: (pool.spec.weight, pool.metadata.name), reverse=True)


def lanes_of(
    pools: Sequence[NodePool],
    catalogues: Mapping[str, Catalogue],
    daemons: Sequence[Daemon],
    budgets: Mapping[str, Budget],
) -> tuple[Lane, ...]:
    """The lanes of these pools, in the order given; the other arguments are keyed by pool name."""
    tiers = [(pool, tier) for pool in pools for tier in expand(pool, catalogues[pool.metadata.name].table.values_of)]
    return tuple(
        _lane(index, pool, tier, catalogues[pool.metadata.name], daemons, budgets[pool.metadata.name])
        for index, (pool, tier) in enumerate(tiers)
    )


def _lane(
    index: int, pool: NodePool, tier: Tier, catalogue: Catalogue, daemons: Sequence[Daemon], budget: Budget
) -> Lane:
    table = catalogue.table
    template_spec = pool.spec.template
    given = {
        **template_spec.metadata.labels,
        labels.NODE_POOL: pool.metadata.name,
        labels.NODE_CLASS: template_spec.spec.node_class_ref.name,
    }
    # The marks of a finished node count while simulating, so that daemons which select them are reckoned with.
    marks = {labels.REGISTERED: "true", labels.INITIALIZED: "true"}
    template = tier.requirements.and_(Requirements.of_labels({**given, **marks}).values())
    allow_undefined = labels.WELL_KNOWN | table.label_keys
    load = load_of(daemons, template, template_spec.spec.taints, frozenset(given), table, allow_undefined)
    return Lane(
        index,
        pool,
        tier,
        (-pool.spec.weight, tier.index),
        template,
        frozenset(given),
        allow_undefined,
        table,
        load,
        table.allocatable - load.overhead[table.row_type],
        budget,
        blocked=catalogue.not_ready or _nothing_left(template, frozenset(given), table),
    )


def _nothing_left(template: Requirements, given: frozenset[str], table: TypeTable) -> str:
    offered = table.offered(template, given)
    if bool((offered.suits & np.isfinite(offered.price)).any()):
        return ""
    return FILTERED_OUT
