"""Spreads what grows with the number of clusters over resources of limited size.

An item's place depends on the item alone, not on its neighbours, as in extendible hashing: a bucket that is full is
split in two by the next bit of its items' digests. So one cluster more or less changes the bucket it belongs to, and
nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence


def spread(items: Sequence[str], fits: Callable[[Sequence[str]], bool]) -> dict[str, tuple[str, ...]]:
    """Items by the name of their bucket, the bits that their digests begin with; no bucket is empty.

    `fits` says whether one bucket can hold these items. A single item that does not fit has a bucket of its own.
    """
    return dict(_split("", tuple(sorted(set(items))), fits))


def _split(
    prefix: str, items: tuple[str, ...], fits: Callable[[Sequence[str]], bool]
) -> list[tuple[str, tuple[str, ...]]]:
    if not items:
        return []
    if len(items) == 1 or fits(items):
        return [(prefix, items)]
    return [
        bucket
        for bit in "01"
        for bucket in _split(prefix + bit, tuple(item for item in items if _bits(item)[len(prefix)] == bit), fits)
    ]


def _bits(item: str) -> str:
    digest = hashlib.sha256(item.encode()).digest()
    return "".join(f"{byte:08b}" for byte in digest)
