"""Lists of an API server that are too large, or do not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from shiplap.cluster.list_pages import list_pages, page_bytes_of
from shiplap.cluster.transport import MOST_ANSWER_BYTES, Transport
from shiplap.errors import AnswerTooLarge, ClusterError, ResourceVersionGone
from shiplap.kubernetes.reading import Page

_SMALL, _HUGE = 100, 60_000


class Lists:
    """Serves objects of given sizes in pages, as an API server does; `most_bytes` as a transport's."""

    most_bytes = 100_000

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self.asked: list[dict[str, Any]] = []

    def get_one(self, path: str, query: dict[str, Any]) -> bytes:
        return self.get(path, query)

    def get(self, path: str, query: dict[str, Any]) -> bytes:
        self.asked.append(query)
        start = int(query.get("continue", 0))
        end = start + query["limit"]
        if sum(self._sizes[start:end]) > self.most_bytes:
            raise AnswerTooLarge(f"{path} is too large")
        token = str(end) if end < len(self._sizes) else ""
        names = [str(number) for number in range(start, min(end, len(self._sizes)))]
        return msgspec.json.encode((names, token, "x" * sum(self._sizes[start:end])))


class LeanLists(Lists):
    """Of a transport that reads larger objects, if they come alone."""

    most_bytes = 10_000

    def get_one(self, path: str, query: dict[str, Any]) -> bytes:
        assert query["limit"] == 1
        self.most_bytes = Lists.most_bytes
        try:
            return self.get(path, query)
        finally:
            self.most_bytes = LeanLists.most_bytes


def read(body: bytes) -> Page[str]:
    names, token, _ = msgspec.json.decode(body, type=tuple[list[str], str, str])
    return Page(tuple(names), "7", token)


def listed(server: Lists, reader: Callable[[bytes], Page[str]] = read, **query: str) -> list[str]:
    pages = list_pages(cast(Transport, server), reader, "/api/v1/pods", query, most_objects=500)
    return [name for page in pages for name in page.items]


def test_a_list_of_small_objects_takes_whole_pages() -> None:
    server = Lists([1] * 1200)
    assert listed(server, fieldSelector="a=b") == [str(number) for number in range(1200)]
    assert [query["limit"] for query in server.asked] == [500, 500, 500]
    assert all(query["fieldSelector"] == "a=b" for query in server.asked)


@pytest.mark.parametrize("sizes", [[_HUGE] * 5, [_SMALL] * 700 + [_HUGE] * 3 + [_SMALL] * 700, [_HUGE] + [1] * 900])
def test_a_page_that_is_too_large_is_asked_for_in_parts(sizes: list[int]) -> None:
    server = Lists(sizes)
    assert listed(server) == [str(number) for number in range(len(sizes))]
    assert max(query["limit"] for query in server.asked) == 500


def test_pages_grow_again_behind_large_objects() -> None:
    server = Lists([_HUGE] * 2 + [1] * 5000)
    listed(server)
    assert server.asked[-1]["limit"] == 500
    assert len(server.asked) < 40


def test_the_version_of_a_list_from_the_cache_is_left_out_where_pages_are_smaller() -> None:
    """A list of any version ignores the limit, so a smaller page would be as large."""
    server = Lists([_HUGE] * 2)
    listed(server, resourceVersion="0")
    assert ["resourceVersion" in query for query in server.asked] == [True, *[False] * (len(server.asked) - 1)]
    server = Lists([1] * 501)
    listed(server, resourceVersion="0")
    assert [query.get("resourceVersion") for query in server.asked] == ["0", None]


def test_an_object_that_is_larger_than_all_that_may_be_read_is_an_error() -> None:
    with pytest.raises(AnswerTooLarge):
        listed(Lists([1, 2 * Lists.most_bytes]))


def test_a_list_that_does_not_end_is_given_up() -> None:
    server = Lists([1])

    def endless(_: bytes) -> Page[str]:
        return Page((), "7", "0")

    with pytest.raises(ClusterError, match="/api/v1/pods: the list does not end after 20000 pages"):
        listed(server, endless)


def test_a_version_that_is_gone_is_the_callers_to_handle() -> None:
    class Gone(Lists):
        def get(self, path: str, query: dict[str, Any]) -> bytes:
            raise ResourceVersionGone(path, status=410)

    with pytest.raises(ResourceVersionGone):
        listed(Gone([1]))


def test_an_object_that_is_larger_than_a_page_comes_alone_and_those_after_it_in_pages() -> None:
    server = LeanLists([_SMALL] * 3 + [_HUGE] * 2 + [_SMALL] * 200)
    assert listed(server) == [str(number) for number in range(205)]
    assert max(query["limit"] for query in server.asked[-3:]) > 1


def test_an_object_that_is_too_large_even_alone_ends_the_list() -> None:
    with pytest.raises(AnswerTooLarge):
        listed(LeanLists([_SMALL, 2 * Lists.most_bytes]))


def test_pages_are_small_where_memory_is() -> None:
    assert page_bytes_of(128) == 4 * 2**20
    assert page_bytes_of(1769) == page_bytes_of(10_240) == MOST_ANSWER_BYTES
