"""`shiplap disrupt`: what would be removed or replaced in a cluster, and what keeps every other node."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from msgspec.structs import replace
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from shiplap.api.nodeclaim import ClaimState, NodeClaim
from shiplap.api.types import Manifests
from shiplap.cli.html import disrupt_report
from shiplap.cli.html_file import HtmlFile, write
from shiplap.cli.install import Which
from shiplap.cli.money import Money, dollars
from shiplap.cli.options import Sources, takes_sources
from shiplap.cli.output import Format, Output, counted, emit
from shiplap.cli.pages import summary
from shiplap.cli.plan import claim_document, seen_document, seen_lines, seen_texts
from shiplap.cli.sources import Reading, read
from shiplap.disruption.commands import Decision, Proposal
from shiplap.disruption.decide import decide
from shiplap.disruption.history import observe
from shiplap.disruption.settings import DisruptionSettings
from shiplap.disruption.snapshot import DisruptionSnapshot
from shiplap.kubernetes import labels
from shiplap.kubernetes.names import name_of_label
from shiplap.kubernetes.objects import Node
from shiplap.kubernetes.timestamps import epoch
from shiplap.scheduling.snapshot import Snapshot


@takes_sources
def disrupt(
    *,
    sources: Sources,
    which: Which,
    spot_to_spot: Annotated[
        bool | None,
        typer.Option(
            "--spot-to-spot/--no-spot-to-spot",
            help="Replace spot nodes by cheaper spot nodes; as the install does, else yes.",
            show_default=False,
        ),
    ] = None,
    least_saving_per_pod: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="USD per hour that moving one pod has to save at least; as the install does, else "
            f"{DisruptionSettings().least_saving_per_pod}.",
            show_default=False,
        ),
    ] = None,
    html: HtmlFile = None,
    output: Output = Format.TABLE,
) -> int:
    """What would be consolidated, drifted or expired now, and what blocks the rest.

    Nodes count as Shiplap's own by their NodeClaims; where the cluster has none at all, by their labels. With
    --cluster, by the claims of an install, whose settings, commands under way and memory of its nodes count as well.
    Exit code 0 when there is something to do, 1 when there is nothing, 2 for bad input.

    Example: shiplap disrupt --context prod --manifests pools/

    Example: kubectl get nodes,pods,daemonsets,pdb -A -o json | shiplap disrupt -f - --manifests pools/
    """
    reading = read(sources, which, lax_budgets=True)
    given = {"spot_to_spot": spot_to_spot, "least_saving_per_pod": least_saving_per_pod}
    snapshot = disruption_snapshot(reading, **{name: value for name, value in given.items() if value is not None})
    started = time.perf_counter()
    decided = decide(snapshot)
    took_s = time.perf_counter() - started
    if html is not None:
        write(html, disrupt_report(snapshot.scheduling, decided, seen_texts(reading)))
    money = Money(snapshot.scheduling)
    emit(
        document(decided, money) | seen_document(reading),
        output,
        lambda: Group(_page(decided, took_s, money), *seen_lines(reading)),
    )
    return 0 if decided.commands else 1


def disruption_snapshot(reading: Reading, **changes: Any) -> DisruptionSnapshot:
    """What was read of a cluster, for a disruption decision; `changes` are fields of its settings."""
    snapshot, state, installed = reading.snapshot, reading.state, reading.installed
    known = installed.settings if installed is not None else None
    settings = replace(known.disruption if known is not None else DisruptionSettings(), **changes)
    if installed is not None and installed.claims is not None:
        return DisruptionSnapshot(
            scheduling=replace(snapshot, claims=installed.claims),
            pod_disruption_budgets=state.pod_disruption_budgets,
            histories=observe(installed.memory.histories, snapshot.view, installed.claims, snapshot.now),
            busy=installed.busy,
            settings=settings,
        )
    return DisruptionSnapshot(
        scheduling=snapshot if snapshot.claims else _with_inferred_claims(snapshot),
        pod_disruption_budgets=state.pod_disruption_budgets,
        histories=state.histories,
        settings=settings,
    )


def document(decided: Decision, money: Money) -> dict[str, Any]:
    """A decision in the fixed format of `shiplap disrupt -o json`."""
    return {
        "commands": [command_document(command, money) for command in decided.commands],
        "blocked": [{"node": entry.node, "reason": entry.reason} for entry in decided.blocked],
    }


def command_document(command: Proposal, money: Money) -> dict[str, Any]:
    """One command in that format."""
    return {
        "reason": str(command.reason),
        "method": str(command.method),
        "nodes": list(command.nodes),
        "replacements": [claim_document(claim, money) for claim in command.replacements],
        "savingsHourly": command.savings_hourly,
        "savingsEstimated": money.saved([command]).estimated,
        "movedPods": command.moved,
        "detail": command.detail,
    }


def _with_inferred_claims(snapshot: Snapshot) -> Snapshot:
    """The claims that nodes of NodePools must have had: Shiplap keeps them in its table, not in the cluster."""
    ours = [node for node in snapshot.view.nodes if labels.NODE_POOL in node.metadata.labels]
    return replace(snapshot, claims=tuple(_inferred(node, snapshot.manifests) for node in ours))


def _inferred(node: Node, manifests: Manifests) -> NodeClaim:
    marks, born = node.metadata.labels, node.metadata.creation_timestamp
    done = marks.get(labels.INITIALIZED) == "true"
    return NodeClaim(
        cluster="files",
        name=marks.get(labels.NODE_CLAIM, node.metadata.name),
        node_pool=name_of_label(marks[labels.NODE_POOL], (item.metadata.name for item in manifests.node_pools)),
        node_class=name_of_label(
            marks.get(labels.NODE_CLASS, ""), (item.metadata.name for item in manifests.node_classes)
        ),
        state=ClaimState.INITIALIZED if done else ClaimState.REGISTERED,
        created_at=epoch(born) if born else 0.0,
        labels=marks,
        annotations=node.metadata.annotations,
        instance_type=marks.get(labels.INSTANCE_TYPE, ""),
        zone=marks.get(labels.ZONE, ""),
        capacity_type=marks.get(labels.CAPACITY_TYPE, ""),
        instance_id=node.spec.provider_id.rpartition("/")[2],
        node_name=node.metadata.name,
    )


def _page(decided: Decision, took_s: float, money: Money) -> RenderableType:
    """The decision for people: each command with its price, then what keeps the other nodes."""
    parts: list[RenderableType] = []
    for command in decided.commands:
        parts += [command_page(command, money), Text()]
    if decided.blocked:
        table = Table("node", "stays because", box=None, pad_edge=False)
        for entry in decided.blocked:
            table.add_row(entry.node, entry.reason)
        parts += [table, Text()]
    nodes = sum(len(command.nodes) for command in decided.commands)
    new = sum(len(command.replacements) for command in decided.commands)
    parts.append(
        Text.assemble(
            ("Disrupt: ", "bold"),
            f"{nodes} to remove, {new} to launch for them, {len(decided.blocked)} stay. ",
            (f"{dollars(money.saved(decided.commands))} per hour saved", "bold"),
            f" ({took_s * 1000:.0f} ms)",
        )
    )
    return Group(*parts)


def command_page(command: Proposal, money: Money) -> RenderableType:
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
