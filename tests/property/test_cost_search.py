"""The cost search against its promises: valid, never dearer, the same for the same input, and close to the optimum."""

from __future__ import annotations

import random
from functools import cache
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.resources import Floats
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling, first_fit
from shiplap.scheduling.search.column_generation import CoveringProgram, covering_mixture
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.improve import (
    effort_worth,
    fill_cheaply,
    grow_nodes,
    improve,
    leading_kinds,
    pod_values,
    totals_bound,
)
from shiplap.scheduling.search.pod_kinds import realise, reduce_problems
from tests.filling_faults import faults
from tests.property.bin_packing_problems import one_each, only, problems, without_rules
from tests.thoroughness import draws

EFFORTS = st.sampled_from((0.001, 0.02, 0.2))


@settings(max_examples=draws(60), deadline=None)
@given(some=st.lists(problems(), min_size=1, max_size=3), seconds=EFFORTS)
def test_fillings_are_valid_and_never_dearer(some: list[BinPackingProblem], seconds: float) -> None:
    before = [one_each(problem) for problem in some]
    assert [faults(problem, filling) for problem, filling in zip(some, before, strict=True)] == [[] for _ in some]
    after = improve(some, before, Effort.of(seconds))
    for problem, old, new in zip(some, before, after, strict=True):
        assert faults(problem, new) == []
        assert new.hourly(problem) <= old.hourly(problem) + 1e-9


@settings(max_examples=draws(30), deadline=None)
@given(problem=problems(), seconds=EFFORTS)
def test_a_second_search_never_loses_what_the_first_found(problem: BinPackingProblem, seconds: float) -> None:
    first = improve([problem], [one_each(problem)], Effort.of(seconds))
    second = improve([problem], first, Effort.of(seconds))
    assert faults(problem, second[0]) == []
    assert second[0].hourly(problem) <= first[0].hourly(problem) + 1e-9


@settings(max_examples=draws(25), deadline=None)
@given(problem=problems(), seconds=EFFORTS)
def test_equal_input_gives_equal_output(problem: BinPackingProblem, seconds: float) -> None:
    found = [improve([problem], [one_each(problem)], Effort.of(seconds))[0] for _ in range(2)]
    assert _bytes(found[0]) == _bytes(found[1])


@settings(max_examples=draws(60), deadline=None)
@given(problem=problems(rules=False), data=st.data(), weight=st.sampled_from((0.1, 0.5, 0.9)))
def test_grown_nodes_hold_every_pod_on_a_row_that_suits_and_those_that_lead_first(
    problem: BinPackingProblem, data: st.DataObject, weight: float
) -> None:
    [(_, _, (reduced,))] = reduce_problems([problem], [len(problem.counts)])
    leading = np.array([data.draw(st.booleans()) for _ in reduced.sizes], np.bool_)
    weights = np.zeros(reduced.net.shape[1])
    weights[:2] = np.array([weight, 1.0 - weight])[: len(weights)] / reduced.net.max(axis=0)[:2]
    patterns = grow_nodes(reduced, leading, weights, Effort.of(1.0))
    assert patterns.sum(axis=0).tolist() == reduced.demand.tolist()
    assert (reduced.cheapest(patterns) >= 0).all()
    found = realise(problem, reduced, patterns, Effort.of(1.0))
    assert found is not None
    assert faults(problem, found) == []


def test_nodes_that_rules_keep_apart_are_topped_up_by_the_least_price_step() -> None:
    """Two pods keep apart; the third goes where a node grows for less than a new one costs."""
    problem = msgspec.structs.replace(
        _plain(),
        counts=np.array([2, 1]),
        price=np.array([0.2, 0.35]),
        caps=np.ones(1, np.int64),
        capped=np.array([[True, False]]),
        owners=np.array([[True, False]]),
    )
    [(_, _, (reduced,))] = reduce_problems([problem], [2])
    patterns = grow_nodes(reduced, leading_kinds(reduced), np.array([1.0, 0.0, 0.0, 0.0]), Effort.of(1.0))
    assert sorted(patterns.sum(axis=1).tolist()) == [1.0, 2.0]
    assert reduced.cost(patterns) == pytest.approx(0.55)


@settings(max_examples=draws(25), deadline=None)
@given(problem=problems(rules=False), data=st.data())
def test_the_order_of_items_does_not_change_the_price(problem: BinPackingProblem, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(problem.counts)))), np.int64)
    other = only(problem, order)
    found, again = (improve([p], [one_each(p)], Effort.of(0.2))[0].hourly(p) for p in (problem, other))
    assert found == pytest.approx(again, abs=1e-9)


@settings(derandomize=True, max_examples=draws(40), deadline=None)
@given(problem=problems(most_items=3, most_pods=3))
def test_small_cases_against_the_optimum(problem: BinPackingProblem) -> None:
    best = _optimum(problem)
    # As in a decision, from a first-fit filling. So few pods may end one node away from the optimum, and which examples
    # are drawn follows from constants anywhere in the package: the bar is what must never be passed, not the average.
    found = improve([problem], [first_fit(problem)], Effort.of(1.0))[0].hourly(problem)
    [(_, joint, _)] = reduce_problems([problem], [len(problem.counts)])
    bound, _, _ = totals_bound(joint, Effort.of(1.0))
    assert bound <= best + 1e-9
    assert best - 1e-9 <= found <= 2 * best + 1e-9


def test_without_effort_nothing_changes() -> None:
    problem = _plain()
    given_filling = one_each(problem)
    assert _bytes(improve([problem], [given_filling], Effort.of(0.0))[0]) == _bytes(given_filling)


def test_an_empty_parcel_stays_empty() -> None:
    nothing = only(_plain(), np.zeros(0, np.int64))
    empty = Filling(*(np.zeros(0, np.int64) for _ in range(4)))
    assert improve([nothing], [empty], Effort.of(1.0)) == (empty,)


def test_a_kind_without_pods_changes_nothing_however_much_each_would_ask_for() -> None:
    problem = _plain()
    huge = msgspec.structs.replace(
        problem,
        sizes=np.concatenate([problem.sizes, 10 * problem.sizes[:1]]),
        counts=np.append(problem.counts, 0),
        suits=np.concatenate([problem.suits, problem.suits[:1]]),
        owners=np.pad(problem.owners, ((0, 0), (0, 1))),
        capped=np.pad(problem.capped, ((0, 0), (0, 1))),
        clash=np.pad(problem.clash, (0, 1)),
    )
    found, without = (improve([some], [one_each(some)], Effort.of(1.0))[0] for some in (huge, problem))
    assert found.hourly(huge) == without.hourly(problem) < one_each(problem).hourly(problem)


def test_pods_share_the_node_that_is_cheapest_for_all_of_them() -> None:
    problem = _plain()
    found = improve([problem], [one_each(problem)], Effort.of(1.0))[0]
    assert found.rows.tolist() == [1]
    assert found.number.tolist() == [4, 2]


def test_more_kinds_than_column_generation_is_for_are_searched_too() -> None:
    """200 sizes of pods with one GPU each: whatever they are found on, nodes of two GPUs cost less."""
    places = np.arange(200)
    sizes = np.stack([1000 + 7 * places, 2000 + 5 * places, np.ones(200, np.int64), np.ones(200, np.int64)], axis=1)
    net = [[8000, 16_000, 20, 1], [16_000, 32_000, 20, 2], [32_000, 64_000, 20, 0]]
    problem = without_rules(sizes, np.ones(200, np.int64), net, [1.0, 1.5, 1.5])
    [found] = improve([problem], [one_each(problem)], Effort.of(2.0))
    assert faults(problem, found) == []
    assert found.hourly(problem) == pytest.approx(100 * 1.5)


def test_a_zone_that_lacks_a_type_is_searched_as_well_as_alone() -> None:
    """The contents that two zones share may need a type that only one of them has."""
    sizes = [[2900, 5000, 1], [1900, 3000, 1], [1300, 4000, 1], [3500, 1500, 1]]
    net = [[4000, 8000, 9], [8000, 16_000, 20], [16_000, 40_000, 60]]
    both = without_rules(sizes, [12, 14, 16, 9], net, [0.2, 0.38, 0.6])
    lacking = msgspec.structs.replace(both, price=np.array([0.2, 0.38, np.inf]))
    together = improve([both, lacking], [one_each(both), one_each(lacking)], Effort.of(0.3))[1]
    [alone] = improve([lacking], [one_each(lacking)], Effort.of(0.3))
    assert faults(lacking, together) == []
    assert together.hourly(lacking) <= alone.hourly(lacking) + 1e-9


@settings(max_examples=draws(60), deadline=None)
@given(
    demands=st.lists(st.lists(st.integers(1, 40), min_size=5, max_size=5), min_size=2, max_size=2),
    lines=st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=1, max_size=12),
    prices=st.lists(st.integers(1, 9), min_size=12, max_size=12),
    dearer=st.integers(0, 3),
)
def test_a_program_that_begins_from_the_basis_of_another_demand_comes_to_the_same_cost(
    demands: list[list[int]], lines: list[list[int]], prices: list[int], dearer: int
) -> None:
    rows = len(demands[0])
    columns = np.concatenate([np.eye(rows), np.array(lines, np.float64).T], axis=1)
    cost = np.concatenate([np.full(rows, 5.0), np.array(prices[: len(lines)], np.float64)])
    known, plain = (CoveringProgram(np.array(demand, np.float64), columns, cost) for demand in demands)
    assert known.solve(Effort.of(10))
    assert plain.solve(Effort.of(10))
    basic = known.basis[known.basis >= 0]
    columns = np.concatenate([known.basic_columns, columns], axis=1)
    # Columns may cost more for the other demand, as types do in another zone.
    again = np.concatenate([cost[basic] + dearer, cost])
    begun = known.begun_with(np.array(demands[1], np.float64), columns, again)
    if begun is None:
        return
    assert begun.solve(Effort.of(10))
    covered = (begun.columns * begun.solution()[None, :]).sum(axis=1)
    assert (covered >= np.array(demands[1]) - 1e-5).all()
    assert np.isclose(begun.objective, (begun.duals * begun.demand).sum())
    assert begun.objective == pytest.approx(plain.objective, rel=1e-3)


def test_a_program_begins_from_the_basis_of_another_demand_in_few_pivots() -> None:
    """With the same costs it is the dual simplex method alone that gets there."""
    columns = np.array([[1.0, 0.0, 2.0, 1.0], [0.0, 1.0, 1.0, 3.0]])
    cost = np.array([1.0, 1.0, 1.2, 1.5])
    known = CoveringProgram(np.array([10.0, 12.0]), columns, cost)
    assert known.solve(Effort.of(1))
    assert set(known.basis.tolist()) == {2, 3}
    for demand in ([10.0, 2.0], [1.0, 12.0], [20.0, 25.0]):
        begun = known.begun_with(
            np.array(demand),
            np.concatenate([known.basic_columns, columns], axis=1),
            np.concatenate([cost[known.basis], cost]),
        )
        plain = CoveringProgram(np.array(demand), columns, cost)
        assert plain.solve(Effort.of(1))
        assert begun is not None
        assert begun.objective == pytest.approx(plain.objective, rel=1e-6)


def _plain() -> BinPackingProblem:
    """Four pods of 1 cpu and two of 2 on nodes of 2 cpu for 0.2 or of 8 for 0.5."""
    return without_rules([[1000, 1, 1], [2000, 1, 1]], [4, 2], [[2000, 10, 10], [8000, 10, 10]], [0.2, 0.5])


def _bytes(filling: Filling) -> list[bytes]:
    return [getattr(filling, name).tobytes() for name in msgspec.structs.asdict(filling)]


def _optimum(problem: BinPackingProblem) -> float:
    """Return the cost of the cheapest filling: try every content of the node that takes the first pod left."""
    counts = tuple(problem.counts.tolist())
    price = {
        some: cost
        for some in product(*(range(count + 1) for count in counts))
        if any(some) and np.isfinite(cost := _node_price(problem, np.array(some)))
    }

    @cache
    def cheapest(left: tuple[int, ...]) -> float:
        if not any(left):
            return 0.0
        first = next(place for place, count in enumerate(left) if count)
        return min(
            cost + cheapest(tuple(have - take for have, take in zip(left, some, strict=True)))
            for some, cost in price.items()
            if some[first] and all(take <= have for have, take in zip(left, some, strict=True))
        )

    return cheapest(counts)


def _node_price(problem: BinPackingProblem, some: np.ndarray) -> float:
    here = np.flatnonzero(some)
    for cap, owners, capped in zip(problem.caps, problem.owners, problem.capped, strict=True):
        if owners[here].any() and some[capped].sum() > cap:
            return np.inf
    for item in here.tolist():
        if (problem.clash[item, here] & (here != item)).any() or (problem.clash[item, item] and some[item] > 1):
            return np.inf
    holds = (problem.net >= some @ problem.sizes).all(axis=1) & problem.suits[here].all(axis=0)
    return float(problem.price[holds].min(initial=np.inf))


@settings(max_examples=draws(40), deadline=None)
@given(
    demand=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    lines=st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), max_size=12),
    prices=st.lists(st.integers(1, 9), min_size=12, max_size=12),
    likely=st.sets(st.integers(0, 11)),
)
def test_a_program_that_begins_with_likely_columns_comes_to_the_same_cost(
    demand: list[int], lines: list[list[int]], prices: list[int], likely: set[int]
) -> None:
    rows = len(demand)
    columns: Floats = np.array([line[:rows] for line in lines], np.float64).reshape(len(lines), rows).T
    cost: Floats = np.array(prices[: len(lines)], np.float64)
    plain, warm = (CoveringProgram(np.array(demand, np.float64), np.eye(rows), np.full(rows, 5.0)) for _ in range(2))
    some = sorted(place for place in likely if place < len(lines))
    warm.begin_with(columns[:, some], cost[some], Effort.of(10))
    for program in (plain, warm):
        program.add(columns, cost)
        assert program.solve(Effort.of(10))
        covered = (program.columns * program.solution()[None, :]).sum(axis=1)
        assert (covered >= np.array(demand) - 1e-6).all()
        # What pivots changed step by step is what the inverse says.
        assert np.isclose(program.objective, (program.duals * program.demand).sum())
    assert warm.objective == pytest.approx(plain.objective, rel=1e-3)


def test_nodes_of_more_pods_than_rules_let_expect_cost_what_they_are_launched_as() -> None:
    """Two of the pods keep apart. Ten pods a node is what the search looks for then; a filling may have more."""
    problem = msgspec.structs.replace(
        without_rules(
            [[100, 100, 1], [8000, 8000, 1], [100, 100, 1]],
            [30, 1, 1],
            [[1200, 1200, 40], [4000, 4000, 40], [9000, 9000, 40]],
            [0.1, 0.2, 5.0],
        ),
        clash=np.array([[False, False, False], [False, False, True], [False, True, False]]),
    )
    [(_, _, (reduced,))] = reduce_problems([problem], [30])
    assert reduced.soft
    crowded = np.zeros((1, len(reduced.sizes)))
    crowded[0, reduced.kind_of[0]] = 30
    assert reduced.cheapest(crowded).tolist() == [-1]
    assert reduced.cost(crowded) == pytest.approx(0.2)


def test_many_pods_of_a_few_sizes_cost_hardly_more_than_their_resources() -> None:
    """Large nodes are filled with mixtures of pods that leave neither CPU nor memory over."""
    cores = (2, 4, 8, 16, 32, 64)
    net = [[1000 * vcpu - 100, 1024 * vcpu * each - 500, 250] for vcpu in cores for each in (2, 4, 8)]
    sizes = [[250, 512, 1], [500, 1024, 1], [1000, 2048, 1], [1000, 8192, 1], [2000, 4096, 1], [500, 4096, 1]]
    price = [vcpu * each for vcpu in cores for each in (0.036, 0.042, 0.053)]
    problem = without_rules(sizes, [860, 560, 1170, 930, 720, 700], net, price)
    [(_, _, (reduced,))] = reduce_problems([problem], [100])

    [filling] = improve([problem], fill_cheaply([problem]), Effort.of(1.0))

    assert faults(problem, filling) == []
    assert filling.hourly(problem) <= 1.006 * totals_bound(reduced, Effort.of(1.0))[0]


def test_the_search_ends_by_itself_once_it_is_close_to_what_nothing_undercuts() -> None:
    """It is worth 2.4 s of effort, and would take 0.5 s if it went on where little can be saved."""
    source = random.Random(1)  # noqa: S311 - an example
    shapes = [(vcpu, each) for vcpu in (2, 4, 8, 16, 32) for each in (2, 4, 8)]
    sizes = [(100 * source.randrange(1, 40), 100 * source.randrange(1, 80), 1) for _ in range(60)]
    net = [(950 * vcpu, 950 * vcpu * each, 110) for vcpu, each in shapes]
    problem = without_rules(sizes, [40] * 60, net, [vcpu * (0.02 + 0.005 * each) for vcpu, each in shapes])
    effort = Effort(effort_worth([problem]))
    granted = effort.left

    [filling] = improve([problem], [first_fit(problem)], effort)

    assert granted - effort.left <= 0.18 * granted
    [(_, _, (reduced,))] = reduce_problems([problem], [100])
    assert filling.hourly(problem) <= 1.01 * totals_bound(reduced, Effort.of(1.0))[0]


@settings(max_examples=draws(40), deadline=None)
@given(problem=problems(), free=st.sets(st.integers(0, 7)), everything=st.booleans())
def test_rows_that_cost_nothing_are_bought_without_dividing_by_their_price(
    problem: BinPackingProblem, free: set[int], everything: bool
) -> None:
    price = np.where([everything or place in free for place in range(len(problem.price))], 0.0, problem.price)
    gift = msgspec.structs.replace(problem, price=price)
    [first] = fill_cheaply([gift])
    [found] = improve([gift], [first], Effort.of(0.1))
    assert faults(gift, found) == []
    assert found.hourly(gift) <= first.hourly(gift) + 1e-9
    assert np.isfinite(pod_values(gift)).all()


@pytest.mark.parametrize("of_dear", [0.0, 2.0])
def test_a_resource_that_no_pod_needs_has_no_part_in_a_bound(of_dear: float) -> None:
    """Pods elsewhere need accelerators: no row has any, or only one that is dear."""
    price = np.array([1.0, 2.0, 40.0])
    net = np.array([[2.0, 0.0], [4.0, 0.0], [4.0, of_dear]])
    bound, values, used = covering_mixture(np.array([6.0, 0.0]), net, price, Effort(np.inf))
    least, alone, use = covering_mixture(np.array([6.0]), net[:, :1], price, Effort(np.inf))
    assert bound == pytest.approx(least) == pytest.approx(3.0)
    assert values.tolist() == pytest.approx([alone[0], 0.0])
    assert used.tolist() == pytest.approx(use.tolist())
