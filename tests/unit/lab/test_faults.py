"""Faults: dying, failing and interleaving at named points."""

from __future__ import annotations

import pytest

from shiplap_lab.fakes.faults import Crash, Faults
from shiplap_lab.fakes.signals import FakeClock, FakeMeter


def test_points_are_listed_in_order() -> None:
    faults = Faults()
    with faults.effect("a"), faults.effect("b"):
        pass
    assert faults.points == ["before a", "before b", "after b", "after a"]


def test_an_effect_that_fails_has_no_after() -> None:
    faults = Faults()
    with pytest.raises(KeyError), faults.effect("a"):
        raise KeyError("a")
    assert faults.points == ["before a"]


def test_an_action_happens_once_at_the_nth_passing() -> None:
    faults = Faults()
    happened: list[str] = []
    faults.on("after", "a", lambda: happened.append("x"), nth=2)
    for expected in ([], ["x"], ["x"]):
        faults.before("a")
        faults.after("a")
        assert happened == expected


def test_an_error_is_raised_at_its_point() -> None:
    faults = Faults()
    faults.on("before", "a", ValueError("refused"))
    faults.before("b")
    with pytest.raises(ValueError, match="refused"):
        faults.before("a")
    faults.before("a")


def test_an_action_may_pass_the_same_point() -> None:
    faults = Faults()
    faults.on("before", "a", lambda: faults.before("a"))
    faults.before("a")
    assert faults.points == ["before a", "before a"]


@pytest.mark.parametrize("point", range(4))
def test_a_run_can_die_at_every_point(point: int) -> None:
    faults = Faults()
    faults.crash_at(point)

    def run() -> None:
        for name in ("a", "b"):
            with faults.effect(name):
                pass

    with pytest.raises(Crash) as caught:
        run()
    assert str(caught.value) == ["before a", "after a", "before b", "after b"][point]
    assert not isinstance(caught.value, Exception)


def test_clearing_forgets_faults_and_counts_anew() -> None:
    faults = Faults()
    faults.on("before", "a", ValueError())
    faults.crash_at(0)
    faults.clear()
    faults.before("a")
    assert faults.points == ["before a"]


def test_time_moves_when_told() -> None:
    clock = FakeClock(100.0)
    assert (clock.now(), clock.advance(2.5), clock.now()) == (100.0, 102.5, 102.5)
    clock.set(7.0)
    assert clock.now() == 7.0


def test_the_meter_adds_up() -> None:
    meter = FakeMeter()
    meter.count("launches")
    meter.count("launches", 2.0, "Count")
    assert meter.counts == {"launches": 3.0}
