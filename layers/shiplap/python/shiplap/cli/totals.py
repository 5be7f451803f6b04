"""What a cluster's nodes come to now and after a plan, in nodes and dollars."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from rich.text import Text

from shiplap.cli.output import counted
from shiplap.disruption.market import Market, market_of
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, PodStatus
from shiplap.scheduling.plan import Plan
from shiplap.scheduling.snapshot import Snapshot


class Sum(msgspec.Struct, frozen=True, rename="camel"):
    """Nodes, and USD per hour of those whose price is known."""

    nodes: int
    hourly: float


class Totals(msgspec.Struct, frozen=True, rename="camel"):
    """`unpriced` counts nodes now whose type, zone or capacity type the catalogue does not know."""

    now: Sum
    then: Sum
    unpriced: int = 0

    @property
    def priced(self) -> bool:
        """Whether any node that exists has a price."""
        return self.now.nodes > self.unpriced

    @property
    def text(self) -> Text:
        """One line for people."""
        change = self.then.hourly - self.now.hourly
        line = Text.assemble(
            ("Cluster: ", "bold"),
            f"{counted(self.now.nodes, 'node')} at ${self.now.hourly:.4f}/h now → "
            f"{counted(self.then.nodes, 'node')} at ",
            (f"${self.then.hourly:.4f}/h", "bold"),
            f" then ({change:+.4f} $/h)",
        )
        if self.unpriced:
            line.append(f"; {counted(self.unpriced, 'node')} of unknown price not counted in dollars", "yellow")
        return line


def totals_of(snapshot: Snapshot, decided: Plan, *, from_scratch: bool = False) -> Totals:
    """Before and after a plan made on this snapshot, or on what `without_pool_nodes` leaves of it."""
    market = market_of(snapshot)
    prices = [(node, price_of(market, node)) for node in snapshot.view.nodes]
    now = Sum(len(prices), sum(price for _, price in prices))
    staying = [price for node, price in prices if not (from_scratch and _of_pool(node))]
    then = Sum(len(staying) + len(decided.node_claims), sum(staying) + decided.hourly)
    return Totals(now, then, sum(not price for _, price in prices))


def price_of(market: Market, node: Node) -> float:
    """USD per hour, as the node's own pool sees it; of a node of no pool, as any pool does; 0 when nobody knows."""
    own = node.metadata.labels.get(labels.NODE_POOL, "")
    pools = [own] if own in market.by_pool else sorted(market.by_pool)
    return next((price for pool in pools if (price := market.price_of(pool, node))), 0.0)


def without_pool_nodes(snapshot: Snapshot) -> Snapshot:
    """The cluster without the nodes of NodePools, the claims on their way to be some, and with their pods pending.

    Pods of DaemonSets and of nodes themselves go with their node.
    """
    gone = {node.metadata.name for node in snapshot.view.nodes if _of_pool(node)}
    view = snapshot.view
    pods = tuple(
        _pending(pod) if pod.spec.node_name in gone else pod
        for pod in view.pods
        if pod.spec.node_name not in gone or not _goes_with_node(pod)
    )
    nodes = tuple(node for node in view.nodes if node.metadata.name not in gone)
    return replace(snapshot, view=replace(view, pods=pods, nodes=nodes), claims=())


def _of_pool(node: Node) -> bool:
    return labels.NODE_POOL in node.metadata.labels


def _pending(pod: Pod) -> Pod:
    """As it was made: kube-scheduler has said nothing about it yet."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())


def _goes_with_node(pod: Pod) -> bool:
    return any(owner.kind in ("DaemonSet", "Node") for owner in pod.metadata.owner_references)
