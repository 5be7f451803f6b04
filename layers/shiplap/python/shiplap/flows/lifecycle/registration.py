"""From an instance's Node to a registered and initialised one.

The order is what keeps the promises: first the node's truth is stored and the pods it fails are marked, then the claim
becomes Registered, which also settles any race with its join deadline, and only then is the node opened to pods.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.flows import claim_events, cluster_metrics
from shiplap.flows.claim_updates import facts, release_pilot
from shiplap.flows.context import FlowContext
from shiplap.flows.learn import learn
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, RawObject, Taint, is_ready
from shiplap.kubernetes.quantity import format_resources, parse_resources
from shiplap.kubernetes.taints import is_ephemeral, with_lacking
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim

_LOG = logging.getLogger(__name__)

_CONFLICT_TRIES = 5
"""Other controllers label and taint new nodes too; each conflict is answered with a fresh read."""


def register(claim: NodeClaim, node: Node, context: FlowContext) -> tuple[NodeClaim, Node]:
    """Take a Launched claim's Node, which has reported what it has, into service; both as they are then.

    Raises:
        ConditionFailed: somebody else advanced the claim.
        StoreError, ClusterError: tried again with the next hint; every step may be repeated.
    """
    short = learn(context, claim, node)
    now = context.clock.now()
    launched = claim
    claim = context.state.advance(
        claim,
        ClaimState.REGISTERED,
        node_name=node.metadata.name,
        missed=bool(short),
        changed_at=now,
        deadline_at=0.0,
    )
    cluster_metrics.measure_memory(launched, parse_resources(node.status.allocatable), context.meter)
    context.meter.count("LaunchToJoined", seconds_since(launched.changed_at, now), "Seconds")
    release_pilot(claim, context)
    node = open_to_pods(claim, node, context)
    context.meter.count("NodesRegistered")
    _LOG.info("registered", extra=facts(claim))
    context.publish(claim_events.of_claim(claim_events.REGISTERED, claim, now, missed=claim.missed))
    if short:
        publish_missed(claim, short, context)
    return claim, node


def publish_missed(claim: NodeClaim, short: dict[str, int], context: FlowContext) -> None:
    """Tell that a node is smaller than planned, and have its pods planned again at once."""
    now = context.clock.now()
    context.meter.count("NodeClaimsMissed")
    hint = f"{claim.cluster}/{claim.name}/missed"
    context.publish(
        claim_events.of_claim(claim_events.MISSED, claim, now, short=format_resources(short)),
        claim_events.pods_pending(claim.cluster, claim.plan.pods, claim_events.MISSED, now, event_id=hint),
    )


def open_to_pods(claim: NodeClaim, node: Node, context: FlowContext) -> Node:
    """Give the node its claim's labels, annotations and taints, and take the unregistered taint away; once.

    Returns the node as it is then. Raises as `update_node` does.
    """
    if is_registered(node):
        return node
    added = {**claim.node_labels, labels.NODE_CLAIM: claim.name, labels.REGISTERED: "true"}
    owner = object_reference(claim) if claim.is_standalone and not node.metadata.owner_references else None
    taints = partial(_node_taints, claim)
    return update_node(node, added, claim.plan.annotations, taints, context, owner=owner)


def object_reference(claim: NodeClaim) -> RawObject:
    """Return the reference by which a Node names the NodeClaim of a user that it belongs to."""
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "name": claim.plan.object_name,
        "uid": claim.plan.object_uid,
        "blockOwnerDeletion": True,
    }


def update_node(
    node: Node,
    added: Mapping[str, str | None],
    annotations: Mapping[str, str],
    taints: Callable[[Node], Sequence[Taint]],
    context: FlowContext,
    *,
    owner: RawObject | None = None,
) -> Node:
    """Write to a node; whenever somebody else changed it first, start from what it is now. The node as it is then.

    A label that is `added` as None is taken away.

    Raises:
        ObjectNotFound: the node is gone.
        ObjectConflict: the node kept changing under our hands.
        ClusterError: the API server refuses.
    """

    def write(node: Node) -> Node:
        return context.cluster.patch_node(
            node.metadata.name,
            labels=added,
            annotations=annotations,
            taints=taints(node),
            resource_version=node.metadata.resource_version,
            owner=owner,
        )

    for _ in range(_CONFLICT_TRIES - 1):
        try:
            return write(node)
        except ObjectConflict:
            node = _read_again(node, context)
    return write(node)


def _read_again(node: Node, context: FlowContext) -> Node:
    """The node, read again. Names come from addresses: another node may have this one's by now."""
    fresh = context.cluster.node(node.metadata.name)
    if fresh.metadata.uid != node.metadata.uid:
        raise ObjectNotFound(f"node {node.metadata.name} is gone, and another has its name")
    return fresh


def is_registered(node: Node) -> bool:
    """True if the node carries the registered label and no unregistered taint any more."""
    return node.metadata.labels.get(labels.REGISTERED) == "true" and not is_unregistered(node)


def is_unregistered(node: Node) -> bool:
    """True if the node bears the taint that it starts with."""
    return any(taint.key == labels.UNREGISTERED_TAINT for taint in node.spec.taints)


def _node_taints(claim: NodeClaim, node: Node) -> list[Taint]:
    """The node's taints without the unregistered one, and the claim's that it lacks."""
    kept = [taint for taint in node.spec.taints if taint.key != labels.UNREGISTERED_TAINT]
    if node.metadata.labels.get(labels.DO_NOT_SYNC_TAINTS) == "true":
        return kept
    return list(with_lacking(kept, (*claim.plan.taints, *claim.plan.startup_taints)))


def initialize(claim: NodeClaim, node: Node, context: FlowContext) -> NodeClaim | None:
    """Take a Registered claim's Node for complete once it is.

    Returns:
        The claim as Initialized, or None while something is missing.

    Raises:
        ConditionFailed: somebody else advanced the claim.
        StoreError, ClusterError: tried again with the next hint.
    """
    node = open_to_pods(claim, node, context)  # an earlier try may have died between its claim and its node
    missing = not_initialized(claim, node)
    if missing:
        _LOG.debug("not initialized: %s", missing, extra=facts(claim))
        return None
    known_miss = claim.missed
    short: dict[str, int] = {}
    if any("/" in resource for resource in node.status.allocatable):  # now device plugins have reported too
        short = learn(context, claim, node)
    if node.metadata.labels.get(labels.INITIALIZED) != "true":
        update_node(node, {labels.INITIALIZED: "true"}, {}, lambda current: current.spec.taints, context)
    now = context.clock.now()
    registered_at = claim.changed_at
    claim = context.state.advance(claim, ClaimState.INITIALIZED, missed=known_miss or bool(short), changed_at=now)
    context.meter.count("JoinedToReady", seconds_since(registered_at, now), "Seconds")
    first_event_at = claim.cause.first_event_at or claim.created_at
    context.meter.count("EventToReady", seconds_since(first_event_at, now), "Seconds")
    context.meter.count("NodesInitialized")
    _LOG.info("initialized", extra=facts(claim))
    context.publish(claim_events.of_claim(claim_events.INITIALIZED, claim, now))
    if short and not known_miss:
        publish_missed(claim, short, context)
    return claim


def seconds_since(began_at: float, now: float) -> float:
    """Since a moment that another function noted, whose clock may be ahead of this one's."""
    return max(now - began_at, 0.0)


def not_initialized(claim: NodeClaim, node: Node) -> str:
    """Return what the node still lacks, in upstream's order and words; empty when it is complete."""
    if not is_ready(node.status):
        return "NodeNotReady"
    startup = {(taint.key, taint.effect) for taint in claim.plan.startup_taints}
    if any((taint.key, taint.effect) in startup for taint in node.spec.taints):
        return "StartupTaintsExist"
    if any(is_ephemeral(taint) for taint in node.spec.taints):
        return "KnownEphemeralTaintsExist"
    allocatable = parse_resources(node.status.allocatable)
    if any(amount > 0 and allocatable.get(resource, 0) == 0 for resource, amount in claim.plan.requests.items()):
        return "ResourceNotRegistered"
    return ""
