"""The nodes that a static pool has too many of, in the order in which they go.

Only nodes that may go are ordered: a protected one in the first place would keep the pool above its number for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from shiplap.kubernetes.objects import Node, Pod
from shiplap.kubernetes.timestamps import epoch
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.times import seconds_or_never
from shiplap.scheduling.model.claim_nodes import is_initialized, reports_ready
from shiplap.scheduling.model.planned_pods import do_not_disrupt, owner_kind
from shiplap.scheduling.model.protected_pods import PdbLimits, first_protection

_STAYING_OWNERS = ("DaemonSet", "Node")


class RemovableNode(msgspec.Struct, frozen=True):
    """A node that may go, and the unfinished pods on it."""

    node: Node
    pods: Sequence[Pod]


def surplus_in_service(nodes: Iterable[Node], replicas: int) -> int:
    """Return by how many the nodes in service exceed the replicas.

    Claims and nodes that are still coming go before nodes in service.
    """
    return max(sum(map(is_initialized, nodes)) - replicas, 0)


def in_order_of_removal(
    pool: NodePool, removable: Iterable[RemovableNode], pdb_limits: PdbLimits, now: float
) -> list[Node]:
    """Nodes that are not Ready, empty nodes, then those whose pods lose least.

    A node with a pod that must not be disrupted comes last, and before it a Ready node with a pod that a
    PodDisruptionBudget keeps. On a node that is not Ready no pod serves, so no budget is worth waiting for.
    """
    lifetime_s = seconds_or_never(pool.spec.template.spec.expire_after)

    def loss(item: RemovableNode) -> tuple[bool, bool, bool, bool, float, str]:
        node, ready = item.node, reports_ready(item.node)
        moving = [pod for pod in item.pods if owner_kind(pod) not in _STAYING_OWNERS]
        marked = any(do_not_disrupt(pod, now) for pod in moving)
        guarded = ready and bool(first_protection(moving, pdb_limits, now))
        born = epoch(node.metadata.creation_timestamp) if node.metadata.creation_timestamp else now
        left = max(1 - (now - born) / lifetime_s, 0.0) if lifetime_s else 1.0
        # An expired node costs nothing to lose, but one without pods still goes first.
        return (marked, ready, guarded, bool(moving), len(moving) * left, node.metadata.name)

    return [item.node for item in sorted(removable, key=loss)]
