"""Names of Nodes are made of addresses, and addresses are used again: another instance's Node may have the name.

What is done for a claim is done to the Node of its own instance or to none.
"""

from __future__ import annotations

from typing import Any

import pytest

from shiplap.errors import ObjectConflict, ObjectNotFound
from shiplap.flows.lifecycle.registration import update_node
from shiplap.flows.messages import NodeSeen
from shiplap.kubernetes import labels
from shiplap.kubernetes.taints import DISRUPTED
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.disrupted import Disrupted, oversized
from tests.integration.flows.stage import Stage


def replace_by_namesake(stage: Stage, name: str, **spec: Any) -> None:
    """The Node goes, and one of another instance comes under its name."""
    old = stage.server.get("nodes", name)
    stage.server.delete("nodes", name)
    stage.server.create(
        "nodes",
        {
            "metadata": {"name": name},
            "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0", **spec},
            "status": old["status"],
        },
    )


def marks(stage: Stage, name: str) -> tuple[dict[str, str], list[dict[str, str]]]:
    node = stage.server.get("nodes", name)
    return node["metadata"].get("labels") or {}, node["spec"].get("taints") or []


def in_service() -> Stage:
    stage = Stage()
    stage.add_pods(1)
    stage.play_on()
    return stage


def test_what_is_written_to_a_node_is_not_written_to_another_of_its_name() -> None:
    """Neither when it came before the write nor when it is found by reading after a conflict."""
    stage = in_service()
    (node,) = stage.cluster.nodes()
    replace_by_namesake(stage, node.metadata.name)
    with pytest.raises(ObjectNotFound):
        update_node(node, {"a": "b"}, {}, lambda current: current.spec.taints, stage.context)
    assert marks(stage, node.metadata.name) == ({}, [])


def test_a_node_that_is_replaced_while_it_is_registered_gives_nothing_to_its_namesake() -> None:
    stage = Stage()
    stage.add_pods(1)
    stage.schedule()
    stage.join()
    (node,) = stage.cluster.nodes()
    advance = stage.state.advance

    def advance_slowly(*args: Any, **changes: Any) -> Any:
        after = advance(*args, **changes)
        if after.state is ClaimState.REGISTERED:
            replace_by_namesake(stage, node.metadata.name)
        return after

    stage.state.advance = advance_slowly  # type: ignore[method-assign]
    with pytest.raises((ObjectNotFound, ObjectConflict)):
        stage.attend(NodeSeen(stage.name, node.metadata.name, node.spec.provider_id))
    assert marks(stage, node.metadata.name) == ({}, [])
    stage.clock.advance(60)
    stage.sweep()
    stage.attend_timers()
    assert marks(stage, node.metadata.name) == ({}, [])
    assert [claim.state for claim in stage.claims()] == [ClaimState.REGISTERED]


def test_the_namesake_of_a_node_that_leaves_is_not_emptied() -> None:
    stage = oversized()
    (node,) = stage.cluster.nodes()
    replace_by_namesake(stage, node.metadata.name)
    (claim,) = stage.claims()
    stage.state.advance(claim, ClaimState.DRAINING, changed_at=stage.clock.now())
    for _ in range(3):
        stage.clock.advance(60)
        stage.sweep()
        stage.attend_timers()
    assert marks(stage, node.metadata.name) == ({}, [])
    assert stage.server.get("pods", "web-000")["metadata"].get("deletionTimestamp") is None


def closed(stage: Disrupted) -> str:
    """A command has begun: the name of its node, which is closed."""
    stage.disrupt()
    stage.clock.advance(60)
    assert stage.disrupt().begun
    stage.clock.advance(60)
    stage.disrupt()
    (name,) = stage.tainted()
    return name


def test_the_namesake_of_a_node_that_is_to_go_is_not_closed() -> None:
    stage = oversized()
    name = closed(stage)
    replace_by_namesake(stage, name)
    stage.clock.advance(60)
    stage.disrupt()
    assert marks(stage, name) == ({}, [])


def test_the_namesake_of_a_node_that_was_to_go_is_not_opened() -> None:
    """Somebody else has closed it for a reason of theirs."""
    stage = oversized()
    name = closed(stage)
    replace_by_namesake(stage, name, taints=[{"key": DISRUPTED.key, "effect": DISRUPTED.effect}])
    for _ in range(40):  # its replacement never comes: the command is undone
        stage.clock.advance(60)
        stage.disrupt()
    assert [claim.state for claim in stage.claims() if claim.node_name == name] == [ClaimState.INITIALIZED]
    assert [taint["key"] for taint in marks(stage, name)[1]] == [labels.DISRUPTED_TAINT]
