"""The moment and the claims of captured pictures."""

from __future__ import annotations

from tests.builders.claims import node_claim

NOW = 1_750_000_000.0


GIB = 2**30


CLAIM = node_claim(name="c", cluster="c", node_pool="web")
