"""What a NodeOverlay must satisfy beyond its shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.api.decoding import Problem
from shiplap.api.types import NodeOverlay


def problems_of(overlay: NodeOverlay, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule a NodeOverlay breaks."""
    del overlay, data  # the rules follow
    yield from ()
