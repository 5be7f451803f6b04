"""The resources that a decision reckons with: those that pods, DaemonSets and limits name, up to a number.

Each resource is a column of every array of instance types, nodes and claims. Whoever may create pods may invent names
of resources, so names that no instance type has make room first, then names that the fewest nodes have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import price_rules
from shiplap.scheduling.model.pod_volumes import ATTACHED
from shiplap.scheduling.model.resources import Axis
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.supply.daemons import Daemon
from shiplap.scheduling.supply.limits import HOURLY, NODES, SPOT_VCPUS, price_limits

MOST_RESOURCES = 128
"""Columns of a decision. EC2's instance types have 15 resources, device plugins of real clusters add a few."""


def axis_of(names: Collection[str], daemons: Iterable[Daemon], pools: Iterable[NodePool], snapshot: Snapshot) -> Axis:
    """The axis of a decision for these names, which pods request, and those of DaemonSets and limits."""
    wanted = set(names)
    for daemon in daemons:
        wanted.update(daemon.requests)
    for pool in pools:
        wanted.update(pool.spec.limits)
        wanted.update(price_limits(price_rules(pool)))
    wanted -= {NODES}
    return Axis(wanted if len(wanted) <= MOST_RESOURCES else _most_offered(wanted, snapshot))


def outside_of(axis: Axis, requests: Collection[str]) -> str:
    """Return why requests for these resources cannot be planned, or ""."""
    outside = set(requests) - {NODES, *axis.names}
    if not outside:
        return ""
    return (
        f"asks for {min(outside)}: no instance type has it, and pods, DaemonSets and limits of the cluster "
        f"name more than {MOST_RESOURCES} resources"
    )


def _most_offered(names: Collection[str], snapshot: Snapshot) -> list[str]:
    """Of these names the first `MOST_RESOURCES`: first those of instance types, then by how many nodes have them."""
    types = {name for catalog in snapshot.catalogs for item in catalog.instance_types for name in item.capacity}
    types |= {name for overlay in snapshot.manifests.node_overlays for name in overlay.spec.capacity}
    types |= {HOURLY, SPOT_VCPUS, *(name for name in names if name.startswith(ATTACHED))}
    on_nodes = Counter(name for node in snapshot.view.nodes for name in node.status.allocatable)
    return sorted(names, key=lambda name: (name not in types, -on_nodes[name], name))[:MOST_RESOURCES]
