"""Tests the judge's reports and its silence: each promise that counts something, at its bound and one beyond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Method, Reason
from shiplap.disruption.progress import CommandState, DisruptionCommand
from shiplap.manifests.nodeclaim import ClaimState, NodeClaim, PodReference
from shiplap.ports import Instance, written_claim, written_command
from shiplap_lab.judge.judge import Judge
from shiplap_lab.scenarios.scenario import load
from tests.node_claims import node_claim, with_fields

POD = PodReference("default", "web-1", "uid-1")
CORES = {"m7i-flex.large": 2000, "m7i-flex.2xlarge": 8000}
WAY = (ClaimState.PLANNED, ClaimState.LAUNCHING, ClaimState.LAUNCHED, ClaimState.REGISTERED, ClaimState.INITIALIZED)


class Play:
    """Plays events before a judge of two pools.

    Pool `flex` may have two nodes disrupted at once, pool `spot` half of its nodes at once.
    """

    def __init__(self, *, steered: bool = True) -> None:
        self.now = 0.0
        self.told: list[str] = []
        self.judge = Judge(
            lambda: self.now,
            lambda violation: self.told.append(violation.promise),
            machine_types={},
            pools={
                (cluster, pool.metadata.name): msgspec.to_builtins(pool.spec)
                for cluster, manifests in load("mixed").manifests.items()
                for pool in manifests.node_pools
            },
            price=lambda *_: 0.1,
            most_nodes_per_pod=2,
            steered=steered,
        )

    def put(self, name: str, uid: str) -> None:
        """A pod is bound to a node."""
        pod = {"metadata": {"name": uid, "uid": uid}, "spec": {"nodeName": f"node-{name}", "containers": []}}
        self.judge.object_written("demo", "ADDED", "pods", pod)

    def write(self, claim: NodeClaim) -> NodeClaim:
        """The next version of a claim."""
        written = replace(claim, version=claim.version + 1)
        self.judge.claim_written("shiplap", written_claim(written))
        return written

    def end_node(self, name: str) -> None:
        self.judge.object_written("demo", "DELETED", "nodes", _node(name))

    def node(
        self,
        name: str,
        *,
        pods: tuple[PodReference, ...] = (),
        size: str = "m7i-flex.large",
        until: ClaimState = ClaimState.INITIALIZED,
        owner: str = "schedule-1",
        pool: str = "flex",
        **fields: Any,
    ) -> NodeClaim:
        """A claim on its way up to a state."""
        claim = node_claim(
            cluster="demo",
            name=name,
            node_pool=pool,
            node_class="default",
            pods=pods,
            owner=owner,
            token=name,
            **fields,
        )
        for state in WAY[: WAY.index(until) + 1]:
            if state is ClaimState.LAUNCHED:
                at = Instance(f"i-{name}", size, "eu-west-1a", "on-demand", "ami-1", "running", launched_at=self.now)
                self.judge.machine_added(msgspec.json.encode(replace(at, launch=name)))
                claim = with_fields(claim, instance_id=at.id, instance_type=size, hourly=0.1)
            named = f"node-{name}" if state in (ClaimState.REGISTERED, ClaimState.INITIALIZED) else ""
            if state is ClaimState.REGISTERED:
                self.judge.object_written("demo", "ADDED", "nodes", _node(name))
                self.judge.node_read("demo", f"i-{name}")
            claim = self.write(replace(claim, state=state, node_name=named))
        return claim

    def leave(self, claim: NodeClaim, failure: str) -> NodeClaim:
        return self.write(replace(claim, state=ClaimState.DRAINING, failure=failure))

    def command(self, name: str, targets: Sequence[str], replacements: Sequence[str] = ()) -> DisruptionCommand:
        command = DisruptionCommand(
            cluster="demo",
            name=name,
            reason=Reason.UNDERUTILIZED,
            method=Method.CONSOLIDATION,
            targets=tuple(targets),
            nodes=tuple(f"node-{target}" for target in targets),
            replacements=tuple(replacements),
            created_at=self.now,
        )
        self.judge.command_written("shiplap", written_command(command))
        return command


def _node(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": f"node-{name}", "labels": {"karpenter.sh/initialized": "true"}},
        "spec": {"providerID": f"aws:///eu-west-1a/i-{name}"},
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "100"}},
    }


def test_a_pod_gets_so_many_nodes_and_no_more() -> None:
    play = Play()
    play.node("a", pods=(POD,))
    play.node("b", pods=(POD,))
    assert play.told == []
    play.node("c", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize("holder", ["b", "other"])
def test_a_node_taken_from_under_a_pod_is_made_up_for_whoever_it_was_launched_for(holder: str) -> None:
    """Pods take each other's nodes: the one a pod loses need not be one of its own."""
    play = Play()
    play.node("a", pods=(POD,))
    claims = {"b": play.node("b", pods=(POD,)), "other": play.node("other")}
    play.put(holder, POD.uid)
    play.leave(claims[holder], "SpotInterruption")
    play.node("c", pods=(POD,))
    assert play.told == []
    play.node("d", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize(("steered", "told"), [(True, ["few nodes for one pod"]), (False, [])])
def test_a_node_that_others_have_taken_counts_where_pods_are_steered(steered: bool, told: list[str]) -> None:
    """kube-scheduler gives it to who has waited longest, unless its room is kept."""
    play = Play(steered=steered)
    play.node("a", pods=(POD,))
    play.node("b", pods=(POD,))
    play.put("b", "uid-of-another")
    play.node("c", pods=(POD,))
    assert play.told == told


def test_a_node_that_a_command_takes_away_is_not_made_up_for() -> None:
    play = Play()
    play.node("a", pods=(POD,))
    last = play.node("b", pods=(POD,))
    play.put("b", POD.uid)
    play.leave(last, str(Reason.UNDERUTILIZED))
    play.node("c", pods=(POD,), until=ClaimState.LAUNCHED)
    assert play.told == ["few nodes for one pod"]


@pytest.mark.parametrize(("first", "told"), [(CommandState.UNDONE, []), (CommandState.DONE, ["few nodes for one pod"])])
def test_a_pod_is_moved_by_one_command_unless_it_was_given_up(first: CommandState, told: list[str]) -> None:
    play = Play()
    play.node("a")
    begun = play.command("first", ["a"], ["b"])
    play.node("b", pods=(POD,), owner="")
    play.judge.command_written("shiplap", written_command(replace(begun, state=first)))
    play.command("second", ["a"], ["c"])
    play.node("c", pods=(POD,), owner="")
    assert play.told == told


def test_a_node_that_leaves_by_itself_uses_up_a_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    play.leave(claims[0], "SpotInterruption")
    play.now = 60.0
    play.command("first", ["b"])
    assert play.told == []
    play.command("second", ["c"])
    assert play.told == ["disruption budgets are kept"]


def test_what_a_decision_could_not_know_breaks_no_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    play.leave(claims[0], "SpotInterruption")
    play.command("first", ["b", "c"])  # decided on what was there a moment before
    assert play.told == []


def test_a_node_whose_instance_is_being_ended_uses_up_no_budget() -> None:
    play = Play()
    claims = [play.node(name) for name in ("a", "b", "c", "d")]
    for claim in claims[:2]:
        play.write(replace(play.leave(claim, "SpotInterruption"), state=ClaimState.TERMINATING))
    play.now = 60.0
    play.command("first", ["c", "d"])
    assert play.told == []


def test_nodes_that_were_there_no_more_are_no_share_of_a_budget() -> None:
    play = Play()
    for name in ("a", "b", "c"):
        play.node(name, pool="spot")
    play.command("first", ["a", "b"])
    assert play.told == []
    play.now = 60.0
    play.end_node("c")
    play.now = 61.0
    play.command("second", ["b"])
    assert play.told == ["disruption budgets are kept"]


def test_two_decisions_for_the_same_pods_are_found() -> None:
    play = Play()
    play.node("a", pods=(POD,), instance_types=("m7i-flex.large",), until=ClaimState.LAUNCHING)
    play.node("b", pods=(POD,), until=ClaimState.LAUNCHING)
    assert play.told == ["decisions are made one after the other"]


@pytest.mark.parametrize(("cores", "told"), [(64, []), (65, ["nothing misses twice"])])
def test_a_node_that_is_too_small_is_launched_once(cores: int, told: list[str]) -> None:
    play = Play()
    for name in ("a", "b"):
        play.node(name, requests={"cpu": cores * 1000, "example.com/late": 1})
    assert play.told == told
