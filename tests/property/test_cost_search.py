"""The cost search against its promises: valid, never dearer, the same for the same input, and close to the optimum."""

from __future__ import annotations

from functools import cache
from itertools import product

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.scheduling.packing.bulk.first_fit import first_fit
from shiplap.scheduling.search.bin_packing import BinPackingProblem, Filling
from shiplap.scheduling.search.columns import totals_bound
from shiplap.scheduling.search.effort import Effort
from shiplap.scheduling.search.grow import grow_nodes
from shiplap.scheduling.search.improve import improve
from shiplap.scheduling.search.problem import reduce_problems, with_rules
from shiplap.scheduling.search.realise import realise
from tests.filling_faults import faults
from tests.property.parcels import one_each, only, parcels

EFFORTS = st.sampled_from((0.001, 0.02, 0.2))


@settings(max_examples=60, deadline=None)
@given(some=st.lists(parcels(), min_size=1, max_size=3), seconds=EFFORTS)
def test_fillings_are_valid_and_never_dearer(some: list[BinPackingProblem], seconds: float) -> None:
    before = [one_each(parcel) for parcel in some]
    assert [faults(parcel, filling) for parcel, filling in zip(some, before, strict=True)] == [[] for _ in some]
    after = improve(some, before, Effort.of(seconds))
    for parcel, old, new in zip(some, before, after, strict=True):
        assert faults(parcel, new) == []
        assert new.hourly(parcel) <= old.hourly(parcel) + 1e-9


@settings(max_examples=30, deadline=None)
@given(parcel=parcels(), seconds=EFFORTS)
def test_a_second_search_never_loses_what_the_first_found(parcel: BinPackingProblem, seconds: float) -> None:
    first = improve([parcel], [one_each(parcel)], Effort.of(seconds))
    second = improve([parcel], first, Effort.of(seconds))
    assert faults(parcel, second[0]) == []
    assert second[0].hourly(parcel) <= first[0].hourly(parcel) + 1e-9


@settings(max_examples=25, deadline=None)
@given(parcel=parcels(), seconds=EFFORTS)
def test_equal_input_gives_equal_output(parcel: BinPackingProblem, seconds: float) -> None:
    found = [improve([parcel], [one_each(parcel)], Effort.of(seconds))[0] for _ in range(2)]
    assert _bytes(found[0]) == _bytes(found[1])


@settings(max_examples=60, deadline=None)
@given(parcel=parcels(rules=False), data=st.data(), weight=st.sampled_from((0.1, 0.5, 0.9)))
def test_grown_nodes_hold_every_pod_on_a_row_that_suits_and_those_that_lead_first(
    parcel: BinPackingProblem, data: st.DataObject, weight: float
) -> None:
    (problem,) = reduce_problems([with_rules(parcel, len(parcel.counts))])[1]
    leading = np.array([data.draw(st.booleans()) for _ in problem.sizes], np.bool_)
    weights = np.zeros(problem.net.shape[1])
    weights[:2] = np.array([weight, 1.0 - weight])[: len(weights)] / problem.net.max(axis=0)[:2]
    patterns = grow_nodes(problem, leading, weights, Effort.of(1.0))
    assert patterns.sum(axis=0).tolist() == problem.demand.tolist()
    assert (problem.cheapest(patterns) >= 0).all()
    found = realise(parcel, problem, patterns, Effort.of(1.0))
    assert found is not None
    assert faults(parcel, found) == []


def test_nodes_that_rules_keep_apart_are_topped_up_by_the_least_price_step() -> None:
    """Two pods keep apart; the third goes where a node grows for less than a new one costs."""
    parcel = msgspec.structs.replace(
        _plain(),
        counts=np.array([2, 1]),
        price=np.array([0.2, 0.35]),
        caps=np.ones(1, np.int64),
        capped=np.array([[True, False]]),
        owners=np.array([[True, False]]),
    )
    (problem,) = reduce_problems([with_rules(parcel, 2)])[1]
    patterns = grow_nodes(problem, problem.leading(), np.array([1.0, 0.0, 0.0, 0.0]), Effort.of(1.0))
    assert sorted(patterns.sum(axis=1).tolist()) == [1.0, 2.0]
    assert problem.cost(patterns) == pytest.approx(0.55)


@settings(max_examples=25, deadline=None)
@given(parcel=parcels(rules=False), data=st.data())
def test_the_order_of_items_does_not_change_the_price(parcel: BinPackingProblem, data: st.DataObject) -> None:
    order = np.array(data.draw(st.permutations(range(len(parcel.counts)))), np.int64)
    other = only(parcel, order)
    found, again = (improve([p], [one_each(p)], Effort.of(0.2))[0].hourly(p) for p in (parcel, other))
    assert found == pytest.approx(again, abs=1e-9)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(parcel=parcels(most_items=3, most_pods=3))
def test_small_cases_against_the_optimum(parcel: BinPackingProblem) -> None:
    best = _optimum(parcel)
    # As in a decision, from a first-fit filling. So few pods may end one node away from the optimum, and which examples
    # are drawn follows from constants anywhere in the package: the bar is what must never be passed, not the average.
    found = improve([parcel], [first_fit(parcel)], Effort.of(1.0))[0].hourly(parcel)
    joint, _ = reduce_problems([with_rules(parcel, len(parcel.counts))])
    bound, _, _ = totals_bound(joint.hard(), Effort.of(1.0))
    assert bound <= best + 1e-9
    assert best - 1e-9 <= found <= 2 * best + 1e-9


def test_without_effort_nothing_changes() -> None:
    parcel = _plain()
    given_filling = one_each(parcel)
    assert _bytes(improve([parcel], [given_filling], Effort.of(0.0))[0]) == _bytes(given_filling)


def test_an_empty_parcel_stays_empty() -> None:
    nothing = only(_plain(), np.zeros(0, np.int64))
    empty = Filling(*(np.zeros(0, np.int64) for _ in range(4)))
    assert improve([nothing], [empty], Effort.of(1.0)) == (empty,)


def test_pods_share_the_node_that_is_cheapest_for_all_of_them() -> None:
    parcel = _plain()
    found = improve([parcel], [one_each(parcel)], Effort.of(1.0))[0]
    assert found.rows.tolist() == [1]
    assert found.number.tolist() == [4, 2]


def _plain() -> BinPackingProblem:
    """Four pods of 1 cpu and two of 2 on nodes of 2 cpu for 0.2 or of 8 for 0.5."""
    return BinPackingProblem(
        sizes=np.array([[1000, 1, 1], [2000, 1, 1]]),
        counts=np.array([4, 2]),
        net=np.array([[2000, 10, 10], [8000, 10, 10]]),
        price=np.array([0.2, 0.5]),
        suits=np.ones((2, 2), np.bool_),
        caps=np.zeros(0, np.int64),
        capped=np.zeros((0, 2), np.bool_),
        owners=np.zeros((0, 2), np.bool_),
        clash=np.zeros((2, 2), np.bool_),
    )


def _bytes(filling: Filling) -> list[bytes]:
    return [getattr(filling, name).tobytes() for name in msgspec.structs.asdict(filling)]


def _optimum(parcel: BinPackingProblem) -> float:
    """What the cheapest filling costs, by trying every content of the node that takes the first pod left."""
    counts = tuple(parcel.counts.tolist())
    price = {
        some: cost
        for some in product(*(range(count + 1) for count in counts))
        if any(some) and np.isfinite(cost := _node_price(parcel, np.array(some)))
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


def _node_price(parcel: BinPackingProblem, some: np.ndarray) -> float:
    here = np.flatnonzero(some)
    for cap, owners, capped in zip(parcel.caps, parcel.owners, parcel.capped, strict=True):
        if owners[here].any() and some[capped].sum() > cap:
            return np.inf
    for item in here.tolist():
        if (parcel.clash[item, here] & (here != item)).any() or (parcel.clash[item, item] and some[item] > 1):
            return np.inf
    holds = (parcel.net >= some @ parcel.sizes).all(axis=1) & parcel.suits[here].all(axis=0)
    return float(parcel.price[holds].min(initial=np.inf))
