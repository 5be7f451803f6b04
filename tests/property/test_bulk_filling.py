"""Problems filled in bulk against their rules: valid, and the same for the same input."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.scheduling.model.resources import distinct_lines
from shiplap.scheduling.packing.size_classes import in_proportion, split_by_quotas, water_fill
from shiplap.scheduling.search import improve as improve_module
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling, first_fit
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.grown_nodes import grow_nodes, grown_in_turn, size_weights
from shiplap.scheduling.search.improve import (
    clear_cache,
    fill_cached,
    fill_cheaply,
    improve,
    leading_kinds,
)
from shiplap.scheduling.search.joined_nodes import join_nodes
from shiplap.scheduling.search.pod_kinds import realise, reduce_problems
from tests.filling_faults import faults
from tests.property.bin_packing_problems import one_each, only, problems, without_rules
from tests.thoroughness import draws

SETTINGS = settings(derandomize=True, deadline=None, max_examples=draws(150))
_PLENTY = Effort(np.inf)


@SETTINGS
@given(problem=problems())
def test_first_fit_keeps_every_rule(problem: BinPackingProblem) -> None:
    assert faults(problem, first_fit(problem)) == []


@SETTINGS
@given(problem=problems(most_pods=40))
def test_the_cheap_filling_keeps_every_rule(problem: BinPackingProblem) -> None:
    assert faults(problem, fill_cheaply([problem])[0]) == []


@SETTINGS
@given(problem=problems())
def test_small_problems_are_never_filled_dearer_than_by_first_fit(problem: BinPackingProblem) -> None:
    [cheap], plain = fill_cheaply([problem]), first_fit(problem)
    assert cheap.hourly(problem) <= plain.hourly(problem) + 1e-9


@settings(SETTINGS, max_examples=draws(60))
@given(problem=problems(most_items=5, most_pods=120, rules=False))
def test_few_kinds_of_pods_are_never_filled_dearer_than_where_each_goes_where_it_adds_least(
    problem: BinPackingProblem,
) -> None:
    """However large is defined. Nodes of some fillings are joined for less, so only the price after that counts."""
    [cheap] = fill_cheaply([problem])
    [(_, reduced, _)] = reduce_problems([problem], [1])
    for weights in size_weights(reduced):
        grown = realise(problem, reduced, grow_nodes(reduced, leading_kinds(reduced), weights, _PLENTY), _PLENTY)
        assert grown is not None
        joined = join_nodes(problem, grown, reduced.rows, _PLENTY)
        assert cheap.hourly(problem) <= joined.hourly(problem) + 1e-9


@SETTINGS
@given(problem=problems(most_items=8, most_pods=120))
def test_weightings_that_share_decisions_grow_the_nodes_that_each_grows_alone(problem: BinPackingProblem) -> None:
    [(_, reduced, _)] = reduce_problems([problem], [1])
    leading, weights = leading_kinds(reduced), size_weights(reduced)
    alone = [grow_nodes(reduced, leading, each, _PLENTY).tolist() for each in weights]
    together = [patterns.tolist() for patterns in grown_in_turn(reduced, leading, weights, _PLENTY)]
    assert together[0] == alone[0]
    assert [one for place, one in enumerate(alone) if one not in alone[:place]] == [
        one for place, one in enumerate(together) if one not in together[:place]
    ]


def test_a_filling_that_nothing_can_undercut_is_not_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices are multiples of 0.25: 3.2 nodes in parts, so 1.0 for one node of four is the least."""
    firsts: list[BinPackingProblem] = []

    def noted(problem: BinPackingProblem) -> Filling:
        firsts.append(problem)
        return first_fit(problem)

    monkeypatch.setattr(improve_module, "first_fit", noted)
    net, price = [[1000, 1000], [2000, 2000], [4000, 4000]], [0.25, 0.5, 1.0]
    [even] = fill_cheaply([without_rules([[400, 100], [300, 100]], [5, 4], net, price)])
    assert (even.rows.tolist(), firsts) == ([2], [])
    [uneven] = fill_cheaply([without_rules([[400, 100], [300, 100]], [5, 4], net, [0.25, 0.47, 1.0])])
    assert faults(firsts[0], uneven) == []


def test_a_cached_first_filling_is_the_same_and_no_other_problems() -> None:
    def problem(price: float) -> BinPackingProblem:
        return without_rules([[3], [2]], [2, 3], [[4], [8]], [price, 2.0])

    clear_cache()
    first, again, other = (fill_cached([problem(price)])[0] for price in (1.0, 1.0, 1.5))
    assert again is first
    assert first.rows.tolist() == fill_cheaply([problem(1.0)])[0].rows.tolist()
    assert other is not first


@SETTINGS
@given(problem=problems())
def test_items_that_fit_nowhere_stay_out_of_the_cheap_filling(problem: BinPackingProblem) -> None:
    huge = msgspec.structs.replace(problem, sizes=problem.sizes.copy())
    huge.sizes[0] *= 1000
    [filling] = fill_cheaply([huge])
    assert sorted(set(filling.item.tolist())) == list(range(1, len(problem.counts)))
    assert filling.number.sum() == problem.counts[1:].sum()


@SETTINGS
@given(problem=problems())
def test_problems_that_differ_in_prices_are_filled_together(problem: BinPackingProblem) -> None:
    other = msgspec.structs.replace(problem, price=problem.price[::-1].copy())
    for each, filling in zip((problem, other), fill_cheaply([problem, other]), strict=True):
        assert faults(each, filling) == []


def test_more_sizes_than_can_be_told_apart_are_filled_within_their_nodes() -> None:
    places = np.arange(600)
    sizes = np.stack([1000 + 7 * places, 2000 + 13 * places % 5003, np.ones(600, np.int64)], axis=1)
    net, price = [[8000, 16_000, 8], [16_000, 32_000, 8], [32_000, 64_000, 8]], [0.4, 0.8, 1.6]
    problem = without_rules(sizes, np.ones(600, np.int64), net, price)
    [filling] = fill_cheaply([problem])
    assert faults(problem, filling) == []
    assert filling.hourly(problem) <= first_fit(problem).hourly(problem)


def test_pods_with_most_gpus_are_placed_first_and_leave_none_for_pods_that_need_fewer() -> None:
    """Pods with two GPUs share nodes of four in pairs; each with one gets the node of one that holds its cpu."""
    sizes = [[2000, 2000, 1, 2], [6000, 6000, 1, 1], [1000, 1000, 1, 0]]
    net = [[4000, 8000, 20, 1], [8000, 16_000, 20, 1], [48_000, 96_000, 20, 4]]
    problem = without_rules(sizes, [60, 120, 400], net, [0.5, 0.75, 4.0])
    [filling] = fill_cheaply([problem])
    assert faults(problem, filling) == []
    assert np.bincount(filling.rows, minlength=3).tolist() == [0, 120, 30]


def test_few_pods_beside_a_problem_of_many_sizes_are_filled() -> None:
    places = np.arange(300)
    sizes = np.stack([100 + places, 200 + 3 * places, np.ones(300, np.int64)], axis=1)
    net, price = [[8000, 16_000, 40], [16_000, 32_000, 40]], [0.4, 0.8]
    many = without_rules(sizes, np.ones(300, np.int64), net, price)
    few = msgspec.structs.replace(many, counts=np.where(places < 50, 1, 0))
    for problem, filling in zip((many, few), fill_cheaply([many, few]), strict=True):
        assert faults(problem, filling) == []


def test_one_pod_gets_the_cheapest_row_that_holds_it() -> None:
    problem = without_rules([[1000, 1000]], [1], [[4000, 4000], [2000, 2000]], [0.2, 0.1])
    assert fill_cheaply([problem])[0].rows.tolist() == [1]


@SETTINGS
@given(problem=problems(most_pods=40))
def test_joined_nodes_keep_every_rule_and_are_neither_more_nor_dearer(problem: BinPackingProblem) -> None:
    for filling in (one_each(problem), first_fit(problem)):
        joined = join_nodes(problem, filling, np.arange(len(problem.price)), Effort(np.inf))
        assert faults(problem, joined) == []
        assert joined.hourly(problem) <= filling.hourly(problem) + 1e-9
        assert len(joined.rows) <= len(filling.rows)


@SETTINGS
@given(problem=problems(most_items=4, most_pods=6))
def test_no_two_of_few_joined_nodes_can_be_joined(problem: BinPackingProblem) -> None:
    joined = join_nodes(problem, one_each(problem), np.arange(len(problem.price)), Effort(np.inf))
    for left in range(len(joined.rows)):
        for right in range(left):
            both = Filling(joined.rows, np.where(joined.node == left, right, joined.node), joined.item, joined.number)
            assert not _holds_for_no_more(problem, both, right, joined.rows[[left, right]])


def _holds_for_no_more(problem: BinPackingProblem, filling: Filling, node: int, rows: np.ndarray) -> bool:
    """True if the pods on a node may share it, and one row holds them for no more than `rows` cost."""
    here = filling.node == node
    counts = np.bincount(filling.item[here], filling.number[here], len(problem.counts)).astype(np.int64)
    items = np.flatnonzero(counts)
    alone = only(msgspec.structs.replace(problem, counts=counts), items)
    for row in np.flatnonzero(problem.price <= problem.price[rows].sum() + 1e-9).tolist():
        one = Filling(np.array([row]), np.zeros(len(items), np.int64), np.arange(len(items)), counts[items])
        if all("is not the cheapest" in fault for fault in faults(alone, one)):
            return True
    return False


_PROPORTIONAL = ([[1900, 6_800, 29], [3900, 14_500, 58], [7900, 30_000, 58]], [0.096, 0.192, 0.384])


def test_at_equal_price_few_large_nodes_are_bought() -> None:
    problem = without_rules([[1200, 2048, 1]], [360], *_PROPORTIONAL)
    [first] = fill_cheaply([problem])
    [searched] = improve([problem], [first], Effort.of(1.0))
    assert faults(problem, first) == faults(problem, searched) == []
    assert len(first.rows) <= 61
    assert (len(searched.rows), round(searched.hourly(problem), 6)) == (60, round(60 * 0.384, 6))


def test_a_node_grows_no_larger_than_its_pods_need() -> None:
    problem = without_rules([[1200, 2048, 1]], [3], *_PROPORTIONAL)
    assert fill_cheaply([problem])[0].rows.tolist() == [1]


def test_small_nodes_are_joined_where_only_several_of_them_pay_for_a_larger_one() -> None:
    nets, prices = _PROPORTIONAL
    problem = without_rules([[1200, 2048, 1]], [12], [nets[0], nets[2]], [prices[0], prices[2]])
    one = one_each(problem)
    joined = join_nodes(problem, one, np.arange(2), Effort(np.inf))
    assert (len(one.rows), len(joined.rows)) == (12, 3)


def test_pods_that_keep_apart_stay_apart_at_any_price() -> None:
    problem = without_rules([[1200, 2048, 1]], [12], *_PROPORTIONAL)
    problem = msgspec.structs.replace(problem, clash=np.ones((1, 1), np.bool_))
    [filling] = fill_cheaply([problem])
    assert faults(problem, filling) == []
    assert len(filling.rows) == 12


@SETTINGS
@given(problem=problems())
def test_equal_parcels_are_filled_alike(problem: BinPackingProblem) -> None:
    one, other = (first_fit(problem) for _ in range(2))
    assert one.rows.tolist() == other.rows.tolist()
    assert (one.node.tolist(), one.item.tolist(), one.number.tolist()) == (
        other.node.tolist(),
        other.item.tolist(),
        other.number.tolist(),
    )


@SETTINGS
@given(base=st.lists(st.integers(0, 20), min_size=1, max_size=6), number=st.integers(0, 200))
def test_water_makes_levels_as_even_as_they_can_be(base: list[int], number: int) -> None:
    added = water_fill(base, number)
    assert sum(added) == number
    final = [before + more for before, more in zip(base, added, strict=True)]
    wet = [level for level, more in zip(final, added, strict=True) if more]
    assert not wet or max(wet) - min(final) <= 1


@SETTINGS
@given(loads=st.lists(st.floats(0.01, 100), min_size=1, max_size=6), number=st.integers(0, 500))
def test_shares_differ_from_the_exact_proportion_by_less_than_one(loads: list[float], number: int) -> None:
    shares = in_proportion(loads, number)
    assert sum(shares) == number
    exact = [number * load / sum(loads) for load in loads]
    assert all(abs(share - wanted) < 1 + 1e-6 for share, wanted in zip(shares, exact, strict=True))


@SETTINGS
@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=8), data=st.data())
def test_dealing_gives_every_parcel_its_number_and_every_class_its_pods(counts: list[int], data: st.DataObject) -> None:
    total = sum(counts)
    first = data.draw(st.integers(0, total))
    share = split_by_quotas([[first, total - first]], [np.array(counts, np.int64)])[0]
    assert share.sum(axis=0).tolist() == [first, total - first]
    assert share.sum(axis=1).tolist() == counts
    assert (share >= 0).all()


_SIZES = st.lists(st.integers(0, 9), min_size=1, max_size=5)


@SETTINGS
@given(counts=st.lists(_SIZES, min_size=1, max_size=6), data=st.data())
def test_size_classes_split_together_are_each_split_completely(counts: list[list[int]], data: st.DataObject) -> None:
    quotas = []
    for sizes in counts:
        cuts = sorted(data.draw(st.lists(st.integers(0, sum(sizes)), max_size=3)))
        quotas.append(np.diff([0, *cuts, sum(sizes)]).tolist())
    shares = split_by_quotas(quotas, [np.array(sizes, np.int64) for sizes in counts])
    assert [share.sum(axis=0).tolist() for share in shares] == quotas
    assert [share.sum(axis=1).tolist() for share in shares] == counts
    assert all((share >= 0).all() for share in shares)


@SETTINGS
@given(lines=st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2**40)), max_size=20))
def test_distinct_lines_are_found_whatever_their_order(lines: list[tuple[int, int]]) -> None:
    matrix = np.array(lines, np.int64).reshape(len(lines), 2)
    first, line_of = distinct_lines(matrix)
    assert {tuple(line) for line in matrix[first].tolist()} == set(lines)
    assert len(first) == len(set(lines))
    assert matrix[first][line_of].tolist() == matrix.tolist()


def test_lines_of_bytes_come_sorted() -> None:
    lines = np.array([[2, 1], [0, 255], [2, 1], [0, 3]], np.uint8)
    first, line_of = distinct_lines(lines)
    assert lines[first].tolist() == [[0, 3], [0, 255], [2, 1]]
    assert line_of.tolist() == [2, 1, 2, 0]
