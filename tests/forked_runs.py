"""Runs of one scenario that differ in a single fault: each is played on by a child process from that fault on.

What comes before the fault is played once, by the parent. Each child has the same outcome as a simulation that plays
all from the start with that fault planned.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from shiplap_lab.scenarios.scenario import Fault
from shiplap_lab.simulation.run import RunOutcome, Simulation


def forked_outcomes(
    make: Callable[[tuple[Fault, ...]], Simulation], faults: Iterable[Fault]
) -> dict[Fault, RunOutcome]:
    """The outcome of each fault, without its lines. `make` makes the simulation with these faults beside its own."""
    if _lines_are_recorded():
        return {fault: msgspec.structs.replace(make((fault,)).play(), lines=()) for fault in faults}
    simulation, outcomes = make(()), {}
    own: list[int] = []

    def fork(fault: Fault) -> None:
        if own:
            return
        outlet, inlet = os.pipe()
        child = _fork()
        if child == 0:
            own.append(inlet)
            simulation.strike(fault)
            return
        os.close(inlet)
        with os.fdopen(outlet, "rb") as answer:
            told = answer.read()
        _, status = os.waitpid(child, 0)
        if status:
            raise AssertionError(f"{fault}: {told.decode()}")
        outcomes[fault] = msgspec.json.decode(told, type=RunOutcome)

    start = simulation.loop.now()
    for fault in faults:
        simulation.loop.at(start + fault.at * 60, partial(fork, fault))
    try:
        outcome = simulation.play()
    except BaseException:  # a child must never come back to pytest
        if own:
            os.write(own[0], traceback.format_exc().encode())
            os._exit(1)
        raise
    if own:
        with os.fdopen(own[0], "wb") as answer:
            answer.write(msgspec.json.encode(msgspec.structs.replace(outcome, lines=())))
        os._exit(0)
    return outcomes


def _fork() -> int:
    with warnings.catch_warnings():
        # pytest-xdist reads its messages in a thread. A child has no such thread, and takes no lock of it.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return os.fork()


def _lines_are_recorded() -> bool:
    """Whether a tool records the lines that tests run: it would not learn of those that children run."""
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return sys.gettrace() is not None or (
        monitoring is not None and monitoring.get_tool(monitoring.COVERAGE_ID) is not None
    )
