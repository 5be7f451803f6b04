"""Instance types as NodeOverlays change them, for judges of plans: it shares no code with the planner."""

from __future__ import annotations

from msgspec.structs import replace

from shiplap.instances.catalog.type_catalog import InstanceType, Offering
from shiplap.manifests.custom_resources import NodeOverlay
from shiplap.scheduling.model.snapshot import Snapshot
from tests.rules import TYPE, amount, meets


def overlaid(snapshot: Snapshot) -> Snapshot:
    """The snapshot with the prices and capacity of its overlays in its catalogues, and without the overlays."""
    overlays = snapshot.manifests.node_overlays
    if not overlays:
        return snapshot
    catalogs = tuple(
        replace(catalog, instance_types=tuple(_with_overlays(item, overlays) for item in catalog.instance_types))
        for catalog in snapshot.catalogs
    )
    return replace(snapshot, catalogs=catalogs, manifests=replace(snapshot.manifests, node_overlays=()))


def _with_overlays(item: InstanceType, overlays: tuple[NodeOverlay, ...]) -> InstanceType:
    labels = {rule.key: next(iter(rule.values)) for rule in item.requirements if len(rule.values) == 1}
    labels[TYPE] = item.name
    for overlay in overlays:
        if meets(labels, [overlay.spec.requirements]):
            more = {name: amount(name, text) for name, text in overlay.spec.capacity.items()}
            offerings = tuple(_repriced(offer, overlay.spec.price_adjustment) for offer in item.offerings)
            item = replace(item, capacity=item.capacity | more, offerings=offerings)
    return item


def _repriced(offer: Offering, adjustment: str | None) -> Offering:
    """The offering with a price changed by per cent, as Karpenter applies it to every offering."""
    if adjustment is None:
        return offer
    return replace(offer, price=offer.price * (1 + float(adjustment.removesuffix("%")) / 100))
