"""Budgets of calls that no decision needs: one call, one part, one API server, one invocation."""

from __future__ import annotations

from threading import Event

import pytest

from shiplap.cluster.bounded_connections import left_s, time_limit
from shiplap.errors import AwsUnavailable, ClusterUnreachable, ObjectNotFound, StoreThrottled
from shiplap.flows.optional.optional_calls import (
    MOST_LOST_S,
    PARTS,
    NoAnswerInTime,
    OptionalCalls,
    OptionalPart,
    run_in_thread,
)
from shiplap_lab.fakes.faults import Hang
from shiplap_lab.fakes.signals import FakeClock
from tests.bounded_calls import run_by

NOTES = OptionalPart("notes", call_s=2.0, budget_s=5.0, rest_s=60.0)
OTHER_NOTES = OptionalPart("other notes", call_s=2.0, budget_s=5.0, rest_s=60.0)


class Port:
    """A port that answers after some seconds of its clock, or never; `calls` counts what reached it."""

    def __init__(self, clock: FakeClock, takes_s: float | None = 0.0) -> None:
        self._clock, self.takes_s, self.calls = clock, takes_s, 0

    def ask(self, question: str, *, again: bool = False) -> str:
        self.calls += 1
        if self.takes_s is None:
            raise Hang
        self._clock.advance(self.takes_s)
        return f"{question}{again}"


class Invocations:
    """Optional calls on one clock."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.calls = OptionalCalls(run_by(self.clock))

    def port(self, takes_s: float | None = 0.0) -> Port:
        return Port(self.clock, takes_s)

    def within(self, part: OptionalPart, port: Port) -> Port:
        return self.calls.within(part, port, self.clock)

    def seconds_of(self, part: OptionalPart, port: Port, *, times: int = 1) -> float:
        """Return the seconds that calls take if all of them fail."""
        before = self.clock.now()
        for _ in range(times):
            with pytest.raises(part.error):
                self.within(part, port).ask("why")
        return self.clock.now() - before


@pytest.fixture
def invocations() -> Invocations:
    return Invocations()


def test_what_is_answered_is_passed_on(invocations: Invocations) -> None:
    assert invocations.within(NOTES, invocations.port()).ask("who", again=True) == "whoTrue"


def test_a_refusal_is_passed_on_and_rests_nothing(invocations: Invocations) -> None:
    class Refusing(Port):
        def ask(self, question: str, *, again: bool = False) -> str:
            self.calls += 1
            raise ObjectNotFound(question)

    port = Refusing(invocations.clock)
    for _ in range(2):
        with pytest.raises(ObjectNotFound):
            invocations.within(NOTES, port).ask("who")
    assert port.calls == 2


@pytest.mark.parametrize("error", [StoreThrottled, ClusterUnreachable, AwsUnavailable])
def test_no_answer_is_the_error_of_the_port_after_the_time_of_a_call(
    invocations: Invocations, error: type[StoreThrottled | ClusterUnreachable | AwsUnavailable]
) -> None:
    part = OptionalPart("some", error, call_s=3.0)
    assert invocations.seconds_of(part, invocations.port(None)) == 3.0


def test_a_part_without_an_answer_rests_beyond_the_invocation(invocations: Invocations) -> None:
    port = invocations.port(None)
    assert invocations.seconds_of(NOTES, port, times=3) == NOTES.call_s
    assert port.calls == 1
    port.takes_s = 0.0
    invocations.calls.begin()
    invocations.clock.advance(NOTES.rest_s - NOTES.call_s - 1)
    assert invocations.seconds_of(NOTES, port) == 0.0
    invocations.clock.advance(1)
    assert invocations.within(NOTES, port).ask("who") == "whoFalse"


def test_slow_answers_end_with_the_budget_of_the_part_and_the_next_invocation_has_a_whole_one(
    invocations: Invocations,
) -> None:
    slow = invocations.port(1.5)
    for _ in range(4):  # the fourth begins with half a second left
        invocations.within(NOTES, slow).ask("who")
    assert invocations.seconds_of(NOTES, slow) == 0.0
    assert invocations.within(OTHER_NOTES, slow).ask("who") == "whoFalse"
    invocations.calls.begin()
    assert invocations.within(NOTES, slow).ask("who") == "whoFalse"


def test_a_call_gets_no_more_than_is_left_of_the_budget(invocations: Invocations) -> None:
    invocations.within(NOTES, invocations.port(4.5)).ask("who")
    assert invocations.seconds_of(NOTES, invocations.port(None)) == 0.5


def test_many_parts_without_an_answer_share_what_an_invocation_may_lose(invocations: Invocations) -> None:
    parts = [OptionalPart(f"part {number}", call_s=3.0) for number in range(9)]
    lost = [invocations.seconds_of(part, invocations.port(None)) for part in parts]
    assert lost == [3.0, 3.0, 3.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert sum(lost) == MOST_LOST_S
    invocations.calls.begin()
    assert invocations.seconds_of(parts[-1], invocations.port(None)) == 3.0


def test_a_silent_api_server_costs_another_cluster_nothing(invocations: Invocations) -> None:
    silent, sound = invocations.port(None), invocations.port()
    parts = [OptionalPart(f"part {number}", ClusterUnreachable, call_s=5.0) for number in range(3)]
    assert sum(invocations.seconds_of(part, silent) for part in parts) == MOST_LOST_S
    assert [invocations.within(part, sound).ask("who") for part in parts] == ["whoFalse"] * 3
    assert invocations.within(NOTES, invocations.port()).ask("who") == "whoFalse"


def test_clusters_have_one_budget_of_aws_together(invocations: Invocations) -> None:
    assert invocations.seconds_of(NOTES, invocations.port(None)) == NOTES.call_s
    assert invocations.seconds_of(NOTES, invocations.port(None)) == 0.0


def test_no_call_outlives_the_turn_of_its_cluster(invocations: Invocations) -> None:
    with time_limit(0.0):
        assert invocations.seconds_of(NOTES, invocations.port()) == 0.0


def test_in_a_thread_a_call_returns_raises_and_knows_the_limits() -> None:
    def fail() -> None:
        raise ObjectNotFound("gone")

    assert run_in_thread(lambda: 7, 60.0) == 7
    with pytest.raises(ObjectNotFound, match="gone"):
        run_in_thread(fail, 60.0)
    with time_limit(30.0):
        assert 0 < run_in_thread(left_s, 60.0) <= 30.0
    assert 30.0 < run_in_thread(left_s, 60.0) <= 60.0


def test_a_call_that_never_ends_is_left_alone() -> None:
    released = Event()
    with pytest.raises(NoAnswerInTime):
        run_in_thread(released.wait, 0.01)
    released.set()


def test_each_part_has_a_name_of_its_own_and_fits_into_what_an_invocation_may_lose() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS) > 15
    for part in PARTS:
        assert 0 < part.call_s <= min(part.budget_s, MOST_LOST_S), part.name
        assert part.rest_s >= 60, part.name
