"""The digest by which a NodeClaim remembers the template it was made from, so that a later change shows as drift."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from shiplap.api.types import NodePool

POOL_HASH = "karpenter.sh/nodepool-hash"
POOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
HASH_VERSION = "shiplap-1"
"""Changes with what `pool_hash` covers or how; claims of another version never count as drifted by it."""


def pool_hash(pool: NodePool) -> str:
    """A digest of what a NodePool's template puts on its nodes: all of it but `requirements`; lists count as sets."""
    template = msgspec.to_builtins(pool.spec.template)
    template["spec"].pop("requirements", None)
    encoded = msgspec.json.encode(_plain(template), order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[:16]


def marks_of(pool: NodePool) -> dict[str, str]:
    """The annotations that a claim of this pool is born with."""
    return {POOL_HASH: pool_hash(pool), POOL_HASH_VERSION: HASH_VERSION}


def _plain(value: Any) -> Any:
    """Lists as sets, and zero values as absent: writing a default out changes no node."""
    if isinstance(value, dict):
        kept = {key: _plain(entry) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry not in ({}, [], "", None, False)}
    if isinstance(value, (list, tuple)):
        return sorted((_plain(entry) for entry in value), key=lambda entry: msgspec.json.encode(entry, order="sorted"))
    return value
