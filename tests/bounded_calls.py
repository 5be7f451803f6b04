"""Calls with a time limit, in the time of a FakeClock: one that hangs takes its whole limit, and no real time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shiplap.flows.optional.optional_calls import NoAnswerInTime, Run
from shiplap_lab.fakes.faults import Hang
from shiplap_lab.fakes.signals import FakeClock


def run_by(clock: FakeClock) -> Run:
    """Return what makes calls for OptionalCalls in place of threads."""

    def run(call: Callable[[], Any], limit_s: float) -> Any:
        try:
            return call()
        except Hang as hang:
            clock.advance(limit_s)
            raise NoAnswerInTime from hang

    return run
