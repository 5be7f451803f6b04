"""The event bus and the timers, in memory: they keep what was published, for tests and the simulator to deliver."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.ports import LONGEST_DELAY_S, BusEvent, Clock
from shiplap_lab.fakes.faults import Faults


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
