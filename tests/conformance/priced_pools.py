"""NodePools whose annotations bound or improve prices."""

from __future__ import annotations

from typing import Any

import msgspec

from shiplap.manifests.custom_resources import NodePool
from tests.builders.pools import pool
from tests.conformance.catalogues import Z1, Z2

ON_DEMAND_ONLY = (("on-demand", Z1), ("on-demand", Z2))


def priced(name: str = "default", *rules: Any, weight: int = 0, **annotations: str) -> NodePool:
    """A pool with annotations of Shiplap's; underscores stand for dashes."""
    written = {f"shiplap.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    made = pool(name, *rules, weight=weight)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=written))
