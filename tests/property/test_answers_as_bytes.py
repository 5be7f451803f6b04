"""Answers of an API server as bytes on a socket: whatever they are and however slowly they come, a request ends.

The clock is virtual: a socket that waits moves it, and no test does.
"""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
import urllib3
from hypothesis import given

from shiplap.cluster import bounded_connections
from shiplap.cluster.bounded_connections import time_limit
from shiplap.cluster.transport import StaticToken, Transport
from shiplap.errors import ClusterError
from tests.odd_input import INPUTS_OF_A_SEED, SEEDS, fuzzed

MOST_BYTES = 50_000
LONGEST_S = 60.0
"""What a request may take, but for the last wait for a byte."""

_DECODED_AT_ONCE = 2**18 + 2**16
_MOST_OF_AN_ERROR = 2**20


class Clock:
    """A monotonic clock that waiting moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Piece(msgspec.Struct, frozen=True):
    """Bytes that come after a silence of so many seconds, so many times."""

    data: bytes
    silence_s: float = 0.0
    times: int = 1


class Socket:
    """Answers with pieces, whatever is sent to it; `read_bytes` were taken."""

    def __init__(self, clock: Clock, pieces: list[Piece]) -> None:
        self._clock = clock
        self._timeout_s: float | None = None
        self._coming = _each(pieces)
        self._rest = b""
        self.read_bytes = 0

    def read_into(self, buffer: Any) -> int:
        if not self._rest:
            silence_s, self._rest = next(self._coming, (0.0, b""))
            if self._timeout_s is not None and silence_s > self._timeout_s:
                self._clock.now_s += self._timeout_s
                raise TimeoutError("timed out")
            self._clock.now_s += silence_s
        given, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(given)] = given
        self.read_bytes += len(given)
        return len(given)

    def makefile(self, *_: Any, **__: Any) -> io.BufferedReader:
        return io.BufferedReader(_File(self))

    def close(self) -> None:
        """Its file stays open, as with sockets."""

    def settimeout(self, seconds: float | None) -> None:
        self._timeout_s = seconds

    def gettimeout(self) -> float | None:
        return self._timeout_s

    def sendall(self, data: Any) -> None:
        del data

    def setsockopt(self, *_: Any) -> None:
        """None is known here."""

    def shutdown(self, how: int) -> None:
        del how


class _File(io.RawIOBase):
    def __init__(self, sock: Socket) -> None:
        super().__init__()
        self._sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._sock.read_into(buffer)


def _each(pieces: list[Piece]) -> Iterator[tuple[float, bytes]]:
    for piece in pieces:
        for _ in range(piece.times):
            if piece.data:
                yield piece.silence_s, piece.data


def asked(pieces: list[Piece], clock: Clock, *, watch: bool = False) -> tuple[bytes | None, Socket]:
    """Return a GET's answer, None for a ClusterError, and the socket. A watch's lines are joined."""
    sock = Socket(clock, pieces)

    class Connection(bounded_connections._BoundedConnection):
        def connect(self) -> None:
            sock.settimeout(self.timeout)
            self.sock = sock

    pool = urllib3.HTTPConnectionPool("api.example", maxsize=1)
    talks = Transport(
        "http://api.example",
        StaticToken("t"),
        pool=pool,
        sleep=lambda _: None,
        back_off_s=(),
        most_bytes=MOST_BYTES,
    )
    pool.ConnectionCls = Connection
    try:
        with time_limit(LONGEST_S):
            if watch:
                return b"\n".join(talks.lines("/api", {"watch": 1}, 30.0)), sock
            return talks.get("/api"), sock
    except ClusterError:
        return None, sock


HEADS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n",
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n",
    b"HTTP/1.1 401 Unauthorized\r\n\r\n",
    b"HTTP/1.1 410 Gone\r\n\r\n",
    b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200 + b"\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
    b"HTTP/1.1 2e9 OK\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"\x16\x03\x01\x00\x01",
    b"",
]


def chunked(body: bytes, sizes: list[int]) -> bytes:
    found, at = [], 0
    for size in [*sizes, len(body)]:
        part = body[at : at + max(size, 1)]
        at += len(part)
        if part:
            found.append(b"%x\r\n%s\r\n" % (len(part), part))
    return b"".join(found) + b"0\r\n\r\n"


def in_pieces(whole: bytes, cuts: list[int]) -> list[Piece]:
    places = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    return [Piece(whole[start:end], 0.01) for start, end in pairwise(places)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(bounded_connections, "time", made)
    return made


def answered(body: bytes, packing: str, sizes: list[int]) -> bytes:
    encoding = {"gzip": b"Content-Encoding: gzip\r\n", "deflate": b"Content-Encoding: deflate\r\n"}.get(packing, b"")
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}.get(packing, bytes)(body)
    if sizes:
        return b"HTTP/1.1 200 OK\r\n" + encoding + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(packed, sizes)
    return b"HTTP/1.1 200 OK\r\n" + encoding + b"Content-Length: %d\r\n\r\n" % len(packed) + packed


BODIES = (b'{"items":[]}' * 500, b"", b"x" * MOST_BYTES)


@fuzzed(0.4 / INPUTS_OF_A_SEED, usual=2)
@given(SEEDS)
def test_a_sound_answer_is_read_however_it_is_cut_and_packed(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - input
    with pytest.MonkeyPatch.context() as patched:
        for _ in range(INPUTS_OF_A_SEED):
            made = Clock()
            patched.setattr(bounded_connections, "time", made)
            body = draw.choice((*BODIES, *[draw.randbytes(draw.randint(0, 300))] * 6))
            sizes = [draw.randint(1, 400) for _ in range(draw.randint(0, 4))]
            whole = answered(body, draw.choice(("", "gzip", "deflate")), sizes)
            pieces = in_pieces(whole, [draw.randrange(2**31) for _ in range(draw.randint(0, 8))])
            found, _ = asked(pieces, made)
            assert found == body, pieces


ODD_BYTES = (
    *HEADS,
    b"ffffffff\r\n",
    b"-5\r\nxxxxx\r\n",
    b"-1\r\n",
    b"5\r\nxxxxx\r\n",
    b"0\r\n\r\n",
    b"\n" * 50,
    b"x" * 5_000,
    gzip.compress(bytes(3_000_000)),
    gzip.compress(b"x" * 90)[:-9],
)
ODD_HEADS = (*HEADS, answered(b"x" * 90, "gzip", []), answered(b"{}", "", [1, 1]))
SMALL = b"0123456789abcdef-;\r\n: x"


def odd_piece(draw: Random) -> Piece:
    some = draw.randbytes(draw.randint(0, 40))
    small = bytes(draw.choices(SMALL, k=draw.randint(0, 8)))
    data = draw.choice((some, small, small + b"\r\n" + some, *[draw.choice(ODD_BYTES)] * 3))
    return Piece(data, draw.choice((0.0, 0.0, 0.1, 5.0, 29.0, 31.0, 200.0)), draw.choice((1, 1, 1, 3, 400)))


@fuzzed(0.6 / INPUTS_OF_A_SEED, usual=4)
@given(SEEDS)
def test_any_answer_ends_in_time_and_is_held_in_part_at_most(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - input
    with pytest.MonkeyPatch.context() as patched:
        for _ in range(INPUTS_OF_A_SEED):
            made = Clock()
            patched.setattr(bounded_connections, "time", made)
            head, watch = draw.choice(ODD_HEADS), draw.random() < 0.5
            head = head % draw.randrange(9_000) if b"%d" in head else head
            head = head[: draw.randint(0, len(head))] if draw.random() < 0.2 else head
            pieces = [Piece(head), *(odd_piece(draw) for _ in range(draw.randint(0, 6)))]
            found, sock = asked(pieces, made, watch=watch)
            assert made.now_s - 1000.0 <= LONGEST_S + 0.001, pieces
            assert found is None or watch or len(found) <= MOST_BYTES, pieces
            assert watch or sock.read_bytes <= max(MOST_BYTES, _MOST_OF_AN_ERROR) + _DECODED_AT_ONCE, pieces


def test_an_answer_without_end_is_left(clock: Clock) -> None:
    """As many bytes are taken as an answer may have, and a buffer more; dripped ones until the time is over."""
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    found, sock = asked([Piece(head), Piece(b"x" * 1000, times=10**9)], clock)
    assert found is None
    assert sock.read_bytes <= MOST_BYTES + _DECODED_AT_ONCE
    for dripped in (head[:5], head, b"HTTP/1.1 503 Busy\r\n\r\n", b"HTTP/1.1 401 No\r\n\r\n"):
        began_s = clock.now_s
        found, sock = asked([Piece(dripped), Piece(b"x", 1.0, 10**9)], clock)
        assert found is None
        assert clock.now_s - began_s <= LONGEST_S + 0.001


@pytest.mark.parametrize("watch", [False, True])
@pytest.mark.parametrize("size", [b"-1", b"-2", b"-ffffffff"])
def test_a_chunk_of_a_negative_size_ends_the_answer(clock: Clock, size: bytes, watch: bool) -> None:
    """-1 means to read to the end, without a bound."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n"
    found, sock = asked([Piece(head), Piece(b"x" * 1000, times=10**4)], clock, watch=watch)
    assert found is None
    assert sock.read_bytes <= _DECODED_AT_ONCE


def test_a_bomb_is_not_unpacked(clock: Clock) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    tracemalloc.start()
    try:
        found, _ = asked([Piece(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + bomb)], clock)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is None
    assert peak_bytes < 10_000_000
