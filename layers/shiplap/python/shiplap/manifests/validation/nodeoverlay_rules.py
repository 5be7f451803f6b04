"""What a NodeOverlay must satisfy beyond its shape.

Unlike Karpenter, `capacity` may name any resource, cpu, memory and pods included: it is the user's own correction of
what a node yields.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shiplap.kubernetes.labels import NODE_POOL
from shiplap.manifests import shiplap_annotations, tiers
from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.manifests.decoding import Path, Problem
from shiplap.manifests.validation import requirement_rules
from shiplap.manifests.validation.common_rules import absent, name_problems, quantity_problems, within

_REQUIREMENTS: Path = ("spec", "requirements")
_PRICE = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_ADJUSTMENT = re.compile(r"[+-][0-9]*\.?[0-9]+|\+[0-9]*\.?[0-9]+%|-[0-9]{1,2}(?:\.[0-9]+)?%|-100%", re.ASCII)


def problems_of(overlay: NodeOverlay, data: Mapping[str, Any]) -> Iterator[Problem]:
    """Every rule the overlay breaks. `data` is the overlay as it was written, where absent and zero differ."""
    yield from name_problems(overlay.metadata)
    yield from shiplap_annotations.unsupported(overlay.metadata.annotations, ("metadata", "annotations"))
    if absent(data, _REQUIREMENTS):
        yield _REQUIREMENTS, "required field is missing"
    if not absent(data, ("spec", "weight")):
        yield from within(overlay.spec.weight, 1, 10000, ("spec", "weight"))
    yield from quantity_problems(overlay.spec.capacity, ("spec", "capacity"))
    yield from _requirements(overlay)
    yield from _prices(overlay)


def _requirements(overlay: NodeOverlay) -> Iterator[Problem]:
    specs = overlay.spec.requirements
    yield from requirement_rules.list_problems(specs, _REQUIREMENTS, also_allowed=(NODE_POOL,))
    for number, spec in enumerate(specs):
        if spec.min_values is not None:
            yield (*_REQUIREMENTS, number, "minValues"), "an overlay takes no minValues"
        if spec.operator == "NotIn" and not spec.values:
            yield (*_REQUIREMENTS, number, "values"), "operator NotIn needs at least one value"
        if spec.operator == "In" and any(map(tiers.is_glob, spec.values)):
            yield (*_REQUIREMENTS, number, "values"), "an overlay takes no globs"


def _prices(overlay: NodeOverlay) -> Iterator[Problem]:
    price, adjustment = overlay.spec.price, overlay.spec.price_adjustment
    if price is not None and adjustment is not None:
        yield ("spec",), "price and priceAdjustment exclude each other"
    if price is not None and not _PRICE.fullmatch(price):
        yield ("spec", "price"), f"{price!r} is not a price: expected a decimal without sign, such as 0.42"
    if adjustment is not None and not _ADJUSTMENT.fullmatch(adjustment):
        reason = (
            f"{adjustment!r} is not an adjustment: expected a sign and a decimal or percentage, such as -10% or +0.1"
        )
        yield ("spec", "priceAdjustment"), reason
