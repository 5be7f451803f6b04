"""Clock, meter, event bus, timers and dead letters in memory; they keep what they were given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from shiplap.ports import LONGEST_DELAY_S, BusEvent, Clock
from shiplap_lab.fakes.faults import Faults


class FakeClock:
    """A Clock set by hand, in epoch seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def set(self, now: float) -> None:
        """Jump to a moment; it may lie in the past, as clocks of different machines do."""
        self._now = now

    def advance(self, seconds: float) -> float:
        """Let time pass; returns the new moment."""
        self._now += seconds
        return self._now


class FakeMeter:
    """A Meter that adds up. `counts` maps a metric to its sum over all dimensions, `seen` to its values, in order.

    A value in `seen` comes with its dimensions, sorted by name.
    """

    def __init__(self) -> None:
        self.counts: dict[str, float] = {}
        self.seen: dict[str, list[tuple[float, tuple[tuple[str, str], ...]]]] = {}

    def count(
        self,
        name: str,
        value: float = 1.0,
        unit: str = "Count",  # noqa: ARG002 - sums need no unit
        *,
        dimensions: Mapping[str, str] | None = None,
    ) -> None:
        self.counts[name] = self.counts.get(name, 0.0) + value
        self.seen.setdefault(name, []).append((value, tuple(sorted((dimensions or {}).items()))))


class FakeBus:
    """An EventBus; `events` holds everything published, in order."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.events: list[BusEvent] = []

    def publish(self, events: Sequence[BusEvent]) -> None:
        with self.faults.effect("bus.publish"):
            self.events.extend(events)

    def of_type(self, detail_type: str) -> list[BusEvent]:
        """The published events of one detail-type."""
        return [event for event in self.events if event.detail_type == detail_type]


class Reminder(msgspec.Struct, frozen=True, order=True):
    """A timer that was set; `due_at` in epoch seconds of the fake's clock."""

    due_at: float
    cluster: str
    claim: str
    step: str
    delay_s: int


class FakeTimers:
    """Timers; without a clock, `due_at` is the delay itself."""

    def __init__(self, clock: Clock | None = None, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.reminders: list[Reminder] = []
        self._clock = clock

    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        with self.faults.effect("timers.remind"):
            delay_s = min(max(delay_s, 0), LONGEST_DELAY_S)
            start = self._clock.now() if self._clock is not None else 0.0
            self.reminders.append(Reminder(start + delay_s, cluster, claim, step, delay_s))

    def take_due(self, now: float) -> list[Reminder]:
        """Remove and return the reminders due at `now`, earliest first."""
        due = sorted(reminder for reminder in self.reminders if reminder.due_at <= now)
        self.reminders = [reminder for reminder in self.reminders if reminder.due_at > now]
        return due


class FakeDeadLetters:
    """DeadLetters; `letters` holds each body with its reason, in order."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.letters: list[tuple[str, str]] = []

    def send(self, body: str, reason: str) -> None:
        with self.faults.effect("dead_letters.send"):
            self.letters.append((body, reason))
