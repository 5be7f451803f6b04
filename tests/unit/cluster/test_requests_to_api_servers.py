"""Tests the requests to an API server, the time to wait for an answer, and the error for each answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any, cast

import pytest
import urllib3
from urllib3.exceptions import ProtocolError

from shiplap.cluster import transport as transports
from shiplap.cluster.bounded_connections import left_s, time_limit
from shiplap.cluster.transport import StaticToken, Transport, error_of
from shiplap.errors import (
    AnswerTooLarge,
    ClusterDenied,
    ClusterError,
    ClusterUnreachable,
    ObjectConflict,
    ObjectNotFound,
    ResourceVersionGone,
    TooManyRequests,
)
from shiplap.kubernetes.request_bodies import eviction_body
from tests.builders.pods import pod


class Answer:
    """A response of urllib3 in pieces; one that is an exception breaks the stream."""

    def __init__(self, status: int = 200, *pieces: bytes | Exception) -> None:
        self.status, self.pieces = status, pieces
        self.closed = self.released = False

    def stream(self, *_: int, **__: bool) -> Iterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def close(self) -> None:
        self.closed = True

    def release_conn(self) -> None:
        self.released = True


class Pool:
    """Gives the answers in their order and notes what was asked."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    def request(self, method: str, url: str, **options: Any) -> Answer:
        self.asked.append({"method": method, "url": url, **options})
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Tokens:
    """Another token after each refusal."""

    def __init__(self) -> None:
        self.discarded = 0

    def token(self) -> str:
        return f"token-{self.discarded}"

    def discard(self) -> None:
        self.discarded += 1


def talk(*answers: Answer | Exception, **options: Any) -> tuple[Transport, Pool, list[float]]:
    pool, pauses = Pool(*answers), list[float]()
    token = options.pop("token", StaticToken("secret"))
    made = Transport(
        options.pop("endpoint", "https://c.example/base/"),
        token,
        pool=cast(urllib3.HTTPConnectionPool, pool),
        sleep=pauses.append,
        **options,
    )
    return made, pool, pauses


UNREACHABLE = ProtocolError("refused")


def test_a_read_says_what_it_accepts_and_who_asks() -> None:
    talks, pool, _ = talk(Answer(200, b"a", b"b"), headers=[("Impersonate-Group", "x"), ("Impersonate-Group", "y")])
    assert talks.get("/api", {"limit": 5}) == b"ab"
    (asked,) = pool.asked
    assert (asked["method"], asked["url"], asked["body"]) == ("GET", "/base/api?limit=5", None)
    assert (asked["retries"], asked["preload_content"]) == (False, False)
    headers = asked["headers"]
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("application/json", "gzip")
    assert headers["Authorization"] == "Bearer secret"
    assert headers.getlist("Impersonate-Group") == ["x", "y"]
    assert "Content-Type" not in headers
    assert (asked["timeout"].connect_timeout, asked["timeout"].read_timeout) == (3.0, 30.0)


def test_without_a_token_none_is_sent_and_without_a_query_no_question_mark() -> None:
    talks, pool, _ = talk(Answer(), token=StaticToken(""), endpoint="https://c.example")
    talks.get("/api")
    assert pool.asked[0]["url"] == "/api"
    assert "Authorization" not in pool.asked[0]["headers"]


@pytest.mark.parametrize(
    ("content_type", "said"), [({}, "application/json"), ({"content_type": "application/merge-patch+json"}, None)]
)
def test_a_write_says_what_it_holds(content_type: Mapping[str, str], said: str | None) -> None:
    talks, pool, _ = talk(Answer(201, b"{}"))
    assert talks.send("PATCH", "/api", {"a": 1}, **content_type) == b"{}"
    (asked,) = pool.asked
    assert (asked["method"], asked["body"]) == ("PATCH", b'{"a":1}')
    assert asked["headers"]["Content-Type"] == (said or "application/merge-patch+json")


@pytest.mark.parametrize(
    ("grace_s", "sent"), [(None, {}), (0, {"gracePeriodSeconds": 0}), (30, {"gracePeriodSeconds": 30})]
)
def test_an_eviction_has_the_grace_period_that_is_given_also_none_at_all(grace_s: int | None, sent: Any) -> None:
    options = eviction_body(pod("web"), grace_s)["deleteOptions"]
    assert options == {"preconditions": {"uid": "uid-web"}} | sent


def test_a_question_is_a_post() -> None:
    talks, pool, _ = talk(Answer(201, b"yes"))
    assert talks.ask("/reviews", {}) == b"yes"
    assert pool.asked[0]["method"] == "POST"


@pytest.mark.parametrize("failure", [UNREACHABLE, Answer(429), Answer(500), Answer(503)])
def test_a_failed_read_is_repeated_after_pauses(failure: Answer | Exception) -> None:
    talks, pool, pauses = talk(failure, failure, failure, Answer(200, b"there"))
    assert talks.get("/api") == b"there"
    assert pauses == [0.1, 0.5, 2.0]
    assert len(pool.asked) == 4


def test_a_read_that_fails_each_time_fails() -> None:
    talks, pool, pauses = talk(UNREACHABLE, UNREACHABLE, UNREACHABLE, back_off_s=(1.0, 4.0))
    with pytest.raises(ClusterUnreachable):
        talks.get("/api")
    assert (len(pool.asked), pauses) == (3, [1.0, 4.0])


@pytest.mark.parametrize("failure", [UNREACHABLE, Answer(503), Answer(429)])
def test_a_failed_write_is_never_repeated(failure: Answer | Exception) -> None:
    talks, pool, pauses = talk(failure)
    with pytest.raises((ClusterUnreachable, TooManyRequests)):
        talks.send("POST", "/api", {})
    assert (len(pool.asked), pauses) == (1, [])


def test_what_is_no_failure_of_the_way_is_not_repeated() -> None:
    talks, pool, _ = talk(Answer(404))
    with pytest.raises(ObjectNotFound):
        talks.get("/api")
    assert len(pool.asked) == 1


@pytest.mark.parametrize(("left", "pauses"), [(60.0, [0.5]), (60.1, [0.5, 60.0]), (0.4, [])])
def test_no_pause_outlasts_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, left: float, pauses: list[float]
) -> None:
    talks, _, slept = talk(UNREACHABLE, UNREACHABLE, UNREACHABLE, back_off_s=(0.5, 60.0))
    monkeypatch.setattr(transports, "left_s", lambda: left)
    with pytest.raises(ClusterUnreachable):
        talks.get("/api")
    assert slept == pauses


@pytest.mark.parametrize(
    ("left", "connect_s", "read_s"), [(2.0, 2.0, 2.0), (10.0, 3.0, 10.0), (60.0, 3.0, 30.0), (3.0, 3.0, 3.0)]
)
def test_a_request_waits_no_longer_than_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, left: float, connect_s: float, read_s: float
) -> None:
    talks, pool, _ = talk(Answer())
    monkeypatch.setattr(transports, "left_s", lambda: left)
    talks.get("/api")
    timeout = pool.asked[0]["timeout"]
    assert (timeout.connect_timeout, timeout.read_timeout) == (connect_s, read_s)


def test_an_inner_limit_ends_with_its_body_and_never_exceeds_the_outer_one() -> None:
    assert left_s() == inf
    with time_limit(1000.0):
        with time_limit(10.0):
            assert left_s() <= 10.0
        assert 10.0 < left_s() <= 1000.0
        with time_limit(5000.0):
            assert left_s() <= 1000.0
    assert left_s() == inf


def test_when_no_time_is_left_nothing_is_sent() -> None:
    talks, pool, _ = talk(Answer())
    with time_limit(0.0), pytest.raises(ClusterUnreachable, match="no time is left"):
        talks.send("POST", "/api", {})
    assert pool.asked == []


def test_an_answer_that_breaks_off_is_an_error() -> None:
    talks, _, _ = talk(Answer(200, b"a", ProtocolError("gone")), back_off_s=())
    with pytest.raises(ClusterUnreachable, match="broke off"):
        talks.get("/api")


def test_a_refused_token_is_replaced_once_and_the_first_answer_is_not_read() -> None:
    first, tokens = Answer(401, b"no"), Tokens()
    talks, pool, _ = talk(first, Answer(200, b"yes"), token=tokens)
    assert talks.get("/api") == b"yes"
    assert first.closed
    assert [asked["headers"]["Authorization"] for asked in pool.asked] == ["Bearer token-0", "Bearer token-1"]
    talks, pool, _ = talk(Answer(401), Answer(401), token=Tokens())
    with pytest.raises(ClusterDenied):
        talks.get("/api")
    assert len(pool.asked) == 2


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (300, ClusterError),
        (400, ClusterError),
        (401, ClusterDenied),
        (403, ClusterDenied),
        (404, ObjectNotFound),
        (409, ObjectConflict),
        (410, ResourceVersionGone),
        (422, ClusterError),
        (429, TooManyRequests),
        (499, ClusterError),
        (500, ClusterUnreachable),
        (504, ClusterUnreachable),
    ],
)
def test_each_status_is_an_error_of_its_kind(status: int, kind: type[ClusterError]) -> None:
    error = error_of(status, "why")
    assert (type(error), error.status, str(error)) == (kind, status, "why")
    body = json.dumps({"kind": "Status", "message": "because", "code": status}).encode()
    talks, _, _ = talk(Answer(status, body), Answer(status, body), back_off_s=())
    with pytest.raises(ClusterError, match=r"GET /api at .*: because") as told:
        talks.get("/api")
    assert (type(told.value), told.value.status) == (kind, status)


DEEP = b'{"more": ' + b"[" * 10_000 + b"]" * 10_000 + b"}"


@pytest.mark.parametrize("body", [b"", b"<html>", b'{"message": 1}', b"\xff", b"[" * 10_000, DEEP])
def test_an_error_of_something_in_between_is_told_by_its_status(body: bytes) -> None:
    talks, _, _ = talk(Answer(404, body))
    with pytest.raises(ObjectNotFound, match="status 404"):
        talks.get("/api")


@pytest.mark.parametrize(
    ("status", "causes", "late"),
    [
        (422, [{"field": "metadata.uid"}], True),
        (422, [{"field": "spec"}, {"field": "metadata.uid"}], True),
        (422, [{"field": "status.nominatedNodeName", "reason": "FieldValueForbidden"}], True),
        (422, [{"field": "status.nominatedNodeName", "reason": "FieldValueInvalid"}], False),
        (422, [{"field": "spec", "reason": "FieldValueForbidden"}], False),
        (422, [], False),
        (422, None, False),
        (400, [{"field": "metadata.uid"}], False),
    ],
)
def test_a_patch_that_came_too_late_is_a_conflict(
    status: int, causes: Sequence[Mapping[str, str]] | None, late: bool
) -> None:
    body = json.dumps({"message": "invalid", "details": {"causes": causes}}).encode()
    talks, _, _ = talk(Answer(status, body))
    with pytest.raises(ClusterError) as told:
        talks.send("PATCH", "/api", {})
    assert (type(told.value), told.value.status) == (ObjectConflict if late else ClusterError, status)


@pytest.mark.parametrize(
    ("kind", "error"), [("poddisruptionbudget", TooManyRequests), ("pods", ClusterDenied), (None, ClusterDenied)]
)
def test_a_budget_that_forbids_an_eviction_is_no_lack_of_a_permission(kind: str | None, error: type) -> None:
    """The eviction API says Forbidden of a budget whose status cannot be true."""
    body = json.dumps({"message": "forbidden", "details": {"group": "policy", "kind": kind}}).encode()
    talks, _, _ = talk(Answer(403, body))
    with pytest.raises(ClusterError) as told:
        talks.send("POST", "/api", {})
    assert (type(told.value), told.value.status) == (error, 403)


def test_an_error_without_details_is_none_that_came_too_late() -> None:
    talks, _, _ = talk(Answer(422, b'{"message": "invalid"}'))
    with pytest.raises(ClusterError) as told:
        talks.send("PATCH", "/api", {})
    assert type(told.value) is ClusterError


@pytest.mark.parametrize(("timeout_s", "silence_s"), [(10.0, 13.0), (117.0, 120.0), (300.0, 120.0)])
def test_a_watch_may_be_silent_as_long_as_it_lasts_and_two_minutes_at_most(timeout_s: float, silence_s: float) -> None:
    answer = Answer(200, b'{"a":1}\n\n{"b"', b":2}\n", b'{"c":3}\n{"cut')
    talks, pool, _ = talk(answer)
    assert list(talks.lines("/api", {"watch": "1"}, timeout_s)) == [b'{"a":1}', b'{"b":2}', b'{"c":3}']
    (asked,) = pool.asked
    assert asked["url"] == "/base/api?watch=1"
    assert (asked["timeout"].connect_timeout, asked["timeout"].read_timeout) == (3.0, silence_s)
    assert "Accept-Encoding" not in asked["headers"]
    assert answer.closed


def test_a_watch_that_breaks_or_is_left_early_closes_its_connection() -> None:
    broken = Answer(200, b"a\n", ProtocolError("gone"))
    talks, _, _ = talk(broken)
    with pytest.raises(ClusterUnreachable, match="watch of /api"):
        list(talks.lines("/api", {}, 5.0))
    assert broken.closed
    left = Answer(200, b"a\n", b"b\n")
    talks, _, _ = talk(left)
    lines = talks.lines("/api", {}, 5.0)
    assert next(lines) == b"a"
    cast(Any, lines).close()
    assert left.closed


def test_a_watch_that_is_refused_is_not_repeated() -> None:
    talks, pool, _ = talk(Answer(410))
    with pytest.raises(ResourceVersionGone):
        list(talks.lines("/api", {}, 5.0))
    assert len(pool.asked) == 1


def test_an_answer_that_is_too_large_is_not_read_to_its_end() -> None:
    answer = Answer(200, *[b"x" * 400] * 3)
    talks, pool, pauses = talk(answer, most_bytes=1000)
    with pytest.raises(AnswerTooLarge, match=r"c.example.* more than 1000 bytes"):
        talks.get("/api")
    assert answer.closed
    assert (len(pool.asked), pauses) == (1, [])  # it would be as large again
    talks, _, _ = talk(Answer(200, *[b"x" * 400] * 3), most_bytes=1200)
    assert len(talks.get("/api")) == 1200


def test_an_endless_error_is_an_error_by_its_status() -> None:
    answer = Answer(404, *[b"x" * 2**18] * 5)
    talks, _, _ = talk(answer)
    with pytest.raises(ObjectNotFound, match="status 404"):
        talks.get("/api")
    assert answer.closed


def test_a_line_of_a_watch_that_does_not_end_is_given_up() -> None:
    answer = Answer(200, b'{"a":1}\n{"b"', *[b"x" * 400] * 3, b"\n{}\n")
    talks, _, _ = talk(answer, most_bytes=1000)
    lines = talks.lines("/api", {}, 5.0)
    assert next(lines) == b'{"a":1}'
    with pytest.raises(AnswerTooLarge, match="a line has more than 1000 bytes"):
        next(lines)
    assert answer.closed


def test_many_short_lines_are_no_long_one() -> None:
    talks, _, _ = talk(Answer(200, *[b"x" * 300 + b"\n" + b"y" * 300 + b"\n"] * 9), most_bytes=1000)
    assert [len(line) for line in talks.lines("/api", {}, 5.0)] == [300] * 18
