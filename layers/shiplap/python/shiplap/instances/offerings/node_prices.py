"""The price of a node, computed in one place for tables, pages, pictures and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shiplap.instances.catalog.type_catalog import RESERVED_PRICE_FACTOR, InstanceType, Offering
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.objects import Node
from shiplap.manifests.nodeclaim import ClaimPlan, NodeClaim

MONTH_HOURS = 730.0
"""Hours of the mean month, as AWS counts them."""

_COMPUTE_TYPE = "eks.amazonaws.com/compute-type"
_NOT_INSTANCES = frozenset({"fargate", "hybrid"})
"""Nodes of EKS that are billed otherwise than by instance type."""
_MANAGED = "eks.amazonaws.com/capacityType"
_OF_MANAGED = {"ON_DEMAND": labels.ON_DEMAND, "SPOT": labels.SPOT, "CAPACITY_BLOCK": labels.RESERVED}
"""Capacity types of managed node groups."""
_SAME = 1e-9

OfferingsByType = Mapping[str, Sequence[Offering]]
"""The offerings of each instance type by its name."""


class Price(msgspec.Struct, frozen=True):
    """USD per hour, 0 when it is not known; `estimated` when it is guessed from hardware or from another offering."""

    hourly: float = 0.0
    estimated: bool = False

    @property
    def known(self) -> bool:
        """True if there is a price."""
        return self.hourly > 0

    @property
    def monthly(self) -> float:
        """USD of a month at this price."""
        return self.hourly * MONTH_HOURS


UNKNOWN_PRICE = Price()


class NodePrices(msgspec.Struct, frozen=True, eq=False):
    """The prices of nodes: of pools as each pool sees the offerings, NodeOverlays applied, and of all other nodes."""

    of_pools: Mapping[str, OfferingsByType] = {}
    others: OfferingsByType = {}

    def of(self, node: Node, claim: NodeClaim | None = None) -> Price:
        """The price that the node's claim was bought at; else that of its offering, by its labels and its claim's.

        A node that does not say its capacity type is taken to be on-demand. Where its own offering is not known, that
        of its type in another zone stands for it. Both are estimates. A node that is no instance has no price.
        """
        node_labels = node.metadata.labels
        if node_labels.get(_COMPUTE_TYPE) in _NOT_INSTANCES:
            return UNKNOWN_PRICE
        bought = claim or _NO_CLAIM
        pool = name_of_label(node_labels.get(labels.NODE_POOL, ""), self.of_pools) or bought.plan.node_pool
        name = labels.value_of(node_labels, labels.INSTANCE_TYPE) or bought.known_instance.type
        zone = labels.value_of(node_labels, labels.ZONE) or bought.known_instance.zone
        return self._paid(
            pool, name, zone, capacity_type_of(node) or bought.known_instance.capacity_type, bought.hourly
        )

    def of_claim(self, claim: NodeClaim) -> Price:
        """Of a claim without a node, in the same way."""
        return self._paid(
            claim.plan.node_pool,
            claim.known_instance.type,
            claim.known_instance.zone,
            claim.known_instance.capacity_type,
            claim.hourly,
        )

    def is_estimated(self, pool: str, instance_type: str, zone: str, capacity_type: str) -> bool:
        """True if the price of an offering that a pool may launch is a guess."""
        return _exact(self._offered(pool, instance_type), zone, capacity_type).estimated

    def listed(self, instance_type: str) -> float:
        """The on-demand list price of a type, USD per hour; 0 when it is not known."""
        return _anywhere(self.others.get(instance_type, ()), labels.ON_DEMAND).hourly

    def _offered(self, pool: str, instance_type: str) -> Sequence[Offering]:
        return self.of_pools.get(pool, {}).get(instance_type) or self.others.get(instance_type, ())

    def _paid(self, pool: str, instance_type: str, zone: str, capacity_type: str, bought_at: float) -> Price:
        offered = self._offered(pool, instance_type)
        price = _exact(offered, zone, capacity_type)
        if bought_at:
            # What was bought at just the price that is guessed now was bought at a guess.
            return Price(bought_at, estimated=price.estimated and abs(price.hourly - bought_at) < _SAME)
        if price.known:
            return price
        price = _anywhere(offered, capacity_type or labels.ON_DEMAND)
        if not price.known and capacity_type == labels.RESERVED:
            price = _anywhere(offered, labels.ON_DEMAND)
            return Price(price.hourly * RESERVED_PRICE_FACTOR, price.estimated)
        return Price(price.hourly, estimated=price.known)


_NO_CLAIM = NodeClaim(cluster="", name="", plan=ClaimPlan("", ""))


def offering_price(offered: Iterable[Offering], node: Node) -> float:
    """USD per hour of just the offering that a node's labels name, available or not; 0 when it is not among these."""
    node_labels = node.metadata.labels
    return _exact(offered, node_labels.get(labels.ZONE, ""), node_labels.get(labels.CAPACITY_TYPE, "")).hourly


def total_price(prices: Iterable[Price]) -> Price:
    """The sum, which is an estimate when any part of it is."""
    known = list(prices)
    return Price(sum(price.hourly for price in known), any(price.estimated for price in known))


def offerings_by_type(*catalogs: Iterable[InstanceType]) -> OfferingsByType:
    """The offerings of several catalogues together; of one that is in several the first counts."""
    by_type: dict[str, dict[tuple[str, str, str], Offering]] = {}
    for instance_type in (kind for catalog in catalogs for kind in catalog):
        known = by_type.setdefault(instance_type.name, {})
        for offering in instance_type.offerings:
            known.setdefault((offering.zone, offering.capacity_type, offering.reservation_id), offering)
    return {name: tuple(known.values()) for name, known in by_type.items()}


def billed_as(node: Node) -> str:
    """The instance type that a node's labels name, or the kind of node of one that is no instance; may be empty."""
    compute_type = node.metadata.labels.get(_COMPUTE_TYPE, "")
    return (
        compute_type if compute_type in _NOT_INSTANCES else labels.value_of(node.metadata.labels, labels.INSTANCE_TYPE)
    )


def capacity_type_of(node: Node) -> str:
    """As the node's labels say it, Karpenter's or those of a managed node group; empty when they do not."""
    node_labels = node.metadata.labels
    return node_labels.get(labels.CAPACITY_TYPE) or _OF_MANAGED.get(node_labels.get(_MANAGED, ""), "")


def _exact(offered: Iterable[Offering], zone: str, capacity_type: str) -> Price:
    offerings = [o for o in offered if o.zone == zone and o.capacity_type == (capacity_type or labels.ON_DEMAND)]
    if not offerings:
        return UNKNOWN_PRICE
    cheapest = min(offerings, key=lambda offering: offering.price)
    return Price(cheapest.price, cheapest.price_estimated or not capacity_type)


def _anywhere(offered: Iterable[Offering], capacity_type: str) -> Price:
    """Of a capacity type in whatever zone."""
    offerings = [offering for offering in offered if offering.capacity_type == capacity_type]
    cheapest = min(offerings, key=lambda offering: offering.price, default=None)
    return UNKNOWN_PRICE if cheapest is None else Price(cheapest.price, cheapest.price_estimated)
