"""Nodes that a command was to remove and that are spared, for what came to them, or was said of them, meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from shiplap.disruption.progress import READY_S, CommandState
from shiplap.errors import ClusterUnreachable
from shiplap.kubernetes import labels
from shiplap.manifests.nodeclaim import ClaimState
from tests.integration.flows.disrupted import Disrupted, kinds, oversized
from tests.integration.flows.leaving import evicted

PROTECTED = {"annotations": {labels.DO_NOT_DISRUPT: "true"}}


def empty(nodes: int = 1) -> Disrupted:
    """So many nodes in service without a pod, and seen to be empty once."""
    stage = Disrupted()
    stage.add_pods(nodes, cpu="7", memory="2Gi")
    stage.play_on()
    for number in range(nodes):
        stage.server.delete("pods", f"web-{number:03d}", grace_s=0)
    stage.clock.advance(600)
    stage.faults.clear()
    stage.disrupt()
    stage.clock.advance(60)
    return stage


def comes(stage: Disrupted, node: str, **metadata: Any) -> None:
    """kube-scheduler puts a pod on a node, if that takes any."""
    if node not in stage.tainted():
        container = {"name": "main", "resources": {"requests": {"cpu": "100m"}}}
        body = {"metadata": {"name": "late", "uid": "late", **metadata}, "spec": {"containers": [container]}}
        stage.server.create("pods", body)
        stage.server.bind("late", node, "default")


def names(stage: Disrupted) -> list[str]:
    return sorted(item["metadata"]["name"] for item in stage.server.list("nodes").items)


def test_a_node_is_closed_in_the_minute_in_which_its_removal_begins() -> None:
    stage = empty()
    assert len(stage.disrupt().begun) == 1
    assert stage.tainted() == names(stage)


@pytest.mark.parametrize("metadata", [{}, PROTECTED], ids=["any pod", "a protected pod"])
def test_an_empty_node_that_a_pod_came_to_is_spared(metadata: dict[str, Any]) -> None:
    stage = empty()
    (node,) = names(stage)
    stage.faults.on("after", "state.commit", lambda: comes(stage, node, **metadata))
    assert len(stage.disrupt().begun) == 1
    stage.run_pods()
    stage.clock.advance(60)
    report = stage.disrupt()
    assert len(report.undone) == 1
    assert stage.tainted() == evicted(stage) == []
    assert [claim.state for claim in stage.claims()] == [ClaimState.INITIALIZED]
    assert stage.state.commands(stage.name) == ()


def test_of_several_empty_nodes_the_others_go() -> None:
    stage = empty(3)
    spared = names(stage)[1]
    stage.faults.on("after", "state.commit", lambda: comes(stage, spared, **PROTECTED))
    (command,) = stage.disrupt().begun
    stage.run_pods()
    stage.clock.advance(60)
    assert stage.disrupt().undone == ()
    (left,) = stage.state.commands(stage.name)
    assert left.name == command
    assert spared not in left.nodes
    assert len(left.targets) == len(left.nodes) == 2
    stage.minutes(10)
    assert names(stage) == [spared]
    assert stage.tainted() == []
    assert stage.state.commands(stage.name) == ()


@pytest.mark.parametrize("point", range(40))
def test_sparing_a_node_survives_the_death_of_the_function(point: int) -> None:
    stage = empty(2)
    spared = names(stage)[0]
    stage.faults.on("after", "state.commit", lambda: comes(stage, spared, **PROTECTED))
    stage.disrupt()
    stage.run_pods()
    stage.clock.advance(60)
    stage.faults.clear()
    stage.faults.crash_at(point)
    stage.dies(stage.disrupt)
    stage.faults.clear()
    stage.minutes(12)
    assert names(stage) == [spared]
    assert stage.tainted() == evicted(stage) == []
    assert stage.state.commands(stage.name) == ()


def test_nodes_are_removed_only_once_all_of_them_are_closed() -> None:
    """A node that somebody opens may get pods: the function looks at it again once it is closed."""
    stage = empty(2)
    stage.disrupt()
    assert stage.tainted() == names(stage)
    stage.server.patch("nodes", names(stage)[1], {"spec": {"taints": []}})
    stage.clock.advance(60)
    stage.disrupt()
    assert {claim.state for claim in stage.claims()} == {ClaimState.DISRUPTING}
    assert stage.tainted() == names(stage)
    stage.clock.advance(60)
    stage.disrupt()
    assert {claim.state for claim in stage.claims()} == {ClaimState.DRAINING}


def replacing(**settings: object) -> Disrupted:
    """An oversized node whose replacement is on its way."""
    stage = oversized(**settings)
    stage.minutes(2)
    assert len(stage.tainted()) == 1
    return stage


def annotate(stage: Disrupted, kind: str, name: str) -> None:
    stage.server.patch(kind, name, {"metadata": PROTECTED})


@pytest.mark.parametrize("kind", ["pods", "nodes"])
def test_what_is_protected_while_its_replacement_comes_stays_and_the_replacement_goes(kind: str) -> None:
    stage = replacing()
    (old,) = stage.tainted()
    annotate(stage, kind, {"pods": "web-000", "nodes": old}[kind])
    stage.minutes(12)
    assert kinds(stage) == ["m6i.2xlarge"]
    assert stage.tainted() == evicted(stage) == []
    assert stage.state.commands(stage.name) == ()


def test_a_command_that_takes_no_step_holds_up_no_other() -> None:
    stage = empty(2)
    stage.disrupt()
    (command,) = stage.state.commands(stage.name)
    other = structs.replace(command, name=f"{command.name}-later", version=0)
    stage.state.commit(stage.name, stage.state.epoch(stage.name), (), (other,))
    stage.clock.advance(60)
    stage.faults.on("before", "cluster.pods_on", ClusterUnreachable("no answer"))
    stage.disrupt()
    assert stage.meter.counts["CommandStepsFailed"] == 1
    assert {item.name: item.state for item in stage.state.commands(stage.name)} == {
        command.name: CommandState.WAITING,
        other.name: CommandState.REMOVING,
    }


def test_nothing_is_removed_while_its_pods_cannot_be_listed() -> None:
    stage = empty()
    stage.disrupt()
    stage.clock.advance(60)
    stage.faults.on("before", "cluster.pods_on", ClusterUnreachable("no answer"))
    assert stage.disrupt().done == ()
    assert stage.meter.counts["CommandStepsFailed"] == 1
    assert [claim.state for claim in stage.claims()] == [ClaimState.DISRUPTING]
    stage.minutes(6)
    assert kinds(stage) == []


def test_a_taint_that_somebody_takes_away_is_set_again_before_anything_is_removed() -> None:
    stage = empty()
    stage.disrupt()
    (node,) = names(stage)
    untaint = {"spec": {"taints": []}}
    stage.server.patch("nodes", node, untaint)
    stage.clock.advance(60)
    stage.disrupt()
    assert stage.tainted() == [node]
    assert [claim.state for claim in stage.claims()] == [ClaimState.DISRUPTING]
    stage.server.patch("nodes", node, untaint)
    stage.clock.advance(READY_S)
    stage.disrupt()
    assert [claim.state for claim in stage.claims()] == [ClaimState.DRAINING]
