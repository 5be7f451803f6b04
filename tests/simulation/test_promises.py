"""Tests the judge's reports and its silence: each promise that counts something, at its bound and one beyond."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from shiplap.disruption.commands import Reason
from shiplap.disruption.progress import CommandState
from shiplap.manifests.nodeclaim import ClaimState, PodReference
from shiplap.ports import written_command
from tests.simulation.plays import Play

POD = PodReference("default", "web-1", "uid-1")


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
