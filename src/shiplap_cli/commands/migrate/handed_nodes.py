"""Decides which nodes change hands between Karpenter and Shiplap as they are: no pod moves, NodeClaims stay.

An instance is Shiplap's by its tags. So taking a node over is tagging its instance; Shiplap then adopts the node.
Giving it back takes the tags away, after the claim has ended and the NodeClaim is marked, so that Shiplap leaves both
alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from shiplap.aws import tags
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, RawObject
from shiplap.manifests.live.nodeclaim_objects import GIVEN_BACK, INSTALL_LABEL
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap_cli.output import Printed

CLUSTER_NAME = "eks:eks-cluster-name"
"""Karpenter's tag with the name of the cluster."""

_CLASS_OF_OURS = ("karpenter.k8s.aws", "EC2NodeClass")
_IN_SERVICE = frozenset({ClaimState.REGISTERED, ClaimState.INITIALIZED})


class TaggedInstance(msgspec.Struct, frozen=True):
    """An EC2 instance: its state in EC2's words, and its tags."""

    id: str
    state: str
    tags: dict[str, str]


class HandoverNode(msgspec.Struct, frozen=True, order=True):
    """A node that can change hands."""

    claim: str
    node: str
    instance: str
    node_pool: str
    node_class: str


class LeftNode(Printed, frozen=True, order=True):
    """A NodeClaim that keeps its owner, and why."""

    claim: str
    reason: str


class Handover(msgspec.Struct, frozen=True):
    """The nodes to hand over or leave, sorted by name; `done` are names of NodeClaims that changed hands before."""

    nodes: tuple[HandoverNode, ...] = ()
    done: tuple[str, ...] = ()
    left: tuple[LeftNode, ...] = ()


def to_shiplap(
    objects: Iterable[RawObject],
    nodes: Iterable[Node],
    instances: Mapping[str, TaggedInstance],
    pools: Collection[str],
    cluster: str,
    install: str,
) -> Handover:
    """Karpenter's nodes that Shiplap can take over.

    Args:
        objects: all NodeClaims of the cluster.
        nodes: its Nodes.
        instances: by id, those that the NodeClaims name.
        pools: names of the NodePools that Shiplap can launch from.
        cluster: its name.
        install: the name of the install that takes over.
    """
    by_instance = {_instance_of(node.spec.provider_id): node for node in nodes}
    found, done, left = [], [], []
    for item in objects:
        name = str(item["metadata"]["name"])
        instance = instances.get(_instance_of(_provider_id(item)))
        if instance is not None and instance.tags.get(tags.INSTALL) == install:
            done.append(name)
            continue
        node = by_instance.get(_instance_of(_provider_id(item)))
        reason = _why_not_taken(item, node, instance, pools, cluster)
        if reason or node is None or instance is None:
            left.append(LeftNode(name, reason))
        else:
            pool, node_class = _labels(item)[labels.NODE_POOL], str(_class_reference(item).get("name", ""))
            found.append(HandoverNode(name, node.metadata.name, instance.id, pool, node_class))
    return Handover(tuple(sorted(found)), tuple(sorted(done)), tuple(sorted(left)))


def _why_not_taken(
    item: RawObject, node: Node | None, instance: TaggedInstance | None, pools: Collection[str], cluster: str
) -> str:
    """Return why a NodeClaim stays Karpenter's; empty if nothing speaks against it."""
    reference, pool = _class_reference(item), _labels(item).get(labels.NODE_POOL, "")
    of_ours = (reference.get("group"), reference.get("kind")) == _CLASS_OF_OURS
    obstacles = (
        (bool(item["metadata"].get("deletionTimestamp")), "it is being deleted"),
        (not of_ours, f"its node class is no EC2NodeClass: {reference.get('kind') or 'none is named'}"),
        (not pool, "it has no NodePool"),
        (pool not in pools, f"NodePool {pool} is not there, or is refused: see `kubectl describe nodepool {pool}`"),
        (not _is_true(item, "Initialized"), "its node is not complete yet"),
        (node is None or not _is_open(node), "it has no Node in service"),
        (instance is None or instance.state != "running", "its instance does not run"),
    )
    found = next((reason for stands, reason in obstacles if stands), "")
    return found or (_why_not_ours(instance, pool, cluster) if instance is not None else "")


def _why_not_ours(instance: TaggedInstance, pool: str, cluster: str) -> str:
    """Return why not to tag an instance: its own tags must name it as Karpenter's, of this cluster and pool."""
    if install := instance.tags.get(tags.INSTALL, ""):
        return f"its instance belongs to the install {install} of Shiplap"
    if instance.tags.get(CLUSTER_NAME) != cluster and instance.tags.get(tags.cluster_tag(cluster)) != tags.OWNED:
        return f"its instance does not carry a tag of cluster {cluster}"
    tagged = instance.tags.get(labels.NODE_POOL, "")
    return "" if tagged == pool else f"its instance carries the tag of NodePool {tagged or 'none'}, not of {pool}"


def to_karpenter(
    claims: Iterable[NodeClaim],
    objects: Iterable[RawObject],
    nodes: Iterable[Node],
    instances: Mapping[str, TaggedInstance],
) -> Handover:
    """Shiplap's nodes that Karpenter can take over, those first whose handover was cut short.

    Args:
        claims: of the cluster, those that are not over.
        objects: all NodeClaims of the cluster.
        nodes: its Nodes.
        instances: by id, those with the tags of the install and cluster.
    """
    by_name = {str(item["metadata"]["name"]): item for item in objects}
    by_instance = {_instance_of(node.spec.provider_id): node for node in nodes}
    found, left = [], []
    living = [claim for claim in claims if claim.instance_id]
    for claim in living:
        node = by_instance.get(claim.instance_id)
        reason = _why_not_given(claim, by_name.get(claim.name), node, instances.get(claim.instance_id))
        if reason or node is None:
            left.append(LeftNode(claim.name, reason))
        else:
            plan = claim.plan
            found.append(
                HandoverNode(claim.name, node.metadata.name, claim.instance_id, plan.node_pool, plan.node_class)
            )
    held = {claim.instance_id for claim in living}
    for instance in instances.values():
        name = instance.tags.get(tags.NODE_CLAIM, "")
        if instance.id not in held and name in by_name and GIVEN_BACK in _annotations(by_name[name]):
            node = by_instance.get(instance.id)
            found.append(_half_done(instance, name, node))
    done = tuple(sorted(name for name, item in by_name.items() if GIVEN_BACK in _annotations(item)))
    pending = {node.claim for node in found}
    return Handover(tuple(sorted(found)), tuple(name for name in done if name not in pending), tuple(sorted(left)))


def _why_not_given(claim: NodeClaim, item: RawObject | None, node: Node | None, instance: TaggedInstance | None) -> str:
    """Return why a claim stays Shiplap's; empty if nothing speaks against it. Karpenter ends what it does not know."""
    is_leaving = claim.state not in _IN_SERVICE
    obstacles = (
        (is_leaving, f"its claim is {claim.state}: run the command again when it is in service or gone"),
        (item is None, "it has no NodeClaim object: Shiplap writes one within a minute"),
        (item is not None and bool(item["metadata"].get("deletionTimestamp")), "it is being deleted"),
        (item is not None and not _is_true(item, "Initialized"), "its node is not complete yet"),
        (node is None, "it has no Node: Karpenter would end its instance"),
        (instance is None or instance.state != "running", "its instance does not run"),
    )
    return next((reason for stands, reason in obstacles if stands), "")


def _half_done(instance: TaggedInstance, name: str, node: Node | None) -> HandoverNode:
    pool, node_class = instance.tags.get(tags.NODE_POOL, ""), instance.tags.get(tags.NODE_CLASS, "")
    return HandoverNode(name, node.metadata.name if node is not None else "", instance.id, pool, node_class)


def tags_of_shiplap(node: HandoverNode, cluster: str, install: str) -> dict[str, str]:
    """Tags by which an instance is the install's, and by which the node gets its claim."""
    return {
        **tags.of_pool(cluster, node.node_pool, node.node_class, {}, install),
        tags.NODE_CLAIM: node.claim,
    }


SHIPLAPS_KEYS = (tags.INSTALL, tags.CLUSTER, tags.NODE_POOL, tags.NODE_CLASS, tags.NODE_CLAIM, tags.LAUNCH)
"""Keys of tags that nobody else has."""


def tags_of_karpenter(node: HandoverNode, cluster: str) -> dict[str, str]:
    """Tags by which Karpenter's AWS provider knows an instance."""
    return {
        labels.NODE_POOL: node.node_pool,
        labels.NODE_CLAIM: node.claim,
        labels.NODE_CLASS: node.node_class,
        CLUSTER_NAME: cluster,
        tags.cluster_tag(cluster): tags.OWNED,
    }


def given_back_claim() -> dict[str, Any]:
    """The patch of a NodeClaim that Shiplap leaves alone from then on."""
    return {"metadata": {"labels": {INSTALL_LABEL: None}, "annotations": {GIVEN_BACK: "true"}}}


def given_back_node() -> dict[str, Any]:
    """The patch of its Node: without the labels by which Shiplap knows it."""
    return {"metadata": {"labels": {INSTALL_LABEL: None, labels.NODE_CLAIM: None}}}


def taken_again() -> dict[str, Any]:
    """The patch of a NodeClaim that was given back before."""
    return {"metadata": {"annotations": {GIVEN_BACK: None}}}


def is_given_back(item: RawObject) -> bool:
    """True if a NodeClaim was given back."""
    return GIVEN_BACK in _annotations(item)


def instances_named(objects: Iterable[RawObject]) -> tuple[str, ...]:
    """Ids of the instances that NodeClaims name, sorted."""
    return tuple(sorted({_instance_of(_provider_id(item)) for item in objects} - {""}))


def _provider_id(item: RawObject) -> str:
    return str((item.get("status") or {}).get("providerID") or "")


def _instance_of(provider_id: str) -> str:
    return provider_id.rpartition("/")[2]


def _class_reference(item: RawObject) -> Mapping[str, Any]:
    return (item.get("spec") or {}).get("nodeClassRef") or {}


def _labels(item: RawObject) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _annotations(item: RawObject) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _is_true(item: RawObject, condition: str) -> bool:
    listed = (item.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in listed)


def _is_open(node: Node) -> bool:
    tainted = any(taint.key == labels.UNREGISTERED_TAINT for taint in node.spec.taints)
    return node.metadata.labels.get(labels.REGISTERED) == "true" and not tainted
