"""The digests by which a NodeClaim remembers what it was made from, so that a later change shows as drift."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import msgspec

from shiplap.kubernetes.lenient_json import without_nulls
from shiplap.kubernetes.quantity import parse_quantity
from shiplap.manifests.custom_resources import (
    BlockDevice,
    EC2NodeClass,
    EC2NodeClassSpec,
    MetadataOptions,
    NodeClaimTemplateSpec,
    NodePool,
    NodePoolTemplate,
)
from shiplap.manifests.times import seconds_or_never

POOL_HASH = "karpenter.sh/nodepool-hash"
POOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
NODE_CLASS_HASH = "karpenter.k8s.aws/ec2nodeclass-hash"
NODE_CLASS_HASH_VERSION = "karpenter.k8s.aws/ec2nodeclass-hash-version"
HASH_VERSION = "shiplap-2"
"""Changes with what the hashes cover or how, and with every default; FIRST_VERSION is the one before."""

_SELECTORS = frozenset(
    {
        "subnet_selector_terms",
        "security_group_selector_terms",
        "ami_selector_terms",
        "capacity_reservation_selector_terms",
        "placement_group_selector",
    }
)
"""Selectors are compared by the resources they select, not by how they are written."""

_LEFT_OUT: dict[type, frozenset[str]] = {
    NodeClaimTemplateSpec: frozenset({"requirements"}),
    EC2NodeClassSpec: _SELECTORS | {"ami_family", "kubelet", "ip_prefix_count"},
}
_BY_VALUE: dict[tuple[type, str], Callable[[str], Any]] = {
    (NodeClaimTemplateSpec, "expire_after"): seconds_or_never,
    (NodeClaimTemplateSpec, "termination_grace_period"): seconds_or_never,
    (BlockDevice, "volume_size"): lambda text: int(parse_quantity(text)),
}
"""Fields of which one value has several spellings."""

_MOST = 64
"""Hashes that are remembered: each decision asks for those of its manifests."""


def pool_hash(pool: NodePool) -> str:
    """A digest of what a valid NodePool's template puts on its nodes: all but `requirements`; lists count as sets.

    Defaults count like anything written: a field set to its default, in whatever spelling, makes no other node.
    """
    return _template_hash(msgspec.msgpack.encode(pool.spec.template))


@lru_cache(maxsize=_MOST)
def _template_hash(encoded: bytes) -> str:
    return _digest(_plain(msgspec.msgpack.decode(encoded, type=NodePoolTemplate)))


def node_class_hash(node_class: EC2NodeClass, family: str, ca: str = "") -> str:
    """A digest of what a valid EC2NodeClass puts on its nodes, whatever its selectors answer; defaults as above.

    The kubelet map counts as written, in the order of its lists, for the first address of `clusterDNS` is the one used.
    The cluster's certificate authority has a digest of its own, so that one that is unknown is no difference.

    Args:
        node_class: with its user data.
        family: its AMI family, written or named by an alias.
        ca: the certificate authority that user data names, base64; empty when it is not known.
    """
    spec = _spec_hash(msgspec.msgpack.encode(node_class.spec), family)
    return f"{spec}.{_digest(ca)[:8]}" if ca else spec


@lru_cache(maxsize=_MOST)
def _spec_hash(encoded: bytes, family: str) -> str:
    spec = msgspec.msgpack.decode(encoded, type=EC2NodeClassSpec)
    return _digest([_plain(spec), family, without_nulls(spec.kubelet)])


def differ(remembered: str, wanted: str) -> bool:
    """True if two hashes of one version mean different nodes.

    A hash of the cluster's CA that only one side has is no difference.
    """
    spec, _, ca = remembered.partition(".")
    wanted_spec, _, wanted_ca = wanted.partition(".")
    return spec != wanted_spec or bool(ca and wanted_ca and ca != wanted_ca)


def marks_of(pool: NodePool) -> dict[str, str]:
    """The annotations that a claim of this pool is born with."""
    return {POOL_HASH: pool_hash(pool), POOL_HASH_VERSION: HASH_VERSION}


@cache
def fields_of(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a class; msgspec computes them again every time, and leaves garbage behind."""
    return msgspec.structs.fields(kind)


def _plain(value: Any) -> Any:
    """Fields by name with their defaults, those without a value left out, and lists as sets.

    What users name themselves, such as a label, stays although it is empty.
    """
    if isinstance(value, msgspec.Struct):
        fields = fields_of(type(value))
        left_out = _LEFT_OUT.get(type(value), ())
        said = {field.encode_name: _field(value, field) for field in fields if field.name not in left_out}
        return {name: entry for name, entry in said.items() if entry is not None and entry not in ("", [], {})}
    if isinstance(value, Mapping):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return sorted(map(_plain, value), key=lambda entry: msgspec.json.encode(entry, order="sorted"))
    return value


def _field(of: msgspec.Struct, field: msgspec.structs.FieldInfo) -> Any:
    value = getattr(of, field.name)
    if value is not None and (read := _BY_VALUE.get((type(of), field.name))):
        return read(value)
    # Zero and false of fields that have no other default are what they are when nothing is written.
    return None if not value and value == field.default else _plain(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]


FIRST_VERSION = "shiplap-1"
"""Claims made before shiplap-2 carry hashes of it until they are given new ones. They distinguished an omitted default
from the same default written out, so one manifest has several. All from here on can go with the last such node."""

_FIRST_LEFT_OUT = frozenset(
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
        _digest(_first_plain({**template, "spec": spec}, _ZERO)) for spec in _spellings(template["spec"], defaults)
    )


def first_node_class_hashes(node_class: EC2NodeClass, family: str) -> frozenset[str]:
    """The hashes that claims of an EC2NodeClass of an AMI family may carry."""
    spec = msgspec.to_builtins(node_class.spec)
    kept = {key: value for key, value in spec.items() if key not in _FIRST_LEFT_OUT}
    if node_class.spec.connection_tracking is not None:  # was text then
        kept["connectionTracking"] = {name: f"{value}s" for name, value in kept["connectionTracking"].items()}
    defaults = {
        field.encode_name: field.default for field in fields_of(MetadataOptions) if isinstance(field.default, str)
    }
    options = _spellings(kept.get("metadataOptions", {}), defaults)
    return frozenset(_digest([_first_plain({**kept, "metadataOptions": said}, _ABSENT), family]) for said in options)


def _default_of(kind: type[msgspec.Struct], name: str) -> Any:
    return next(field.default for field in fields_of(kind) if field.name == name)


def _spellings(written: dict[str, Any], defaults: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A mapping as it is, without the defaults that it spells out, and with all of them."""
    yield written
    yield {key: value for key, value in written.items() if defaults.get(key) != value}
    yield {**defaults, **written}


def _first_plain(value: Any, absent: tuple[Any, ...]) -> Any:
    if isinstance(value, dict):
        kept = {key: _first_plain(entry, absent) for key, entry in value.items()}
        return {key: entry for key, entry in kept.items() if entry not in absent}
    if isinstance(value, (list, tuple)):
        plain = (_first_plain(entry, absent) for entry in value)
        return sorted(plain, key=lambda entry: msgspec.json.encode(entry, order="sorted"))
    return value
