"""Shiplap removes nodes whose price is high for the worth of their room, not the nodes with the fewest pods."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shiplap.disruption.consolidation import SINGLES, Consolidator
from shiplap.disruption.rescheduling import Simulator
from shiplap.scheduling.removal import Removals
from tests.builders.pods import pod_on
from tests.builders.pools import pool
from tests.conformance.catalogues import fake_type
from tests.conformance.disruptions import BOTH, SMALL, Verdict, disrupted, large, small, standing
from tests.thoroughness import draws

CORDONED = ({"key": "karpenter.sh/disrupted", "effect": "NoSchedule"},)

PLAIN = fake_type("plain", cpu="4", memory="8Gi", pods="20", price=1.0)
ROOMY = fake_type("roomy", cpu="4", memory="32Gi", pods="20", price=1.3)


def test_dearer_nodes_of_as_much_use_go_although_more_pods_move() -> None:
    """Fifteen nodes find room on the others. A dear one saves more for each of its four CPUs, a plain one per pod."""
    plain = [standing(f"plain-{place:02}", "plain", cpu="4", memory="8Gi", pods="20") for place in range(20)]
    roomy = [standing(f"roomy-{place:02}", "roomy", cpu="4", memory="32Gi", pods="20") for place in range(20)]
    pods = [pod_on(f"a{place}", f"plain-{place // 2:02}", memory="1Gi") for place in range(40)]
    pods += [pod_on(f"b{place}", f"roomy-{place // 3:02}", memory="1Gi") for place in range(60)]
    verdict = disrupted(*plain, *roomy, pods=pods, types=(PLAIN, ROOMY))
    assert len(verdict.removed) >= 15
    assert all(name.startswith("roomy") for name in verdict.removed)


def _one_may_go(*kinds: str) -> Verdict:
    """Decide on nodes of which one may go at once: `small` or `large`, with so many pods, or `full`."""
    nodes, pods = [], []
    for place, kind in enumerate(kinds):
        size, many = kind.split()
        nodes.append({"small": small, "large": large}[size](f"n{place:02}"))
        wanted = ["1950m"] * 2 if many == "full" else ["1"] * int(many)
        pods += [pod_on(f"p{place}-{each}", f"n{place:02}", cpu=cpu) for each, cpu in enumerate(wanted)]
    return disrupted(*nodes, pods=pods, types=BOTH, pools=[pool(budgets=[{"nodes": "1"}])])


KINDS = ("small 1", "small 2", "small 3", "small full", "large 1", "large 9", "large 15")


@settings(derandomize=True, deadline=None, max_examples=draws(60))
@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=SINGLES + 1))
@example([*["small full"] * SINGLES, "small 1", "small 2"])  # one of the last goes
def test_where_one_node_may_go_and_none_is_worth_it_no_order_is_needed(kinds: list[str]) -> None:
    quick = _one_may_go(*kinds)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Consolidator, "_none_may_go_alone", lambda *_: None)
        assert quick == _one_may_go(*kinds)


@pytest.mark.parametrize(("kind", "weighed"), [("small 3", 0), ("small 2", 1)])
def test_room_is_weighed_only_where_a_node_may_be_worth_removing(
    monkeypatch: pytest.MonkeyPatch, kind: str, weighed: int
) -> None:
    questions: list[Any] = []
    room_values = Simulator.room_values

    def noted(self: Simulator, nodes: Any) -> Any:
        questions.append(nodes)
        return room_values(self, nodes)

    monkeypatch.setattr(Simulator, "room_values", noted)
    _one_may_go(kind, "small 3", "small 1")
    assert len(questions) == weighed


@pytest.mark.parametrize(("budgets", "compiled"), [([{"nodes": "0"}], 0), ([{"nodes": "1"}], 1)], ids=["none", "one"])
def test_nothing_is_compiled_where_no_node_may_go(monkeypatch: pytest.MonkeyPatch, budgets: Any, compiled: int) -> None:
    made: list[Any] = []

    def noted(*of: Any) -> Removals:
        made.append(of)
        return Removals(*of)

    monkeypatch.setattr("shiplap.disruption.rescheduling.Removals", noted)
    pods = [pod_on("p", "a", cpu="1"), pod_on("q", "b", cpu="1")]
    verdict = disrupted(small("a"), small("b"), pods=pods, types=BOTH, pools=[pool(budgets=budgets)])
    assert len(made) == compiled
    assert len(verdict.removed) == compiled
    assert ("no allowed disruptions" in verdict.blocked("a")) == (not compiled)


def test_nodes_that_go_before_anything_is_compiled_take_no_pods() -> None:
    """An empty node goes first; the pods of another would fit on it."""
    nodes = [small("a"), large("empty"), small("full")]
    pods = [pod_on("p", "a", cpu="3"), pod_on("q", "full", cpu="3")]
    verdict = disrupted(*nodes, pods=pods, types=(SMALL,))
    assert verdict.removed == {"empty"}


def test_no_pod_moves_to_a_node_that_is_cordoned() -> None:
    """Not even one that tolerates everything: it would have to move again."""
    full = pod_on("p", "a", cpu="3", tolerations=[{"operator": "Exists"}])
    assert disrupted(small("a"), large("b", claimed=False), pods=[full], types=BOTH).removed == {"a"}
    assert disrupted(small("a"), large("b", claimed=False, taints=CORDONED), pods=[full], types=BOTH).removed == set()


@pytest.mark.parametrize(("taints", "asked"), [((), 1), (CORDONED, 0)], ids=["open", "cordoned"])
def test_room_on_a_cordoned_node_makes_no_removal_seem_worth_planning(
    monkeypatch: pytest.MonkeyPatch, taints: Any, asked: int
) -> None:
    """Its claim is gone, the Node is still there. Without its room, new ones are sure to cost what the old one does."""
    questions: list[Any] = []
    without = Simulator.without

    def noted(self: Simulator, removed: Any, *others: Any, **more: Any) -> Any:
        questions.append(removed)
        return without(self, removed, *others, **more)

    monkeypatch.setattr(Simulator, "without", noted)
    ended = large("b", taints=taints, claimed=False)
    verdict = disrupted(small("a"), ended, pods=[pod_on("p", "a", cpu="3", memory="4Gi")], types=BOTH)
    assert len(questions) == asked
    assert len(verdict.removed) == asked
    assert verdict.blocked("a") == ("" if asked else "can't replace with a cheaper node")
