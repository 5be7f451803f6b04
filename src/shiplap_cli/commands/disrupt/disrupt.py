"""`shiplap disrupt`: what would be removed or replaced in a cluster, and what keeps every other node."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from msgspec import UNSET
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.disruption.commands import Decision
from shiplap.disruption.decide import decide
from shiplap.disruption.disruption_snapshot import DisruptionSettings
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot, told_of_missing_kinds
from shiplap_cli.inputs.loaded_inputs import load_inputs
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.joined_documents import joined
from shiplap_cli.money import Money, per_hour_and_month
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import CostLabel, Format, HtmlFile, Output, emit, plain_table, write_page
from shiplap_cli.policy_views import disruption_lines, policy_lines
from shiplap_cli.render.decision_documents import caveat_lines, caveat_texts, caveats_of, disruption_document
from shiplap_cli.render.html import PageNotes, disrupt_report
from shiplap_cli.render.pages import command_page


@takes_sources
def disrupt(
    *,
    sources: Sources,
    which: InstallOptions,
    spot_to_spot: Annotated[
        bool | None,
        typer.Option(
            "--spot-to-spot/--no-spot-to-spot",
            help="Replace spot nodes by cheaper spot nodes; as the install does, else yes.",
            show_default=False,
        ),
    ] = None,
    move_cost: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="USD that moving one pod costs; as the install does, else "
            f"{DisruptionSettings().move_cost}. NodePools may have their own.",
            show_default=False,
        ),
    ] = None,
    least_saving_per_pod: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Deprecated, instead of --move-cost: USD per hour that moving one pod has to save at least.",
            show_default=False,
        ),
    ] = None,
    cost_label: CostLabel = "",
    html: HtmlFile = None,
    output: Output = Format.TABLE,
) -> int:
    """What would be consolidated, drifted or expired now, and what blocks the rest.

    Nodes count as Shiplap's own by their NodeClaims; where the cluster has none at all, by their labels. With
    --cluster, by the claims of an install, whose settings, commands under way and memory of its nodes count as well.
    Exit code 0 when there is something to do, 1 when there is nothing, 2 for bad input.

    Example: shiplap disrupt --context prod --manifests pools/

    Example: kubectl get nodes,pods,daemonsets,pdb,pv,pvc,storageclasses,csinodes,csidrivers,namespaces -A -o json
    | shiplap disrupt -f - --manifests pools/
    """
    inputs = told_of_missing_kinds(load_inputs(sources, which, lax_budgets=True))
    given = {"spot_to_spot": spot_to_spot, "move_cost": move_cost, "least_saving_per_pod": least_saving_per_pod}
    snapshot = disruption_snapshot(inputs, **{name: value for name, value in given.items() if value is not None})
    started = time.perf_counter()
    decided = decide(snapshot)
    took_s = time.perf_counter() - started
    if html is not None:
        notes = PageNotes(inputs.region, caveat_texts(inputs), cost_label)
        write_page(html, disrupt_report(snapshot.scheduling, decided, notes))
    money = Money(snapshot.scheduling)
    emit(
        joined(disruption_document(decided, money), caveats_of(inputs)),
        output,
        lambda: Group(
            _page(decided, took_s, money),
            *policy_lines(snapshot.scheduling, () if decided.rehearsed is UNSET else decided.rehearsed),
            *disruption_lines(snapshot.policies),
            *caveat_lines(inputs),
        ),
    )
    return 0 if decided.commands else 1


def _page(decided: Decision, took_s: float, money: Money) -> RenderableType:
    """The decision for people: each command with its price, then what keeps the other nodes."""
    parts: list[RenderableType] = []
    for command in decided.commands:
        parts += [command_page(command, money), Text()]
    if decided.blocked:
        blocked = ((entry.node, entry.reason) for entry in decided.blocked)
        parts += [plain_table("node", "stays because", rows=blocked), Text()]
    nodes = sum(len(command.nodes) for command in decided.commands)
    new = sum(len(command.replacements) for command in decided.commands)
    parts.append(
        Text.assemble(
            ("Disrupt: ", "bold"),
            f"{nodes} to remove, {new} to launch for them, {len(decided.blocked)} stay. ",
            (f"{per_hour_and_month(money.saved(decided.commands), 'saved')}", "bold"),
            f" ({took_s * 1000:.0f} ms)",
        )
    )
    return Group(*parts)
