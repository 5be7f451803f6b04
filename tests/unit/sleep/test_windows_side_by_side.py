"""Sleep with a second window, NodePool, namespace and time zone beside the first, each with hours of its own."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from shiplap.instances.readiness.joins import JoinHistory, PoolJoins
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.shiplap_annotations import SLEEP
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import (
    SleepNotes,
    SleepState,
    is_any_open,
    sleep_digest,
    sleep_state,
    with_rehearsals,
    with_taken,
)
from tests.builders.pools import pool


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def rehearsed(of: SleepSettings, pools: list[NodePool]) -> SleepNotes:
    """All windows were rehearsed long ago, by each NodePool."""
    places = range(len(of.windows))
    ends = {str(place): 1 for place in places} | {f"{place}/{name}": 1 for place in places for name in of.node_pools}
    return SleepNotes(sleep_digest(of, pools), ends)


NIGHTS, LATE = "daily 19:00-07:00 UTC", "daily 23:00-09:00 UTC"
POOLS = [pool("ci"), pool("dev")]
BOTH = SleepSettings(("ci", "dev"), 5, (WindowSettings(NIGHTS, ("dev",)), WindowSettings(LATE, ("ci",))))
"""Two NodePools whose nights overlap."""


def state(time: str, notes: SleepNotes, of: SleepSettings = BOTH, joins: JoinHistory | None = None) -> SleepState:
    return sleep_state(of, POOLS, joins or JoinHistory(), notes, at(time))


def asleep(known: SleepState) -> list[str]:
    return [scope.name for scope in known.scopes if not scope.rehearsal]


# How many nodes leave


def test_nodes_that_left_in_one_window_count_until_windows_that_overlap_it_have_ended() -> None:
    """One sleep lasts as long as anything sleeps: a second window must not make nodes free that the first has taken."""
    notes = rehearsed(BOTH, POOLS)
    evening = state("2026-01-05T20:00", notes)
    notes = with_taken(evening, notes, 3, at("2026-01-05T20:00"))
    night = state("2026-01-06T01:00", notes)
    assert (asleep(night), night.nodes_left) == (["ci", "dev"], 2)
    notes = with_taken(night, notes, 2, at("2026-01-06T01:00"))
    assert state("2026-01-06T06:00", notes).nodes_left == 0
    morning = state("2026-01-06T08:00", notes)
    assert (asleep(morning), morning.nodes_left) == (["ci"], 0)
    assert state("2026-01-06T09:00", notes).nodes_left == 5


def test_a_shorter_window_that_opens_later_gives_no_node_free_before_the_longer_one_ends() -> None:
    of = SleepSettings(
        ("ci", "dev"), 5, (WindowSettings(NIGHTS, ("dev",)), WindowSettings("daily 20:00-21:00 UTC", ("ci",)))
    )
    notes = rehearsed(of, POOLS)
    early = state("2026-01-05T19:30", notes, of)
    notes = with_taken(early, notes, 4, at("2026-01-05T19:30"))
    nap = SleepState(
        ("ci",), tuple(scope for scope in state("2026-01-05T20:10", notes, of).scopes if scope.name == "ci"), 1
    )
    notes = with_taken(nap, notes, 1, at("2026-01-05T20:10"))
    assert notes.taken_until == at("2026-01-06T07:00")
    assert state("2026-01-05T21:30", notes, of).nodes_left == 0


@pytest.mark.parametrize("late", [{"node_pools": ("ci",)}, {"node_pools": ("dev",)}, {"namespaces": ("shop",)}])
@pytest.mark.parametrize("early", [{"node_pools": ("ci",)}, {"node_pools": ("dev",)}, {"namespaces": ("shop",)}])
def test_nodes_count_until_the_last_of_all_that_sleeps_wakes(
    early: dict[str, tuple[str, ...]], late: dict[str, tuple[str, ...]]
) -> None:
    windows = (WindowSettings(NIGHTS, **early), WindowSettings(LATE, **late))
    for order in (windows, windows[::-1]):
        of = SleepSettings(("ci", "dev"), 5, order)
        night = state("2026-01-06T01:00", rehearsed(of, POOLS), of)
        assert with_taken(night, SleepNotes(), 1, at("2026-01-06T01:00")).taken_until == at("2026-01-06T09:00")


# When each wakes


def test_each_node_pool_wakes_by_its_own_window_in_its_own_time_zone() -> None:
    of = SleepSettings(
        ("ci", "dev"),
        5,
        (
            WindowSettings("daily 19:00-07:00 Europe/Berlin", ("dev",)),
            WindowSettings("daily 19:00-07:00 America/New_York", ("ci",)),
        ),
    )
    notes = rehearsed(of, POOLS)
    expected = {
        "2026-01-05T17:59": [],
        "2026-01-05T18:00": ["dev"],
        "2026-01-06T00:00": ["ci", "dev"],
        "2026-01-06T06:00": ["ci"],
        "2026-01-06T12:00": [],
        "2026-03-10T22:59": ["dev"],  # in New York, the clocks were changed two days before
        "2026-03-10T23:00": ["ci", "dev"],
        "2026-03-11T10:53": ["ci"],
        "2026-03-11T11:00": [],
    }
    for time, names in expected.items():
        assert asleep(state(time, notes, of)) == names
        assert is_any_open(of, at(time)) is bool(names)
    untils = {scope.name: scope.until for scope in state("2026-01-06T01:00", notes, of).scopes}
    assert untils == {"dev": at("2026-01-06T06:00"), "ci": at("2026-01-06T12:00")}


def test_each_node_pool_is_woken_as_early_as_its_own_nodes_need_and_a_namespace_as_the_slowest() -> None:
    of = SleepSettings(("ci", "dev"), 5, (WindowSettings(NIGHTS), WindowSettings(NIGHTS, namespaces=("shop",))))
    joins = JoinHistory((PoolJoins("ci", (100.0,) * 20, (40.0,) * 20), PoolJoins("dev", (30.0,) * 20, (10.0,) * 20)))
    known = state("2026-01-06T01:00", rehearsed(of, POOLS), of, joins)
    ahead = {scope.name: scope.until - scope.wakes_at for scope in known.scopes}
    assert ahead == {"ci": 200, "dev": 100, "shop": 200}


def test_a_decision_is_made_again_when_the_first_of_two_no_longer_sleeps_long_enough() -> None:
    """Each of them has its own moment, in its own time zone; a decision that stands still is not blind to one."""
    known = state("2026-01-06T01:00", rehearsed(BOTH, POOLS))
    wakes_at = {scope.name: scope.wakes_at for scope in known.scopes}
    assert wakes_at["dev"] < wakes_at["ci"]


# What is rehearsed


@pytest.mark.parametrize(
    "edited", ["daily 21:00-05:00 UTC", "daily 22:00-06:00 UTC", "daily 22:00-05:00 UTC; Sat 08:00-20:00 UTC"]
)
def test_hours_of_an_annotation_that_are_edited_are_rehearsed_anew(edited: str) -> None:
    """Also where both the old hours and the new ones narrow the window: whoever edits them sees first what would go."""
    of = SleepSettings(("ci", "dev"), 5, (WindowSettings(NIGHTS),))
    known = {"ci": "daily 20:00-06:00 UTC", "dev": "daily 22:00-05:00 UTC"}
    before = [pool(name, annotations={SLEEP: sleep}) for name, sleep in known.items()]
    notes = rehearsed(of, before)
    night = at("2026-01-06T01:00")
    assert asleep(sleep_state(of, before, JoinHistory(), notes, night)) == ["ci", "dev"]
    after = [before[0], pool("dev", annotations={SLEEP: edited})]
    known = sleep_state(of, after, JoinHistory(), notes, night)
    assert asleep(known) == []
    assert {scope.name for scope in known.scopes} == {"ci", "dev"}
    opens = at("2026-01-06T20:00"), at("2026-01-06T21:00"), at("2026-01-06T22:00")
    for moment in opens:
        notes = with_rehearsals(of, after, notes, moment)
    assert asleep(sleep_state(of, after, JoinHistory(), notes, night + 86_400)) == []
    assert asleep(sleep_state(of, after, JoinHistory(), notes, night + 2 * 86_400)) == ["ci", "dev"]


def test_hours_of_an_annotation_that_go_are_rehearsed_anew() -> None:
    of = SleepSettings(("ci", "dev"), 5, (WindowSettings(NIGHTS),))
    before = [pool("ci"), pool("dev", annotations={SLEEP: "daily 22:00-05:00 UTC"})]
    notes = rehearsed(of, before)
    assert asleep(sleep_state(of, POOLS, JoinHistory(), notes, at("2026-01-05T19:10"))) == []


def test_a_window_that_is_over_wakes_its_own_pools_only() -> None:
    """A person woke the cluster in the first window: that holds until it ends, and for the second one as long."""
    notes = msgspec.structs.replace(rehearsed(BOTH, POOLS), woken_at=at("2026-01-05T20:00"))
    assert asleep(state("2026-01-06T01:00", notes)) == []
    assert state("2026-01-06T01:00", notes).woken == at("2026-01-06T07:00")
    assert asleep(state("2026-01-06T07:30", notes)) == ["ci"]
