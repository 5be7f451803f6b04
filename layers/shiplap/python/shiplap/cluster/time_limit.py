"""For how long requests to an API server may still last: a limit on the thread that serves a cluster.

A server that accepts connections and never answers must not keep an invocation from the other clusters. Whoever serves
a cluster sets the limit; every request below it ends by then. Threads begun below it have none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf

_ENDS_AT: ContextVar[float] = ContextVar("ends_at", default=inf)  # of the monotonic clock


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Requests of the body end within so many seconds, or sooner where an outer limit says so."""
    before = _ENDS_AT.set(min(_ENDS_AT.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS_AT.reset(before)


def left_s() -> float:
    """Seconds left to the calling thread, infinite without a limit; not positive when there are none."""
    return _ENDS_AT.get() - time.monotonic()
