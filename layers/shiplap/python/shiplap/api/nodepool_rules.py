"""What a NodePool must satisfy beyond its shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.api.decoding import Problem
from shiplap.api.types import NodePool


def problems_of(pool: NodePool, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule a NodePool breaks."""
    del pool, data  # the rules follow
    yield from ()
