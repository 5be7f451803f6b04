"""Answers as real API servers send them: packed, and in chunks where their length is not known."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
import urllib3

from shiplap.cluster import bounded_connections
from shiplap.cluster import transport as transport_module
from shiplap.cluster.bounded_connections import time_limit
from shiplap.cluster.enter import context_transport
from shiplap.cluster.kubeconfig import Access
from shiplap.cluster.transport import StaticToken, Transport
from shiplap.errors import AnswerTooLarge, ClusterDenied, ClusterUnreachable

DOCUMENT = b'{"items": [' + b", ".join(b'{"number": %d}' % number for number in range(50_000)) + b"]}"


class _ApiServer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if "half" in self.path:
            self._stop_half_way()
            return
        body = gzip.compress(DOCUMENT) if "gzip" in self.path else DOCUMENT
        self.send_response(200)
        if "gzip" in self.path:
            self.send_header("Content-Encoding", "gzip")
        if "chunked" in self.path:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for start in range(0, len(body), 4096):
                part = body[start : start + 4096]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        else:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _stop_half_way(self) -> None:
        """Send a part of the headers, or half a body, and end there or wait until the client gives up."""
        status = {"/half-error": b"500 Not Well", "/half-refusal": b"401 Unauthorized"}
        status["/half-refusal-cut"] = status["/half-refusal"]
        head = b"HTTP/1.1 %s\r\nContent-Length: 600\r\n" % status.get(self.path, b"200 OK")
        self.wfile.write(head if self.path == "/half-headers" else head + b"\r\n" + b"x" * 300)
        if not self.path.endswith("-cut"):
            self.connection.recv(1)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Nothing is logged."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _ApiServer)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("path", ["/plain", "/gzip", "/chunked", "/gzip-chunked"])
def test_an_answer_is_read_whole_however_it_is_sent(address: str, path: str) -> None:
    with urllib3.connection_from_url(address) as pool:
        transport = Transport(address, StaticToken("t"), pool=pool, sleep=[].append)

        assert transport.get(path) == DOCUMENT


def test_what_little_time_is_left_is_used(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "left_s", lambda: 0.9)
    with urllib3.connection_from_url(address) as pool:
        assert Transport(address, StaticToken("t"), pool=pool, sleep=[].append).get("/plain") == DOCUMENT


def test_a_read_of_a_cluster_of_a_kubeconfig_is_repeated_for_a_second() -> None:
    """Someone waits before a terminal."""
    pauses: list[float] = []
    access = Access(context="c", server="http://127.0.0.1:1")
    made = context_transport(access, StaticToken("t"), client=None, sleep=pauses.append)
    with pytest.raises(ClusterUnreachable):
        made.get("/api")
    assert pauses == [0.2, 1.0]


def test_a_read_is_repeated_for_seconds_and_a_write_never() -> None:
    pauses: list[float] = []
    with urllib3.connection_from_url("http://127.0.0.1:1") as pool:
        transport = Transport("http://127.0.0.1:1", StaticToken("t"), pool=pool, sleep=pauses.append)
        with pytest.raises(ClusterUnreachable):
            transport.get("/api")
        assert pauses == [0.1, 0.5, 2.0]
        with pytest.raises(ClusterUnreachable):
            transport.send("POST", "/api", {})
    assert len(pauses) == 3


class _Ticking:
    """A clock on which each look at it takes ten seconds."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 10.0
        return self._now


@pytest.mark.parametrize("path", ["/half-headers", "/half-body", "/half-error", "/half-refusal"])
def test_an_answer_that_does_not_end_is_given_up_when_the_time_is(
    address: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The clock is at 40 s when the first bytes come and at 50 when more are waited for; the limit ends at 45."""
    monkeypatch.setattr(bounded_connections, "time", _Ticking())
    with urllib3.connection_from_url(address) as pool:
        transport = Transport(address, StaticToken("t"), pool=pool, sleep=[].append, back_off_s=())
        with time_limit(35.0), pytest.raises(ClusterUnreachable) as told:
            transport.get(path)
    assert (told.value.status, "500" in str(told.value)) == ((500, True) if path == "/half-error" else (0, False))


def test_what_unpacks_to_more_than_is_read_is_not_unpacked_to_its_end(address: str) -> None:
    with urllib3.connection_from_url(address) as pool:
        transport = Transport(address, StaticToken("t"), pool=pool, sleep=[].append, most_bytes=2**19)
        with pytest.raises(AnswerTooLarge):
            transport.get("/gzip")


@pytest.mark.parametrize(("path", "most_bytes"), [("/half-refusal-cut", 2**20), ("/plain", 1000)])
def test_an_answer_that_is_not_read_leaves_its_place_in_a_pool_that_blocks(
    address: str, path: str, most_bytes: int
) -> None:
    with urllib3.connection_from_url(address, maxsize=1, block=True) as pool:
        transport = Transport(
            address, StaticToken("t"), pool=pool, sleep=[].append, back_off_s=(), most_bytes=most_bytes
        )
        for _ in range(3):
            with pytest.raises((AnswerTooLarge, ClusterDenied)):
                transport.get(path)


def test_a_place_in_a_pool_is_waited_for_no_longer_than_the_time_that_is_left(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with urllib3.connection_from_url(address, maxsize=1, block=True) as pool:
        transport = Transport(address, StaticToken("t"), pool=pool, sleep=[].append, back_off_s=())
        held = pool.request("GET", "/plain", preload_content=False)
        monkeypatch.setattr(transport_module, "left_s", lambda: 0.01)
        with pytest.raises(ClusterUnreachable, match="Pool"):
            transport.get("/plain")
        held.close()
        held.release_conn()
        monkeypatch.undo()
        assert transport.get("/plain") == DOCUMENT
