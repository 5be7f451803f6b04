"""Recent answers of AWS, kept for as long as they may be trusted, so that warm functions ask less."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class ExpiringCache(Generic[Value]):
    """Values by key, each for `lifetime_s` seconds of the given clock. Errors are not kept."""

    def __init__(self, lifetime_s: float, clock: Callable[[], float]) -> None:
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._known: dict[Hashable, tuple[float, Value]] = {}

    def get(self, key: Hashable, fetch: Callable[[], Value], lasts_s: Callable[[Value], float] | None = None) -> Value:
        """The value of a key, fetched when it is unknown or too old; `lasts_s` says of a value for how many seconds it
        may be trusted, where that is not the same for all.
        """
        now = self._clock()
        known = self._known.get(key)
        if known is None or now >= known[0]:
            value = fetch()
            known = (now + (self._lifetime_s if lasts_s is None else lasts_s(value)), value)
            self._known[key] = known
        return known[1]

    def clear(self) -> None:
        """Fetch everything again next time."""
        self._known.clear()

    def forget(self, key: Hashable) -> None:
        """Fetch a key again next time."""
        self._known.pop(key, None)
