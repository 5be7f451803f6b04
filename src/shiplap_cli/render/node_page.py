"""A node's account as a page for people."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.disruption.commands import DisruptionProposal
from shiplap.instances.offerings.node_prices import Price
from shiplap_cli.explain.node_account import NodeAccount
from shiplap_cli.money import Money, dollars, hourly_text
from shiplap_cli.output import counted
from shiplap_cli.render.pages import summary


def node_page(account: NodeAccount, money: Money) -> RenderableType:
    """What it is, whom it serves, and what becomes of it."""
    table = Table(box=None, show_header=False, pad_edge=False)
    place = " ".join(
        filter(None, (account.instance_type, account.capacity_type, account.zone and f"in {account.zone}"))
    )
    table.add_row("node", f"{place or 'of no known type'}, {hourly_text(Price(account.hourly, account.estimated))}")
    table.add_row("pool", account.node_pool or "none: Shiplap does not touch it")
    table.add_row("pods", summary(account.pods) if account.pods else "none that would have to move")
    table.add_row("disruption cost", f"{account.disruption_cost:.2f}")
    parts: list[RenderableType] = [Text(account.node, style="bold"), table]
    if account.command is not None:
        parts += [Text("Goes now", style="red"), command_page(account.command, money)]
    elif account.stays:
        parts.append(Text.assemble(("Stays: ", "green"), account.stays))
    return Group(*parts)


def command_page(command: DisruptionProposal, money: Money) -> RenderableType:
    """One command for people: its nodes and why, and what is launched for them."""
    lines = [
        Text.assemble(
            ("- ", "red bold"),
            (summary(command.nodes), "bold"),
            f"  ({command.reason}: {command.detail}; {counted(command.moved, 'pod')} to move, "
            f"{dollars(money.saved([command]))}/h saved)",
        )
    ]
    for claim in command.replacements:
        launch = claim.launch
        lines.append(
            Text.assemble(
                ("  + ", "green bold"),
                f"{launch.instance_type} {launch.capacity_type} in {launch.zone}, {dollars(money.of_launch(claim))}/h "
                f"(pool {claim.node_pool}, {counted(len(claim.pods), 'pod')})",
            )
        )
    return Group(*lines)
