"""Checks a NodeOverlay beyond its fields: by the rules of Karpenter's CRD, and by what makes it usable.

Unlike Karpenter, `capacity` in a file may name any resource, cpu, memory and pods included: it is the user's own
correction of what a node yields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.kubernetes.labels import AWS_PREFIX, NODE_POOL
from shiplap.manifests import shiplap_annotations, tiers
from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import requirement_rules
from shiplap.manifests.validation.common_rules import metadata_problems, quantity_problems

_REQUIREMENTS: Path = ("spec", "requirements")
_AWS_LABELS = frozenset(
    key
    for key in requirement_rules.AWS_LABELS
    if not key.startswith(tuple(AWS_PREFIX + name for name in ("capacity-reservation-", "placement-group-")))
) - {AWS_PREFIX + "instance-tenancy"}


def admission_problems(overlay: NodeOverlay, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems for which an API server refuses the overlay; but for `capacity`, which is wider here."""
    yield from metadata_problems(overlay.metadata)
    if overlay.spec.price is not None and overlay.spec.price_adjustment is not None:
        yield ("spec",), "price and priceAdjustment exclude each other"
    specs = overlay.spec.requirements
    yield from requirement_rules.admission_problems(specs, _REQUIREMENTS)
    for number, spec in enumerate(specs):
        if wrong := requirement_rules.reserved_label(spec.key, _AWS_LABELS, also_allowed=(NODE_POOL,)):
            yield (*_REQUIREMENTS, number, "key"), wrong
        if spec.min_values is not None:
            yield (*_REQUIREMENTS, number, "minValues"), "an overlay takes no minValues"
        if spec.operator == "NotIn" and not spec.values:
            yield (*_REQUIREMENTS, number, "values"), "operator NotIn needs at least one value"


def problems_of(overlay: NodeOverlay, _data: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the problems that make an overlay unusable although an API server accepts it."""
    yield from shiplap_annotations.unsupported(overlay.metadata.annotations, ("metadata", "annotations"))
    yield from quantity_problems(overlay.spec.capacity, ("spec", "capacity"))
    specs = overlay.spec.requirements
    yield from requirement_rules.list_problems(specs, _REQUIREMENTS, also_allowed=(NODE_POOL,))
    for number, spec in enumerate(specs):
        if spec.operator == "In" and any(map(tiers.is_glob, spec.values)):
            yield (*_REQUIREMENTS, number, "values"), "an overlay takes no globs"
