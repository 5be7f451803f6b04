"""What an EC2NodeClass must satisfy beyond its shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.api.decoding import Problem
from shiplap.api.types import EC2NodeClass


def problems_of(node_class: EC2NodeClass, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule an EC2NodeClass breaks."""
    del node_class, data  # the rules follow
    yield from ()
