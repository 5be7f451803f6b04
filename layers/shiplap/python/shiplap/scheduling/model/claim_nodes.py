"""Which claim became which Node, and which Nodes are on their way out; without numpy, for those that do not plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import FINAL, LEAVING, NodeClaim


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
    """Whether nothing says that a Node found by its name is another instance's than the claim's."""
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
