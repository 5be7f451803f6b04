"""Tests the time to wait for a node, and the end of launches of an AMI or a type, from what is known of joins."""

from __future__ import annotations

import pytest

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.readiness.joins import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    SAMPLES,
    SHORTEST_DEADLINE_S,
    AmiJoins,
    BlockedLaunches,
    JoinHistory,
    JoinRecord,
    PoolJoins,
    blocked_launches,
    deadline_s,
    timeouts,
    with_samples,
    without_blocked,
)

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([], 900),
        ([100] * 4, 900),  # too few to conclude anything from
        ([100] * 5, 200),
        ([40] * 50, SHORTEST_DEADLINE_S),
        ([100] * 98 + [300, 400], 600),  # one in a hundred may be slow
        ([800] * 5, 900),
    ],
)
def test_a_deadline_is_twice_the_slowest_but_one_in_a_hundred(samples: list[float], expected: float) -> None:
    assert deadline_s(samples, 900) == expected


def test_only_the_newest_times_count() -> None:
    samples: tuple[float, ...] = ()
    for second in range(SAMPLES + 20):
        samples = with_samples(samples, [float(second)])
    assert (len(samples), samples[0], samples[-1]) == (SAMPLES, 20.0, SAMPLES + 19.0)


def test_each_pool_has_its_own_deadline() -> None:
    history = JoinHistory(pools=(PoolJoins("linux", (30.0,) * 9), PoolJoins("windows", (400.0,) * 9)))
    assert timeouts(history, 900) == {"linux": SHORTEST_DEADLINE_S, "windows": 800}
    assert history.times("unknown") == PoolJoins("unknown")


def failed(times: int, *, kinds: tuple[str, ...] = ("m6i.large",), joined_first: bool = False) -> AmiJoins:
    item = AmiJoins("ami-1")
    if joined_first:
        item = item.joined("c7i.large", NOW - 9999)
    for number in range(times):
        at = NOW - times + number + 1  # the last one now
        item = item.failed(kinds[number % len(kinds)], at - 0.5, at)
    return item


def barred(item: AmiJoins, *joining: tuple[str, str], after_s: float = 0.0) -> BlockedLaunches:
    return blocked_launches(JoinHistory(amis=(item,)), joining, NOW + after_s)


def test_an_ami_on_which_nothing_joins_is_barred_and_tried_again_with_growing_pauses() -> None:
    assert barred(failed(2, kinds=("a", "b"))) == BlockedLaunches()
    three = failed(3, kinds=("a", "b", "c"))
    assert barred(three).amis == {"ami-1"}
    assert barred(three, after_s=FIRST_PAUSE_S) == BlockedLaunches()
    assert barred(failed(4, kinds=("a", "b", "c", "d")), after_s=2 * FIRST_PAUSE_S - 1).amis == {"ami-1"}
    many = failed(40, kinds=tuple(f"t{n}" for n in range(40)))
    assert many.all.pause_until(3) == NOW + LONGEST_PAUSE_S


def test_pauses_double_from_a_quarter_of_an_hour_to_six_hours() -> None:
    pauses = [JoinRecord(failures=failures, failed_at=NOW).pause_until(3) for failures in range(2, 11)]
    doubled = [900, 1800, 3600, 7200, 14_400, 21_600, 21_600, 21_600]
    assert pauses == [0.0, *(NOW + pause_s for pause_s in doubled)]
    assert JoinRecord(failures=10_000, failed_at=NOW).pause_until(3) == NOW + 21_600


def test_a_try_is_waited_for_before_the_next_one() -> None:
    item = failed(3, kinds=("a", "b", "c"))
    assert barred(item, ("ami-1", "d"), after_s=FIRST_PAUSE_S).amis == {"ami-1"}
    assert barred(item, ("ami-2", "d"), after_s=FIRST_PAUSE_S) == BlockedLaunches()


def test_a_type_that_never_joins_is_barred_on_its_ami_only() -> None:
    item = failed(2, joined_first=True)
    assert barred(item) == BlockedLaunches(types=frozenset({("ami-1", "m6i.large")}))
    assert barred(item, after_s=FIRST_PAUSE_S) == BlockedLaunches()
    trying = ("ami-1", "m6i.large")
    assert barred(item, trying, after_s=FIRST_PAUSE_S).types == {trying}
    assert barred(item, ("ami-1", "d"), ("ami-2", "m6i.large"), after_s=FIRST_PAUSE_S) == BlockedLaunches()


def test_one_failure_in_a_row_bars_no_type() -> None:
    assert barred(failed(1, joined_first=True)) == BlockedLaunches()


def test_nodes_launched_before_a_failure_was_known_are_one_failure() -> None:
    item = AmiJoins("ami-1")
    for number in range(100):
        item = item.failed("m6i.large", NOW - 900, NOW + number)
    assert (item.all.failures, item.types["m6i.large"].failures) == (1, 1)
    assert item.failed("m6i.large", NOW + 1, NOW + 900).all.failures == 2


def test_one_node_that_joins_settles_it() -> None:
    item = failed(5).joined("m6i.large", NOW + 1)
    assert item.all == item.types["m6i.large"] == JoinRecord(joined_at=NOW + 1)
    assert barred(item) == BlockedLaunches()


def test_what_is_barred_stays_in_the_catalogue_and_cannot_be_had() -> None:
    offering = Offering("eu-west-1a", "on-demand", 1.0, True)

    def sold(name: str, ami: str) -> InstanceType:
        return InstanceType(name=name, requirements=(), capacity={}, overhead={}, offerings=(offering,), ami=ami)

    types = (sold("a", "ami-1"), sold("b", "ami-1"), sold("a", "ami-2"))
    assert without_blocked(types, BlockedLaunches()) == types
    closed = without_blocked(types, BlockedLaunches(frozenset({"ami-2"}), frozenset({("ami-1", "b")})))
    assert [item.offerings[0].available for item in closed] == [True, False, False]


@pytest.mark.parametrize(("launched_at", "failures"), [(NOW - 1, 1), (NOW, 1), (NOW + 1, 2)])
def test_a_node_launched_by_the_time_of_the_last_failure_fails_with_it(launched_at: float, failures: int) -> None:
    record = JoinRecord().failed(NOW - 900, NOW)
    assert record.failed(launched_at, NOW + 900).failures == failures
