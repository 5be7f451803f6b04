"""The planner composes its steps in one order, and the packer its strategies: both are read off one plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import pytest
from msgspec.structs import replace

from shiplap.manifests.standalone_claims import StandaloneClaim
from shiplap.scheduling import planner
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import PlanStage, PolicyInput, Snapshot
from shiplap.scheduling.packing import strategies
from shiplap.scheduling.packing.pack import Packing
from shiplap.scheduling.packing.strategies import STRATEGIES, Batch, Strategy, is_better
from tests.builders.pods import pod, pods
from tests.builders.pools import pool
from tests.conformance.catalogues import incrementing_types
from tests.conformance.given import given


class _Noting(PolicyInput, frozen=True):
    """Notes when its step begins."""

    recorded_as: ClassVar[str] = ""
    begun: list[str]

    def plan(self, snapshot: Snapshot, decide: Callable[[Snapshot], Plan]) -> Plan:
        self.begun.append(self.stage.name)
        return decide(snapshot)


class _Pods(_Noting, frozen=True):
    stage = PlanStage.PODS


class _Admission(_Noting, frozen=True):
    stage = PlanStage.ADMISSION


class _Prices(_Noting, frozen=True):
    stage = PlanStage.PRICES


def test_steps_of_policies_and_claims_of_users_come_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    solve = planner.solve

    def standalone(*_: object) -> tuple[None, str]:
        begun.append("standalone")
        return None, "no"

    def packing(snapshot: Snapshot) -> object:
        begun.append("packing")
        return solve(snapshot)

    item = StandaloneClaim("mine", "uid", pool("default").spec.template)
    snapshot = given(pod("web", cpu="1")).snapshot
    monkeypatch.setattr(planner, "plan_standalone", standalone)
    monkeypatch.setattr(planner, "solve", packing)
    policies = (_Prices(begun), _Admission(begun), _Pods(begun))
    planner.plan(replace(snapshot, policies=policies, standalone_claims=(item,)))
    assert begun == ["PODS", "ADMISSION", "PRICES", "packing", "standalone"]


def test_strategies_are_tried_in_the_order_of_their_list(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def noting(strategy: Strategy) -> Strategy:
        def packings(batch: Batch, known: Packing, most_hourly: float) -> Iterator[Packing]:
            tried.append(strategy.name)
            yield known

        return replace(strategy, applies=lambda *_: True, packings=packings)

    monkeypatch.setattr(strategies, "STRATEGIES", tuple(map(noting, STRATEGIES)))
    given(pod("web", cpu="1"), pod("without a place", cpu="9999"))  # so that no price rules a strategy out
    assert tried == [strategy.name for strategy in STRATEGIES]
    assert len(set(tried)) == len(tried)


def test_a_packing_ranks_by_pods_placed_then_by_spreads_kept_then_by_price() -> None:
    important = pod("important", cpu="3", priority=10)
    snapshot = given(important, *pods(3, "plain", cpu="3"), types=incrementing_types(4)).snapshot
    compiled, known = planner.solve(snapshot)
    classes = compiled.classes
    (first,), plain = (list(item.members) for item in sorted(classes, key=lambda item: -item.priority))
    index = {item.priority: item.index for item in classes}
    cheaper = replace(known, claims=known.claims[1:], used=known.used[1:])
    without_important = replace(known, unplaced={index[10]: [first]})
    without_plain = replace(known, unplaced={index[0]: plain})
    crowded = replace(known, find_crowded=lambda: True)
    ascending = [without_important, without_plain, crowded, known]
    for place, other in enumerate(ascending):
        assert all(is_better(other, worse, classes, None) for worse in ascending[:place])
        assert not any(is_better(worse, other, classes, 0.0) for worse in ascending[: place + 1])
    assert is_better(cheaper, known, classes, 0.0)
    assert not is_better(cheaper, known, classes, 0.9)
    assert not is_better(cheaper, known, classes, None)
    assert not is_better(replace(cheaper, find_crowded=lambda: True), known, classes, 0.0)
