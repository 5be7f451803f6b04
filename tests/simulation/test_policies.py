"""Policies of consolidation side by side over a day: `benchmarks/disruption/consolidation_over_time.py`, made small."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from benchmarks.disruption.consolidation_over_time import DEFAULT, KARPENTER, Figures, missed, play_policy, policies
from benchmarks.shared.karpenter_consolidation import SETTINGS, KarpenterModel
from shiplap.kubernetes.objects import Pod
from shiplap_lab.scenarios.scenario import load
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance import disruptions
from tests.conformance.disruptions import BOTH, ON_DEMAND, Standing, Verdict, disrupted, large, small


@pytest.mark.thorough
def test_a_day_costs_no_more_than_by_karpenters_rules_with_no_more_moves_and_no_more_time_pending() -> None:
    play = load("month")
    fewer = [replace(item, low=item.low // 2, high=item.high // 2, step_minutes=60.0) for item in play.scenario.rhythms]
    play = replace(play, scenario=replace(play.scenario, rhythms=tuple(fewer)))
    figures = {policy.name: play_policy(policy, play, 7, 24.0) for policy in policies(())}
    ours, theirs = figures[DEFAULT], figures[KARPENTER]
    assert 0 < ours.bound < ours.dollars
    assert min(ours.moves, theirs.moves) > 0
    assert ours.pending > 0
    assert missed(ours, theirs) == []


def test_what_is_worse_is_said_in_words() -> None:
    ours, theirs = Figures(10.0, 5.0, 30, 2.0), Figures(9.0, 5.0, 40, 1.5)
    assert missed(ours, theirs) == ["10.00 USD instead of 9.00", "2.00 pod hours pending instead of 1.50"]
    assert missed(theirs, theirs) == []


@contextmanager
def karpenter_decides() -> Iterator[None]:
    with patch.object(disruptions, "decide", KarpenterModel()):
        yield


def look(*nodes: Standing, pods: Sequence[Pod], nodes_at_once: str = "1") -> Verdict:
    default = pool("default", ON_DEMAND, budgets=[{"nodes": nodes_at_once}])
    return disrupted(*nodes, pods=pods, pools=[default], types=BOTH, settings=SETTINGS)


def test_a_budget_of_one_node_allows_any_one() -> None:
    """The node that is dearest per disruption needs an equal one."""
    with karpenter_decides():
        verdict = look(large("a"), small("b"), pods=[pod_on("full", "a", cpu="15"), pod_on("other", "b", cpu="500m")])
    assert verdict.command.nodes == ("b",)


def test_several_nodes_become_one_before_any_goes_alone() -> None:
    pods = [pod_on(f"p{name}", name, cpu="5") for name in "abc"]
    with karpenter_decides():
        verdict = look(large("a"), large("b"), large("c"), pods=pods, nodes_at_once="100%")
    assert verdict.command.nodes == ("a", "b")


def test_what_was_found_is_carried_out_if_it_is_still_possible() -> None:
    """Although more could go by then; the third look looks anew."""
    pods = [pod_on(f"p{name}", name, cpu="5") for name in "abc"]
    nodes = [large("a"), large("b"), large("c")]
    with karpenter_decides():
        first = look(*nodes, pods=pods, nodes_at_once="1")
        second = look(*nodes, pods=pods, nodes_at_once="100%")
        third = look(*nodes, pods=pods, nodes_at_once="100%")
    assert (first.command.nodes, second.command.nodes, third.command.nodes) == (("a",), ("a",), ("a", "b"))


def test_what_was_found_is_given_up_if_its_nodes_would_need_another() -> None:
    nodes = [large("a"), large("b")]
    with karpenter_decides():
        first = look(*nodes, pods=[pod_on("p", "a", cpu="5"), pod_on("q", "b", cpu="5")])
        second = look(*nodes, pods=[pod_on("p", "a", cpu="15"), pod_on("q", "b", cpu="3")])
    assert (first.command.nodes, second.command.nodes) == (("a",), ("b",))
