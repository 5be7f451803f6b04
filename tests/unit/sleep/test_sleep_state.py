"""Tests what sleeps at a moment: rehearsals, wakes, narrowing, and doubts that keep everything awake."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiplap.instances.readiness.joins import JoinHistory, PoolJoins
from shiplap.manifests.custom_resources import NodePool
from shiplap.manifests.live.allowed_resources import AllowedResources
from shiplap.manifests.shiplap_annotations import SLEEP
from shiplap.manifests.validation.live_objects import check_live_object
from shiplap.policies.sleep.sleep_settings import SleepSettings, WindowSettings
from shiplap.policies.sleep.sleep_state import (
    LONGEST_LEAD_S,
    SleepNotes,
    SleepState,
    annotation_problem,
    is_any_open,
    lead_s,
    sleep_digest,
    sleep_state,
    with_rehearsals,
    with_taken,
)
from tests.beyond_bounds import beyond_bounds

NIGHTS = "daily 19:00-07:00 UTC"


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


EVENING, NIGHT, MORNING = at("2026-01-05T19:00"), at("2026-01-06T01:00"), at("2026-01-06T07:00")


def pool(name: str = "dev", sleep: str | None = None, replicas: int | None = None) -> NodePool:
    annotations = {} if sleep is None else {SLEEP: sleep}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"replicas": replicas, "template": {"spec": {"nodeClassRef": {"name": "default"}}}},
    }
    return msgspec.convert(body, NodePool)


def settings(*windows: WindowSettings, pools: tuple[str, ...] = ("dev",), most: int = 10) -> SleepSettings:
    return SleepSettings(pools, most, windows or (WindowSettings(NIGHTS),))


def rehearsed(of: SleepSettings, *pools: NodePool, **fields: int) -> SleepNotes:
    places = range(len(of.windows))
    ends = {str(place): 1 for place in places} | {
        f"{place}/{item.metadata.name}": 1 for place in places for item in pools
    }
    return SleepNotes(sleep_digest(of, pools), ends, **fields)


def asleep(state: SleepState) -> list[str]:
    return [scope.name for scope in state.scopes if not scope.rehearsal]


def test_a_rehearsed_window_sleeps_until_nodes_have_to_come_back() -> None:
    of = settings()
    joins = JoinHistory((PoolJoins("dev", (50.0,) * 19 + (90.0,), (10.0,) * 20),))

    state = sleep_state(of, [pool()], joins, rehearsed(of, pool()), NIGHT)

    (scope,) = state.scopes
    assert (scope.kind, scope.name, scope.since, scope.until) == ("NodePool", "dev", EVENING, MORNING)
    assert scope.wakes_at == MORNING - 50 - 10 - 60
    assert not scope.rehearsal
    assert state.nodes_left == 10
    assert sleep_state(of, [pool()], joins, rehearsed(of, pool()), scope.wakes_at).scopes == ()
    assert sleep_state(of, [pool()], joins, rehearsed(of, pool()), EVENING - 1).scopes == ()


def test_the_first_window_after_every_change_is_a_rehearsal() -> None:
    of, pools = settings(), [pool()]

    first = with_rehearsals(of, pools, SleepNotes(), EVENING + 60)
    assert first.rehearsed == {"0": MORNING}
    assert sleep_state(of, pools, JoinHistory(), first, NIGHT).scopes[0].rehearsal
    assert asleep(sleep_state(of, pools, JoinHistory(), first, EVENING + 86_400)) == ["dev"]

    for changed in (
        settings(most=9),
        settings(WindowSettings("daily 19:00-06:00 UTC")),
        settings(WindowSettings(NIGHTS, ("dev",))),
    ):
        assert asleep(sleep_state(changed, pools, JoinHistory(), first, EVENING + 86_400)) == []
        again = with_rehearsals(changed, pools, first, EVENING + 86_400)
        assert again.rehearsed["0"] > EVENING + 86_400
    narrowed = [pool(sleep="daily 20:00-22:00 UTC")]
    assert asleep(sleep_state(of, narrowed, JoinHistory(), first, EVENING + 86_400 + 5400)) == []


@pytest.mark.parametrize("before", [[pool()], [pool(), pool("late", replicas=2)]], ids=["unknown", "static"])
def test_a_node_pool_that_can_sleep_only_now_is_rehearsed_first(before: list[NodePool]) -> None:
    of = settings(pools=("dev", "late"))
    notes = with_rehearsals(of, before, SleepNotes(), EVENING - 86_400)
    assert asleep(sleep_state(of, before, JoinHistory(), notes, NIGHT)) == ["dev"]
    now = [pool(), pool("late")]
    assert asleep(sleep_state(of, now, JoinHistory(), notes, NIGHT)) == []
    again = with_rehearsals(of, now, notes, EVENING)
    assert asleep(sleep_state(of, now, JoinHistory(), again, NIGHT + 86_400)) == ["dev", "late"]


def test_a_node_pool_that_does_not_sleep_changes_no_rehearsal() -> None:
    notes = rehearsed(settings(), pool())
    for others in ([pool("other")], [pool("other", sleep=NIGHTS)], [pool("static", replicas=1)]):
        assert asleep(sleep_state(settings(), [*others, pool()], JoinHistory(), notes, NIGHT)) == ["dev"]


def test_a_rehearsal_that_was_noted_late_does_not_count() -> None:
    of, pools = settings(), [pool()]

    assert with_rehearsals(of, pools, SleepNotes(), NIGHT) == SleepNotes()
    assert with_rehearsals(of, pools, SleepNotes(), MORNING) == SleepNotes()
    assert sleep_state(of, pools, JoinHistory(), SleepNotes(), NIGHT).scopes[0].rehearsal


def test_each_window_has_a_rehearsal_of_its_own() -> None:
    of = settings(WindowSettings(NIGHTS), WindowSettings("Tue 12:00-13:00 UTC", namespaces=("ci",)))
    notes = with_rehearsals(of, [pool()], SleepNotes(), EVENING)

    noon = at("2026-01-06T12:10")
    assert sleep_state(of, [pool()], JoinHistory(), notes, noon).scopes[0].rehearsal
    both = with_rehearsals(of, [pool()], notes, noon)
    assert both.rehearsed == {"0": MORNING, "1": at("2026-01-06T13:00")}
    assert asleep(sleep_state(of, [pool()], JoinHistory(), both, noon + 7 * 86_400)) == ["ci"]


def test_a_narrowed_pool_rehearses_when_its_own_hours_begin() -> None:
    of, pools = settings(), [pool(sleep="daily 22:00-05:00 UTC")]
    opens = at("2026-01-05T22:00")

    assert with_rehearsals(of, pools, SleepNotes(), EVENING + 60) == SleepNotes()
    assert with_rehearsals(of, pools, SleepNotes(), opens + 901) == SleepNotes()
    notes = with_rehearsals(of, pools, SleepNotes(), opens + 900)

    assert sleep_state(of, pools, JoinHistory(), notes, NIGHT).scopes[0].rehearsal
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, opens + 86_400)) == ["dev"]


def test_each_narrowed_pool_has_a_rehearsal_of_its_own() -> None:
    of = settings(pools=("ci", "dev", "late"))
    weekend = pool("ci", sleep="Sat-Sun 00:00-24:00 UTC")
    pools = [weekend, pool("dev"), pool("late", sleep="daily 22:00-05:00 UTC")]

    notes = with_rehearsals(of, pools, SleepNotes(), EVENING)
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, NIGHT + 86_400)) == ["dev"]
    notes = with_rehearsals(of, pools, notes, at("2026-01-06T22:00"))
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, NIGHT + 2 * 86_400)) == ["dev", "late"]

    saturday = at("2026-01-10T00:00")
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, saturday)) == ["dev", "late"]
    notes = with_rehearsals(of, pools, notes, saturday)
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, saturday + 3600)) == ["dev", "late"]
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, at("2026-01-10T22:00"))) == ["ci", "dev", "late"]


def test_a_rehearsal_lasts_until_its_window_ends() -> None:
    of, pools = settings(), [pool(sleep="daily 19:30-20:00 UTC; daily 22:00-05:00 UTC")]

    notes = with_rehearsals(of, pools, SleepNotes(), at("2026-01-05T19:30"))

    assert sleep_state(of, pools, JoinHistory(), notes, NIGHT).scopes[0].rehearsal
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, NIGHT + 86_400)) == ["dev"]


def test_a_person_who_wakes_the_cluster_wins_over_every_window() -> None:
    of, pools = settings(), [pool()]

    until_the_end = rehearsed(of, pool(), woken_at=NIGHT - 10)
    assert sleep_state(of, pools, JoinHistory(), until_the_end, NIGHT).scopes == ()
    assert sleep_state(of, pools, JoinHistory(), until_the_end, NIGHT).woken == MORNING
    assert asleep(sleep_state(of, pools, JoinHistory(), until_the_end, EVENING + 86_400)) == ["dev"]

    given_time = rehearsed(of, pool(), woken_at=NIGHT - 10, awake_until=NIGHT + 600)
    assert sleep_state(of, pools, JoinHistory(), given_time, NIGHT).woken == NIGHT + 600
    assert asleep(sleep_state(of, pools, JoinHistory(), given_time, NIGHT + 600)) == ["dev"]

    by_day = rehearsed(of, pool(), woken_at=at("2026-01-05T12:00"))
    assert asleep(sleep_state(of, pools, JoinHistory(), by_day, NIGHT)) == ["dev"]


def test_a_wake_lasts_until_windows_that_touch_have_all_ended() -> None:
    of = settings(WindowSettings("Fri 19:00 - Sat 00:00 UTC"), WindowSettings("Sat 00:00 - Mon 07:00 UTC"))
    friday, sunday = at("2026-01-09T20:00"), at("2026-01-11T12:00")

    state = sleep_state(of, [pool()], JoinHistory(), rehearsed(of, pool(), woken_at=friday), sunday)

    assert state.woken == at("2026-01-12T07:00")


@pytest.mark.parametrize("woken_at", ["2026-01-05T20:00", "2026-01-05T23:00"])
@pytest.mark.parametrize("hours", ["daily 22:00-05:00 UTC", "daily 22:00-23:30 UTC; daily 04:00-06:00 UTC"])
def test_a_wake_lasts_until_the_window_ends_that_an_annotation_narrows(woken_at: str, hours: str) -> None:
    of, pools = settings(), [pool(sleep=hours)]
    notes = rehearsed(of, *pools, woken_at=at(woken_at))
    unwoken = rehearsed(of, *pools)

    for time in ("2026-01-05T23:10", "2026-01-06T04:30"):
        assert sleep_state(of, pools, JoinHistory(), notes, at(time)).woken == MORNING
        assert asleep(sleep_state(of, pools, JoinHistory(), notes, at(time))) == []
    assert asleep(sleep_state(of, pools, JoinHistory(), unwoken, at("2026-01-06T04:30"))) == ["dev"]
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, at("2026-01-06T22:10"))) == ["dev"]


def test_a_wake_in_a_window_that_never_ends_lasts_for_7_days() -> None:
    of, pools = settings(WindowSettings("daily 00:00-24:00 UTC")), [pool(sleep="daily 22:00-05:00 UTC")]
    notes = rehearsed(of, *pools, woken_at=EVENING)

    for day in range(7):
        assert sleep_state(of, pools, JoinHistory(), notes, NIGHT + day * 86_400).woken == EVENING + 7 * 86_400
    assert asleep(sleep_state(of, pools, JoinHistory(), notes, NIGHT + 7 * 86_400)) == ["dev"]


def test_a_wake_holds_what_is_armed_only_after_it() -> None:
    of, notes = settings(), rehearsed(settings(), pool(), woken_at=EVENING + 60)

    assert sleep_state(of, [pool(replicas=3)], JoinHistory(), notes, NIGHT).woken == MORNING
    assert sleep_state(of, [], JoinHistory(), notes, NIGHT).woken == MORNING


@pytest.mark.parametrize(
    ("of", "pools", "doubt"),
    [
        (settings(WindowSettings("daily 00:00-24:00 UTC")), [pool()], "more than 7 days"),
        (settings(WindowSettings("Mon 07:00 - Mon 07:00 UTC")), [pool()], "more than 7 days"),
        (settings(WindowSettings("at night")), [pool()], "is not a window"),
        (settings(pools=("gone",)), [pool()], "NodePool gone is not known"),
        (settings(), [pool(replicas=3)], "is static"),
        (settings(), [pool(sleep="whenever")], "annotation shiplap.dev/sleep"),
        (settings(), [pool(sleep=NIGHTS + ";")], "is not a window"),
        (settings(), [pool(sleep="")], "NodePool dev stays awake: annotation shiplap.dev/sleep: '' is not a window"),
        (settings(), [pool(sleep="  ")], "is not a window"),
        (settings(WindowSettings("at night"), WindowSettings(NIGHTS)), [pool()], "is not a window"),
        (settings(WindowSettings(""), WindowSettings(NIGHTS)), [pool()], "is not a window"),
        (settings(WindowSettings(NIGHTS), WindowSettings("daily 19:00-07:00 Mars/Olympus")), [pool()], "time zone"),
        (settings(WindowSettings("x", namespaces=("ci",)), WindowSettings(NIGHTS)), [pool()], "is not a window"),
        (
            settings(WindowSettings("daily 00:00-24:00 UTC", namespaces=("ci",)), WindowSettings(NIGHTS)),
            [pool()],
            "all stays awake: namespace ci would sleep for more than 7 days on end",
        ),
        (
            settings(WindowSettings("2026-01-05 12:00 - 2026-01-13 12:00 UTC"), WindowSettings(NIGHTS)),
            [pool()],
            "longer than 7 days",
        ),
    ],
)
def test_doubts_keep_everything_awake_and_are_said(of: SleepSettings, pools: list[NodePool], doubt: str) -> None:
    state = sleep_state(of, pools, JoinHistory(), rehearsed(of, *pools), NIGHT)

    assert state.scopes == ()
    assert any(doubt in text for text in state.doubts)


def test_what_a_node_pool_leaves_in_doubt_keeps_no_other_awake() -> None:
    of = settings(pools=("dev", "ci", "gone", "still"))
    pools = [pool(sleep=""), pool("ci"), pool("still", replicas=1)]

    state = sleep_state(of, pools, JoinHistory(), rehearsed(of, *pools), NIGHT)

    assert asleep(state) == ["ci"]
    assert len(state.doubts) == 3


def test_annotations_only_narrow() -> None:
    of = settings()
    narrowed = pool(sleep="daily 22:00-02:00 UTC; daily 06:30-09:00 UTC")
    notes = rehearsed(of, narrowed)

    def awake(time: str) -> bool:
        return not asleep(sleep_state(of, [narrowed], JoinHistory(), notes, at(time)))

    assert awake("2026-01-05T21:00")
    assert not awake("2026-01-05T23:00")
    assert awake("2026-01-06T03:00")
    assert awake("2026-01-06T08:00")  # the annotation alone arms nothing
    never = pool(sleep="never")
    assert asleep(sleep_state(of, [never], JoinHistory(), rehearsed(of, never), NIGHT)) == []


def test_only_named_pools_sleep_and_a_window_may_be_of_some_of_them() -> None:
    of = settings(WindowSettings(NIGHTS, ("ci",)), pools=("ci", "dev"))
    pools = [pool("ci"), pool("dev"), pool("prod")]

    assert asleep(sleep_state(of, pools, JoinHistory(), rehearsed(of, *pools), NIGHT)) == ["ci"]
    everywhere = settings(pools=("ci", "dev"))
    assert asleep(sleep_state(everywhere, pools, JoinHistory(), rehearsed(everywhere, *pools), NIGHT)) == ["ci", "dev"]


def test_nodes_that_left_count_until_all_is_awake() -> None:
    of = settings(most=5)
    notes = rehearsed(of, pool())
    state = sleep_state(of, [pool()], JoinHistory(), notes, NIGHT)

    taken = with_taken(state, notes, 3, NIGHT)
    assert sleep_state(of, [pool()], JoinHistory(), taken, NIGHT).nodes_left == 2
    more = with_taken(state, taken, 4, NIGHT)
    assert sleep_state(of, [pool()], JoinHistory(), more, NIGHT).nodes_left == 0
    assert sleep_state(of, [pool()], JoinHistory(), more, EVENING + 86_400).nodes_left == 5
    assert with_taken(state, more, 1, EVENING + 86_400).taken == 1


def test_pools_are_woken_early_by_what_their_nodes_took() -> None:
    assert lead_s(PoolJoins("dev")) == 360
    assert lead_s(PoolJoins("dev", (1.0,) * 4, (1.0,) * 9)) == 360
    assert lead_s(PoolJoins("dev", tuple(map(float, range(1, 101))), (5.0,) * 5)) == 95 + 5 + 60
    assert lead_s(PoolJoins("dev", (5000.0,) * 9, (1.0,) * 9)) == LONGEST_LEAD_S


def test_open_windows_are_known_without_notes() -> None:
    assert is_any_open(settings(), NIGHT)
    assert not is_any_open(settings(), MORNING)
    assert not is_any_open(settings(WindowSettings("nonsense")), NIGHT)


@pytest.mark.parametrize(
    ("of", "field"),
    [
        (settings(pools=()), "nodePools"),
        (settings(most=0), "mostNodes"),
        (SleepSettings(("dev",), 1, ()), "windows"),
        (settings(WindowSettings("x")), "windows.0.when"),
        (settings(WindowSettings(NIGHTS, ("dev",), ("ns",))), "windows.0"),
        (settings(WindowSettings(NIGHTS, ("prod",))), "windows.0.nodePools"),
    ],
)
def test_settings_that_say_nothing_useful_are_refused(of: SleepSettings, field: str) -> None:
    assert [".".join(map(str, where)) for where, _ in (*beyond_bounds(of), *of.problems())] == [field]
    assert [*beyond_bounds(settings()), *settings().problems()] == []


@given(
    moment=st.integers(at("2026-01-01"), at("2026-12-31")),
    windows=st.lists(
        st.sampled_from(
            [NIGHTS, "Fri 19:00 - Mon 07:00 Europe/Berlin", "Mon-Sun 00:00-12:00 UTC", "Mon-Sun 12:00-24:00 UTC"]
        ),
        min_size=1,
        max_size=4,
    ),
    sleep=st.sampled_from([None, "", "never", "nonsense", "Sat-Sun 00:00-24:00 America/New_York"]),
    known=st.booleans(),
    awake_until=st.sampled_from([0, at("2027-01-01")]),
)
def test_sleep_needs_every_reason_at_once(
    moment: int, windows: list[str], sleep: str | None, known: bool, awake_until: int
) -> None:
    of, pools = settings(*map(WindowSettings, windows)), [pool(sleep=sleep)]
    notes = rehearsed(of, *pools, awake_until=awake_until) if known else SleepNotes(awake_until=awake_until)

    state = sleep_state(of, pools, JoinHistory(), notes, moment)

    for scope in state.scopes:
        assert scope.since <= moment < scope.wakes_at <= scope.until
        assert scope.until - scope.since <= 7 * 86_400
        assert is_any_open(of, moment)
        assert scope.rehearsal or known
        assert not awake_until
        assert sleep not in ("", "never", "nonsense")


@pytest.mark.parametrize("written", ["never", "whenever", "", "daily 22:00-02:00 UTC; nonsense"])
def test_no_annotation_of_sleep_makes_a_node_pool_of_a_cluster_unusable(written: str) -> None:
    spec = {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "d"}, "requirements": []}
    body = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "dev", "annotations": {SLEEP: written}},
        "spec": {"template": {"spec": spec}},
    }

    assert check_live_object(body, AllowedResources()).reasons == ()
    assert bool(annotation_problem(pool(sleep=written))) == (written != "never")
