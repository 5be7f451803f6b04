"""The hashes of version shiplap-1, which claims made before shiplap-2 carry until they are given new ones.

They distinguished an omitted default from the same default written out, so one manifest has several of them. This
module can be removed when no cluster has a node that was made with that version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from shiplap.manifests.custom_resources import EC2NodeClass, MetadataOptions, NodeClaimTemplateSpec, NodePool
from shiplap.manifests.template_hash import fields_of

FIRST_VERSION = "shiplap-1"

_LEFT_OUT = frozenset(
    {
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "amiSelectorTerms",
        "capacityReservationSelectorTerms",
        "placementGroupSelector",
        "amiFamily",
        "ipPrefixCount",
    }
)
_ABSENT: tuple[Any, ...] = ({}, [], "", None)
_ZERO: tuple[Any, ...] = (*_ABSENT, False)


def first_pool_hashes(pool: NodePool) -> frozenset[str]:
    """The hashes that claims of a NodePool may carry, whichever of its defaults were written out then."""
    template = msgspec.to_builtins(pool.spec.template)
    template["spec"].pop("requirements", None)
    defaults = {"expireAfter": _default_of(NodeClaimTemplateSpec, "expire_after")}
    return frozenset(
        _digest(_plain({**template, "spec": spec}, _ZERO)) for spec in _spellings(template["spec"], defaults)
    )


def first_node_class_hashes(node_class: EC2NodeClass, family: str) -> frozenset[str]:
    """The hashes that claims of an EC2NodeClass of an AMI family may carry."""
    spec = msgspec.to_builtins(node_class.spec)
    kept = {key: value for key, value in spec.items() if key not in _LEFT_OUT}
    if node_class.spec.connection_tracking is not None:  # was text then
        kept["connectionTracking"] = {name: f"{value}s" for name, value in kept["connectionTracking"].items()}
    defaults = {
        field.encode_name: field.default for field in fields_of(MetadataOptions) if isinstance(field.default, str)
    }
    options = _spellings(kept.get("metadataOptions", {}), defaults)
    return frozenset(_digest([_plain({**kept, "metadataOptions": said}, _ABSENT), family]) for said in options)


def _default_of(kind: type[msgspec.Struct], name: str) -> Any:
    return next(field.default for field in fields_of(kind) if field.name == name)


def _spellings(written: dict[str, Any], defaults: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A mapping as it is, without the defaults that it spells out, and with all of them."""
    yield written
    yield {key: value for key, value in written.items() if defaults.get(key) != value}
    yield {**defaults, **written}


def _plain(value: Any, absent: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(entry, absent) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry not in absent}
    if isinstance(value, (list, tuple)):
        plain = (_plain(entry, absent) for entry in value)
        return sorted(plain, key=lambda entry: msgspec.json.encode(entry, order="sorted"))
    return value


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
