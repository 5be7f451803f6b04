"""Tests the pods on nodes whose command waits for replacements."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from shiplap.flows.planning.moves_under_way import running_on_waiting_nodes
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from tests.builders.claims import node_claim
from tests.builders.nodes import node
from tests.builders.pods import pod

NOW = 1_700_000_000.0


def leaving(name: str) -> Node:
    made = node(name)
    return replace(made, metadata=replace(made.metadata, deletion_timestamp=rfc3339(NOW)))


def claim(node: str, state: ClaimState = ClaimState.DISRUPTING) -> NodeClaim:
    return node_claim(name=f"c-{node}", node_name=node, state=state)


@pytest.mark.parametrize(
    ("claims", "nodes", "expected"),
    [
        ([claim("m")], (), {"uid-a", "uid-b"}),
        ([claim("m"), claim("n")], (), {"uid-a", "uid-b", "uid-c"}),
        ([claim("m", ClaimState.INITIALIZED), claim("n")], (), {"uid-c"}),
        ([claim("m", ClaimState.DRAINING)], (), set()),
        ([claim("m"), claim("n")], (leaving("m"), node("n")), {"uid-c"}),
        ([claim("gone")], (), set()),
        ([], (), set()),
    ],
)
def test_pods_of_nodes_whose_command_waits_run(
    claims: list[NodeClaim], nodes: Sequence[Node], expected: set[str]
) -> None:
    pods = (
        pod("a", node="m", metadata={}),
        pod("b", node="m", metadata={}),
        pod("c", node="n", metadata={}),
        pod("nameless", node="m", metadata={"uid": ""}),
        pod("waits", metadata={}),
    )
    view = ClusterView(nodes=tuple(nodes), pods=pods)
    assert running_on_waiting_nodes(Snapshot(cluster="demo", now=NOW, view=view, claims=tuple(claims))) == expected
