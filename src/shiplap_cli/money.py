"""The dollars of a decision's nodes, launches and commands, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.disruption.commands import DisruptionProposal
from shiplap.disruption.current_prices import node_prices
from shiplap.drawing import markup
from shiplap.instances.offerings.node_prices import UNKNOWN_PRICE, Price, total_price
from shiplap.kubernetes.objects import Node
from shiplap.scheduling.model.planned_pods import pair
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
        """The prices of claims that have no node yet."""

    def of_node(self, name: str) -> Price:
        """The price of an existing node."""
        return self._of_nodes.get(name, UNKNOWN_PRICE)

    def of_nodes(self, nodes: Iterable[Node]) -> Price:
        """The price of several nodes."""
        return total_price(self.of_node(node.metadata.name) for node in nodes)

    def of_launch(self, claim: PlannedClaim) -> Price:
        """The price of a node that would be launched."""
        launch = claim.launch
        estimated = self.prices.is_estimated(claim.node_pool, launch.instance_type, launch.zone, launch.capacity_type)
        return Price(launch.price, estimated)

    def of_launches(self, claims: Iterable[PlannedClaim]) -> Price:
        """The price of several launches."""
        return total_price(map(self.of_launch, claims))

    def saved(self, commands: Iterable[DisruptionProposal]) -> Price:
        """The saving of disruption commands; an estimate when the price of any node involved is one."""
        saved, estimated = 0.0, False
        for command in commands:
            saved += command.savings_hourly
            goes = total_price(map(self.of_node, command.nodes))
            estimated = estimated or goes.estimated or self.of_launches(command.replacements).estimated
        return Price(saved, estimated)


def dollars(price: Price) -> str:
    """`$0.0960`; `~$0.0960` when it is estimated."""
    return markup.dollars(price.hourly, estimated=price.estimated)


def monthly(price: Price) -> str:
    """`$70.08`; `~$70` when it is estimated: the dollars of a month."""
    return markup.monthly(price.hourly, estimated=price.estimated)


def hour_and_month(price: Price) -> str:
    """`$0.0960/h, $70.08 a month`."""
    return f"{dollars(price)}/h, {monthly(price)} a month"


def per_hour_and_month(price: Price, done: str = "") -> str:
    """`$0.0960 per hour saved, $70.08 a month`, for sums; `saved` is what is done with them."""
    hourly = f"{dollars(price)} per hour {done}".rstrip()
    return f"{hourly}, {monthly(price)} a month"


def dollar_figure(price: Price) -> str:
    """`0.0960` or `~0.0960`, for columns of dollars."""
    return f"{estimate_mark(price)}{price.hourly:.4f}"


def estimate_mark(price: Price) -> str:
    """The sign before an estimate."""
    return "~" if price.estimated else ""


def hourly_text(price: Price) -> str:
    """`$0.0960/h, $70.08 a month`, or that it is not known."""
    return hour_and_month(price) if price.known else "its price is not known"
