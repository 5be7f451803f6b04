"""A person who wakes a cluster wakes it for all windows that were open then, until the last of them has ended."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import permutations

import pytest

from shiplap.instances.readiness.joins import JoinHistory
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import SleepNotes, SleepState, sleep_digest, sleep_state
from tests.builders.pools import pool

NIGHT = WindowSettings("daily 19:00-07:00 UTC", ("dev",))
IN_BERLIN = WindowSettings("daily 21:00-09:00 Europe/Berlin", ("ci",))
"""In winter from 20:00 to 08:00 UTC."""
WEEKEND = WindowSettings("Sat 12:00 - Mon 10:00 UTC", namespaces=("batch",))
LATER = WindowSettings("daily 06:00-12:00 UTC", ("web",))
"""It opens while others are open, after somebody has woken the cluster."""
NAMES = ("ci", "dev", "web")


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def state(now: str, windows: tuple[WindowSettings, ...], woken_at: str) -> SleepState:
    """The state of sleep at a moment; all windows were rehearsed long ago."""
    of, pools = SleepSettings(NAMES, 5, windows), [pool(name) for name in NAMES]
    notes = SleepNotes(sleep_digest(of, pools), {str(place): 1 for place in range(len(windows))}, woken_at=at(woken_at))
    return sleep_state(of, pools, JoinHistory(), notes, at(now))


@pytest.mark.parametrize("windows", tuple(permutations((NIGHT, IN_BERLIN, WEEKEND, LATER))))
@pytest.mark.parametrize(
    ("woken_at", "until"),
    [
        ("2026-01-05T19:30", "2026-01-06T07:00"),  # Monday evening: the night alone
        ("2026-01-05T23:00", "2026-01-06T08:00"),  # the night in Berlin as well
        ("2026-01-10T11:00", "2026-01-10T12:00"),  # Saturday: the window that opens later, not the weekend
        ("2026-01-10T23:00", "2026-01-12T10:00"),  # both nights and the weekend
        ("2026-01-11T16:00", "2026-01-12T10:00"),  # Sunday afternoon: the weekend alone
    ],
)
def test_a_wake_holds_until_the_last_window_that_was_open_ends(
    woken_at: str, until: str, windows: tuple[WindowSettings, ...]
) -> None:
    """Whatever the order of the windows, and whether they are of NodePools or of namespaces."""
    minute_before = datetime.fromtimestamp(at(until) - 60, UTC).strftime("%Y-%m-%dT%H:%M")

    for now in (woken_at, minute_before):
        known = state(now, windows, woken_at)
        assert (known.woken, known.scopes) == (at(until), ())
    assert state(until, windows, woken_at).woken == 0


def test_windows_that_open_during_a_wake_begin_when_it_ends() -> None:
    """Their nodes are not let go in between, and then for the rest of their hours."""
    windows = (NIGHT, LATER)
    woken = state("2026-01-06T06:30", windows, "2026-01-05T19:30")
    after = state("2026-01-06T07:00", windows, "2026-01-05T19:30")

    assert (woken.woken, woken.scopes) == (at("2026-01-06T07:00"), ())
    assert [(scope.name, scope.until) for scope in after.scopes] == [("web", at("2026-01-06T12:00"))]
