"""Drawn clusters whose plans once broke a law by their domains, ports or volumes, beside others of their kinds."""

from __future__ import annotations

import pytest

from tests.combinations.drawn_clusters import drawn
from tests.combinations.laws import LAWS, Decided

PLANS = [
    ("a plan keeps every rule but topology", 0, 616),
    ("a plan keeps affinity and anti-affinity", 7, 44),
    ("a plan keeps spread constraints", 7, 298),
    ("a plan keeps spread constraints", 1, 11),
]


@pytest.mark.parametrize(("law", "seed", "number"), PLANS, ids=str)
def test_a_plan_keeps_the_law(law: str, seed: int, number: int) -> None:
    cluster = drawn(seed, number)
    judge = next(known for known in LAWS if known.name == law)
    assert judge.broken_by(Decided(cluster.snapshot), cluster.rng(law)) == ""
