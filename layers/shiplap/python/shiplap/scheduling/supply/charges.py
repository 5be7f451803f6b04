"""Takes what exists and what is in flight off the limits of its NodePool; the rest is what may still be launched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shiplap.instances.offerings.instance_rates import micros_of, rate_of, unknown_rate, unknown_rate_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import CPU, parse_resources
from shiplap.kubernetes.requirements import Requirements
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import GOING_FOR_GOOD, NodeClaim
from shiplap.manifests.shiplap_annotations import price_rules
from shiplap.scheduling.model.resources import Axis, Ints
from shiplap.scheduling.supply.instance_arrays import TypeTable
from shiplap.scheduling.supply.limits import HOURLY, SPOT_VCPUS, PoolLimits
from shiplap.scheduling.supply.templates import may_be_spot


def limits_of_pools(
    pools: Iterable[NodePool],
    axis: Axis,
    tables: Mapping[str, TypeTable],
    nodes: Sequence[Node],
    paired: Mapping[str, NodeClaim],
    waiting: Sequence[NodeClaim],
) -> dict[str, PoolLimits]:
    """Return the limits of each pool by name, with what it may still launch.

    Args:
        pools: those that launch.
        axis: the resources, limited ones included.
        tables: the catalogue of each pool by name.
        nodes: all there are. One that leaves is expected to be replaced, and counts for nothing; one that a command
            under way may still give back counts, beside its replacements.
        paired: claims by the name of the node they became.
        waiting: claims without a node.

    Raises:
        ValueError: a quantity or an annotation is malformed.
    """
    pool_limits = {}
    for pool in pools:
        rules = price_rules(pool)
        pool_limits[pool.metadata.name] = PoolLimits(
            pool.spec.limits,
            axis,
            hourly_micros=rules.max_hourly_micros,
            spot_bound=rules.min_on_demand,
            vcpu_bound=rules.min_on_demand_vcpus,
        )
    for node in nodes:
        claim = paired.get(node.metadata.name)
        if node.metadata.deletion_timestamp or (claim is not None and claim.state in GOING_FOR_GOOD):
            continue
        name = name_of_label(node.metadata.labels.get(labels.NODE_POOL, ""), pool_limits)
        name = name or (claim.plan.node_pool if claim is not None else "")
        if name in pool_limits:
            charge_node(pool_limits[name], node, claim, tables[name])
    for claim in waiting:
        if claim.plan.node_pool in pool_limits and claim.state not in GOING_FOR_GOOD:
            charge_claim(pool_limits[claim.plan.node_pool], claim, tables[claim.plan.node_pool])
    return pool_limits


def charge_claim(limits: PoolLimits, claim: NodeClaim, table: TypeTable) -> None:
    """Take a claim that has no node yet off its pool's limits."""
    sizes = table.capacity[_places(claim, table), 0].tolist()
    vcpus = min(sizes, default=claim.plan.allocatable.get(CPU, 0))
    limits.charge(_charge_of_claim(claim, table))
    limits.count(1, steady=_is_steady(claim), vcpus=vcpus)


def charge_node(limits: PoolLimits, node: Node, claim: NodeClaim | None, table: TypeTable, nodes: int = 1) -> None:
    """Take a node off its pool's limits, or give it back with `nodes` -1."""
    charge = _charge_of_node(node, claim, table)
    kind = node.metadata.labels.get(labels.CAPACITY_TYPE) or (claim.known_instance.capacity_type if claim else "")
    steady = kind not in ("", labels.SPOT)
    if SPOT_VCPUS in table.axis.names:
        charge[table.axis.names.index(SPOT_VCPUS)] = 0 if steady else charge[0]
    limits.charge(charge, nodes)
    limits.count(nodes, steady=steady, vcpus=int(charge[0]))


def _charge_of_node(node: Node, claim: NodeClaim | None, table: TypeTable) -> Ints:
    """Return what a node takes of its pool's limits: the capacity it has, or will have."""
    capacity = parse_resources(node.status.capacity)
    if claim is not None:
        expected = table.axis.amounts(_charge_of_claim(claim, table))
        capacity |= {name: amount for name, amount in expected.items() if not capacity.get(name)}
    if claim is None or not claim.hourly:
        capacity[HOURLY] = _micros_by_labels(node, table, capacity.get(CPU, 0))
    return table.axis.vector(capacity)


def _charge_of_claim(claim: NodeClaim, table: TypeTable) -> Ints:
    """The most that a claim may turn out with; what it was to yield when its types are gone."""
    places = _places(claim, table)
    if len(places) == 1:
        largest: Ints = table.capacity[places[0]].copy()
    elif places:
        largest = table.capacity[places].max(axis=0)
    else:
        largest = table.axis.vector(claim.plan.allocatable)
    if SPOT_VCPUS in table.axis.names:
        largest[table.axis.names.index(SPOT_VCPUS)] = 0 if _is_steady(claim) else largest[0]
    if HOURLY in table.axis.names:
        column = table.axis.names.index(HOURLY)
        largest[column] = _micros_of_claim(claim, int(largest[column]))
    return largest


def _micros_of_claim(claim: NodeClaim, dearest: int) -> int:
    """Return the millionths of a dollar per hour of a claim.

    Until it is launched, it counts as the dearest of its types at today's prices.
    """
    recorded = micros_of(claim.hourly)
    if claim.known_instance.type and recorded:
        return recorded
    return max(dearest, recorded) or rate_of(claim, claim.most_hourly).micros


def charge_of_types(names: Iterable[str], table: TypeTable) -> Ints:
    """The most that a node of any of these types takes of its pool's limits."""
    most: Ints = table.capacity[[table.index[name] for name in names if name in table.index]].max(axis=0)
    return most


def _places(claim: NodeClaim, table: TypeTable) -> list[int]:
    """The types a claim is, or may still be launched as: of a kept claim the type is open."""
    candidates = (claim.known_instance.type,) if claim.known_instance.type else claim.plan.instance_types
    return [table.index[name] for name in candidates if name in table.index]


def _is_steady(claim: NodeClaim) -> bool:
    if claim.known_instance.capacity_type:
        return claim.known_instance.capacity_type != labels.SPOT
    return not may_be_spot(Requirements.of(claim.plan.requirements))


def _micros_by_labels(node: Node, table: TypeTable, vcpu_thousandths: int) -> int:
    """Return the millionths of a dollar per hour of a node, whether its offering is available now or not.

    Without a price the node counts at an estimate.
    """
    marks = node.metadata.labels
    place = table.index.get(marks.get(labels.INSTANCE_TYPE, ""))
    if place is None:
        return unknown_rate(0.0, vcpu_thousandths).micros
    wanted = (marks.get(labels.ZONE, ""), marks.get(labels.CAPACITY_TYPE, ""))
    prices = (o.price for o in table.types[place].offerings if (o.zone, o.capacity_type) == wanted)
    return micros_of(max(prices, default=0.0)) or unknown_rate_of(table.types[place]).micros
