"""Tests the pods on nodes whose command waits for replacements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from shiplap.flows.planning.moves_under_way import running_on_waiting_nodes
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from tests.builders.claims import running_claim
from tests.builders.nodes import node
from tests.builders.pods import pod

NOW = 1_700_000_000.0
claim = partial(running_claim, state=ClaimState.DISRUPTING)


@pytest.mark.parametrize(
    ("claims", "nodes", "expected"),
    [
        ([claim("m")], (), {"uid-a", "uid-b"}),
        ([claim("m"), claim("n")], (), {"uid-a", "uid-b", "uid-c"}),
        ([claim("m", state=ClaimState.INITIALIZED), claim("n")], (), {"uid-c"}),
        ([claim("m", state=ClaimState.DRAINING)], (), set()),
        ([claim("m"), claim("n")], (node("node-m", deleting=True), node("node-n")), {"uid-c"}),
        ([claim("gone")], (), set()),
        ([], (), set()),
    ],
)
def test_pods_of_nodes_whose_command_waits_run(
    claims: list[NodeClaim], nodes: Sequence[Node], expected: set[str]
) -> None:
    pods = (
        pod("a", node="node-m"),
        pod("b", node="node-m"),
        pod("c", node="node-n"),
        pod("nameless", node="node-m", metadata={"uid": ""}),
        pod("waits"),
    )
    view = ClusterView(nodes=tuple(nodes), pods=pods)
    assert running_on_waiting_nodes(Snapshot(cluster="demo", now=NOW, view=view, claims=tuple(claims))) == expected
