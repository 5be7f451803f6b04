"""NodeOverlays: users' prices and resources of instance types, as one NodePool sees them.

The rules are Karpenter's, with one freedom more: `capacity` may name any resource, memory, CPU and pods included. An
overlay that conflicts with another of equal weight is dropped as a whole.

A NodePool's price rules come after them: discounts, and no offerings above a ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import msgspec
from msgspec.structs import replace

from shiplap.errors import InvalidInput
from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.instances.catalog.type_labels import OFFERING_LABELS, meets
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.quantity import CPU, MEMORY, parse_resources
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.manifests.custom_resources import NodeOverlay, NodePool
from shiplap.manifests.shiplap_annotations import PriceRules


def apply(types: Sequence[InstanceType], pool: NodePool, overlays: Sequence[NodeOverlay]) -> tuple[InstanceType, ...]:
    """The types with the overlays' prices and resources, as nodes of `pool` would have them; order is kept.

    Of several overlays the heaviest decides, for each offering's price and for each resource; adjustments start from
    the price that was given and do not add up.

    Raises:
        InvalidInput: an overlay's requirements, price or quantities cannot be read.
    """
    if not overlays:
        return tuple(types)
    changes = _Changes(types, pool)
    for overlay in ordered(overlays):
        changes.add(_ParsedOverlay(overlay))
    return tuple(changes.applied(kind) for kind in types)


def without_conflicts(
    seen_by: Iterable[tuple[NodePool, Sequence[InstanceType]]], overlays: Sequence[NodeOverlay]
) -> tuple[NodeOverlay, ...]:
    """The overlays that conflict in none of the pools: one that does in any is applied nowhere.

    Args:
        seen_by: each NodePool with the instance types of its EC2NodeClass.
        overlays: all of them.
    """
    rejected: set[str] = set()
    for pool, types in seen_by:
        changes = _Changes(types, pool)
        rejected.update(
            overlay.metadata.name for overlay in ordered(overlays) if not changes.add(_ParsedOverlay(overlay))
        )
    return tuple(overlay for overlay in overlays if overlay.metadata.name not in rejected)


def ordered(overlays: Iterable[NodeOverlay]) -> list[NodeOverlay]:
    """Heaviest first; of equal weight, the last name first, as upstream does."""
    by_name = sorted(overlays, key=lambda overlay: overlay.metadata.name, reverse=True)
    return sorted(by_name, key=lambda overlay: -overlay.spec.weight)


class _ParsedOverlay:
    """An overlay with its texts parsed."""

    def __init__(self, overlay: NodeOverlay) -> None:
        spec = overlay.spec
        self.weight = spec.weight
        self.adjustment = spec.price if spec.price is not None else spec.price_adjustment
        try:
            wanted = Requirements.of(spec.requirements)
            self.capacity = parse_resources(spec.capacity)
            if self.adjustment is not None:
                adjusted(1.0, self.adjustment)
        except ValueError as error:
            document = f"NodeOverlay/{overlay.metadata.name}"
            raise InvalidInput("NodeOverlay", str(error), document=document, field="spec") from error
        self.of_type = [rule for key, rule in wanted.items() if key not in OFFERING_LABELS]
        self.of_offering = [rule for key, rule in wanted.items() if key in OFFERING_LABELS]


class _Changes:
    """The changes of the overlays accepted so far, for one NodePool."""

    def __init__(self, types: Sequence[InstanceType], pool: NodePool) -> None:
        self._types = types
        known = {labels.NODE_POOL: label_value_of(pool.metadata.name), **pool.spec.template.metadata.labels}
        self._pool = {key: requirement(key, "In", (value,)) for key, value in known.items()}
        self._prices: dict[tuple[str, int], str] = {}
        self._capacity: dict[str, dict[str, int]] = {}
        self._touched: set[tuple[int, str, int | str]] = set()

    def add(self, overlay: _ParsedOverlay) -> bool:
        """Take an overlay in, unless one of equal weight changes something that it changes too; then False."""
        found = {kind.name: self._matching(kind, overlay) for kind in self._types}
        prices = [(name, index) for name, indexes in found.items() for index in indexes if overlay.adjustment]
        resources = [(name, resource) for name, indexes in found.items() if indexes for resource in overlay.capacity]
        touched: set[tuple[int, str, int | str]] = {(overlay.weight, *change) for change in prices}
        touched.update((overlay.weight, *change) for change in resources)
        if not touched.isdisjoint(self._touched):
            return False
        self._touched |= touched
        for change in prices:
            self._prices.setdefault(change, overlay.adjustment or "")
        for name, resource in resources:
            self._capacity.setdefault(name, {}).setdefault(resource, overlay.capacity[resource])
        return True

    def applied(self, kind: InstanceType) -> InstanceType:
        """The type with all accepted changes."""
        offerings = tuple(self._priced(kind.name, index, offering) for index, offering in enumerate(kind.offerings))
        capacity = self._capacity.get(kind.name)
        changed = kind if offerings == kind.offerings else msgspec.structs.replace(kind, offerings=offerings)
        return with_capacity(changed, capacity) if capacity else changed

    def _priced(self, name: str, index: int, offering: Offering) -> Offering:
        known = self._prices.get((name, index))
        if known is None:
            return offering
        price = adjusted(offering.price, known)
        absolute = known[:1] not in "+-"
        estimated = offering.price_estimated and not absolute
        return msgspec.structs.replace(offering, price=price, price_estimated=estimated, overlaid=True)

    def _matching(self, kind: InstanceType, overlay: _ParsedOverlay) -> list[int]:
        """Indexes of the type's offerings that the overlay is about."""
        name = requirement(labels.INSTANCE_TYPE, "In", (kind.name,))  # catalogues from files need not say it
        given = {name.key: name} | {rule.key: rule for rule in kind.requirements} | self._pool
        if not all(meets(rule, given.get(rule.key)) for rule in overlay.of_type):
            return []
        return [
            index
            for index, offering in enumerate(kind.offerings)
            if all(meets(rule, _label_of(offering, rule.key)) for rule in overlay.of_offering)
        ]


def adjusted(price: float, adjustment: str) -> float:
    """A price after `0.5` (absolute), `+0.1`, `-0.1`, `+10%` or `-10%`; never below 0. USD per hour.

    Raises:
        ValueError: the adjustment is none of these.
    """
    signed = adjustment[:1] in ("+", "-")
    percent = adjustment.endswith("%")
    digits = adjustment.removesuffix("%")
    number = digits[1:] if signed else digits
    if not number.replace(".", "", 1).isdecimal() or (percent and not signed):
        raise ValueError(f"{adjustment!r} is not a price or a signed adjustment such as +0.1 or -10%")
    if not signed:
        return float(number)
    value = float(digits)
    return max(0.0, price * (1 + value / 100) if percent else price + value)


def with_capacity(kind: InstanceType, capacity: Mapping[str, int]) -> InstanceType:
    """The type with some amounts replaced by those of a user; memory that a user states counts as verified.

    Of a learned amount and an override the smaller one counts: a kubelet of exactly this AMI, type and settings has
    reported it. An amount that few nodes have reported, some time ago, is what all but a pilot rely on.
    """
    amounts, kept = dict(kind.capacity), dict(kind.overhead)
    sources, careful, is_in_doubt = dict(kind.sources), dict(kind.careful), False
    for resource, wanted in sorted(capacity.items()):
        before = amounts.get(resource, 0)
        if sources.get(resource) == "learned" and before < wanted:
            continue
        amounts[resource] = wanted
        is_tried = sources.get(resource) == "reported" and before - kept.pop(resource, 0) < wanted
        sources[resource] = "override"
        if is_tried:
            careful[resource] = kind.allocatable[resource]
            is_in_doubt = True
        elif careful:
            careful[resource] = wanted
        fraction = kind.overhead_fraction.get(resource)
        if fraction:
            kept[resource] = max(kept.get(resource, 0) + ceil(fraction * (wanted - before)), 0)
    return msgspec.structs.replace(
        kind,
        capacity=amounts,
        overhead=kept,
        sources=sources,
        careful=careful,
        verified=(kind.verified or MEMORY in capacity) and not is_in_doubt,
    )


def _label_of(offering: Offering, key: str) -> Requirement | None:
    known = {
        labels.ZONE: offering.zone,
        labels.ZONE_ID: offering.zone_id,
        labels.CAPACITY_TYPE: offering.capacity_type,
        **offering.reservation_labels,
    }
    value = known.get(key)
    return requirement(key, "In", (value,)) if value else None


def with_price_rules(types: Sequence[InstanceType], rules: PriceRules) -> tuple[InstanceType, ...]:
    """The types with discounts taken off; offerings above a ceiling after that are not available. Order is kept.

    Ceilings with_price_rules to the price that is paid, so to discounted prices, those of NodeOverlays included.
    """
    if not rules.changes_types:
        return tuple(types)
    return tuple(
        replace(item, offerings=tuple(_priced(item, offering, rules) for offering in item.offerings)) for item in types
    )


def _priced(instance_type: InstanceType, offering: Offering, rules: PriceRules) -> Offering:
    discounts = {labels.ON_DEMAND: rules.on_demand_discount, labels.SPOT: rules.spot_discount}
    price = offering.price * (1 - discounts.get(offering.capacity_type, 0.0))
    v_cpus = instance_type.capacity.get(CPU, 0) / 1000
    dear = (rules.max_node_price is not None and price > rules.max_node_price) or (
        rules.max_vcpu_price is not None and price > rules.max_vcpu_price * v_cpus
    )
    return replace(offering, price=price, available=offering.available and not dear)
