"""A search that is remembered comes to what a search comes to, and takes as much of the effort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.scheduling.model.bounds import BOUNDS
from shiplap.scheduling.search import improve as remembered
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import clear_cache, improve, improve_cached
from tests.property.bin_packing_problems import one_each, problems, without_rules
from tests.thoroughness import draws


def told(filling: Filling) -> list[list[int]]:
    return [array.tolist() for array in (filling.rows, filling.node, filling.item, filling.number)]


@settings(max_examples=draws(40), deadline=None)
@given(some=st.lists(problems(), min_size=1, max_size=3), seconds=st.sampled_from((0.001, 0.02, 0.2)))
def test_it_is_what_searching_finds_each_time_it_is_asked(some: list[BinPackingProblem], seconds: float) -> None:
    clear_cache()
    before, effort = [one_each(problem) for problem in some], Effort.of(seconds)
    found = improve(some, before, effort)
    for _ in range(2):
        given_effort = Effort.of(seconds)
        again = improve_cached(some, before, given_effort)
        assert [told(filling) for filling in again] == [told(filling) for filling in found]
        assert [new is old for new, old in zip(again, before, strict=True)] == [
            new is old for new, old in zip(found, before, strict=True)
        ]
        assert given_effort.left == pytest.approx(effort.left)


def test_a_lone_pod_takes_no_effort_whether_remembered_or_not() -> None:
    lone = [without_rules([[100, 100, 1]], [1], [[1900, 4100, 2], [16_000, 16_000, 20]], [0.01, 0.01])]
    before = [one_each(lone[0])]
    for search in (improve, improve_cached):
        effort = Effort.of(0.001)
        assert search(lone, before, effort) == tuple(before)
        assert effort.left == Effort.of(0.001).left


def plain() -> BinPackingProblem:
    """Four pods of 1 cpu and two of 2 on nodes of 2 cpu for 0.2 or of 8 for 0.5."""
    return without_rules([[1000], [2000]], [4, 2], [[2000], [8000]], [0.2, 0.5])


def test_the_same_is_searched_once_and_anything_else_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    clear_cache()
    searched: list[float] = []

    def counting(some: list[BinPackingProblem], fillings: list[Filling], effort: Effort) -> tuple[Filling, ...]:
        searched.append(effort.left)
        return improve(some, fillings, effort)

    monkeypatch.setattr(remembered, "improve", counting)
    problem = plain()
    first = one_each(problem)
    dearer = replace(problem, price=np.array([0.2, 0.6]))
    for asked in ((problem, 1.0), (plain(), 1.0), (dearer, 1.0), (problem, 0.001), (dearer, 1.0)):
        improve_cached([asked[0]], [first], Effort.of(asked[1]))
    assert len(searched) == 3


def test_no_more_is_remembered_than_a_function_can_keep() -> None:
    clear_cache()
    problem = plain()
    for number in range(300):
        improve_cached([replace(problem, price=problem.price + number)], [one_each(problem)], Effort.of(0.0001))
    assert len(remembered._CACHE) == BOUNDS.remembered_searches


def test_without_effort_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "improve", None)
    filling = one_each(plain())
    assert improve_cached([plain()], [filling], Effort.of(0.0)) == (filling,)
