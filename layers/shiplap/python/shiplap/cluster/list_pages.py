"""Lists of an API server, page by page, however large its objects are and whatever it says of a next page.

An object may have 1.5 MiB, so a page of 500 may have 750: too much for a function. A page that is larger than the
transport reads is asked for again with an eighth of its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import msgspec

from shiplap.cluster.transport import MOST_ANSWER_BYTES, Transport
from shiplap.errors import AnswerTooLarge, ClusterError
from shiplap.kubernetes.reading import Page, Reader

Item = TypeVar("Item")

_MOST_PAGES = 20_000
"""The most pages of one list: ten million objects in pages of 500, ten times the pods of EKS's largest cluster."""

_SHRINKS_BY = 8
_GROWS_BELOW = 8
"""A page that holds less than this part of what may be read is followed by one of twice its size."""


_PART_OF_MEMORY = 32
"""A function with 128 MiB reads pages of 4 MiB: three lists at once hold theirs twice while they decode them."""


def page_bytes_of(memory_mib: int) -> int:
    """The most that a page of several objects may hold in a function of so much memory."""
    return min(MOST_ANSWER_BYTES, memory_mib * 2**20 // _PART_OF_MEMORY)


def read_page(reader: Reader[Item], body: bytes, path: str) -> Page[Item]:
    """A page of the list of this path. Raises ClusterError for what no API server sends."""
    try:
        return reader.page(body)
    except msgspec.DecodeError as error:
        raise ClusterError(f"{path}: the answer is not what an API server sends: {error}") from error


def list_pages(
    transport: Transport,
    read: Callable[[bytes], Page[Item]],
    path: str,
    query: Mapping[str, str | int],
    *,
    most_objects: int,
) -> Iterator[Page[Item]]:
    """The pages of a list, of `most_objects` each or fewer. `read` decodes one and raises ClusterError.

    Raises:
        ResourceVersionGone: the server forgot the list half way; list again.
        AnswerTooLarge: a single object is larger than what the transport reads.
        ClusterError: or one of its kinds, by the status; also where the list does not end.
    """
    asked = dict(query)
    size, is_alone = most_objects, False
    for _ in range(_MOST_PAGES):
        get = transport.get_one if is_alone else transport.get
        try:
            body = get(path, {**asked, "limit": size})
        except AnswerTooLarge:
            if is_alone:
                raise
            is_alone = size == 1
            size = max(1, size // _SHRINKS_BY)
            asked.pop("resourceVersion", None)  # a list of any version ignores the limit
            continue
        is_alone = False
        page = read(body)
        yield page
        if not page.token:
            return
        asked.pop("resourceVersion", None)  # the token says it
        asked["continue"] = page.token
        if len(body) * _GROWS_BELOW < transport.most_bytes:
            size = min(most_objects, 2 * size)
    raise ClusterError(f"{path}: the list does not end after {_MOST_PAGES} pages")
