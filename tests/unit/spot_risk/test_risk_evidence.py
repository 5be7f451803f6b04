from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.policies.spot_risk.risk_evidence import (
    DAY_PARTS,
    HALF_LIFE_S,
    ORIGIN_S,
    EvidenceChange,
    day_part,
    evidence_of_sums,
    family_of_type,
    hours_by_part,
    is_held_back,
    weight_at,
)

NOON = ORIGIN_S + 12 * 3600.0
times = st.floats(ORIGIN_S, ORIGIN_S + 20 * 365 * 86_400.0)


def added(*changes: EvidenceChange) -> dict[str, float]:
    sums: dict[str, float] = {}
    for change in changes:
        for name, amount in change.weighted().items():
            sums[name] = sums.get(name, 0.0) + amount
    return sums


def test_evidence_counts_half_after_its_half_life() -> None:
    sums = added(EvidenceChange(zone_id="use1-az1", instance_type="m5.large", at=NOON, interruptions=1))

    fresh = evidence_of_sums("use1-az1", "m5.large", sums, NOON)
    old = evidence_of_sums("use1-az1", "m5.large", sums, NOON + HALF_LIFE_S)

    assert (fresh.total_interruptions, old.total_interruptions) == (1.0, 0.5)
    assert fresh.family == "m5"


def test_every_kind_of_evidence_has_a_sum_of_its_own() -> None:
    node = next(name for name in map(str, range(99)) if is_held_back(name))
    change = EvidenceChange(
        zone_id="z",
        instance_type="m5.large",
        at=NOON,
        node=node,
        node_hours=hours_by_part(NOON - 3600, NOON),
        interruptions=1,
        rebalances=2,
        refusals=3,
    )

    known = evidence_of_sums("z", "m5.large", added(change), NOON)

    assert known.held_back_node_hours == (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    assert known.held_back_interruptions[day_part(NOON)] == 1.0
    assert (known.rebalances, known.refusals, sum(known.node_hours)) == (2.0, 3.0, 0.0)


def test_a_quarter_of_the_nodes_is_held_back() -> None:
    share = sum(is_held_back(f"pool-{number}") for number in range(4000)) / 4000

    assert 0.22 < share < 0.28
    assert not is_held_back("")


@given(times, st.floats(0, 3 * 86_400.0))
def test_hours_by_part_add_up_to_the_time(begin: float, length_s: float) -> None:
    hours = hours_by_part(begin, begin + length_s)

    assert len(hours) == DAY_PARTS
    assert sum(hours) == pytest.approx(length_s / 3600.0, abs=1e-6)
    assert hours_by_part(begin, begin - 1.0) == (0.0,) * DAY_PARTS


@given(st.lists(times, min_size=1, max_size=6), times)
def test_the_order_of_evidence_does_not_matter(at: list[float], now: float) -> None:
    changes = [EvidenceChange(zone_id="z", instance_type="m5.large", at=each, refusals=1) for each in at]

    forwards, backwards = added(*changes), added(*reversed(changes))

    assert forwards["f"] == pytest.approx(backwards["f"])
    decayed = sum(weight_at(each) / weight_at(now) for each in at)
    assert evidence_of_sums("z", "m5.large", forwards, now).refusals == pytest.approx(decayed, rel=1e-6, abs=1e-3)


def test_weights_stay_within_what_a_number_of_the_table_holds() -> None:
    assert math.log10(weight_at(ORIGIN_S + 30 * 365 * 86_400.0)) < 125


def test_the_family_is_the_part_before_the_dot() -> None:
    assert (family_of_type("m7g.2xlarge"), family_of_type("odd")) == ("m7g", "odd")
