"""The forecast of a month: what each hour of the week cost, carried on with the trend between weeks."""

from __future__ import annotations

from collections.abc import Sequence

WEEK, DAY = 7 * 24, 24
"""Hours."""

_FASTEST = 2.0
"""A week is taken for at most so many times as dear as the one before, and for no less than its inverse."""


def forecast_micros(hours: Sequence[int], ahead: int) -> int:
    """Forecast the cost of the next `ahead` hours, in millionths of a dollar.

    Each is what the same hour cost a week before, times the trend. With less than a week known it is the same hour of
    the day before, without a trend; with less than a day, the mean hour.

    Args:
        hours: what past hours cost, without a gap, the last one last.
        ahead: number of hours to forecast.
    """
    if not hours or ahead <= 0:
        return 0
    if len(hours) < DAY:
        return sum(hours) * ahead // len(hours)
    period = WEEK if len(hours) >= WEEK else DAY
    trend = _trend(hours) if period == WEEK else 1.0
    last = hours[-period:]
    total = 0.0
    for hour in range(ahead):
        periods, place = divmod(hour, period)
        total += last[place] * trend ** (periods + 1)
    return round(total)


def _trend(hours: Sequence[int]) -> float:
    """Return the cost of the last hours, at most a week, over the cost a week before.

    It is nearer 1 with less than a day.
    """
    known = min(len(hours) - WEEK, WEEK)
    before, now = sum(hours[-known - WEEK : -WEEK]) if known > 0 else 0, sum(hours[-known:]) if known > 0 else 0
    if not before or not now:
        return 1.0
    ratio = min(max(now / before, 1 / _FASTEST), _FASTEST)
    return float(ratio ** min(known / DAY, 1))
