"""Durations of Karpenter's API and of Go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shiplap.manifests.times import budget_seconds, go_seconds, seconds, seconds_or_never


@pytest.mark.parametrize(
    ("text", "expected"), [("0s", 0), ("30s", 30), ("90m", 5400), ("720h", 2592000), ("1h30m10s", 5410), ("5s5s", 10)]
)
def test_plain_durations(text: str, expected: int) -> None:
    assert seconds(text) == expected
    assert seconds_or_never(text) == expected


def test_never() -> None:
    assert seconds_or_never("Never") is None


@pytest.mark.parametrize(("text", "expected"), [("8h", 28800), ("90m", 5400), ("1h30m", 5400), ("1h0s", 3600)])
def test_durations_of_budgets(text: str, expected: int) -> None:
    assert budget_seconds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1m30s", 90), ("1.5h", 5400), ("300ms", 0.3), ("-1m", -60), ("+.5s", 0.5), ("1us1µs1ns", 2.001e-6)],
)
def test_durations_of_go(text: str, expected: float) -> None:
    assert go_seconds(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((seconds, text) for text in ("", "-5s", "5", "1hr", "1d", "1.5h", "Never", "5 s", "5S")),
        *((seconds_or_never, text) for text in ("never", "", "1d")),
        *((budget_seconds, text) for text in ("30s", "-1h", "1h30m30s", "1m1h", "", "Never")),
        *((go_seconds, text) for text in ("", "5", "1d", "soon", "s", "1.2.3s", "--1s", ".s")),
    ],
)
def test_other_spellings_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        parse(text)
