"""The events of a run, one line each: two runs are the same when their traces are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

_KEPT = 200_000
"""Lines kept for reading; the hash covers all of them."""


class Trace:
    """Lines of JSON. `digest` stands for all of them."""

    def __init__(self, now: Callable[[], float], start: float) -> None:
        self.lines: list[bytes] = []
        self.count = 0
        self._now = now
        self._start = start
        self._hash = hashlib.sha256()

    def record(self, what: str, **facts: Any) -> None:
        """Add a line; `t` in it is seconds since the start."""
        line = msgspec.json.encode({"t": round(self._now() - self._start, 3), "what": what, **facts})
        self._hash.update(line + b"\n")
        self.count += 1
        if len(self.lines) < _KEPT:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far."""
        return self._hash.hexdigest()
