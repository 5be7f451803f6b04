"""The dollars of a cluster in a month: now, with a plan, and with consolidation, in figures and in one paragraph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from shiplap.disruption.commands import Decision, Reason
from shiplap.disruption.decide import ask
from shiplap.disruption.decision_clock import DecisionClock
from shiplap.disruption.decision_progress import DecisionProgress
from shiplap.disruption.disruption_snapshot import DisruptionSnapshot
from shiplap.disruption.methods.emptiness import Emptiness
from shiplap.disruption.methods.underutilization import Underutilization
from shiplap.drawing.markup import counted
from shiplap.instances.offerings.node_prices import MONTH_HOURS, Price, billed_as, total_price
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import Node
from shiplap.manifests.custom_resources import Budget, NodePool
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.money import Money, monthly
from shiplap_cli.output import Printed, summary
from shiplap_cli.render.totals import NodeTotal, Totals

MOST_NODES = 2_000
"""Nodes of a cluster up to which a plan also tries its consolidation: that takes some seconds."""

_SAME_SHARE = 0.005
"""The part of a cost below which a change is none."""


class MonthlyCost(Printed, frozen=True):
    """USD of a month for the nodes whose price is known, `estimated` when any of these prices is guessed."""

    nodes: int
    monthly: float
    estimated: bool


class UnpricedNodes(Printed, frozen=True):
    """Nodes without a known price: their instance type, or their kind of node; empty if they name neither."""

    billed_as: str
    nodes: int


class Consolidated(Printed, frozen=True):
    """The cluster when consolidation has removed `empty` nodes, and `underused` ones that `replacements` stand for."""

    cost: MonthlyCost
    empty: int
    underused: int
    replacements: int


class MonthlyCosts(Printed, frozen=True):
    """The what-if of a plan; one of `--from-scratch` has nothing left to consolidate."""

    now: MonthlyCost
    """The nodes that exist, and the claims on their way to be some."""

    planned: MonthlyCost
    """Beside them the nodes that the plan launches, or with `--from-scratch` instead of those of NodePools."""

    consolidated: Consolidated | None
    """The same after consolidation; None where it was not tried."""

    launched: int
    """Nodes that the plan launches."""

    placed: int
    """Pods that the plan finds a place for, on these nodes or on others."""

    left_out: int
    """Pods that the plan has no place for, those that sleep among them."""

    priced: int
    """Nodes with a known price, of now and of the plan."""

    estimated: int
    """Those of them whose price is an estimate."""

    unpriced: tuple[UnpricedNodes, ...]
    """Nodes that no cost has in it, by type."""

    assumptions: tuple[str, ...]
    """The conditions of these figures, a sentence each."""

    @property
    def text(self) -> str:
        """One paragraph for people who do not know the cluster."""
        parts = (self._costs(), *self.assumptions, self._certainty(), *self._uncounted())
        return " ".join(filter(None, parts))

    def _costs(self) -> str:
        now, planned = self.now, self.planned
        parts = [f"The cluster costs {_month(now)} a month now, for {counted(now.nodes, 'node')}."]
        why = ", ".join(self._reasons())
        change = _change(now, planned) or "the same"
        parts.append(f"With these manifests it costs {_month(planned)} ({change}): {why}.")
        if self.consolidated is not None:
            parts.append(_consolidation(self.consolidated, planned))
        return " ".join(parts)

    def _reasons(self) -> Iterator[str]:
        yield f"{counted(self.launched, 'node')} launched, {counted(self.placed, 'pod')} placed"
        gone = self.now.nodes + self.launched - self.planned.nodes
        if gone:
            yield f"{counted(gone, 'node')} of NodePools gone"
        if self.left_out:
            yield f"{counted(self.left_out, 'pod')} left out"

    def _certainty(self) -> str:
        if not self.priced:
            return ""
        if not self.estimated:
            return "No price is estimated."
        if self.estimated == self.priced:
            return "All prices are estimated (~)."
        return f"Prices are estimated (~) for {self.estimated} of {counted(self.priced, 'node')}, not for the others."

    def _uncounted(self) -> Iterator[str]:
        if self.unpriced:
            named = [f"{item.nodes} {item.billed_as or 'without a type'}" for item in self.unpriced]
            number = sum(item.nodes for item in self.unpriced)
            yield f"Not counted, for their price is not known: {counted(number, 'node')} ({summary(named)})."


def _month(cost: MonthlyCost) -> str:
    return monthly(Price(cost.monthly / MONTH_HOURS, cost.estimated))


def _change(before: MonthlyCost, after: MonthlyCost) -> str:
    """The change as a part of what was before; empty if there is hardly one or nothing to compare with."""
    change = after.monthly - before.monthly
    if not before.monthly:
        return f"{_month(after)} more" if change else ""
    return f"{change / before.monthly:+.0%}" if abs(change) >= _SAME_SHARE * before.monthly else ""


def _consolidation(found: Consolidated, planned: MonthlyCost) -> str:
    change = _change(planned, found.cost)
    if not found.empty and not found.underused:
        return "Consolidation finds nothing to save."
    gone = [f"{counted(found.empty, 'empty node')} would go"] if found.empty else []
    if found.underused:
        stead = counted(found.replacements, "cheaper node") if found.replacements else "no new node"
        for_whom = "it" if found.underused == 1 else "them"
        gone.append(f"{counted(found.underused, 'underused node')} would go, with {stead} for {for_whom}")
    return f"With consolidation it costs {_month(found.cost)} ({change or 'hardly less'}): {', '.join(gone)}."


def consolidation_of(snapshot: DisruptionSnapshot) -> Decision:
    """Decide what consolidation would remove or replace if it had time: budgets bound only how fast nodes go.

    A budget of 0 nodes without a schedule stays. Nothing drifts or expires. Raises InvalidInput as `planner.plan`.
    """
    manifests = snapshot.scheduling.manifests
    patient = replace(manifests, node_pools=tuple(map(_without_pace, manifests.node_pools)))
    unhurried = replace(snapshot, scheduling=replace(snapshot.scheduling, manifests=patient))
    return ask((Emptiness(), Underutilization()), DecisionProgress(unhurried, DecisionClock(snapshot.scheduling.now)))


def _without_pace(pool: NodePool) -> NodePool:
    disruption = pool.spec.disruption
    lasting = (budget for budget in disruption.budgets if budget.schedule is None and budget.nodes in ("0", "0%"))
    budgets = (Budget(nodes="100%"), *lasting)
    return replace(pool, spec=replace(pool.spec, disruption=replace(disruption, budgets=budgets)))


def monthly_costs(
    snapshot: Snapshot, decided: Plan, totals: Totals, money: Money, consolidation: Decision | None = None
) -> MonthlyCosts:
    """The figures of a plan, and why.

    Args:
        snapshot: the cluster as it is.
        decided: the plan, for this cluster or for what `without_pool_nodes` leaves of it.
        totals: of both.
        money: the prices.
        consolidation: the decision of `consolidation_of`, if there is one.
    """
    nodes, launches = snapshot.view.nodes, [money.of_launch(claim) for claim in decided.node_claims]
    existing = [*(money.of_node(node.metadata.name) for node in nodes), *money.on_their_way]
    priced = [price for price in (*existing, *launches) if price.known]
    unpriced = Counter(billed_as(node) for node in nodes if not money.of_node(node.metadata.name).known)
    unpriced[""] += sum(not price.known for price in money.on_their_way)
    return MonthlyCosts(
        now=_cost(totals.now),
        planned=_cost(totals.then),
        consolidated=_consolidated(totals.then, money, consolidation) if consolidation is not None else None,
        launched=len(launches),
        placed=sum(len(place.pods) for place in decided.existing_nodes)
        + sum(len(claim.pods) for claim in decided.node_claims),
        left_out=len(decided.unschedulable),
        priced=len(priced),
        estimated=sum(price.estimated for price in priced),
        unpriced=tuple(UnpricedNodes(kind, number) for kind, number in sorted(unpriced.items()) if number),
        assumptions=tuple(_assumptions(nodes, consolidation)),
    )


def _consolidated(planned: NodeTotal, money: Money, decision: Decision) -> Consolidated:
    removed = [name for command in decision.commands for name in command.nodes]
    empty = sum(len(command.nodes) for command in decision.commands if command.reason is Reason.EMPTY)
    replacements = [claim for command in decision.commands for claim in command.replacements]
    added = money.of_launches(replacements)
    hourly = planned.hourly - total_price(map(money.of_node, removed)).hourly + added.hourly
    nodes = planned.nodes - len(removed) + len(replacements)
    cost = _cost(NodeTotal(nodes, max(hourly, 0.0), planned.estimated or added.estimated))
    return Consolidated(cost, empty, len(removed) - empty, len(replacements))


def _assumptions(nodes: Sequence[Node], consolidation: Decision | None) -> Iterator[str]:
    yield f"A month has {MONTH_HOURS:.0f} hours, and all of them have the pods of now."
    if consolidation is None:
        if len(nodes) > MOST_NODES:
            yield f"Consolidation was not tried with more than {MOST_NODES:,} nodes: `shiplap disrupt` does."
        return
    if consolidation.commands:
        yield "Disruption budgets make consolidation slower, not smaller; only a lasting budget of 0 nodes forbids it."
    others = sum(labels.NODE_POOL not in node.metadata.labels for node in nodes)
    if others:
        yield f"Consolidation leaves {counted(others, 'node')} of no NodePool alone."


def _cost(total: NodeTotal) -> MonthlyCost:
    return MonthlyCost(total.nodes, round(total.price.monthly, 2), total.estimated)
