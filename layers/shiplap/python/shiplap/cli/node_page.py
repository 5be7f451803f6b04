"""A node's account as a page for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.cli.disrupt import command_page
from shiplap.cli.money import Money, shown
from shiplap.cli.pages import summary
from shiplap.disruption.account import NodeAccount
from shiplap.instances.node_prices import Price


def node_page(account: NodeAccount, money: Money) -> RenderableType:
    """What it is, whom it serves, and what becomes of it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    place = " ".join(
        filter(None, (account.instance_type, account.capacity_type, account.zone and f"in {account.zone}"))
    )
    table.add_row("node", f"{place or 'of no known type'}, {shown(Price(account.hourly, account.estimated))}")
    table.add_row("pool", account.node_pool or "none: Shiplap does not touch it")
    table.add_row("pods", summary(account.pods) if account.pods else "none that would have to move")
    table.add_row("disruption cost", f"{account.disruption_cost:.2f}")
    parts: list[RenderableType] = [Text(account.node, style="bold"), table]
    if account.command is not None:
        parts += [Text("Goes now", style="red"), command_page(account.command, money)]
    elif account.stays:
        parts.append(Text.assemble(("Stays: ", "green"), account.stays))
    return Group(*parts)
