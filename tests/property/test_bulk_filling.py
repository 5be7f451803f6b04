"""Problems filled in bulk against their rules: valid, and the same for the same input."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.scheduling.packing.size_classes import in_proportion, split_by_quotas, water_fill
from shiplap.scheduling.search.bin_packing import BinPackingProblem, first_fit
from tests.filling_faults import faults
from tests.property.bin_packing_problems import problems

SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)


@SETTINGS
@given(problem=problems())
def test_first_fit_keeps_every_rule(problem: BinPackingProblem) -> None:
    assert faults(problem, first_fit(problem)) == []


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
