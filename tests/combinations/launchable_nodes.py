"""Nodes that a plan could have launched beside those that it launches, by the rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from shiplap.instances.catalog.type_catalog import InstanceType
from shiplap.kubernetes.objects import Node, Taint
from shiplap.kubernetes.quantity import format_resources
from shiplap.manifests.custom_resources import NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from tests.checker import Judge
from tests.leftovers import NodesOfPools
from tests.policy_parts import policy_parts
from tests.rules import HOST, KIND, TYPE


@dataclass(frozen=True)
class LaunchableNode:
    """A node of a NodePool and a type, as it would join. It is open if the pool's limits allow it beside the plan."""

    node: Node
    is_open: bool


def launchable_nodes(snapshot: Snapshot, plan: Plan) -> Iterator[LaunchableNode]:
    """One more node of each NodePool, type and offering but reserved ones, which the plan may have used up."""
    search = NodesOfPools(snapshot, plan)
    for pool in search.judge.pools.values():
        if not _takes_part(search.judge, pool):
            continue
        allowed = {item.name for item in search.within_limits(pool)}
        for item in search.judge.types.get(pool.spec.template.spec.node_class_ref.name, {}).values():
            for labels in search.nodes(pool, item):
                if labels[KIND] != "reserved":
                    yield LaunchableNode(_joined_as(pool, item, labels), item.name in allowed)


def _takes_part(judge: Judge, pool: NodePool) -> bool:
    """A static or closed NodePool launches nothing for pods; one with minValues may launch no single type."""
    parts = policy_parts("combinations", "pools")
    is_closed = any(pool.metadata.name in module.closed(judge.snapshot) for module in parts)
    least = any(rule.min_values for rule in pool.spec.template.spec.requirements)
    return pool.spec.replicas is None and not least and not is_closed


def arriving_nodes(snapshot: Snapshot, plan: Plan, rng: Random) -> Iterator[Node]:
    """The nodes that claims in flight become: each of a type and in a place that is drawn among those of its claim."""
    judge = Judge(snapshot, plan)
    for claim in snapshot.claims:
        types = judge.types.get(claim.plan.node_class, {})
        known = [types[name] for name in claim.plan.instance_types if name in types]
        choices = [(item, labels) for item in known for labels, _ in judge.nodes(claim, item)]
        if not claim.node_name and choices:
            item, labels = rng.choice(choices)
            yield _joined(claim.name, claim.plan.taints, item, labels)


def _joined_as(pool: NodePool, item: InstanceType, labels: dict[str, str]) -> Node:
    name = f"chance-{pool.metadata.name}-{labels[TYPE]}-{'-'.join(sorted(set(labels.values())))}"[:250]
    return _joined(name, pool.spec.template.spec.taints, item, labels)


def _joined(name: str, taints: Sequence[Taint], item: InstanceType, labels: Mapping[str, str]) -> Node:
    resources = format_resources(item.allocatable if item.verified else item.careful_allocatable)
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {**labels, HOST: name}},
            "spec": {"taints": msgspec.to_builtins(taints)},
            "status": {"capacity": resources, "allocatable": resources},
        },
        Node,
    )
