"""The ports to time, the event bus, timers, metrics and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

LONGEST_DELAY_S = 900
"""The longest delay of a timer, in seconds: what SQS allows."""


class Clock(Protocol):
    """The time; nothing below the handlers reads a clock."""

    def now(self) -> float:
        """Epoch seconds."""
        ...


class BusEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One event for the bus. `detail` always holds cluster, id and time."""

    detail_type: str
    detail: dict[str, Any]
    source: str = "shiplap.functions"


class EventBus(Protocol):
    def publish(self, events: Sequence[BusEvent]) -> None:
        """Raises StoreError if an event is not accepted."""
        ...


class Timers(Protocol):
    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Make the lifecycle function visit a claim after the delay, at most LONGEST_DELAY_S."""
        ...


METRICS_NAMESPACE = "Shiplap"
"""CloudWatch's namespace of all metrics."""


INSTALL_DIMENSION = "install"
"""The dimension that every metric has: the install's name."""


class Meter(Protocol):
    """Counts and measures. Each name with its dimensions is a metric of its own, which costs by the hour."""

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """Add a value to a metric; beside the install, `dimensions` are at most cluster, pool and tier."""
        ...


class DeadLetters(Protocol):
    """Receives malformed messages at once, with the reason, instead of after all retries."""

    def send(self, body: str, reason: str) -> None:
        """Keep a malformed message unchanged. Raises StoreError."""
        ...
