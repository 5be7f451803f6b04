"""The forecast on rhythmic months that are made of a known week, a growth and noise."""

from __future__ import annotations

import random

import pytest

from shiplap.policies.ceilings.forecast import forecast_micros

MONTH = 30 * 24


def rhythmic_month(seed: int) -> list[int]:
    """Dollars of each hour: busy days, quiet nights and weekends, growth of -5 to 8 % a week, noise of 5 %."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    low, busy, weekend = chance.uniform(2, 10), chance.uniform(5, 40), chance.uniform(0, 0.5)
    opens, growth, first = chance.randrange(5, 10), chance.uniform(0.95, 1.08), chance.randrange(7)
    hours = []
    for hour in range(MONTH):
        day, of_day = divmod(hour, 24)
        at_work = opens <= of_day < opens + 10
        rate = low + (busy * (weekend if (day + first) % 7 >= 5 else 1.0) if at_work else 0.0)
        hours.append(round(rate * growth ** (hour / 168) * chance.uniform(0.95, 1.05) * 1e6))
    return hours


@pytest.mark.parametrize("seed", range(200, 240))
def test_on_the_tenth_day_a_rhythmic_month_is_known_to_five_per_cent(seed: int) -> None:
    month = rhythmic_month(seed)
    known = month[: 10 * 24]
    forecast = sum(known) + forecast_micros(known, MONTH - len(known))
    assert abs(forecast / sum(month) - 1) <= 0.05


def test_a_steady_cluster_costs_what_it_costs() -> None:
    assert forecast_micros([7] * 12, 24) == 7 * 24
    assert forecast_micros([7] * 100, 24) == 7 * 24
    assert forecast_micros([7] * 500, 700) == 7 * 700


def test_days_repeat_before_a_week_is_known() -> None:
    day = [1] * 12 + [5] * 12
    assert forecast_micros(day + day, 24) == sum(day)
    assert forecast_micros(day, 12) == 12


def test_growth_between_weeks_is_carried_on() -> None:
    assert forecast_micros([100] * 168 + [110] * 168, 168) == round(168 * 110 * 1.1)


def test_what_multiplies_is_not_believed() -> None:
    assert forecast_micros([1] * 168 + [100] * 168, 168) == 168 * 200
    assert forecast_micros([0] * 168 + [100] * 168, 168) == 168 * 100


def test_nothing_known_is_nothing_forecast() -> None:
    assert forecast_micros([], 100) == forecast_micros([5], 0) == 0


@pytest.mark.parametrize("days", [2, 3, 6])
def test_below_a_week_the_next_day_is_as_the_last_one_and_not_as_the_first(days: int) -> None:
    hours = [hour + 100 * day for day in range(days) for hour in range(24)]
    assert forecast_micros(hours, 24) == sum(hours[-24:])
    assert forecast_micros(hours, 30) == sum(hours[-24:]) + sum(hours[-24:-18])
