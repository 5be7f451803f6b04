"""A node that is being emptied on the stage, and its claim."""

from __future__ import annotations

from typing import Any

from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim
from shiplap.ports import Instance
from tests.builders.claims import node_claim
from tests.builders.nodes import node_object
from tests.integration.flows.stage import Stage

DISRUPTED = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}


def leaving(stage: Stage, *, ago_s: float = 100.0, in_s: float | None = None, runs: bool = True) -> NodeClaim:
    """A claim that has been Draining for a while, with a deadline in so many seconds."""
    now = stage.clock.now()
    fields: dict[str, Any] = {
        "cluster": stage.name,
        "name": "c",
        "state": ClaimState.DRAINING,
        "instance_id": "i-n",
        "node_name": "n",
        "changed_at": now - ago_s,
        "deadline_at": 0.0 if in_s is None else now + in_s,
        "failure": "Drifted",
    }
    stage.state.adopt(node_claim(**fields))
    if runs:
        stage.compute.add(Instance("i-n", "m5.large", "a", "on-demand", "ami", "running", cluster=stage.name))
    found = stage.state.claim(stage.name, "c")
    assert found is not None
    return found


def on_node(stage: Stage, *, ready: bool = True, closed: bool = True) -> Node:
    item = node_object("n", ready=ready, providerID="aws:///a/i-n", taints=[DISRUPTED] if closed else [])
    item["metadata"]["labels"] = {labels.EXCLUDE_BALANCERS: "shiplap"} if closed else {}
    stage.server.create("nodes", item)
    return stage.cluster.node("n")
