"""What nodes, launches and commands of a decision come to in dollars, and how that is shown."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.disruption.commands import DisruptionProposal
from shiplap.disruption.current_prices import node_prices
from shiplap.instances.offerings.node_prices import UNKNOWN_PRICE, Price, total_price
from shiplap.kubernetes.objects import Node
from shiplap.scheduling.model.claim_nodes import pair
from shiplap.scheduling.model.scheduling_plan import PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot


class Money:
    """The prices that a decision on this snapshot sees."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.prices = node_prices(snapshot)
        paired, waiting = pair(snapshot.view.nodes, snapshot.claims)
        self._of_nodes = {
            node.metadata.name: self.prices.of(node, paired.get(node.metadata.name)) for node in snapshot.view.nodes
        }
        self.on_their_way = tuple(map(self.prices.of_claim, waiting))
        """Of claims that have no node yet."""

    def of_node(self, name: str) -> Price:
        """Of a node that is there."""
        return self._of_nodes.get(name, UNKNOWN_PRICE)

    def of_nodes(self, nodes: Iterable[Node]) -> Price:
        """Of some together."""
        return total_price(self.of_node(node.metadata.name) for node in nodes)

    def of_launch(self, claim: PlannedClaim) -> Price:
        """Of a node that would be launched."""
        launch = claim.launch
        estimated = self.prices.is_estimated(claim.node_pool, launch.instance_type, launch.zone, launch.capacity_type)
        return Price(launch.price, estimated)

    def of_launches(self, claims: Iterable[PlannedClaim]) -> Price:
        """Of some together."""
        return total_price(map(self.of_launch, claims))

    def saved(self, commands: Iterable[DisruptionProposal]) -> Price:
        """By commands to disrupt; an estimate when the price of any node that goes or comes is one."""
        saved, estimated = 0.0, False
        for command in commands:
            saved += command.savings_hourly
            goes = total_price(map(self.of_node, command.nodes))
            estimated = estimated or goes.estimated or self.of_launches(command.replacements).estimated
        return Price(saved, estimated)


def dollars(price: Price) -> str:
    """`$0.0960`; `~$0.0960` when it is estimated."""
    return f"{estimate_mark(price)}${price.hourly:.4f}"


def dollar_figure(price: Price) -> str:
    """The same without the sign, for columns of dollars."""
    return f"{estimate_mark(price)}{price.hourly:.4f}"


def estimate_mark(price: Price) -> str:
    """What stands before an estimate."""
    return "~" if price.estimated else ""


def hourly_text(price: Price) -> str:
    """`$0.0960/h`, or that it is not known."""
    return f"{dollars(price)}/h" if price.known else "its price is not known"
