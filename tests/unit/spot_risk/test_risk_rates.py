from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.policies.spot_risk.risk_evidence import DAY_PARTS, ORIGIN_S, OfferingEvidence
from shiplap.policies.spot_risk.risk_rates import MONTH_HOURS, PRIOR_RATE, RiskRates, day_factor, dispersion


def seen(name: str, hours: float, interruptions: float, zone_id: str = "az1", **others: float) -> OfferingEvidence:
    parts = (hours / DAY_PARTS,) * DAY_PARTS
    return OfferingEvidence(zone_id, name, parts, (interruptions / DAY_PARTS,) * DAY_PARTS, **others)  # type: ignore[arg-type]


def test_without_evidence_every_offering_has_the_prior() -> None:
    rates = RiskRates((), 0.0)

    assert rates.of("az1", "m5.large") == rates.of("az2", "x1.32xlarge") == pytest.approx(PRIOR_RATE)


def test_much_evidence_gives_the_measured_rate() -> None:
    month = 2_000 * MONTH_HOURS
    rates = RiskRates([seen("m5.large", month, 400.0), seen("c5.large", month, 40.0)], 0.0)

    assert rates.of("az1", "m5.large") * MONTH_HOURS == pytest.approx(0.2, rel=0.05)
    assert rates.of("az1", "c5.large") * MONTH_HOURS == pytest.approx(0.02, rel=0.1)


def test_an_offering_without_evidence_has_the_rate_of_its_family_in_its_zone() -> None:
    month = 200 * MONTH_HOURS
    rates = RiskRates([seen("m5.large", month, 60.0), seen("c5.large", month, 2.0)], 0.0)

    sibling, stranger = rates.of("az1", "m5.xlarge"), rates.of("az1", "r5.large")

    assert rates.of("az1", "c5.xlarge") < stranger < sibling


def test_offerings_that_differ_no_more_than_by_chance_get_nearly_the_same_rate() -> None:
    chance = random.Random(5)  # noqa: S311 - a test
    evidence = [
        seen(f"f{number}.large", 40_000.0, float(sum(chance.random() < 0.04 for _ in range(100))))
        for number in range(60)
    ]
    rates = RiskRates(evidence, 0.0)
    estimates = [rates.of("az1", known.instance_type) for known in evidence]

    assert max(estimates) < 1.6 * min(estimates)


def test_rebalances_and_refusals_tell_offerings_apart_without_raising_the_level() -> None:
    quiet = [seen(f"q{number}.large", 5_000.0, 3.0) for number in range(10)]
    rates = RiskRates([*quiet, seen("m5.large", 5_000.0, 3.0, rebalances=30.0, refusals=30.0)], 0.0)

    assert rates.of("az1", "m5.large") > 1.5 * rates.of("az1", "q1.large")
    mean = (sum(rates.of("az1", f"q{number}.large") for number in range(10)) + rates.of("az1", "m5.large")) / 11
    assert mean == pytest.approx(3.0 / 5_000.0, rel=0.35)


def in_part(name: str, hours: float, *interruptions: float) -> OfferingEvidence:
    """So many interruptions in the first parts of the day, one number for each."""
    parts = (hours / DAY_PARTS,) * DAY_PARTS
    return OfferingEvidence("az1", name, parts, interruptions + (0.0,) * (DAY_PARTS - len(interruptions)))


def test_interruptions_that_come_together_tell_less() -> None:
    spread_out = [in_part(f"f{place}.large", 8_000.0, *(1.0,) * DAY_PARTS) for place in range(20)]
    together = [in_part(f"f{place}.large", 8_000.0, 8.0) for place in range(20)]

    assert dispersion(()) == dispersion(spread_out) == 1.0
    assert 4.0 < dispersion(together) < 8.0
    bursts = RiskRates([*together, in_part("m5.large", 8_000.0, 8.0, 8.0)], 0.0)
    alone = RiskRates([*spread_out, in_part("m5.large", 8_000.0, *(2.0,) * DAY_PARTS)], 0.0)
    assert bursts.of("az1", "m5.large") < alone.of("az1", "m5.large")
    assert bursts.of("az1", "f1.large") == pytest.approx(0.001, rel=0.3)


def test_what_a_rate_exceeds_for_sure_nears_the_rate_with_more_evidence() -> None:
    def sure(scale: float) -> float:
        parts = (scale,) * DAY_PARTS
        calm = [in_part(f"f{place}.large", 10_000.0 * scale, *parts) for place in range(10)]
        rates = RiskRates([*calm, in_part("m5.large", 10_000.0 * scale, *(3 * scale,) * DAY_PARTS)], 0.0)
        return rates.at_least("az1", "m5.large") / rates.of("az1", "m5.large")

    assert 0.3 < sure(0.25) < sure(1.0) < sure(16.0) < 1.0
    assert RiskRates((), 0.0).at_least("az1", "m5.large") < PRIOR_RATE / 2


def by_hour(busy: int, held_back_busy: int) -> OfferingEvidence:
    def at(part: int) -> tuple[float, ...]:
        return tuple(12.0 if place == part else 1.0 for place in range(DAY_PARTS))

    even = (1_000.0,) * DAY_PARTS
    return OfferingEvidence("az1", "m5.large", even, at(busy), even, at(held_back_busy))


def test_the_time_of_day_counts_where_the_held_back_quarter_bears_it_out() -> None:
    midnight = ORIGIN_S
    assert day_factor([by_hour(0, 0)], midnight) > 1.2
    assert day_factor([by_hour(0, 0)], midnight + 12 * 3600.0) < 0.9
    assert day_factor([by_hour(0, 5)], midnight) == 1.0
    assert day_factor([seen("m5.large", 1_000.0, 5.0)], midnight) == 1.0


def test_the_time_of_day_is_one_of_the_family_in_its_zone() -> None:
    busy = RiskRates([by_hour(0, 0)], ORIGIN_S).of("az1", "m5.24xlarge")
    calm = RiskRates([by_hour(0, 0)], ORIGIN_S + 12 * 3600.0).of("az1", "m5.24xlarge")

    assert busy > 1.5 * calm


counts = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 30)), min_size=1, max_size=8)


@given(counts)
def test_rates_are_positive_and_an_interruption_more_never_lowers_one(known: list[tuple[int, int]]) -> None:
    evidence = [seen(f"f{place}.large", float(hours), float(ended)) for place, (hours, ended) in enumerate(known)]
    more = [seen("f0.large", float(known[0][0]), known[0][1] + 1.0), *evidence[1:]]

    before, after = RiskRates(evidence, 0.0), RiskRates(more, 0.0)

    assert all(before.of("az1", item.instance_type) > 0 for item in evidence)
    if len(known) == 1:
        assert after.of("az1", "f0.large") >= before.of("az1", "f0.large")


@given(counts)
def test_the_order_of_evidence_changes_nothing(known: list[tuple[int, int]]) -> None:
    evidence = [seen(f"f{place}.large", float(hours), float(ended)) for place, (hours, ended) in enumerate(known)]

    one, other = RiskRates(evidence, 0.0), RiskRates(evidence[::-1], 0.0)

    assert [one.of("az1", item.instance_type) for item in evidence] == pytest.approx(
        [other.of("az1", item.instance_type) for item in evidence], rel=1e-9
    )
