"""The digests by which a NodeClaim remembers what it was made from, so that a later change shows as drift."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from shiplap.api.types import EC2NodeClass, NodePool

POOL_HASH = "karpenter.sh/nodepool-hash"
POOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
NODE_CLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
NODE_CLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
HASH_VERSION = "shiplap-1"
"""Changes with what the hashes cover or how; claims of another version never count as drifted by them."""

_SELECTED = frozenset(
    {
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "amiSelectorTerms",
        "capacityReservationSelectorTerms",
        "placementGroupSelector",
        "amiFamily",
    }
)
"""What is compared by what it selects, not by how that is written."""
_DENSITY_ONLY = frozenset({"ipPrefixCount"})


def pool_hash(pool: NodePool) -> str:
    """A digest of what a NodePool's template puts on its nodes: all of it but `requirements`; lists count as sets."""
    template = msgspec.to_builtins(pool.spec.template)
    template["spec"].pop("requirements", None)
    return _digest(_plain(template, _ZERO))


def node_class_hash(node_class: EC2NodeClass, family: str) -> str:
    """A digest of what an EC2NodeClass puts on its nodes, whatever its selectors answer; lists count as sets.

    Args:
        node_class: with its user data.
        family: its AMI family, written or named by an alias.
    """
    spec = msgspec.to_builtins(node_class.spec)
    kept = {key: value for key, value in spec.items() if key not in _SELECTED | _DENSITY_ONLY}
    return _digest([_plain(kept, _ABSENT), family])


def marks_of(pool: NodePool) -> dict[str, str]:
    """The annotations that a claim of this pool is born with."""
    return {POOL_HASH: pool_hash(pool), POOL_HASH_VERSION: HASH_VERSION}


_ABSENT: tuple[Any, ...] = ({}, [], "", None)
_ZERO: tuple[Any, ...] = (*_ABSENT, False)


def _plain(value: Any, absent: tuple[Any, ...]) -> Any:
    """Lists as sets, and some values as absent: writing a default out changes no node."""
    if isinstance(value, dict):
        kept = {key: _plain(entry, absent) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry not in absent}
    if isinstance(value, (list, tuple)):
        plain = (_plain(entry, absent) for entry in value)
        return sorted(plain, key=lambda entry: msgspec.json.encode(entry, order="sorted"))
    return value


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
