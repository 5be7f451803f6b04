"""Static pools: NodePools with `replicas` keep a number of nodes, whatever pods there are.

Missing nodes are planned like claims without pods, each in the first tier that can open one. Surplus nodes are named in
the order in which they should go. Pods matter only for that order; they use the nodes like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node, Pod, Toleration
from shiplap.kubernetes.quantity import parse_amount
from shiplap.kubernetes.requirements import Requirements
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import LEAVING, NodeClaim
from shiplap.manifests.shiplap_annotations import price_rules
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.planned_pods import (
    do_not_disrupt,
    is_initialized,
    owner_kind,
    reports_ready,
    why_it_stays,
)
from shiplap.scheduling.model.pod_classes import PodClass
from shiplap.scheduling.model.protected_pods import PdbLimits, first_protection
from shiplap.scheduling.model.resources import PLENTY, Axis, Ints
from shiplap.scheduling.model.scheduling_plan import StaticPool
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.model.topology_constraints import UNCONSTRAINED
from shiplap.scheduling.supply.charges import limits_of_pools
from shiplap.scheduling.supply.daemons import Daemon
from shiplap.scheduling.supply.limits import NODES, PoolLimits, price_limits
from shiplap.scheduling.supply.open_claims import ClaimGroups, OpenClaim, OpenClaims, PlacementAttempt, RefusalKind
from shiplap.scheduling.supply.openings import Openings
from shiplap.scheduling.supply.pool_catalogs import catalogues_of
from shiplap.scheduling.supply.reservations import awaited, units_left
from shiplap.scheduling.supply.templates import NodeClaimTemplate, templates_of


class StaticPoolInputs(msgspec.Struct, frozen=True):
    """All nodes, names of those that leave, claims by node name, claims without a node, and the pods on each node.

    `pdb_limits` are the PodDisruptionBudgets of the cluster, where they are known.
    """

    nodes: Sequence[Node]
    gone: frozenset[str]
    paired: Mapping[str, NodeClaim]
    waiting: Sequence[NodeClaim]
    pods: Mapping[str, Sequence[Pod]]
    pdb_limits: PdbLimits


class StaticPlan(msgspec.Struct, frozen=True, eq=False):
    """`claims` to open with the load of each [claims, resources]; `units` is what reservations have left afterwards."""

    claims: list[OpenClaim]
    used: Ints
    pools: tuple[StaticPool, ...]
    units: Mapping[str, int]


def static_pools(pools: Sequence[NodePool]) -> list[NodePool]:
    """The static pools that are not being deleted, by name."""
    static = [pool for pool in pools if pool.spec.replicas is not None and not pool.metadata.deletion_timestamp]
    return sorted(static, key=lambda pool: pool.metadata.name)


def plan_static(snapshot: Snapshot, daemons: Sequence[Daemon], present: StaticPoolInputs) -> StaticPlan:
    """The missing and surplus nodes of static pools. Raises ValueError for malformed quantities and annotations."""
    pools = static_pools(snapshot.manifests.node_pools)
    names = {resource for daemon in daemons for resource in daemon.requests}
    for pool in pools:
        names.update(price_limits(price_rules(pool)))
    axis = Axis(names)
    catalogues = catalogues_of(snapshot, pools, axis)
    tables = {name: catalogue.table for name, catalogue in catalogues.items()}
    pool_limits = limits_of_pools(pools, axis, tables, present.nodes, present.paired, present.waiting)
    units = units_left(tables.values(), snapshot.claims, snapshot.now)
    templates = templates_of(pools, catalogues, daemons, pool_limits, units)
    opener = _StaticClaimOpener(templates, pool_limits, axis, strict=snapshot.settings.reserved_policy == "Strict")
    results = tuple(_plan_pool(pool, opener, present, snapshot.now) for pool in pools)
    opener.openings.reservations.settle()
    return StaticPlan(opener.open.claims, opener.open.used, results, opener.openings.reservations.left)


def _plan_pool(pool: NodePool, opener: _StaticClaimOpener, present: StaticPoolInputs, now: float) -> StaticPool:
    name, wanted = pool.metadata.name, pool.spec.replicas or 0
    nodes = [node for node in present.nodes if node.metadata.labels.get(labels.NODE_POOL) == label_value_of(name)]
    coming = [claim for claim in present.waiting if claim.plan.node_pool == name and claim.state not in LEAVING]
    staying = [node for node in nodes if node.metadata.name not in present.gone]
    there = len(staying) + len(coming)
    surplus = _surplus(pool, staying, coming, present, now)
    # Nodes that leave still count: the limit holds at every moment.
    limit = parse_amount(NODES, pool.spec.limits[NODES]) if NODES in pool.spec.limits else PLENTY
    room = max(limit - len(nodes) - len(coming), 0)
    missing = max(wanted - there, 0)
    opened, reason = opener.launch(name, min(missing, room))
    if opened == room < missing:
        reason = f"limits.nodes is {limit}, and {len(nodes) + len(coming)} nodes are there or on their way"
    return StaticPool(name, wanted, there, missing - opened, reason if opened < missing else "", tuple(surplus))


def _surplus(
    pool: NodePool, staying: Sequence[Node], coming: Sequence[NodeClaim], present: StaticPoolInputs, now: float
) -> list[str]:
    """Names, in the order of removal: claims without an instance, other claims without a node, nodes that are not
    initialized, then nodes in service that may go.
    """
    wanted = pool.spec.replicas or 0
    joining = sorted(node.metadata.name for node in staying if not is_initialized(node))
    early = [*(claim.name for claim in sorted(coming, key=lambda item: (bool(item.instance_id), item.name))), *joining]
    of_pool = pool.spec.template.spec.expire_after
    removable = [
        RemovableNode(node, present.pods.get(node.metadata.name, ()), claim.plan.age_limit(pool) if claim else of_pool)
        for node in staying
        if _may_go(node, claim := present.paired.get(node.metadata.name), pool)
    ]
    ordered = in_order_of_removal(removable, present.pdb_limits, now)
    going = [node.metadata.name for node in ordered[: surplus_in_service(staying, wanted)]]
    return [*early[: max(len(staying) + len(coming) - wanted, 0)], *going]


def _may_go(node: Node, claim: NodeClaim | None, pool: NodePool) -> bool:
    """True if a node may be scaled down.

    A node without a claim may go, too, as files lack claims and the sweep makes one.
    """
    if claim is None:
        return is_initialized(node) and node.metadata.annotations.get(labels.DO_NOT_DISRUPT) != "true"
    return not why_it_stays(node, claim, pool)


class _StaticClaimOpener:
    """Opens claims that hold nothing but daemons."""

    def __init__(
        self, templates: Sequence[NodeClaimTemplate], limits: Mapping[str, PoolLimits], axis: Axis, *, strict: bool
    ) -> None:
        self.open = OpenClaims(len(axis), ClaimGroups())
        self.openings = Openings(templates, limits, self.open, best_effort=False)
        self._strict = strict
        nothing = Requirements()
        anything = (Toleration(operator="Exists"),)
        self._attempt = PlacementAttempt(
            PodClass({}, (nothing,), anything), nothing, True, np.zeros(len(axis), np.int64), 0, UNCONSTRAINED
        )

    def launch(self, pool: str, number: int) -> tuple[int, str]:
        """Open up to `number` claims of a pool; returns how many, and why no more."""
        templates = [template for template in self.openings.templates if template.tier.pool == pool]
        opened = place = 0
        reason = "" if templates else "no tier of it can be met"
        while opened < number and place < len(templates):
            template = templates[place]
            entry = self.openings.entry(template, self._attempt)
            if isinstance(entry, RefusalKind):
                entry = self.openings.make_way(template, self._attempt, entry)
            if isinstance(entry, RefusalKind):
                refused = template.blocked or f"{template.name}: {entry.value}"
                reason = reason or f"{refused}{awaited(template, self._attempt)}"
                if entry is RefusalKind.RESERVED and self._strict:
                    break
                place += 1
                continue
            charge = template.table.capacity[template.table.row_type[entry.rows]].max(axis=0)
            claim = self.open.open(entry, charge, ())
            self.openings.take_estimates(entry, claim)
            self.openings.pool_limits[pool].charge(charge)
            self.openings.opened(template, entry, 1, entry.rows)
            opened += 1
            if template.steady:
                place = 0
        return opened, reason


_STAYING_OWNERS = ("DaemonSet", "Node")


class RemovableNode(msgspec.Struct, frozen=True):
    """A node that may go, the unfinished pods on it, and the age that it may reach, a duration or Never."""

    node: Node
    pods: Sequence[Pod]
    expire_after: str


def surplus_in_service(nodes: Iterable[Node], replicas: int) -> int:
    """Return by how many the nodes in service exceed the replicas.

    Claims and nodes that are still coming go before nodes in service.
    """
    return max(sum(map(is_initialized, nodes)) - replicas, 0)


def in_order_of_removal(removable: Iterable[RemovableNode], pdb_limits: PdbLimits, now: float) -> list[Node]:
    """Nodes that are not Ready, empty nodes, then those whose pods lose least.

    A node with a pod that must not be disrupted comes last, and before it a Ready node with a pod that a
    PodDisruptionBudget keeps. On a node that is not Ready no pod serves, so no budget is worth waiting for.
    """

    def loss(item: RemovableNode) -> tuple[bool, bool, bool, bool, float, str]:
        node, ready = item.node, reports_ready(item.node)
        moving = [pod for pod in item.pods if owner_kind(pod) not in _STAYING_OWNERS]
        marked = any(do_not_disrupt(pod, now) for pod in moving)
        guarded = ready and bool(first_protection(moving, pdb_limits, now))
        born = epoch(node.metadata.creation_timestamp) if node.metadata.creation_timestamp else now
        lifetime_s = seconds_or_never(item.expire_after)
        left = max(1 - (now - born) / lifetime_s, 0.0) if lifetime_s else 1.0
        # An expired node costs nothing to lose, but one without pods still goes first.
        return (marked, ready, guarded, bool(moving), len(moving) * left, node.metadata.name)

    return [item.node for item in sorted(removable, key=loss)]
