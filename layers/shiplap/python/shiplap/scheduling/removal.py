"""One snapshot compiled once for many questions: where would the pods go if these nodes were being deleted?

Compiling anew would look at every pod of the cluster for each question; here only the pods of the nodes in question
are looked at. The answers are those of the planner on a snapshot in which the nodes are marked as being deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.related_objects import has_claims
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.scheduling.model import planned_pods
from shiplap.scheduling.model import pod_classes as classes
from shiplap.scheduling.model.planned_pods import leaving, pair
from shiplap.scheduling.model.resources import Floats, Ints
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap.scheduling.model.topology_constraints import Terms
from shiplap.scheduling.packing.compiled_snapshot import (
    CompiledSnapshot,
    anti_affine_pods,
    bound_pod_terms,
    compile_snapshot,
    counted_pods,
    topology_of,
    unavailable_nodes,
    widened_pods,
)
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.planner import pack, write
from shiplap.scheduling.search.least_prices import LeastPrices, PodsToPlace, room_of
from shiplap.scheduling.search.room_values import MovablePods, room_values
from shiplap.scheduling.supply.charges import charge_claim, charge_node, charge_of_types
from shiplap.scheduling.supply.existing_nodes import ExistingNodes
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import PoolLimits
from shiplap.scheduling.supply.node_loads import NO_LOAD, loads_by_node

RemovalPart = tuple[Collection[str], Sequence[PlannedClaim]]
"""Removed nodes, by name, and the claims launched for their pods."""


class NodeToWeigh(msgspec.Struct, frozen=True):
    """A node that may go: USD per hour of itself, and of what moving its pods costs."""

    name: str
    price: float
    moves: float


class Removals:
    """Answers for one snapshot in which no pod is without a node."""

    def __init__(self, snapshot: Snapshot, candidates: Collection[str], coming: Sequence[NodeClaim] = ()) -> None:
        """`candidates` names the nodes that questions may be about.

        `coming` are claims beside the snapshot's that no pod may reckon with: they only count for limits.

        Raises ValueError as `compile_snapshot`.
        """
        self._snapshot = snapshot
        self._coming = coming
        self._paired, _ = pair(snapshot.view.nodes, snapshot.claims)
        self._gone = leaving(snapshot.view.nodes, self._paired)
        self._nodes = {node.metadata.name: node for node in snapshot.view.nodes}
        back, known = snapshot.view.of_pods(_coming_back), snapshot.view.of_pods(loads_by_node)
        self._returning = {name: _unprotected(back.get(name, ()), snapshot.now) for name in candidates}
        resources = {item for name in candidates if name in known for item in known[name].moving}
        self._base = self._with_coming(compile_snapshot(snapshot, resources))
        self._keeping = anti_affine_pods(snapshot.view, self._base.pods)
        self._widened = widened_pods(self._keeping, snapshot, self._base.daemons)
        self._existing: ExistingNodes = self._base.nodes
        self._places = {node.name: place for place, node in enumerate(self._existing.all)}
        self._room = room_of(self._existing.free)
        self._cordoned: frozenset[str] = frozenset()
        self._least_prices = LeastPrices(self._base.templates)
        self._to_place: dict[str, PodsToPlace] = {}
        self._limited = any(
            len(template.limits.columns) or template.counted for template in self._base.templates
        ) or any("nodes" in template.pool.spec.limits for template in self._base.templates)

    def plan_without(
        self, removed: Collection[str], moving: Collection[str] | None = None, *, improve_s: float = 0.0
    ) -> tuple[Plan, Packing]:
        """The plan for the pods of `moving` nodes (all that are removed, if not given) when `removed` are leaving.

        `improve_s` is the effort of the cost search. Raises ValueError as `compile_snapshot`.
        """
        moved = [pod for name in sorted(removed if moving is None else moving) for pod in self._returning[name]]
        snapshot = replace(self._snapshot, settings=replace(self._snapshot.settings, improve_s=improve_s))
        compiled = self._compiled_without(frozenset(removed), moved)
        packing = pack(snapshot, compiled)
        return write(snapshot, compiled, packing), packing

    def least_hourly(self, removed: Collection[str]) -> float:
        """USD per hour that new nodes cost at least if just these nodes are leaving; 0 where that is not known."""
        away = [self._places[name] for name in self._cordoned.union(removed) if name in self._places]
        room = self._room.copy()
        room[away] = 0
        return self._least_prices.of(list(map(self._pods_to_place, removed)), room)

    def _pods_to_place(self, node: str) -> PodsToPlace:
        known = self._to_place.get(node)
        if known is None:
            moved = self._returning[node]
            pod_classes = classes.group(moved, self._snapshot.missed_pods, None, self._terms())
            known = self._to_place[node] = self._least_prices.pods_to_place(pod_classes)
        return known

    def cordon(self, nodes: Collection[str]) -> None:
        """Let these nodes take no pods in the following answers: they go whatever those say, and no pod comes back."""
        self._cordoned |= frozenset(nodes)

    def can_follow(self, packing: Packing) -> bool:
        """True if the next question can be asked as if this answer had come true: see `follow`."""
        if self._limited or packing.counts.terms.all:
            return False
        return not any(has_claims(pod) or classes.host_ports(pod.spec) for pod in _pods_of(packing))

    def follow(self, packing: Packing) -> None:
        """Let the following questions find the room on nodes that stay as this answer leaves it.

        Only room is followed, so no topology constraint, limit, host port or volume may depend on what was placed.
        """
        places = [self._places[node.name] for node in packing.nodes.all]
        after = self._existing.part(np.arange(len(self._places)))
        after.free[places] = packing.nodes.free
        self._existing, self._room = after, room_of(after.free)

    def room_values(self, nodes: Sequence[NodeToWeigh]) -> dict[str, float]:
        """USD per hour, by name, that the room of nodes which may go is worth to the pods of the others."""
        free = {node.name: left for node, left in zip(self._existing.all, self._existing.free, strict=True)}
        own = np.maximum([free.pop(node.name, np.zeros(len(self._base.axis), np.int64)) for node in nodes], 0)
        loads = np.array([self._moving_load(node.name) for node in nodes])
        others = [np.maximum(left, 0) for name, left in free.items() if name not in self._cordoned]
        net, fresh = self._for_sale()
        if not len(fresh) or not nodes:
            return {}
        values = room_values(
            MovablePods(
                room=(own + loads).astype(np.float64),
                price=np.array([node.price for node in nodes]),
                moves=np.array([node.moves for node in nodes]),
                wanted=loads.sum(axis=0) - np.sum(others, axis=0, dtype=np.float64),
                net=net,
                fresh=fresh,
            )
        )
        return dict(zip((node.name for node in nodes), values.tolist(), strict=True))

    def _moving_load(self, node: str) -> Ints:
        """Return the requests [resources] of the pods of a node that no DaemonSet owns."""
        load, axis = self._snapshot.view.of_pods(loads_by_node).get(node, NO_LOAD), self._base.axis
        daemons = axis.matrix(load.daemons).sum(axis=0)
        moving: Ints = np.maximum(axis.vector(load.requests) - daemons, 0)
        return moving

    def _for_sale(self) -> tuple[Floats, Floats]:
        """Return what new nodes offer to pods [rows, resources], and their prices.

        Reservations are few and cost nothing.
        """
        net, price = [np.zeros((0, len(self._base.axis)))], [np.zeros(0)]
        for template in self._base.templates:
            each = template.row_prices
            bought = np.isfinite(each) & (each > 0) & (template.net >= 0).all(axis=1)
            if not template.reserved and not template.blocked:
                net.append(template.net[bought].astype(np.float64))
                price.append(each[bought])
        return np.concatenate(net), np.concatenate(price)

    def pools_that_join(self, parts: Sequence[RemovalPart]) -> frozenset[str]:
        """NodePools whose limits might be broken if only some of the parts of one answer came true.

        A part may launch what another part's nodes give back. Whatever each takes more than it gives back must fit into
        what is left while all nodes are there.
        """
        if not self._limited or len(parts) < 2:
            return frozenset()
        left = self._left(self._base.limits)
        taken = {pool: np.zeros_like(amounts) for pool, amounts in left.items()}
        for removed, claims in parts:
            after = self._left(self._limits_without(removed))
            for claim in claims:
                after[claim.node_pool] -= self._charge_of(claim)
            for pool, amounts in after.items():
                taken[pool] += np.maximum(left[pool] - amounts, 0)
        return frozenset(pool for pool, much in taken.items() if ((much > 0) & (much > left[pool])).any())

    def _left(self, limits: Mapping[str, PoolLimits]) -> dict[str, Ints]:
        """By pool, what its limits leave: the limited resources, then nodes."""
        return {name: np.append(item.left[item.columns], item.nodes_left) for name, item in limits.items()}

    def _charge_of(self, claim: PlannedClaim) -> Ints:
        template = next(item for item in self._base.templates if item.pool.metadata.name == claim.node_pool)
        most = charge_of_types(claim.instance_types, template.table)
        return np.append(most[template.limits.columns], 1)

    def _compiled_without(self, removed: frozenset[str], moved: list[Pod]) -> CompiledSnapshot:
        if any(map(has_claims, moved)):
            return self._compiled_anew(removed, moved)
        base, snapshot = self._base, self._snapshot
        sorted_pods = planned_pods.SortedPods(moved, [], base.pods.bound, {})
        terms = self._terms()
        pod_classes = classes.group(moved, snapshot.missed_pods, None, terms)
        away = removed | self._cordoned
        staying = [place for place, node in enumerate(self._existing.all) if node.name not in away]
        existing = self._existing.part(np.array(staying, np.int64))
        others = unavailable_nodes(snapshot.view.nodes, existing.all, self._gone | away) if terms.all else []
        counted = counted_pods(sorted_pods) if terms.all else {}
        base_counts, of_daemons = topology_of(terms, base.daemons, existing, others, counted)
        return replace(
            base,
            limits=self._limits_without(removed) if self._limited else base.limits,
            nodes=existing,
            classes=pod_classes,
            pods=sorted_pods,
            base_counts=base_counts,
            daemon_terms=of_daemons,
        )

    def _terms(self) -> Terms:
        return bound_pod_terms(self._keeping, self._snapshot, self._base.daemons, self._widened)

    def _limits_without(self, removed: Collection[str]) -> Mapping[str, PoolLimits]:
        """The limits with what removed nodes take given back: they are expected to be replaced.

        Cordoned ones go by commands of their own and take it until they are gone.
        """
        return self._charged(self._base, removed, -1)

    def _charged(self, compiled: CompiledSnapshot, names: Collection[str], sign: int) -> Mapping[str, PoolLimits]:
        """The limits with these nodes on them (1) or off them (-1); what leaves anyway counts for none."""
        limits, tables = _chargeable(compiled)
        for name in sorted(set(names) - self._gone):
            marks, claim = self._nodes[name].metadata.labels, self._paired.get(name)
            pool = name_of_label(marks.get(labels.NODE_POOL, ""), limits) or (claim.plan.node_pool if claim else "")
            if pool in limits:
                charge_node(limits[pool], self._nodes[name], claim, tables[pool], sign)
        return limits

    def _compiled_anew(self, removed: frozenset[str], moved: Iterable[Pod]) -> CompiledSnapshot:
        """The snapshot compiled with the nodes marked as being deleted, without the pods that do not move.

        No PodDisruptionBudget keeps a moved pod from needing room: nodes are removed only where budgets let pods go, or
        a deadline ends them.
        """
        view = self._snapshot.view
        at = rfc3339(self._snapshot.now)
        planned = {id(pod) for pod in moved}
        away = removed | self._cordoned
        skipped = {id(pod) for name in away for pod in self._returning.get(name, ())} - planned
        compiled = compile_snapshot(
            replace(
                self._snapshot,
                view=replace(
                    view,
                    nodes=tuple(_deleted(node, at) if node.metadata.name in away else node for node in view.nodes),
                    pods=tuple(pod for pod in view.pods if id(pod) not in skipped),
                    pod_disruption_budgets=(),
                ),
            )
        )
        compiled = self._with_coming(compiled)
        if not self._limited:
            return compiled
        return replace(compiled, limits=self._charged(compiled, self._cordoned - removed, 1))

    def _with_coming(self, compiled: CompiledSnapshot) -> CompiledSnapshot:
        """The compiled snapshot with the claims that are coming counted against the limits of its pools."""
        if not self._coming:
            return compiled
        limits, tables = _chargeable(compiled)
        for claim in self._coming:
            if claim.plan.node_pool in limits:
                charge_claim(limits[claim.plan.node_pool], claim, tables[claim.plan.node_pool])
        return replace(compiled, limits=limits)


def _chargeable(compiled: CompiledSnapshot) -> tuple[dict[str, PoolLimits], dict[str, TypeTable]]:
    """Copies of the limits of pools, and the tables of their types, by pool."""
    limits = {pool: left.copy() for pool, left in compiled.limits.items()}
    return limits, {template.pool.metadata.name: template.table for template in compiled.templates}


def _coming_back(view: ClusterView) -> Mapping[str, list[Pod]]:
    """The pods of nodes that would be made anew elsewhere, by the node's name."""
    return {
        node: list(filter(planned_pods.is_recreated, on_node))
        for node, on_node in view.of_pods(planned_pods.running).items()
    }


def _unprotected(pods: Sequence[Pod], now: float) -> list[Pod]:
    return [pod for pod in pods if not (pod.metadata.annotations and planned_pods.do_not_disrupt(pod, now))]


def _deleted(node: Node, at: str) -> Node:
    return replace(node, metadata=replace(node.metadata, deletion_timestamp=at))


def _pods_of(packing: Packing) -> Iterable[Pod]:
    for placed in packing.nodes.placed:
        yield from placed
    for claim in packing.claims:
        for _, pods in claim.pods:
            yield from pods
