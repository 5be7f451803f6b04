"""Shades of a page, as a browser computes them."""

from __future__ import annotations

import zlib


def shades(png: bytes) -> int:
    """Return the number of different bytes in the pixels of a PNG; a blank page has a handful."""
    data, place = b"", 8
    while place < len(png):
        length = int.from_bytes(png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    return len(set(zlib.decompress(data)))
