"""The ends a claim can come to without ever being drained: never joined, vanished, gone from the cluster, or garbage.

Only the lifecycle function uses this, and only it may terminate instances.
"""

from __future__ import annotations

import logging

from shiplap.api.nodeclaim import FINAL, ClaimState, NodeClaim
from shiplap.errors import ClusterGone
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.ports import Instance
from shiplap.provisioning import events
from shiplap.provisioning.claims import GRACE_S, Holders, facts, fail, release_pilot
from shiplap.provisioning.learn import instance_of
from shiplap.provisioning.world import World

_LOG = logging.getLogger(__name__)


def give_up(claim: NodeClaim, reason: str, world: World) -> NodeClaim:
    """End a claim and its instance, and have its pods planned again.

    Terminating comes first: from then on nobody can register the node, so that what is ended was never in service.
    """
    now = world.clock.now()
    claim = world.state.advance(claim, ClaimState.TERMINATING, failure=reason, changed_at=now)
    _LOG.warning("giving up: %s", reason, extra=facts(claim))
    return finish(claim, world)


def finish(claim: NodeClaim, world: World) -> NodeClaim:
    """End the instance of a Terminating claim, then the claim."""
    world.compute.terminate(claim.cluster, claim.instance_id)
    now = world.clock.now()
    claim = world.state.advance(claim, ClaimState.GONE, changed_at=now)
    world.meter.count("NodesTerminated")
    _LOG.info("terminated", extra=facts(claim))
    world.tell(events.of_claim(events.TERMINATED, claim, now, reason=claim.failure))
    _replan(claim, world)
    return claim


def has_vanished(claim: NodeClaim, world: World) -> bool:
    """Whether the claim's instance does not exist any more, once describing must have caught up with its launch."""
    if world.clock.now() < claim.changed_at + GRACE_S:
        return False
    return world.compute.instance(claim.cluster, claim.instance_id) is None


def write_off(claim: NodeClaim, world: World) -> NodeClaim:
    """A claim whose instance has vanished is over, too."""
    now = world.clock.now()
    reason = f"instance {claim.instance_id} is gone"
    if claim.state is ClaimState.LAUNCHED:
        claim = fail(claim, reason, world)
        _replan(claim, world)
    else:
        claim = world.state.advance(claim, ClaimState.GONE, failure=reason, changed_at=now)
        world.tell(events.of_claim(events.TERMINATED, claim, now, reason=reason))
    world.meter.count("InstancesVanished")
    return claim


def _replan(claim: NodeClaim, world: World) -> None:
    release_pilot(claim, world)
    hint = f"{claim.cluster}/{claim.name}/ended"
    world.tell(events.pods_pending(claim.cluster, claim.pods, claim.failure, world.clock.now(), event_id=hint))


def clear_away(cluster: str, name: str, world: World) -> bool:
    """End instances tagged with the name of a claim, or a launch, that no claim has or will ever take.

    The sweep took the first look; this is the second one. An instance whose Node was opened to pods is only reported:
    it may be doing work.

    Returns:
        Whether any was ended.
    """
    now = world.clock.now()
    ended = False
    suspects = [instance for instance in world.compute.instances(cluster) if instance.tagged == name]
    if not suspects:
        return False
    holders = Holders(world.state.claims(cluster))
    for instance in suspects:
        if not holders.is_garbage(instance, now):
            continue
        about = {"cluster": cluster, "claim": name, "instance_id": instance.id}
        if _in_service(instance, world):
            world.meter.count("NodesWithoutClaim")
            _LOG.warning("node without a claim is left alone", extra=about)
            continue
        world.compute.terminate(cluster, instance.id)
        ended = True
        world.meter.count("GarbageTerminated")
        _LOG.warning("instance without a claim terminated", extra=about)
    return ended


def clear_nodes(cluster: str, claim: NodeClaim, world: World) -> bool:
    """Remove the Node of a claim that has ended, once its instance is gone and its kubelet silent.

    The cloud's own controller does that as well, where there is one. Only a Node whose instance the claim had is
    touched. Returns whether there was one.
    """
    if claim.state not in FINAL or not claim.instance_id:
        return False
    for node in _nodes(world):
        ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
        if ready or instance_of(node.spec.provider_id) != claim.instance_id:
            continue
        if world.compute.instance(cluster, claim.instance_id) is not None:
            continue
        world.cluster.delete_node(node)
        world.meter.count("NodesCleared")
        _LOG.warning("Node without an instance removed", extra={**facts(claim), "node": node.metadata.name})
        return True
    return False


def _in_service(instance: Instance, world: World) -> bool:
    for node in _nodes(world):
        if instance_of(node.spec.provider_id) == instance.id:
            return all(taint.key != labels.UNREGISTERED_TAINT for taint in node.spec.taints)
    return False


def _nodes(world: World) -> tuple[Node, ...]:
    """All Nodes; none when the cluster itself is gone. Raises ClusterError."""
    try:
        return world.cluster.nodes()
    except ClusterGone:
        return ()
