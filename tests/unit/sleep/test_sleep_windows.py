"""Windows of sleep: what is written, and when they are open, over changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.policies.sleep.sleep_windows import DAYS, LONGEST_S, Span, common, merged, parse_window, spans_of

WEEK_S = 7 * 24 * 3600


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def spans(text: str, after: str, until: str) -> list[Span]:
    return list(spans_of(parse_window(text), at(after), at(until)))


def test_a_daily_window_ends_on_the_next_morning() -> None:
    found = spans("Mon-Fri 19:00-07:00 Europe/Berlin", "2026-01-05", "2026-01-11")

    assert found == [Span(at(f"2026-01-{day:02}T18:00"), at(f"2026-01-{day + 1:02}T06:00")) for day in range(5, 10)]


def test_a_weekly_window_lasts_over_days() -> None:
    found = spans("Fri 19:00 - Mon 07:00 UTC", "2026-01-05", "2026-01-17")

    assert found[0].end == at("2026-01-05T07:00")  # the one that began on Friday before
    assert found[1] == Span(at("2026-01-09T19:00"), at("2026-01-12T07:00"))


@pytest.mark.parametrize("text", ["Fri 19:00 - Fri 19:00 UTC", "2026-01-02 19:00 - 2026-01-09 19:00 UTC"])
def test_the_longest_window_is_seen_until_its_last_minute(text: str) -> None:
    """It began a week before."""
    assert spans(text, "2026-01-09T18:59", "2026-01-09T18:59") == [Span(at("2026-01-02T19:00"), at("2026-01-09T19:00"))]


def test_a_dated_window_is_open_once() -> None:
    text = "2026-12-24 12:00 - 2026-12-27 07:00 Europe/Berlin"

    assert spans(text, "2026-12-20", "2026-12-30") == [Span(at("2026-12-24T11:00"), at("2026-12-27T06:00"))]
    assert spans(text, "2027-12-20", "2027-12-30") == []


@pytest.mark.parametrize(
    ("first", "last", "days"),
    [("2026-01-30", "2026-02-02", 3), ("2026-12-30", "2027-01-01", 2), ("2028-02-27", "2028-03-01", 3)],
    ids=["month", "year", "leap year"],
)
def test_a_dated_window_lasts_over_the_end_of_its_month(first: str, last: str, days: int) -> None:
    found = parse_window(f"{first} 19:00 - {last} 07:00 UTC")
    assert found.minutes == days * 24 * 60 - 12 * 60
    assert list(spans_of(found, at(first) - WEEK_S, at(last) + WEEK_S)) == [
        Span(at(f"{first}T19:00"), at(f"{last}T07:00"))
    ]


def test_days_may_be_listed_and_go_around_the_week() -> None:
    assert parse_window("Sat-Mon,Wed 8:00-24:00 UTC").weekdays == (0, 2, 5, 6)
    assert parse_window("daily 00:00-06:00 UTC").weekdays == tuple(range(7))
    assert parse_window("  Mon   19:00 -  20:00   UTC ").minutes == 60


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is not a window"),
        ("always", "is not a window"),
        ("Mon-Fri 19:00-07:00", "is not a window"),
        ("Mon-Fri 19:00-07:00 Mars/Olympus", "is not a time zone"),
        ("Mon-Fri 25:00-07:00 UTC", "25:00 is not a time of day"),
        ("Mon-Fri 19:60-07:00 UTC", "19:60 is not a time of day"),
        ("Mon-Foo 19:00-07:00 UTC", "Foo is none of Mon"),
        ("Mon-Tue-Wed 19:00-07:00 UTC", "is not a range of days"),
        ("2026-12-27 12:00 - 2026-12-24 07:00 UTC", "ends before it begins"),
        ("2026-12-20 12:00 - 2026-12-28 07:00 UTC", "longer than 7 days"),
        ("2026-02-30 12:00 - 2026-03-01 07:00 UTC", "day"),
    ],
)
def test_what_is_not_a_window_says_why(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_window(text)


def test_a_skipped_local_time_acts_at_the_next_valid_minute() -> None:
    # On 29 March 2026, 02:00 is followed by 03:00 in Berlin: that is 01:00 UTC.
    (ends,) = spans("Sat 22:00-02:30 Europe/Berlin", "2026-03-28", "2026-03-30")
    (begins,) = spans("Sun 02:30-05:00 Europe/Berlin", "2026-03-28", "2026-03-30")

    assert ends == Span(at("2026-03-28T21:00"), at("2026-03-29T01:00"))
    assert begins == Span(at("2026-03-29T01:00"), at("2026-03-29T03:00"))
    assert spans("Sun 02:10-02:50 Europe/Berlin", "2026-03-28", "2026-03-30") == []


def test_a_doubled_local_time_acts_once_at_the_first() -> None:
    # On 25 October 2026, 02:00 to 03:00 comes twice in Berlin: from 00:00 and from 01:00 UTC.
    assert spans("Sun 02:30-02:45 Europe/Berlin", "2026-10-24", "2026-10-26") == [
        Span(at("2026-10-25T00:30"), at("2026-10-25T00:45"))
    ]
    assert spans("Sat 19:00-07:00 Europe/Berlin", "2026-10-24", "2026-10-26") == [
        Span(at("2026-10-24T17:00"), at("2026-10-25T06:00"))
    ]


def test_a_day_that_a_zone_skips_is_not_slept() -> None:
    # Samoa went from 29 to 31 December 2011 across the date line: both times stand for the first minute of the 31st.
    assert spans("Fri 08:00-20:00 Pacific/Apia", "2011-12-29", "2012-01-02") == []
    assert spans("Fri 08:00 - Sat 08:00 Pacific/Apia", "2011-12-29", "2012-01-02") == [
        Span(at("2011-12-30T10:00"), at("2011-12-30T18:00"))
    ]


def test_fifty_of_a_hundred_and_sixty_eight_hours_are_awake() -> None:
    nights = [
        span
        for text in ("Mon-Thu 18:00-08:00 UTC", "Fri 18:00 - Mon 08:00 UTC")
        for span in spans(text, "2026-01-05", "2026-01-19")
    ]
    asleep = common(merged(nights), [Span(at("2026-01-05"), at("2026-01-12"))])

    assert WEEK_S - sum(span.end - span.start for span in asleep) == 50 * 3600


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Santiago")


@given(
    days=st.lists(st.sampled_from(DAYS), min_size=1, max_size=7, unique=True),
    start=st.integers(0, 1439),
    end=st.integers(0, 1439),
    zone=st.sampled_from(ZONES),
    day=st.integers(0, 4000),
)
def test_windows_open_where_they_say_whatever_the_clocks_do(
    days: list[str], start: int, end: int, zone: str, day: int
) -> None:
    text = f"{','.join(days)} {start // 60:02}:{start % 60:02}-{end // 60:02}:{end % 60:02} {zone}"
    after = at("2020-01-01") + day * 86_400

    found = list(spans_of(parse_window(text), after, after + WEEK_S))

    assert len(found) <= len(days) * 2 + 2
    for span in found:
        assert span.start < span.end
        opens = datetime.fromtimestamp(span.start, ZoneInfo(zone))
        written = opens.replace(hour=0, minute=0, fold=0) + timedelta(minutes=start)
        # Either the clock shows the written time, or that is skipped and the minute before the opening is before it.
        assert (opens.hour * 60 + opens.minute == start) or (
            written.astimezone(UTC).astimezone(ZoneInfo(zone)).replace(tzinfo=None) != written.replace(tzinfo=None)
        )
        assert span.end - span.start <= 25 * 3600
    assert [span.start for span in found] == sorted({span.start for span in found})


SPANS = st.lists(
    st.tuples(st.integers(0, 100), st.integers(1, 30)).map(lambda pair: Span(pair[0], sum(pair))), max_size=8
)


@given(one=SPANS, other=SPANS)
def test_merging_and_narrowing_hold_for_every_moment(one: list[Span], other: list[Span]) -> None:
    def holds(some: list[Span], moment: int) -> bool:
        return any(span.start <= moment < span.end for span in some)

    both = common(merged(one), merged(other))

    for moment in range(140):
        assert holds(merged(one), moment) == holds(one, moment)
        assert holds(both, moment) == (holds(one, moment) and holds(other, moment))
    assert all(before.end < after.start for before, after in zip(merged(one), merged(one)[1:], strict=False))


def test_the_longest_sleep_is_a_week() -> None:
    assert LONGEST_S == WEEK_S
