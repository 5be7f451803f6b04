"""Gives a claim back to a node in service that has lost its own, as after table `state` was restored from a backup.

What the claim said is put together from the instance's tags, which say that it is ours, and from the Node, which was
given its claim's labels and annotations when it was registered. The claim is written in one conditional write under a
name that follows from the node, so that it is never written twice.
"""

from __future__ import annotations

import logging

from msgspec.structs import replace

from shiplap.flows.claim_updates import facts, pool_of
from shiplap.flows.context import FlowContext
from shiplap.flows.lifecycle.registration import is_registered
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import claim_name
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.quantity import parse_resources
from shiplap.manifests.nodeclaim import ClaimPlan, ClaimState, LaunchedInstance, LaunchRequest, NodeClaim
from shiplap.manifests.template_hash import NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION, POOL_HASH, POOL_HASH_VERSION
from shiplap.ports import Instance
from shiplap.settings import ClusterSettings

_LOG = logging.getLogger(__name__)

_KEPT_ANNOTATIONS = (POOL_HASH, POOL_HASH_VERSION, NODE_CLASS_HASH, NODE_CLASS_HASH_VERSION)
"""Annotations of a claim that drift is found by; the others of a Node may be anybody's."""


def adopt(settings: ClusterSettings, instance: Instance, node: Node, context: FlowContext) -> NodeClaim | None:
    """Write the claim of a node in service that no claim has.

    Args:
        settings: the cluster.
        instance: has the tags of this cluster and this install, and no claim has it or waits for it.
        node: its Node, open to pods.
        context: state is written.

    Returns:
        The claim; None when the Node was not registered by an install, its NodePool is not known here, or a claim has
        the instance after all.

    Raises:
        StoreError: tried again with the next sweep.
    """
    claim = claim_of(settings, instance, node, context.clock.now())
    if claim is None or context.state.claim_of_instance(instance.id) is not None:
        return None
    known = context.state.claim(claim.cluster, claim.name)
    if known is not None and known.state is ClaimState.FAILED:
        claim = replace(claim, version=known.version + 1)
    elif known is not None and known.instance_id not in ("", instance.id):
        # In a restored table an epoch comes again, and with it the name of a claim, for another instance.
        claim = replace(claim, name=claim_name(claim.plan.node_pool or claim.name, instance.id))
    if not context.state.adopt(claim):
        return None
    context.meter.count("NodesAdopted")
    _LOG.warning("node had no claim and was given one", extra=facts(claim))
    return claim


def claim_of(settings: ClusterSettings, instance: Instance, node: Node, now: float) -> NodeClaim | None:
    """Rebuild the claim of a registered node, as far as its instance and Node show it; None where they do not."""
    marks = node.metadata.labels
    name = marks.get(labels.NODE_CLAIM, "") or instance.claim
    pool_name = marks.get(labels.NODE_POOL, "")
    user_object = next((owner for owner in node.metadata.owner_references if owner.kind == "NodeClaim"), None)
    is_standalone = not pool_name and user_object is not None
    if not (name and (pool_name or is_standalone) and is_registered(node)):
        return None
    if instance.node_pool and instance.node_pool != pool_name:
        return None
    complete = marks.get(labels.INITIALIZED) == "true"
    claim = NodeClaim(
        cluster=settings.name,
        name=name,
        plan=ClaimPlan(
            node_pool=pool_name,
            node_class=marks.get(labels.NODE_CLASS, ""),
            annotations={
                key: node.metadata.annotations[key] for key in _KEPT_ANNOTATIONS if key in node.metadata.annotations
            },
            instance_types=(instance.instance_type,),
            allocatable=parse_resources(node.status.allocatable),
            object_name=user_object.name if is_standalone and user_object is not None else "",
            object_uid=user_object.uid if is_standalone and user_object is not None else "",
        ),
        state=ClaimState.INITIALIZED if complete else ClaimState.REGISTERED,
        created_at=instance.launched_at,
        changed_at=now,
        launch=LaunchRequest(token=instance.launch),
        instance=LaunchedInstance(
            id=instance.id,
            type=instance.instance_type,
            zone=instance.zone,
            capacity_type=instance.capacity_type,
            ami=instance.ami,
            subnet=instance.subnet,
            security_groups=instance.security_groups,
        ),
        node_name=node.metadata.name,
    )
    if is_standalone:
        return claim
    pool = pool_of(claim, settings)
    if pool is None:
        return None
    template = pool.spec.template.spec
    node_class = claim.plan.node_class or template.node_class_ref.name
    plan = replace(claim.plan, node_class=node_class, taints=template.taints, startup_taints=template.startup_taints)
    return replace(claim, plan=plan)
