"""Lists of an API server that are too large, or do not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from shiplap.cluster.list_pages import list_pages
from shiplap.cluster.transport import Transport
from shiplap.errors import AnswerTooLarge, ClusterError, ResourceVersionGone
from shiplap.kubernetes.reading import Page

_SMALL, _HUGE = 100, 60_000


class Lists:
    """Serves objects of given sizes in pages, as an API server does; `most_bytes` as a transport's."""

    most_bytes = 100_000

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self.asked: list[dict[str, Any]] = []

    def get(self, path: str, query: dict[str, Any]) -> bytes:
        self.asked.append(query)
        start = int(query.get("continue", 0))
        end = start + query["limit"]
        if sum(self._sizes[start:end]) > self.most_bytes:
            raise AnswerTooLarge(f"{path} is too large")
        token = str(end) if end < len(self._sizes) else ""
        names = [str(number) for number in range(start, min(end, len(self._sizes)))]
        return msgspec.json.encode((names, token, "x" * sum(self._sizes[start:end])))


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
