"""The nodes that drift when one set of manifests takes the place of another, for `shiplap plan --diff`.

A node drifts by the change if it matches the old manifests and does not match the new ones. The annotations of a node
tell which template it was made from only if Shiplap wrote them; any other node counts as made from the old manifests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from shiplap.disruption.candidates import Candidate
from shiplap.disruption.current_prices import market_of
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot, NodeHistory
from shiplap.disruption.methods.drift import drift_reason, expected_node_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import NodeClaim
from shiplap.manifests.template_hash import (
    HASH_VERSION,
    NODE_CLASS_HASH,
    NODE_CLASS_HASH_VERSION,
    POOL_HASH_VERSION,
    marks_of,
)
from shiplap.scheduling.model.planned_pods import pair
from shiplap.scheduling.model.snapshot import Snapshot


def drifting_nodes(old: DisruptionSnapshot, new: DisruptionSnapshot) -> Mapping[str, str]:
    """Return the names of nodes that drift by the new manifests alone, and why; both are of one cluster."""
    of_cluster = old.scheduling
    paired, _ = pair(of_cluster.view.nodes, of_cluster.claims)
    born = _annotations_by_pool(of_cluster)
    nodes = [
        (node, _as_made(paired[node.metadata.name], born[pool]))
        for node in sorted(of_cluster.view.nodes, key=lambda item: item.metadata.name)
        if node.metadata.name in paired and (pool := node.metadata.labels.get(labels.NODE_POOL, "")) in born
    ]
    before = dict(_reasons(of_cluster, nodes))
    return {name: why for name, why in _reasons(new.scheduling, nodes) if name not in before}


def _annotations_by_pool(snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """The annotations of a claim made now, by the label of its NodePool."""
    hashes = {catalog.node_class: catalog.spec_hash for catalog in snapshot.catalogs}
    made = {}
    for pool in snapshot.manifests.node_pools:
        of_class = hashes.get(pool.spec.template.spec.node_class_ref.name, "")
        known = {NODE_CLASS_HASH: of_class, NODE_CLASS_HASH_VERSION: HASH_VERSION} if of_class else {}
        made[label_value_of(pool.metadata.name)] = {**marks_of(pool), **known}
    return made


def _as_made(claim: NodeClaim, annotations: Mapping[str, str]) -> NodeClaim:
    written = claim.plan.annotations
    if written.get(POOL_HASH_VERSION) == HASH_VERSION:
        return claim
    return replace(claim, plan=replace(claim.plan, annotations={**written, **annotations}))


def _reasons(snapshot: Snapshot, nodes: list[tuple[Node, NodeClaim]]) -> Iterator[tuple[str, str]]:
    """Yield the drifted nodes of NodePools that the snapshot has, by pool and name."""
    market, clock = market_of(snapshot), DecisionClock(snapshot.now)
    for pool in snapshot.manifests.node_pools:
        mark = label_value_of(pool.metadata.name)
        candidates = [
            Candidate(node, claim, pool, NodeHistory(node.metadata.name), (), 0.0, 1.0)
            for node, claim in nodes
            if node.metadata.labels[labels.NODE_POOL] == mark
        ]
        if candidates:
            expected = expected_node_of(pool, snapshot, market, candidates)
            for candidate in candidates:
                if why := drift_reason(candidate, market, expected, clock):
                    yield candidate.name, why
