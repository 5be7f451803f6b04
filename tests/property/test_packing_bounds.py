"""The price benchmark's bounds: below what any packing costs, and equal to it where nothing is lost to rounding."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from shiplap.scheduling.search.bin_packing import BinPackingProblem
from shiplap.scheduling.search.column_generation import ReducedProblem
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import improve
from shiplap.scheduling.search.pod_kinds import reduce_problems
from tests.property.bin_packing_problems import one_each, problems, without_rules
from tests.thoroughness import draws

pytest.importorskip("highspy", reason="HiGHS, which prices node contents for the benchmark, is not installed")

from benchmarks.shared.packing_bounds import content_bound, resource_bound


def problem_of(problem: BinPackingProblem) -> ReducedProblem:
    [(_, joint, _)] = reduce_problems([problem], [int(problem.counts.sum())])
    return joint


@settings(max_examples=draws(25), deadline=None)
@given(problem=problems(most_items=5, most_pods=6))
def test_no_filling_is_cheaper_than_the_bounds(problem: BinPackingProblem) -> None:
    found = improve([problem], [one_each(problem)], Effort.of(0.5))[0].hourly(problem)
    reduced = problem_of(problem)
    least = resource_bound(reduced)
    content = content_bound(reduced, 5.0, least)
    assert least <= content
    assert content <= found + 1e-6


def test_the_bounds_are_exact_where_nodes_are_filled_to_the_brim() -> None:
    full = without_rules([[500, 1000, 1]], [12], [[2000, 4000, 10], [1000, 2000, 10]], [0.19, 0.1])
    reduced = problem_of(full)
    assert resource_bound(reduced) == pytest.approx(3 * 0.19)
    assert content_bound(reduced, 5.0, 0.0) == pytest.approx(3 * 0.19)


def test_the_content_bound_is_no_lower_where_no_content_improves_it() -> None:
    """Values of contents alone come to half a percent less here than the least total of the resources."""
    sizes = [[100, 100, 1], [100, 200, 1], [100, 1100, 1], [100, 1300, 1], [500, 3300, 1]]
    large = problem_of(without_rules(sizes, [1, 1, 5, 6, 2], [[16000, 16000, 20]], [0.01]))
    assert content_bound(large, 5.0, resource_bound(large)) >= resource_bound(large)


def test_the_content_bound_knows_that_pods_are_not_cut() -> None:
    uneven = without_rules([[600, 100, 1]], [10], [[1000, 1000, 10]], [0.1])
    reduced = problem_of(uneven)
    assert resource_bound(reduced) == pytest.approx(0.6)
    assert content_bound(reduced, 5.0, 0.0) == pytest.approx(1.0)
