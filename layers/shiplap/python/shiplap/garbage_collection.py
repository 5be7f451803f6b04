"""Pauses of Python's garbage collector, which looks through every object that it tracks, again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def garbage_collection_paused() -> Iterator[None]:
    """Within, cyclic garbage stays. For work that makes many objects and hardly any cycles, such as reading a list."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
