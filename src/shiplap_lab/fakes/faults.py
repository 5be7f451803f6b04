"""Faults on purpose: every effect of every fake passes through here before and after it happens.

A test lets a run die between any two effects, lets one effect fail, or slips another actor in between:

    faults.on("before", "state.commit", lambda: rival.commit(...))   # interleave
    faults.on("after", "compute.launch", Crash())                    # die once the instance exists
    faults.on("before", "cluster.nodes", ClusterUnreachable("…"))    # fail
    faults.always("bus.publish", Hang())                             # never answer
    faults.crash_at(17)                                              # die at the 17th point, whatever it is

A run without faults tells how many points there are (`faults.points`), so that a test can crash at each in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from typing import Literal

import msgspec

When = Literal["before", "after"]
Action = Callable[[], object] | BaseException


class Crash(BaseException):
    """The process dies here. Not an Exception, so that no handler in the code under test can survive it."""


class Hang(BaseException):
    """The call is never answered. Only what bounds a call by a time limit goes on: see `fakes/bounded_calls.py`."""


class _Rule(msgspec.Struct):
    when: When
    effect: str
    action: Action
    countdown: int


class Faults:
    """Shared by all fakes of a test. `points` lists `before NAME` and `after NAME` in the order they were passed."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self._rules: list[_Rule] = []
        self._always: dict[str, BaseException] = {}
        self._crash_at: int | None = None

    def on(self, when: When, effect: str, action: Action, *, nth: int = 1) -> None:
        """At the nth coming time `effect` is passed, raise `action` or call it; once."""
        self._rules.append(_Rule(when, effect, action, nth))

    def always(self, effect: str, error: BaseException) -> None:
        """Raise the error each time `effect` is about to happen."""
        self._always[effect] = error

    def crash_at(self, point: int) -> None:
        """Raise Crash at the point of this number, counted from 0 since the start or the last `clear`."""
        self._crash_at = point

    def clear(self) -> None:
        """Forget faults that have not happened and count points from 0 again."""
        self.points.clear()
        self._rules.clear()
        self._always.clear()
        self._crash_at = None

    def before(self, effect: str) -> None:
        """Called by a fake when an effect is about to happen."""
        self._pass("before", effect)

    def after(self, effect: str) -> None:
        """Called by a fake when an effect has happened and its caller does not know yet."""
        self._pass("after", effect)

    def effect(self, name: str) -> AbstractContextManager[None]:
        """`before`, the body, and, unless it raised, `after`."""
        return _Effect(self, name)

    def locked_effect(self, name: str, lock: Lock) -> AbstractContextManager[None]:
        """The same with a lock held during the effect itself only: what a fault calls may use the fake."""
        return _Effect(self, name, lock)

    def _pass(self, when: When, effect: str) -> None:
        number = len(self.points)
        self.points.append(f"{when} {effect}")
        if number == self._crash_at:
            raise Crash(f"{when} {effect}")
        if when == "before" and effect in self._always:
            raise self._always[effect]
        due = []
        for rule in self._rules:
            if (rule.when, rule.effect) == (when, effect):
                rule.countdown -= 1
                if rule.countdown == 0:
                    due.append(rule)
        for rule in due:  # removed first: an action may pass the same point again
            self._rules.remove(rule)
        for rule in due:
            if isinstance(rule.action, BaseException):
                raise rule.action
            rule.action()


class _Effect:
    """A simulation passes millions of these: a generator would take several times as long."""

    __slots__ = ("_faults", "_lock", "_name")

    def __init__(self, faults: Faults, name: str, lock: Lock | None = None) -> None:
        self._faults, self._name, self._lock = faults, name, lock

    def __enter__(self) -> None:
        self._faults.before(self._name)
        if self._lock is not None:
            self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._lock is not None:
            self._lock.release()
        if kind is None:
            self._faults.after(self._name)
