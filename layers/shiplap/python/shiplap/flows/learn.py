"""Learns from a node that joined: its real capacity, and whether the plan relied on more than it has.

The truth is stored before anything else is done with the node, so that no plan can be made around it. Learning twice
from the same node changes nothing that is relied on, which lets every flow that sees the node first do it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from shiplap.flows.claim_updates import facts
from shiplap.flows.context import FlowContext
from shiplap.instances.capacity.learned_capacity import shortfall
from shiplap.instances.capacity.reported_amounts import ALWAYS_REPORTED
from shiplap.instances.catalog.type_catalog import Observation
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import CPU, MEMORY, PODS, format_resources, parse_resources
from shiplap.manifests.nodeclaim import NodeClaim

_LOG = logging.getLogger(__name__)


def instance_of(provider_id: str) -> str:
    """The instance id in `aws:///<zone>/<instance id>`; empty when it is none."""
    last = provider_id.rpartition("/")[2]
    return last if provider_id.startswith("aws://") and last.startswith("i-") else ""


def has_reported(node: Node) -> bool:
    """True if kubelet has written the resources of the node. Some clouds create the Node before that."""
    return all(node.status.capacity.get(name) and node.status.allocatable.get(name) for name in (CPU, MEMORY, PODS))


def seems_broken(claim: NodeClaim, node: Node) -> bool:
    """True if a node has less than three quarters of a resource that its plan counted on.

    No estimate is so far off: it says nothing about the estimates of other nodes, and its pods may meet them again.
    """
    there = parse_resources(node.status.allocatable)
    return any(4 * there.get(name, 0) < 3 * claim.plan.allocatable.get(name, 0) for name in ALWAYS_REPORTED)


def learn(context: FlowContext, claim: NodeClaim, node: Node) -> dict[str, int]:
    """Store what the node reports; mark the claim's pods when the plan had relied on more and the node seems sound.

    Args:
        context: capacity, state, clock and meter are used.
        claim: launched; its AMI, type and kubelet settings are the key.
        node: has reported its capacity.

    Returns:
        By how much each resource is short, canonical units; empty when nothing is.

    Raises:
        StoreError: nothing may be planned with this node until its truth is stored.
    """
    now = context.clock.now()
    context.capacity.observe(observation_of(claim, node, now))
    short = _short(claim, node)
    if short and not seems_broken(claim, node):
        context.state.mark_missed(claim.cluster, _uids(claim), now)
    return short


def learn_from_joined(context: FlowContext, joined: Sequence[tuple[NodeClaim, Node]]) -> frozenset[str]:
    """The same for nodes that a decision finds before they are registered, which may be hundreds at a time.

    Of nodes alike only those teach that have least of something: it is all that later plans look at, and each of them
    is learned from anyway when it is registered.

    Args:
        context: as above.
        joined: claims with their nodes, which have reported.

    Returns:
        The uids of pods whose node is smaller than planned and seems sound.

    Raises:
        StoreError: nothing may be planned with these nodes until their truth is stored.
    """
    if not joined:
        return frozenset()
    now = context.clock.now()
    smallest: dict[tuple[str, ...], tuple[int, str]] = {}
    seen = {node.metadata.name: (claim, node) for claim, node in joined}
    for claim, node in joined:
        alike = (claim.known_instance.ami, claim.known_instance.type, claim.known_instance.kubelet_hash)
        for resource, amount in parse_resources(node.status.allocatable).items():
            known = smallest.setdefault((*alike, resource), (amount, node.metadata.name))
            smallest[*alike, resource] = min(known, (amount, node.metadata.name))
    for name in sorted({name for _, name in smallest.values()}):
        context.capacity.observe(observation_of(*seen[name], now))
    missed = [claim for claim, node in joined if _short(claim, node) and not seems_broken(claim, node)]
    missed_pods = {uid for claim in missed for uid in _uids(claim)}
    if missed_pods:
        context.state.mark_missed(joined[0][0].cluster, sorted(missed_pods), now)
    return frozenset(missed_pods)


def observation_of(claim: NodeClaim, node: Node, now: float) -> Observation:
    """Return the room that a node reports beside the room that was predicted for it."""
    return Observation(
        ami=claim.known_instance.ami,
        instance_type=claim.known_instance.type,
        kubelet_hash=claim.known_instance.kubelet_hash,
        capacity=parse_resources(node.status.capacity),
        allocatable=parse_resources(node.status.allocatable),
        observed_at=now,
        cluster=claim.cluster,
        node=node.metadata.name,
        predicted=claim.plan.allocatable,
    )


def _short(claim: NodeClaim, node: Node) -> dict[str, int]:
    short = shortfall(claim.plan.requests, parse_resources(node.status.allocatable))
    if short:
        _LOG.warning(
            "node is smaller than planned",
            extra={**facts(claim), "short": format_resources(short)},
        )
    return short


def _uids(claim: NodeClaim) -> list[str]:
    return [pod.uid for pod in claim.plan.pods if pod.uid]
