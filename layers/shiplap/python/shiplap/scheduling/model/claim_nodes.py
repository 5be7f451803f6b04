"""Pairs claims with their Nodes, and finds the Nodes that are on their way out or must stay; without numpy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.nodeclaim import FINAL, LEAVING, ClaimState, NodeClaim


def pair(nodes: Sequence[Node], claims: Sequence[NodeClaim]) -> tuple[dict[str, NodeClaim], list[NodeClaim]]:
    """Match claims with the Nodes they became, by node name, label or instance id.

    Names are made of addresses, and addresses are used again: a Node of another instance is not the claim's.

    Returns the claims by node name, and those in flight that have no Node yet. Claims that are over count for nothing.
    """
    by_name = {node.metadata.name: node for node in nodes}
    by_label = {node.metadata.labels.get(labels.NODE_CLAIM, ""): node for node in nodes}
    by_instance = {_instance_of(node): node for node in nodes}
    paired: dict[str, NodeClaim] = {}
    waiting = []
    for claim in sorted(claims, key=lambda claim: claim.name):
        if claim.state in FINAL:
            continue
        node = by_name.get(claim.node_name) or by_label.get(claim.name)
        if node is None or not may_be_of(node, claim):
            node = by_instance.get(claim.instance_id) if claim.instance_id else None
        if node is not None:
            paired[node.metadata.name] = claim
        else:
            waiting.append(claim)
    return paired, waiting


def may_be_of(node: Node, claim: NodeClaim) -> bool:
    """True if nothing shows that a Node found by its name belongs to another instance than the claim's."""
    instance_id = _instance_of(node)
    return not instance_id or not claim.instance_id or instance_id == claim.instance_id


def _instance_of(node: Node) -> str:
    return node.spec.provider_id.rpartition("/")[2]


def leaving(nodes: Iterable[Node], paired: Mapping[str, NodeClaim]) -> frozenset[str]:
    """Names of nodes that are being deleted: their pods need room elsewhere."""
    return frozenset(
        node.metadata.name
        for node in nodes
        if node.metadata.deletion_timestamp
        or (node.metadata.name in paired and paired[node.metadata.name].state in LEAVING)
    )


def is_initialized(node: Node) -> bool:
    """True if a node is in service: all that its NodePool promises is there."""
    return node.metadata.labels.get(labels.INITIALIZED) == "true"


def reports_ready(node: Node) -> bool:
    """True if a node reports that it is Ready, or reports nothing, as in a manifest from a file."""
    return all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")


def why_it_stays(  # noqa: PLR0911 - a list of reasons
    node: Node, claim: NodeClaim | None, pool: NodePool | None, *, busy: bool = False, nominated: bool = False
) -> str:
    """Return why a node of a NodePool must not be disrupted, whatever the reason for it would be, or nothing.

    Args:
        node: the node.
        claim: its claim, if there is one.
        pool: its NodePool, if it is known.
        busy: whether a disruption command is under way for it.
        nominated: whether a pending pod is on its way to it.
    """
    meta = node.metadata
    if claim is None:
        return "has no NodeClaim: it is left alone"
    if claim.newer:
        return "has a NodeClaim that a newer release wrote: it is left alone"
    if pool is None:
        return f"NodePool {meta.labels.get(labels.NODE_POOL, '')!r} is not known: the node is left alone"
    if busy or claim.state is ClaimState.DISRUPTING:
        return "is part of a disruption command under way"
    if meta.deletion_timestamp or claim.state in LEAVING:
        return "is being deleted"
    if not is_initialized(node) or claim.state is not ClaimState.INITIALIZED:
        return "is not initialized"
    if meta.annotations.get(labels.DO_NOT_DISRUPT) == "true":
        return f"has the annotation {labels.DO_NOT_DISRUPT}=true"
    if nominated:
        return "is nominated for a pending pod"
    return ""
