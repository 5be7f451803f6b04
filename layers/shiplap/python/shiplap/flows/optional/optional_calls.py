"""Calls that no decision needs: each part of them has a budget, and no decision waits longer for it.

A call runs in a thread of its own, because nothing else bounds it: looking up a name has no time-out, and an answer of
one byte a second is never silent. A call without an answer is left alone: what it does later is as harmless as what it
does in time. It raises what its port raises without an answer, so a flow goes on as it does after a refusal. Then the
part rests.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, Queue
from threading import Thread
from typing import Any, TypeVar, cast

import msgspec

from shiplap.cluster.bounded_connections import left_s, time_limit
from shiplap.errors import AwsUnavailable, ClusterUnreachable, ShiplapError, StoreThrottled
from shiplap.ports import Clock

MOST_LOST_S = 10.0
"""All optional parts of an invocation together wait so many seconds for calls without an answer: parts of AWS, and
those of each cluster's API server. A third of the shortest turn (`flows/turns.py`)."""

NO_ANSWER = "NoAnswerInTime"
"""The code of the AwsError when AWS has not answered in time."""

Port = TypeVar("Port")


class OptionalPart(msgspec.Struct, frozen=True):
    """Something that an invocation can do without, and how long it may take."""

    name: str
    """Names it in the log."""
    error: type[ShiplapError] = StoreThrottled
    """Raised by its port without an answer."""
    call_s: float = 2.0
    """The longest time of one call, its repetitions included."""
    budget_s: float = 5.0
    """The longest time of all calls of one invocation together."""
    rest_s: float = 60.0
    """No further call is made for so long after one without an answer."""

    @property
    def is_of_cluster(self) -> bool:
        """True if the part asks an API server: the silence of one server is not that of another."""
        return self.error is ClusterUnreachable


CAPACITY_BLOCKS = OptionalPart("capacity blocks", AwsUnavailable)
CLAIM_OBJECTS = OptionalPart("NodeClaim objects", ClusterUnreachable, call_s=5.0, budget_s=30.0)
"""A sweep writes the status of each node whose pods came or went: thousands in a large cluster."""
DEAD_LETTERS = OptionalPart("dead letters")
EVENTS = OptionalPart("events")
FOREIGN_NODES = OptionalPart("images of other nodes", AwsUnavailable)
INSPECTION = OptionalPart("status of node classes")
INSTANCE_NAMES = OptionalPart("names of instances", AwsUnavailable, call_s=6.0, budget_s=15.0)
"""A request waits up to five seconds for its token (`aws/ec2/request_pace.py`)."""
JOINS = OptionalPart("history of joins")
LAUNCH_TEMPLATES = OptionalPart("unused launch templates", AwsUnavailable, call_s=10.0, budget_s=10.0)
"""One call describes all templates and deletes those that are not used, which EC2 allows once a second."""
LAUNCH_TRIALS = OptionalPart("trials of launches", AwsUnavailable, call_s=5.0, budget_s=30.0)
"""EC2 answers a dry run of CreateFleet within a second; an EC2NodeClass has several."""
MEMORY = OptionalPart("memory of disruption", call_s=5.0)
METRICS = OptionalPart("metrics for the collector", rest_s=600.0)
"""Seen from outside: a minute without metrics is a gap that ten minutes do not widen, and the secret costs money."""
POD_EVENTS = OptionalPart("events of pods and nodes", ClusterUnreachable)
RECORDS = OptionalPart("recorded decisions", call_s=5.0)
"""A decision of 10,000 pods takes two seconds to encode and to send."""
SHOWN_OBJECTS = OptionalPart("objects whose status is written", ClusterUnreachable, call_s=10.0, budget_s=20.0)
"""Nodes and NodeClaims of a cluster of thousands. They are read for what users have deleted, too, which therefore does
not rest when only writing hangs."""
SICK_INSTANCES = OptionalPart("status checks", AwsUnavailable, call_s=5.0)
SNAPSHOTS = OptionalPart("snapshots of pods", call_s=5.0)
"""Of 100,000 pods it has 10 MB. Without it the pods are listed."""
STEERED_PODS = OptionalPart("nominated pods", ClusterUnreachable, budget_s=15.0)
"""A node of 110 pods is a request each."""
TIMERS = OptionalPart("timers", budget_s=20.0)
"""A sweep sets up to 500 (`flows/sweep/sweep.py`), 10 ms each; 20 where SQS is slow."""
TRIED_LAUNCHES = OptionalPart("answers to trials of launches", call_s=5.0)
ZONAL_SHIFTS = OptionalPart("zonal shifts", AwsUnavailable)

PARTS: tuple[OptionalPart, ...] = tuple(part for part in tuple(globals().values()) if isinstance(part, OptionalPart))
"""All of them."""


class NoAnswerInTime(Exception):
    """A call has not ended within its time."""


Run = Callable[[Callable[[], Any], float], Any]
"""Makes a call that may last some seconds, and returns its result. Raises NoAnswerInTime, or what the call raises."""


def run_in_thread(call: Callable[[], Any], limit_s: float) -> Any:
    """Make a call in a thread that is left alone at the end of its time. Raises NoAnswerInTime."""
    ended: Queue[tuple[Any, BaseException | None]] = Queue()

    def act() -> None:
        try:
            with time_limit(limit_s):
                ended.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - it is raised below, in the thread that has a caller
            ended.put((None, error))

    Thread(target=copy_context().run, args=(act,), name="optional", daemon=True).start()
    try:
        result, error = ended.get(timeout=limit_s)
    except Empty as late:
        raise NoAnswerInTime from late
    if error is not None:
        raise error
    return result


def limited(calls: OptionalCalls | None, port: Port, limit_s: float) -> Port:
    """The same port of AWS, each call of which may last some seconds; without `calls` as long as it takes.

    Its methods raise AwsUnavailable of the code NO_ANSWER after that.
    """
    if calls is None:
        return port
    run = calls.run

    def make(act: Callable[[], Any]) -> Any:
        try:
            return run(act, limit_s)
        except NoAnswerInTime as error:
            raise AwsUnavailable(f"AWS has not answered within {limit_s:.0f} s", code=NO_ANSWER) from error

    return cast("Port", _BoundedPort(port, make))


class OptionalCalls:
    """The budgets of one process. Several threads may use them: the sums are then of all threads.

    Args:
        run: makes a call.
    """

    def __init__(self, run: Run = run_in_thread) -> None:
        self.run = run
        self._used_s: dict[tuple[str, object], float] = {}
        self._lost_s: dict[object, float] = {}
        self._rests_until: dict[tuple[str, object], float] = {}

    def begin(self) -> None:
        """An invocation begins: budgets are whole again. What rests goes on resting."""
        self._used_s.clear()
        self._lost_s.clear()

    def within(self, part: OptionalPart, port: Port, clock: Clock) -> Port:
        """The same port, with methods that are calls of the part."""
        scope = port if part.is_of_cluster else None
        return cast("Port", _BoundedPort(port, lambda act: self.call(part, scope, act, clock)))

    def call(self, part: OptionalPart, scope: object, act: Callable[[], Any], clock: Clock) -> Any:
        """Make a call of a part; `scope` is whose budget it is: an API server, None for AWS.

        Raises:
            ShiplapError: that of the part, if there is no answer within the time that is left to it, or none is left.
        """
        key, now = (part.name, scope), clock.now()
        if now < self._rests_until.get(key, 0.0):
            raise part.error(f"{part.name}: left out, there was no answer less than {part.rest_s:.0f} s ago")
        lost_s, used_s = self._lost_s.get(scope, 0.0), self._used_s.get(key, 0.0)
        limit_s = min(part.call_s, part.budget_s - used_s, MOST_LOST_S - lost_s, left_s())
        if limit_s <= 0:
            raise part.error(f"{part.name}: left out, the invocation has no time left for it")
        try:
            return self.run(act, limit_s)
        except NoAnswerInTime as error:
            self._lost_s[scope] = self._lost_s.get(scope, 0.0) + limit_s
            self._rests_until[key] = now + part.rest_s
            raise part.error(f"{part.name}: no answer within {limit_s:.1f} s") from error
        finally:
            self._used_s[key] = self._used_s.get(key, 0.0) + clock.now() - now


class _BoundedPort:
    """A port whose calls are all made by `make`."""

    def __init__(self, port: object, make: Callable[[Callable[[], Any]], Any]) -> None:
        self._port, self._make = port, make

    def __getattr__(self, name: str) -> Any:
        port, make = self._port, self._make
        return lambda *args, **named: make(lambda: getattr(port, name)(*args, **named))
