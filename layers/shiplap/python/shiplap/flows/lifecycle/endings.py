"""The ends a claim can come to without ever being drained: never joined, vanished, gone from the cluster, or garbage.

Only the lifecycle function uses this, and only it may terminate instances.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from msgspec.structs import replace

from shiplap.errors import ClusterGone, ConditionFailed
from shiplap.flows import claim_events
from shiplap.flows.claim_updates import GRACE_S, InstanceOwners, facts, fail_claim, release_pilot
from shiplap.flows.context import FlowContext
from shiplap.flows.interrupt.notices import NoticeKind
from shiplap.flows.learn import instance_of
from shiplap.flows.lifecycle.adoption import adopt
from shiplap.flows.lifecycle.joining import record_failed_join
from shiplap.flows.lifecycle.registration import is_unregistered
from shiplap.flows.pod_events import publish_for_pods
from shiplap.flows.policies import active
from shiplap.instances.offerings.remedies import with_remedy
from shiplap.instances.readiness.joins import node_class_scope
from shiplap.kubernetes.objects import Node, is_ready
from shiplap.manifests.nodeclaim import FINAL, ClaimState, NodeClaim
from shiplap.ports import Instance, OfferingFailure
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)


def give_up(claim: NodeClaim, reason: str, context: FlowContext) -> NodeClaim:
    """Have a claim and its instance ended: the claim is Terminating, and `terminate_claims` does the rest.

    From then on no function can register the node, so that what is ended was never in service.
    """
    now = context.clock.now()
    claim = context.state.advance(claim, ClaimState.TERMINATING, failure=reason, changed_at=now)
    _LOG.warning("giving up: %s", reason, extra=facts(claim))
    return claim


def terminate_claims(claims: Sequence[NodeClaim], context: FlowContext) -> tuple[NodeClaim, ...]:
    """End the instances of Terminating claims, all by one request, then the claims.

    Returns:
        The claims as Gone, without those that others have advanced and those that wait until EC2 says why they ended.

    Raises:
        StoreError, AwsError: what is left is done when the claims are visited again.
    """
    ended_because = {claim.name: why_ended(claim, context) for claim in claims if never_joined(claim)}
    ready = [
        claim
        for claim in claims
        if claim.name not in ended_because or _is_explained(claim, ended_because[claim.name], context)
    ]
    if not ready:
        return ()
    context.compute.terminate(claims[0].cluster, *(claim.instance_id for claim in ready))
    ended = []
    for claim in ready:
        try:
            if claim.name in ended_because:
                ended.append(_mark_failed(claim, ended_because[claim.name], context))
            else:
                ended.append(_mark_gone(claim, context))
        except ConditionFailed as error:  # another invocation is at it; what is left to do, it does
            context.meter.count("ClaimsLost")
            _LOG.info("claim was advanced meanwhile: %s", error, extra=facts(claim))
    return tuple(ended)


def never_joined(claim: NodeClaim) -> bool:
    """True if a Terminating claim's instance ended by itself before it became a node."""
    return not claim.node_name and has_ended_by_itself(claim)


def has_ended_by_itself(claim: NodeClaim) -> bool:
    """True if EC2 has told that the claim's instance stopped or ended, and nobody here had asked for it."""
    return claim.failure in (NoticeKind.STOPPED, NoticeKind.TERMINATED)


def why_ended(claim: NodeClaim, context: FlowContext) -> OfferingFailure | None:
    """Return why the claim's instance has ended, or is about to; None while it runs, or when EC2 gives no reason.

    Raises:
        AwsError: EC2 refused.
    """
    return context.compute.ended(claim.cluster, claim.instance_id)


def _is_explained(claim: NodeClaim, failure: OfferingFailure | None, context: FlowContext) -> bool:
    """True if it is known why an instance ended, or too late to wait for the reason.

    Describing may lag behind the event.
    """
    return failure is not None or context.clock.now() >= claim.changed_at + GRACE_S


def _mark_gone(claim: NodeClaim, context: FlowContext) -> NodeClaim:
    now = context.clock.now()
    claim = context.state.advance(claim, ClaimState.GONE, changed_at=now)
    active.ended(claim, context)
    context.meter.count("NodesTerminated")
    _LOG.info("terminated", extra=facts(claim))
    context.publish(claim_events.of_claim(claim_events.TERMINATED, claim, now, reason=claim.failure))
    _publish_pods_pending(claim, context)
    return claim


def _mark_failed(claim: NodeClaim, failure: OfferingFailure | None, context: FlowContext) -> NodeClaim:
    reason = f"its instance {claim.instance_id} ended before it joined"
    if failure is not None:
        reason = with_remedy(failure.code, f"{reason}: {failure.message}")
    claim = fail_claim(claim, reason, context)
    publish_for_pods(claim, reason, context)
    _publish_pods_pending(claim, context)
    context.meter.count("InstancesVanished")
    return claim


def give_up_ended(
    claim: NodeClaim, failure: OfferingFailure, settings: ClusterSettings, context: FlowContext
) -> NodeClaim:
    """Give up a Launched claim whose instance ended before it joined.

    What is learned of it comes first: pods that are planned again must meet it.
    """
    _remember_failure(claim, failure, settings, context)
    return give_up(claim, NoticeKind.TERMINATED, context)


def _remember_failure(
    claim: NodeClaim, failure: OfferingFailure, settings: ClusterSettings, context: FlowContext
) -> None:
    """Leave alone what would end alike: the EC2NodeClass, the offering or the quota; else count it as a failed join."""
    if failure.kind == "transient":
        record_failed_join(claim, context)
        return
    if failure.kind == "configuration":
        classes = (item for item in settings.manifests.node_classes if item.metadata.name == claim.plan.node_class)
        scopes = [node_class_scope(claim.cluster, node_class) for node_class in classes]
        if not scopes:  # nothing is launched from it any more
            return
        failure = replace(failure, node_class=scopes[0])
    context.state.mark_unavailable([failure], context.clock.now())


def has_vanished(claim: NodeClaim, context: FlowContext) -> bool:
    """True if the claim's instance does not exist any more, once describing must have caught up with its launch."""
    if context.clock.now() < claim.changed_at + GRACE_S:
        return False
    return context.compute.instance(claim.cluster, claim.instance_id) is None


def write_off(claim: NodeClaim, context: FlowContext) -> NodeClaim:
    """A claim whose instance has vanished is over, too."""
    now = context.clock.now()
    reason = f"instance {claim.instance_id} is gone"
    if claim.state is ClaimState.LAUNCHED:
        claim = fail_claim(claim, reason, context)
        _publish_pods_pending(claim, context)
    else:
        claim = context.state.advance(claim, ClaimState.GONE, failure=reason, changed_at=now)
        active.ended(claim, context)
        context.publish(claim_events.of_claim(claim_events.TERMINATED, claim, now, reason=reason))
    context.meter.count("InstancesVanished")
    return claim


def _publish_pods_pending(claim: NodeClaim, context: FlowContext) -> None:
    release_pilot(claim, context)
    hint = f"{claim.cluster}/{claim.name}/ended"
    context.publish(
        claim_events.pods_pending(claim.cluster, claim.plan.pods, claim.failure, context.clock.now(), event_id=hint)
    )


class Inventory:
    """The view of a cluster in one invocation's search for garbage. It lists everything once, when first needed.

    In this order: a claim exists before its instance, and garbage never gets a claim again, so that an older look at it
    is as good as a new one.
    """

    def __init__(self, cluster: str, context: FlowContext) -> None:
        self._cluster = cluster
        self._context = context

    @cached_property
    def instances(self) -> tuple[Instance, ...]:
        """All of the cluster's. Raises AwsError."""
        return self._context.compute.instances(self._cluster)

    @cached_property
    def holders(self) -> InstanceOwners:
        """The owners of the instances. Raises StoreError, AwsError."""
        _ = self.instances
        return InstanceOwners(self._context.state.claims(self._cluster))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All Nodes; none when the cluster itself is gone. Raises ClusterError."""
        try:
            return self._context.cluster.nodes()
        except ClusterGone:
            return ()

    def in_service(self, instance: Instance) -> Node | None:
        """The instance's Node, if it was opened to pods."""
        for node in self.nodes:
            if instance_of(node.spec.provider_id) == instance.id:
                return None if is_unregistered(node) else node
        return None


def terminate_garbage(settings: ClusterSettings, name: str, inventory: Inventory, context: FlowContext) -> bool:
    """End instances tagged with the name of a claim, or a launch, that no claim has or will ever take.

    The sweep took the first look; this is the second one. An instance whose Node was opened to pods is given a claim,
    or is only reported where that is not possible: it may be doing work.

    Returns:
        Whether any was ended.
    """
    cluster, now = settings.name, context.clock.now()
    garbage = []
    for instance in inventory.instances:
        if instance.tagged != name or not inventory.holders.is_garbage(instance, now):
            continue
        about = {"cluster": cluster, "claim": name, "instance_id": instance.id}
        node = inventory.in_service(instance)
        if node is not None:
            if adopt(settings, instance, node, context) is None:
                context.meter.count("NodesWithoutClaim")
                _LOG.warning("node without a claim is left alone", extra=about)
            continue
        garbage.append(instance.id)
    if garbage:
        context.compute.terminate(cluster, *garbage)
        context.meter.count("GarbageTerminated", len(garbage))
        about = {"cluster": cluster, "claim": name, "instance_id": ", ".join(garbage)}
        _LOG.warning("instances without a claim terminated", extra=about)
    return bool(garbage)


def delete_orphaned_node(cluster: str, claim: NodeClaim, inventory: Inventory, context: FlowContext) -> bool:
    """Remove the Node of a claim that has ended, once its instance is gone and its kubelet silent.

    The cloud's own controller does that as well, where there is one. Only a Node whose instance the claim had is
    touched. Returns whether there was one.
    """
    if claim.state not in FINAL or not claim.instance_id:
        return False
    for node in inventory.nodes:
        if is_ready(node.status) or instance_of(node.spec.provider_id) != claim.instance_id:
            continue
        if context.compute.instance(cluster, claim.instance_id) is not None:
            continue
        context.cluster.delete_node(node)
        context.meter.count("NodesCleared")
        _LOG.warning("Node without an instance removed", extra={**facts(claim), "node": node.metadata.name})
        return True
    return False
