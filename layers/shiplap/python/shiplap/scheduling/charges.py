"""What exists and what is in flight, taken off the limits of its NodePool; the rest is what may still be launched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from shiplap.api.nodeclaim import LEAVING, NodeClaim
from shiplap.api.price_rules import MICROS, price_rules
from shiplap.api.types import NodePool
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import parse_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.scheduling.lanes import may_be_spot
from shiplap.scheduling.limits import HOURLY, Budget
from shiplap.scheduling.resources import Axis, Ints
from shiplap.scheduling.universe import TypeTable


def budgets_of(
    pools: Iterable[NodePool],
    axis: Axis,
    tables: Mapping[str, TypeTable],
    nodes: Sequence[Node],
    paired: Mapping[str, NodeClaim],
    waiting: Sequence[NodeClaim],
) -> dict[str, Budget]:
    """What each pool may still launch, by name.

    Args:
        pools: those that launch.
        axis: the resources, limited ones included.
        tables: the catalogue of each pool by name.
        nodes: those that are not leaving: a node that leaves is expected to be replaced.
        paired: claims by the name of the node they became.
        waiting: claims without a node.

    Raises:
        ValueError: a quantity or an annotation is malformed.
    """
    budgets = {}
    for pool in pools:
        rules = price_rules(pool)
        budgets[pool.metadata.name] = Budget(
            pool.spec.limits, axis, hourly_micros=rules.max_hourly_micros, spot_bound=rules.min_on_demand
        )
    for node in nodes:
        claim = paired.get(node.metadata.name)
        name = node.metadata.labels.get(labels.NODE_POOL) or (claim.node_pool if claim is not None else "")
        if name in budgets:
            budgets[name].charge(charge_of_node(node, claim, tables[name]))
            kind = node.metadata.labels.get(labels.CAPACITY_TYPE) or (claim.capacity_type if claim else "")
            budgets[name].count(1, steady=kind not in ("", labels.SPOT))
    for claim in waiting:
        if claim.node_pool in budgets and claim.state not in LEAVING:
            budgets[claim.node_pool].charge(_charge_of_claim(claim, tables[claim.node_pool]))
            budgets[claim.node_pool].count(1, steady=_is_steady(claim))
    return budgets


def charge_of_node(node: Node, claim: NodeClaim | None, table: TypeTable) -> Ints:
    """What a node takes of its pool's limits: the capacity it has, or will have."""
    capacity = parse_resources(node.status.capacity)
    if claim is not None:
        expected = table.axis.amounts(_charge_of_claim(claim, table))
        capacity |= {name: amount for name, amount in expected.items() if not capacity.get(name)}
    if claim is None or not claim.hourly:
        capacity[HOURLY] = _micros(_price(node, table))
    return table.axis.vector(capacity)


def _charge_of_claim(claim: NodeClaim, table: TypeTable) -> Ints:
    """The most that a claim may turn out with; what it was to yield when its types are gone."""
    candidates = (claim.instance_type,) if claim.instance_type else claim.instance_types
    places = [table.index[name] for name in candidates if name in table.index]
    if places:
        largest: Ints = table.capacity[places].max(axis=0)
    else:
        largest = table.axis.vector(claim.allocatable)
    if claim.hourly and HOURLY in table.axis.names:
        largest[table.axis.names.index(HOURLY)] = _micros(claim.hourly)
    return largest


def _is_steady(claim: NodeClaim) -> bool:
    if claim.capacity_type:
        return claim.capacity_type != labels.SPOT
    return not may_be_spot(Requirements.of(claim.requirements))


def _price(node: Node, table: TypeTable) -> float:
    """USD per hour of a node by its labels, whether its offering is available now or not; 0 when it is not known."""
    marks = node.metadata.labels
    place = table.index.get(marks.get(labels.INSTANCE_TYPE, ""))
    wanted = (marks.get(labels.ZONE, ""), marks.get(labels.CAPACITY_TYPE, ""))
    offerings = table.types[place].offerings if place is not None else ()
    return max((o.price for o in offerings if (o.zone, o.capacity_type) == wanted), default=0.0)


def _micros(price: float) -> int:
    return ceil(round(price * MICROS, 3))
