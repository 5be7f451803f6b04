"""The account of one NodePool in a plan: its nodes, its launches, and why claims or pods went elsewhere."""

from __future__ import annotations

from collections import Counter
from difflib import get_close_matches

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.instances.offerings.node_prices import Price
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_value_of
from shiplap.kubernetes.quantity import format_amount
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.supply.limits import HOURLY, NODES, PoolLimits
from shiplap.scheduling.supply.templates import NodeClaimTemplate
from shiplap_cli.accounts.pod_account import pod_account_of
from shiplap_cli.money import Money, hour_and_month
from shiplap_cli.output import Printed

_EXAMPLES = 3
"""Pods without a place that are asked what this pool says to them: each is a plan of its own."""


class TierAccount(Printed, frozen=True):
    """One tier: how many instance types it may launch, and why nothing can be launched of it, if so."""

    tier: int
    instance_types: int
    blocked: str


class UnplacedPodAccount(Printed, frozen=True):
    """The verdict of a tier on a pod without a place, and the smallest change that would give it one."""

    pod: str
    tier: int
    verdict: str
    text: str
    change: str


class PoolAccount(Printed, frozen=True):
    """`left` is what the limits leave before this plan; `passed_over` why claims went to other templates instead."""

    pool: str
    node_class: str
    weight: int
    not_ready: str
    nodes: int
    hourly: float
    estimated: bool
    left: dict[str, str]
    tiers: tuple[TierAccount, ...]
    launches: dict[str, int]
    launched_hourly: float
    launched_estimated: bool
    passed_over: tuple[str, ...]
    away: tuple[UnplacedPodAccount, ...]


def pool_account_of(snapshot: Snapshot, decided: Plan, name: str) -> PoolAccount:
    """The account of a NodePool in the plan made of this snapshot.

    Raises:
        InvalidInput: there is no such pool; near names are listed.
    """
    pools = {pool.metadata.name: pool for pool in snapshot.manifests.node_pools}
    if name not in pools:
        near = get_close_matches(name, sorted(pools), n=3, cutoff=0.5) or sorted(pools)
        raise InvalidInput("pool", f"there is no NodePool {name}; known are {', '.join(near)}")
    pool = pools[name]
    node_class = pool.spec.template.spec.node_class_ref.name
    money = Money(snapshot)
    own = [node for node in snapshot.view.nodes if node.metadata.labels.get(labels.NODE_POOL) == label_value_of(name)]
    templates = [item for item in compile_snapshot(snapshot).templates if item.pool.metadata.name == name]
    claims = [claim for claim in decided.node_claims if claim.node_pool == name]
    passed = {reason for claim in decided.node_claims for reason in claim.reasons if f"pool {name}" in reason}
    return PoolAccount(
        pool=name,
        node_class=node_class,
        weight=pool.spec.weight,
        not_ready=next((catalog.not_ready for catalog in snapshot.catalogs if catalog.node_class == node_class), ""),
        nodes=len(own),
        hourly=money.of_nodes(own).hourly,
        estimated=money.of_nodes(own).estimated,
        left=_limits_left(templates[0].limits) if templates else {},
        tiers=tuple(TierAccount(item.tier.index, _number_of_types(item), item.blocked) for item in templates),
        launches=dict(sorted(Counter(claim.launch.instance_type for claim in claims).items())),
        launched_hourly=money.of_launches(claims).hourly,
        launched_estimated=money.of_launches(claims).estimated,
        passed_over=tuple(sorted(passed)),
        away=tuple(_unplaced_pods(snapshot, decided, name)),
    )


def _number_of_types(template: NodeClaimTemplate) -> int:
    """The instance types with an offering that requirements allow."""
    return len(set(template.table.row_type[np.isfinite(template.row_prices)]))


def _limits_left(budget: PoolLimits) -> dict[str, str]:
    """The rest of the limits as quantities, and of a limit in dollars as dollars."""
    left = {name: int(budget.left[budget.axis.names.index(name)]) for name in budget.resources()}
    shown = {
        name: f"{amount / 1e6:.4f}" if name == HOURLY else format_amount(name, amount) for name, amount in left.items()
    }
    return {**shown, NODES: str(budget.nodes_left)} if NODES in budget.amounts else shown


def _unplaced_pods(snapshot: Snapshot, decided: Plan, name: str) -> list[UnplacedPodAccount]:
    accounts = []
    for entry in decided.unschedulable[:_EXAMPLES]:
        key = entry.pod.key
        account = pod_account_of(snapshot, decided, key)
        change = next(
            (" and ".join(proposal.changes) for proposal in account.changes if f"pool {name}" in proposal.place), ""
        )
        accounts += [
            UnplacedPodAccount(key, item.tier, item.verdict, item.text, change)
            for item in account.templates
            if item.node_pool == name
        ]
    return accounts


def pool_page(account: PoolAccount) -> RenderableType:
    """The account as a page."""
    table = Table.grid(Column(style="dim", min_width=10), Column(overflow="fold"), padding=(0, 2))
    table.add_row("node class", f"{account.node_class}{f': {account.not_ready}' if account.not_ready else ''}")
    table.add_row("weight", str(account.weight))
    table.add_row("nodes", f"{account.nodes} at {hour_and_month(Price(account.hourly, account.estimated))}")
    if account.left:
        table.add_row("limits", "left: " + ", ".join(f"{name} {amount}" for name, amount in account.left.items()))
    for tier in account.tiers:
        words = tier.blocked or f"{tier.instance_types} instance types"
        table.add_row(f"tier {tier.tier}", Text(words, style="yellow" if tier.blocked else ""))
    launches = ", ".join(f"{number} {kind}" for kind, number in account.launches.items())
    cost = hour_and_month(Price(account.launched_hourly, account.launched_estimated))
    table.add_row("launches", f"{launches} at {cost}" if launches else "nothing in this plan")
    for reason in account.passed_over:
        table.add_row("passed over", Text(reason, style="yellow"))
    parts: list[RenderableType] = [Text(f"pool {account.pool}", style="bold"), table]
    for away in account.away:
        parts.append(
            Text.assemble((f"{away.pod} ", "bold"), f"has no place; tier {away.tier}: {away.text or away.verdict}")
        )
        if away.change:
            parts.append(Text.assemble(("  smallest change here: ", "green"), away.change))
    return Group(*parts)
