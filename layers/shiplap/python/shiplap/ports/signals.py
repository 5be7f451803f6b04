"""Time, events, timers, metrics and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

LONGEST_DELAY_S = 900
"""The longest delay of a timer, in seconds: what SQS allows."""


class Clock(Protocol):
    """Time, so that nothing below the handlers reads a clock."""

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
        """Raises StoreError when any event was not accepted."""
        ...


class Timers(Protocol):
    def remind(self, cluster: str, claim: str, step: str, delay_s: int) -> None:
        """Have the lifecycle function look at a claim again after the delay, at most LONGEST_DELAY_S."""
        ...


METRICS_NAMESPACE = "Shiplap"
"""CloudWatch's namespace of all metrics."""


INSTALL_DIMENSION = "install"
"""The dimension that every metric has: the install's name."""


class Meter(Protocol):
    """Counts and measures. A name with other dimensions is a metric of its own, and each is paid for by the hour."""

    def count(
        self, name: str, value: float = 1.0, unit: str = "Count", *, dimensions: Mapping[str, str] | None = None
    ) -> None:
        """Add a value to a metric; `dimensions` are those it has beside the install's, at most cluster, pool, tier."""
        ...


class DeadLetters(Protocol):
    """Where messages go that nobody can read, at once and with the reason, instead of after every retry."""

    def send(self, body: str, reason: str) -> None:
        """Keep a malformed message as it came. Raises StoreError."""
        ...
