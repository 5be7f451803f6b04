"""Plans and accounts as pages for people, readable from 80 columns on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.disruption.commands import DisruptionProposal
from shiplap.instances.offerings.node_prices import UNKNOWN_PRICE, Price
from shiplap.kubernetes.names import namespaced_name
from shiplap.kubernetes.quantity import format_amount, format_part
from shiplap.manifests.nodeclaim import PodReference
from shiplap.scheduling.model.scheduling_plan import Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap_cli.accounts.claim_account import ClaimAccount, ClaimAccounts
from shiplap_cli.accounts.node_account import NodeAccount
from shiplap_cli.accounts.pod_account import PodAccount
from shiplap_cli.accounts.present_place import PresentPlace
from shiplap_cli.accounts.smallest_changes import ChangeProposal
from shiplap_cli.money import Money, dollars, hour_and_month, hourly_text, per_hour_and_month
from shiplap_cli.output import counted, grouped, plain_table, summary, titled_table
from shiplap_cli.policy_views import launch_remarks

_ACCOUNTED = 50
"""Claims, told apart, whose lists and prices are accounted for on one page; `shiplap explain claim` does any."""

_STATES = {"placed": "green", "unschedulable": "red", "ignored": "yellow", "running": "cyan", "asleep": "blue"}


def plan_page(
    snapshot: Snapshot,
    decided: Plan,
    solve_s: float,
    money: Money,
    rejected_overlays: Sequence[str] = (),
    *,
    details: bool = False,
) -> RenderableType:
    """The launches, the nodes used, the pods left out and by how much, and the sum.

    Launches that are alike have one line together; with `details`, an account of their pods, types and prices each.
    """
    if details:
        parts = _launch_accounts(snapshot, decided.node_claims, money)
    else:
        parts = _launch_lines(decided.node_claims, money)
    if decided.existing_nodes:
        used = ((node.name, summary(_pod_keys(node.pods))) for node in decided.existing_nodes)
        parts += [Text("Used as they are", style="italic"), plain_table("node", "pods", rows=used), Text()]
    parts += _message_table("Without a place", decided.unschedulable, "red")
    parts += _message_table("Left alone", decided.ignored, "yellow")
    if decided.static_pools:
        table = Table("static pool", "replicas", "there", "launched", "missing", "too many", box=None, pad_edge=False)
        for pool in decided.static_pools:
            launched = sum(claim.node_pool == pool.node_pool for claim in decided.node_claims)
            missing = f"{pool.missing}: {pool.reason}" if pool.reason else str(pool.missing)
            counts = (str(pool.replicas), str(pool.present), str(launched))
            table.add_row(pool.node_pool, *counts, Text(missing), summary(pool.surplus))
        parts += [table, Text()]
    if decided.buffers:
        table = Table("buffer", "pods", "on nodes", "on new nodes", "without room", box=None, pad_edge=False)
        for buffer in decided.buffers:
            missing = f"{buffer.missing}: {buffer.reason}" if buffer.reason else str(buffer.missing)
            counts = (str(buffer.replicas), str(buffer.existing), str(buffer.new))
            table.add_row(namespaced_name(buffer.namespace, buffer.name), *counts, Text(missing))
        parts += [table, Text()]
    if rejected_overlays:
        why = "applied nowhere, for they conflict with others of equal weight"
        parts += [Text(f"NodeOverlays {why}: {summary(rejected_overlays)}", style="yellow"), Text()]
    placed = sum(len(claim.pods) for claim in decided.node_claims)
    reused = sum(len(node.pods) for node in decided.existing_nodes)
    parts.append(
        Text.assemble(
            ("Plan: ", "bold"),
            f"{len(decided.node_claims)} to launch for {_pods(placed)}, {_pods(reused)} on nodes that exist, "
            f"{len(decided.unschedulable)} without a place, {len(decided.ignored)} left alone. ",
            (per_hour_and_month(money.of_launches(decided.node_claims)), "bold"),
            f" (classes of pods: {decided.stats.classes}, {solve_s * 1000:.0f} ms)",
        )
    )
    return Group(*parts)


def _launch_accounts(snapshot: Snapshot, claims: Sequence[PlannedClaim], money: Money) -> list[RenderableType]:
    if not claims:
        return []
    accounts = ClaimAccounts(compile_snapshot(snapshot))
    return [
        _claim_table(alike, accounts.of(alike[0]) if number < _ACCOUNTED else None, money)
        for number, alike in enumerate(_alike(claims))
    ]


def _launch_lines(claims: Sequence[PlannedClaim], money: Money) -> list[RenderableType]:
    """A line for launches that are alike, then what is noteworthy about them, each remark once."""
    if not claims:
        return []
    right = [Column(header, justify="right") for header in ("", "$/h each")]
    pods = Column("pods", overflow="fold")
    table = plain_table(
        right[0], "launch", "capacity", "zone", right[1], Column("claim", overflow="fold"), pods, rows=()
    )
    for alike in _alike(claims):
        first, others = alike[0], f" and {len(alike) - 1} more" if len(alike) > 1 else ""
        launch = first.launch
        table.add_row(
            Text(f"+{len(alike)}", style="green bold"),
            *(launch.instance_type, launch.capacity_type, launch.zone, dollars(money.of_launch(first))),
            first.name + others,
            _pods_of(alike),
        )
    remarks = [
        *((reason, claim.name) for claim in claims if claim.pods for reason in claim.reasons),
        *((f"gave up {preference}", claim.name) for claim in claims for preference in claim.gave_up),
        *(
            (f"never measured: {summary(claim.relies_on_estimate)}", claim.name)
            for claim in claims
            if claim.relies_on_estimate
        ),
        *((f"{name}, {text}", claim.name) for claim in claims for name, text in launch_remarks(claim)),
    ]
    lines = [
        Text.assemble(("! ", "yellow bold"), f"{summary(names, 2)}: {said}") for said, names in grouped(remarks).items()
    ]
    hint = Text("Why each: --details, or `shiplap explain claim NAME`.", style="dim")
    return [table, *lines, hint, Text()]


def _pods_of(alike: Sequence[PlannedClaim]) -> str:
    """The name of a single pod, else how many there are; room that is kept counts apart."""
    names = [name for each in alike for name in _pod_keys(each.pods)]
    kept = sum(len(each.virtual_pods) for each in alike)
    held = names[0] if len(names) == 1 else _pods(len(names))
    if not kept:
        return held if names else "none"
    return f"{held} and room for {kept}" if names else f"room for {_pods(kept)}"


def claim_page(claim: PlannedClaim, account: ClaimAccount, money: Money) -> RenderableType:
    """One claim with its whole account."""
    return _claim_table([claim], account, money)


def _alike(claims: Sequence[PlannedClaim]) -> list[list[PlannedClaim]]:
    """Claims that would be launched alike for the same reasons, together, in the order of the first of each kind."""
    by_kind: dict[object, list[PlannedClaim]] = {}
    for claim in claims:
        kind = (
            claim.node_pool,
            claim.tier,
            claim.launch,
            claim.instance_types,
            claim.reasons,
            claim.relies_on_estimate,
            claim.gave_up,
            claim.spot_risk,
        )
        by_kind.setdefault(kind, []).append(claim)
    return list(by_kind.values())


def _claim_table(alike: Sequence[PlannedClaim], account: ClaimAccount | None, money: Money) -> RenderableType:
    claim, launch = alike[0], alike[0].launch
    table = _grid()
    price = hour_and_month(money.of_launch(claim))
    _row(table, "launch", f"{launch.instance_type} {launch.capacity_type} in {launch.zone}, {price}")
    if claim.instance_types[1:]:
        _row(table, "or", summary(claim.instance_types[1:]))
    requests = ", ".join(
        f"{name} {format_part(name, amount, claim.allocatable[name])}"
        if name in claim.allocatable
        else f"{name} {format_amount(name, amount)}"
        for name, amount in sorted(claim.requests.items())
    )
    notes = [f"the least of its {len(claim.instance_types)} types"] if claim.instance_types[1:] else []
    notes += ["the first of them"] if len(alike) > 1 else []
    _row(table, "needs", f"{requests} ({'; '.join(notes)})" if notes else requests)
    pods = [name for each in alike for name in _pod_keys(each.pods)]
    virtual = [name for each in alike for name in _pod_keys(each.virtual_pods)]
    if pods or not virtual:
        _row(table, "pods", summary(pods) or "none")
    if virtual:
        _row(table, "keeps room", summary(virtual))
    for reason in claim.reasons:
        _row(table, "because", reason, "yellow")
    for preference in claim.gave_up:
        _row(table, "gave up", preference, "yellow")
    if account is not None:
        if not claim.reasons:
            _row(table, "pool", account.pool)
        _row(table, "types", account.types)
        _row(table, "price", account.price)
        for cheaper in account.cheaper:
            _row(table, "not", cheaper)
    for name, text in launch_remarks(claim):
        _row(table, name, text)
    if claim.relies_on_estimate:
        _row(table, "pilot", f"never measured: {summary(claim.relies_on_estimate)}")
    tier = f", tier {claim.tier}" if claim.tier else ""
    others = f" and {len(alike) - 1} like it" if len(alike) > 1 else ""
    title = Text.assemble(("+ ", "green bold"), (claim.name, "bold"), f"{others}  (pool {claim.node_pool}{tier})")
    return Group(title, table, Text())


def _message_table(title: str, entries: Sequence[Unschedulable], style: str) -> list[RenderableType]:
    """Entries with equal messages together, the message below them."""
    by_message = grouped((entry.message, entry.pod.key) for entry in entries)
    if not by_message:
        return []
    table = Table.grid(Column(), Column(overflow="fold"), padding=(0, 1))
    for message, pods in by_message.items():
        table.add_row(Text("-", style=f"{style} bold"), Text.assemble((summary(pods), "bold"), f"\n{message}"))
    return [Text(title, style="italic"), table, Text()]


def change_lines(changes: Sequence[ChangeProposal]) -> Iterator[Text]:
    """Yield a line on each of the smallest changes, the first one first."""
    for number, proposal in enumerate(changes):
        head = "smallest change" if not number else "or"
        yield Text.assemble((f"{head}: ", "green"), " and ".join(proposal.changes), f"  → {proposal.place}")


def account_page(account: PodAccount, price: Price = UNKNOWN_PRICE) -> RenderableType:
    """The account of one pod: the answer first, then what it rests on; `price` is that of a node launched for it."""
    state = "left alone" if account.state == "ignored" else account.state
    title = Text.assemble((account.pod, "bold"), " is ", (state, _STATES[account.state]))
    parts: list[RenderableType] = [title]
    if account.message:
        parts.append(Text(account.message))
    parts += [*change_lines(account.changes), Text()]
    if account.present is not None and account.present.meets:
        parts += [_met(account.present), Text()]
    if account.asked is not None:
        parts += [_demands(account), Text()]
    if account.home is not None:
        parts += [_placement(account, price), Text()]
    if account.templates:
        table = titled_table("NodePools", "template", "verdict", Column("why", overflow="fold"))
        for item in account.templates:
            style = "green" if item.verdict == "used" else ""
            reason, _, nearest = item.text.partition("; ")
            told = bool(nearest) and account.message.startswith(nearest)
            table.add_row(item.name, Text(item.verdict, style=style), Text(reason if told else item.text))
        parts.append(table)
    if account.nodes:
        columns = (Column("nodes", justify="right"), Column("verdict", overflow="fold"), "for example")
        table = titled_table("Nodes that exist or are in flight", *columns)
        for group in account.nodes:
            table.add_row(str(group.nodes), Text(group.verdict), ", ".join(group.examples))
        parts.append(table)
    return Group(*parts)


def _met(present: PresentPlace) -> RenderableType:
    table = _grid()
    for number, demand in enumerate(present.meets):
        _row(table, "" if number else "meets", demand)
    return table


def _demands(account: PodAccount) -> RenderableType:
    asked = account.asked
    table = _grid()
    if asked is None:
        return table
    _row(table, "requests", ", ".join(f"{name} {text}" for name, text in asked.requests.items()))
    rows = (
        ("selects", " or ".join(asked.node_selection)),
        ("tolerates", ", ".join(asked.tolerations)),
        ("topology", "; ".join(asked.topology)),
        ("host ports", ", ".join(asked.host_ports)),
        ("volumes", asked.volumes),
        ("priority", str(asked.priority) if asked.priority else ""),
        ("alike", f"{_pods(asked.alike)} planned as one class" if asked.alike > 1 else ""),
    )
    for name, text in rows:
        if text:
            _row(table, name, text)
    return table


def _placement(account: PodAccount, price: Price) -> RenderableType:
    home = account.home
    table = _grid()
    if home is None:
        return table
    _row(table, "goes to", f"{home.kind} {home.name}")
    _row(table, "with", summary(home.shared_with, 8) or "no other pod of this plan")
    if home.launch is not None and home.account is not None:
        launch = home.launch
        bought = f"{launch.instance_type} {launch.capacity_type} in {launch.zone}"
        table.add_row("launch", f"{bought}, {hour_and_month(price)}")
        _row(table, "pool", home.account.pool)
        for reason in home.account.skipped:
            _row(table, "because", reason, "yellow")
        _row(table, "types", home.account.types)
        _row(table, "price", home.account.price)
        for cheaper in home.account.cheaper:
            _row(table, "not", cheaper)
    return table


def _grid() -> Table:
    return Table.grid(Column(style="dim", min_width=10), Column(overflow="fold"), padding=(0, 2))


def _row(table: Table, name: str, text: str, style: str = "") -> None:
    """Text as it is: square brackets of requirements are no markup."""
    table.add_row(name, Text(text, style=style))


def _pods(number: int) -> str:
    return f"{number} pod{'' if number == 1 else 's'}"


def _pod_keys(pods: Sequence[PodReference]) -> list[str]:
    return [pod.key for pod in pods]


def node_page(account: NodeAccount, money: Money) -> RenderableType:
    """The node's type and price, its pods, and its disruption."""
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
            f"{hour_and_month(money.saved([command]))} saved)",
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
