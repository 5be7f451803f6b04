"""What a node that joined teaches: its real capacity, and whether the plan relied on more than it has.

The truth is stored before anything else is done with the node, so that no plan can be made around it. Learning twice
from the same node changes nothing that is relied on, which lets every flow that sees the node first do it.
"""

from __future__ import annotations

import logging

from shiplap.api.nodeclaim import NodeClaim
from shiplap.instances.learning import missed
from shiplap.instances.types import Observation
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS, format_resources, parse_resources
from shiplap.provisioning import gauges
from shiplap.provisioning.claims import facts
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)


def instance_of(provider_id: str) -> str:
    """The instance id in `aws:///<zone>/<instance id>`; empty when it is none."""
    last = provider_id.rpartition("/")[2]
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""


def has_reported(node: Node) -> bool:
    """Whether kubelet has written what the node has; some clouds create the Node before that."""
    return all(node.status.capacity.get(name) and node.status.allocatable.get(name) for name in (CPU, MEMORY, PODS))


def learn(world: World, claim: NodeClaim, node: Node) -> dict[str, int]:
    """Store what the node reports; mark the claim's pods when the plan had relied on more.

    Args:
        world: capacity, state, clock and meter are used.
        claim: launched; its AMI, type and kubelet settings are the key.
        node: has reported its capacity.

    Returns:
        By how much each resource is short, canonical units; empty when nothing is.

    Raises:
        StoreError: nothing may be planned with this node until its truth is stored.
    """
    now = world.clock.now()
    allocatable = parse_resources(node.status.allocatable)
    world.capacity.observe(
        Observation(
            ami=claim.ami,
            instance_type=claim.instance_type,
            kubelet_hash=claim.kubelet_hash,
            capacity=parse_resources(node.status.capacity),
            allocatable=allocatable,
            observed_at=now,
            cluster=claim.cluster,
            node=node.metadata.name,
            predicted=claim.allocatable,
        )
    )
    gauges.measure_memory(claim, allocatable, world.meter)
    short = missed(claim.requests, allocatable)
    if short:
        world.state.mark_missed(claim.cluster, [pod.uid for pod in claim.pods if pod.uid], now)
        _LOG.warning(
            "node is smaller than planned",
            extra={**facts(claim), "short": format_resources(short)},
        )
    return short
