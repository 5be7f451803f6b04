"""Nodes as controllers see them."""

from __future__ import annotations

from shiplap.kubernetes.objects import Node
from shiplap_lab.faults.fault_world import FaultyCluster

RETRY_S = 5.0
"""When who could not reach the API server tries again, in seconds."""


def seen_node(cluster: FaultyCluster, name: str) -> Node | None:
    """A Node as it is now."""
    cluster.informer.refresh()
    return cluster.informer.nodes.get(name)
