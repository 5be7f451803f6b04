"""Totals of a cluster now and after a plan, in nodes and dollars, and the difference of two plans of `plan --diff`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from rich.text import Text

from shiplap.instances.offerings.node_prices import Price, total_price
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node, Pod, PodStatus, goes_with_node
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.money import Money, dollars, monthly
from shiplap_cli.output import Printed, counted, summary


class NodeTotal(Printed, frozen=True):
    """Nodes, and USD per hour of those whose price is known, `estimated` when any of these prices is guessed."""

    nodes: int
    hourly: float
    estimated: bool = False

    @property
    def price(self) -> Price:
        """The sum, marked if it is an estimate."""
        return Price(self.hourly, self.estimated)


class Totals(Printed, frozen=True):
    """`unpriced` counts nodes now that have no price. Claims on their way count as the nodes they will be."""

    now: NodeTotal
    then: NodeTotal
    unpriced: int = 0

    @property
    def priced(self) -> bool:
        """True if any node that exists has a price."""
        return self.now.nodes > self.unpriced

    @property
    def text(self) -> Text:
        """One line for people."""
        change = self.then.hourly - self.now.hourly
        line = Text.assemble(
            ("Cluster: ", "bold"),
            f"{counted(self.now.nodes, 'node')} at {dollars(self.now.price)}/h now → "
            f"{counted(self.then.nodes, 'node')} at ",
            (f"{dollars(self.then.price)}/h", "bold"),
            f" then ({change:+.4f} $/h)",
        )
        if self.unpriced:
            line.append(f"; {counted(self.unpriced, 'node')} of unknown price not counted in dollars", "yellow")
        return line


def totals_of(snapshot: Snapshot, decided: Plan, money: Money | None = None, *, from_scratch: bool = False) -> Totals:
    """Before and after a plan made on this snapshot, or on what `without_pool_nodes` leaves of it."""
    money = money or Money(snapshot)
    of_nodes = [(node, money.of_node(node.metadata.name)) for node in snapshot.view.nodes]
    now = [*(price for _, price in of_nodes), *money.on_their_way]
    staying = [price for node, price in of_nodes if not (from_scratch and _in_pool(node))]
    staying += () if from_scratch else money.on_their_way
    then = [*staying, *map(money.of_launch, decided.node_claims)]
    return Totals(_sum(now), _sum(then), sum(not price.known for price in now))


def _sum(prices: Sequence[Price]) -> NodeTotal:
    known = total_price(prices)
    return NodeTotal(len(prices), known.hourly, known.estimated)


def without_pool_nodes(snapshot: Snapshot) -> Snapshot:
    """The cluster without the nodes of NodePools, the claims on their way to be some, and with their pods pending.

    Pods of DaemonSets and of nodes themselves go with their node.
    """
    gone = {node.metadata.name for node in snapshot.view.nodes if _in_pool(node)}
    view = snapshot.view
    pods = tuple(
        pending_pod(pod) if pod.spec.node_name in gone else pod
        for pod in view.pods
        if pod.spec.node_name not in gone or not goes_with_node(pod.metadata)
    )
    nodes = tuple(node for node in view.nodes if node.metadata.name not in gone)
    return replace(snapshot, view=replace(view, pods=pods, nodes=nodes), claims=())


def _in_pool(node: Node) -> bool:
    return labels.NODE_POOL in node.metadata.labels


def pending_pod(pod: Pod) -> Pod:
    """The pod as created: without a node and without conditions."""
    return replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus())


class PlanSide(Printed, frozen=True):
    """One set of manifests: what its plan comes to; `estimated` when any price of what it launches is guessed."""

    manifests: str
    nodes: int
    hourly: float
    estimated: bool
    pods_on_new: int
    pods_on_existing: int
    unschedulable: int
    ignored: int
    pools: dict[str, NodeTotal]
    instance_types: dict[str, NodeTotal]
    totals: Totals

    @property
    def price(self) -> Price:
        """The sum of its launches, marked if it is an estimate."""
        return Price(self.hourly, self.estimated)


class LeftOut(Printed, frozen=True):
    """A pod that only one side has a place for, and what the other says."""

    pod: str
    message: str


class DriftingNodes(Printed, frozen=True):
    """Nodes that drift for one reason, and their price: new manifests replace them, within disruption budgets."""

    reason: str
    nodes: tuple[str, ...]
    hourly: float
    estimated: bool

    @property
    def price(self) -> Price:
        """The sum of the prices that are known, marked if it is an estimate."""
        return Price(self.hourly, self.estimated)

    @property
    def row(self) -> tuple[str, str, str]:
        """Reason, nodes and dollars a month, as pages show them."""
        return self.reason, summary(self.nodes), monthly(self.price)


class PlanDifference(Printed, frozen=True):
    """`moved` counts pods that both sides launch nodes for, in different pools. `drifting` has nodes that exist."""

    old: PlanSide
    new: PlanSide
    newly_left_out: tuple[LeftOut, ...]
    newly_placed: tuple[LeftOut, ...]
    moved: int
    drifting: tuple[DriftingNodes, ...] = ()

    @property
    def drifting_nodes(self) -> int:
        """The number of nodes that drift."""
        return sum(len(entry.nodes) for entry in self.drifting)

    @property
    def drifting_price(self) -> Price:
        """The price of all nodes that drift."""
        return total_price(entry.price for entry in self.drifting)

    @property
    def counts(self) -> tuple[tuple[str, int, int], ...]:
        """The counts of both sides: name, old, new."""
        old, new = self.old, self.new
        return (
            ("nodes to launch", old.nodes, new.nodes),
            ("pods on new nodes", old.pods_on_new, new.pods_on_new),
            ("pods on nodes that exist", old.pods_on_existing, new.pods_on_existing),
            ("pods without a place", old.unschedulable, new.unschedulable),
            ("pods left alone", old.ignored, new.ignored),
            ("nodes of the cluster then", old.totals.then.nodes, new.totals.then.nodes),
        )
