"""Connections whose answers end in time, however slowly a server sends them.

A read timeout bounds the wait for the next bytes only: a server that sends one byte a second keeps a caller for hours,
in headers and error bodies as in the rest. So a thread sets a time limit (`time_limit`), each answer inherits it, and
each read of the socket waits for what is left of it at most. Threads started by that thread have no limit.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPException, HTTPResponse
from math import inf
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection

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


def bound_answers(pool: urllib3.HTTPConnectionPool) -> None:
    """Have a new pool make connections whose answers end by the time limit under which they were asked for."""
    if isinstance(pool, urllib3.HTTPSConnectionPool):
        pool.ConnectionCls = _BoundedTlsConnection
    elif isinstance(pool, urllib3.HTTPConnectionPool):
        pool.ConnectionCls = _BoundedConnection


class _Until(io.RawIOBase):
    """The bytes of a socket until a moment of the monotonic clock. Raises TimeoutError afterwards."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, ends_at: float) -> None:
        super().__init__()
        self._raw, self._sock, self._ends_at = raw, sock, ends_at
        self._silence_s = sock.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._ends_at < inf:
            left = self._ends_at - time.monotonic()
            if left <= 0:
                raise TimeoutError("no time is left for the rest of the answer")
            self._sock.settimeout(left if self._silence_s is None else min(self._silence_s, left))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _BoundedResponse(HTTPResponse):
    """An answer, its status line and headers included, that ends by the time limit of the thread that asked."""

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        self.fp = io.BufferedReader(_Until(self.fp.detach(), sock, _ENDS_AT.get()))

    def _safe_read(self, amt: int) -> bytes:
        """Read a part of a chunk. One of size -1 would be read without a bound, and urllib3 takes the size as sent."""
        if amt < 0:
            raise HTTPException(f"a chunk has {amt} bytes")
        return super()._safe_read(amt)  # type: ignore[misc, no-any-return]


class _BoundedConnection(HTTPConnection):
    response_class = _BoundedResponse


class _BoundedTlsConnection(HTTPSConnection):
    response_class = _BoundedResponse
