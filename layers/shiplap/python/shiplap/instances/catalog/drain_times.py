"""How long before the end of a capacity block its nodes begin to be emptied: long enough for their NodePools.

All NodePools of an EC2NodeClass have the longest time that one of them asks for. So a plan launches nothing into a
block that the sweep would empty again.
"""

from __future__ import annotations

from shiplap.instances.catalog.resolved_nodeclass import LEAST_DRAIN_S
from shiplap.manifests.custom_resources import Manifests
from shiplap.manifests.times import seconds

MOST_DRAIN_S = 2 * 3600
"""No terminationGracePeriod keeps a block empty for longer, in seconds: what is left of it ends with the block."""

_ROUND_S = 120
"""Time until a sweep sees that nodes are to be emptied, and for the last round, in seconds."""


def drain_time_s(manifests: Manifests, node_class: str) -> int:
    """Return for how many seconds nodes of an EC2NodeClass are emptied before EC2 ends those of a block."""
    graces = (
        pool.spec.template.spec.termination_grace_period
        for pool in manifests.node_pools
        if pool.spec.template.spec.node_class_ref.name == node_class
    )
    asked = (seconds(grace) + _ROUND_S for grace in graces if grace)
    return min(max((LEAST_DRAIN_S, *asked)), MOST_DRAIN_S)
