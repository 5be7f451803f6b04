"""`shiplap plan`: what would be launched for a cluster state and manifests, and why."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from shiplap.api.nodeclaim import PodReference
from shiplap.cli.html import plan_report
from shiplap.cli.html_file import HtmlFile, write
from shiplap.cli.install import Which
from shiplap.cli.money import Money
from shiplap.cli.options import Sources, takes_sources
from shiplap.cli.output import Format, Output, counted, emit, progress
from shiplap.cli.pages import plan_page
from shiplap.cli.sources import Reading, read
from shiplap.cli.totals import Totals, totals_of, without_pool_nodes
from shiplap.instances.node_prices import Price
from shiplap.kubernetes.quantity import format_amount, format_resources
from shiplap.scheduling.catalogues import accepted_overlays
from shiplap.scheduling.plan import LaunchChoice, Plan, PlannedClaim, Unschedulable
from shiplap.scheduling.planner import plan as decide
from shiplap.scheduling.snapshot import Snapshot


@takes_sources
def plan(
    *,
    sources: Sources,
    diff: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            help="Compare two sets of manifests, each a file or folder, on the same cluster.", metavar="OLD NEW"
        ),
    ] = None,
    from_scratch: Annotated[
        bool,
        typer.Option(
            "--from-scratch", help="As if the nodes of all NodePools were gone and their pods pending: plan them all."
        ),
    ] = False,
    which: Which,
    html: HtmlFile = None,
    output: Output = Format.TABLE,
) -> int:
    """What would be launched for the pending pods of a cluster, for whom, at what price, and why.

    The cluster is asked by its kubeconfig context, with lists only, or given as files. With --cluster, an install's
    settings, claims on their way and learned capacity count as well: what its functions would decide now. Exit code 0
    when every pod has a place (with --diff: when NEW leaves out no pod that OLD places), 1 when not, 2 for bad input.

    Example: shiplap plan --context prod --manifests pools/

    Example: shiplap plan --context prod --cluster prod

    Example: kubectl get pods,nodes,daemonsets,nodepools,ec2nodeclasses -A -o json | shiplap plan -f -
    """
    if diff is not None:
        from shiplap.cli.plan_diff import compare  # noqa: PLC0415 - only here

        return compare(sources, diff, which, from_scratch=from_scratch, html=html, output=output)
    reading = read(sources, which)
    snapshot = without_pool_nodes(reading.snapshot) if from_scratch else reading.snapshot
    with progress(f"planning {counted(len(snapshot.view.pods), 'pod')}"):
        started = time.perf_counter()
        decided = decide(snapshot)
        solve_s = time.perf_counter() - started
    money = Money(reading.snapshot)
    answer = document(decided, solve_s, money) | seen_document(reading)
    rejected = _rejected_overlays(snapshot)
    if rejected:
        answer["rejectedOverlays"] = rejected
    totals = totals_of(reading.snapshot, decided, money, from_scratch=from_scratch)
    if totals.priced or reading.live:
        answer["totals"] = msgspec.to_builtins(totals)
    if html is not None:
        write(html, plan_report(snapshot, decided, reading.snapshot, seen_texts(reading)))
    emit(answer, output, lambda: _page(reading, plan_page(snapshot, decided, solve_s, money, rejected), totals))
    return 1 if decided.unschedulable else 0


def _page(reading: Reading, page: RenderableType, totals: Totals) -> RenderableType:
    after = [totals.text] if totals.priced or reading.live else []
    return Group(page, *after, *seen_lines(reading))


def seen_document(reading: Reading) -> dict[str, Any]:
    """The Region of its prices and zones, and what an answer does not rest on: rights that are missing, AWS not asked.

    Each is there where there is any of it.
    """
    parts = {"region": reading.region, "unseen": reading.unseen, "notes": reading.notes}
    return {key: msgspec.to_builtins(entries) for key, entries in parts.items() if entries}


def seen_lines(reading: Reading) -> list[RenderableType]:
    """The same for people."""
    return [Text.assemble(("! ", "yellow bold"), (line, "yellow")) for line in seen_texts(reading)]


def seen_texts(reading: Reading) -> tuple[str, ...]:
    """The same as plain lines."""
    return (*(item.text for item in reading.unseen), *reading.notes)


def _rejected_overlays(snapshot: Snapshot) -> list[str]:
    """Names of NodeOverlays that are applied nowhere because they conflict with another of equal weight, sorted."""
    accepted = {overlay.metadata.name for overlay in accepted_overlays(snapshot)}
    return sorted({overlay.metadata.name for overlay in snapshot.manifests.node_overlays} - accepted)


def document(decided: Plan, solve_s: float, money: Money) -> dict[str, Any]:
    """A plan in the fixed format of `shiplap plan -o json`; resources as quantities, pods as `namespace/name`.

    Static pools and CapacityBuffers are there where there are any.
    """
    extra = {"staticPools": decided.static_pools, "buffers": decided.buffers}
    return {
        "nodeClaims": [claim_document(claim, money) for claim in decided.node_claims],
        "existingNodes": [{"name": place.name, "pods": _names(place.pods)} for place in decided.existing_nodes],
        "unschedulable": [_left_out(entry) for entry in decided.unschedulable],
        "ignored": [{"pod": _name(entry.pod), "message": entry.message} for entry in decided.ignored],
        "cost": {"hourly": decided.hourly, "estimated": money.of_launches(decided.node_claims).estimated},
        "stats": {"pods": decided.stats.pods, "classes": decided.stats.classes, "solveSeconds": round(solve_s, 6)},
        **{key: msgspec.to_builtins(entries) for key, entries in extra.items() if entries},
    }


def claim_document(claim: PlannedClaim, money: Money) -> dict[str, Any]:
    """A claim as it stands in the fixed formats."""
    return {
        "name": claim.name,
        "nodePool": claim.node_pool,
        "tier": claim.tier,
        "requirements": msgspec.to_builtins(claim.requirements),
        "taints": msgspec.to_builtins(claim.taints),
        "labels": claim.labels,
        "instanceTypes": list(claim.instance_types),
        "launch": launch_document(claim.launch, money.of_launch(claim)),
        "requests": format_resources(claim.requests),
        "pods": _names(claim.pods),
        "reasons": list(claim.reasons),
        **({"gaveUp": list(claim.gave_up)} if claim.gave_up else {}),
        **({"virtualPods": _names(claim.virtual_pods)} if claim.virtual_pods else {}),
    }


def launch_document(launch: LaunchChoice, price: Price) -> dict[str, Any]:
    """A reservation is named only where one is used."""
    written = {key: value for key, value in msgspec.to_builtins(launch).items() if value or key != "reservationId"}
    return written | {"priceEstimated": price.estimated}


def _left_out(entry: Unschedulable) -> dict[str, Any]:
    result: dict[str, Any] = {"pod": _name(entry.pod), "message": entry.message}
    if entry.nearest is not None and entry.nearest.resource:
        nearest = entry.nearest
        result["nearest"] = {
            "instanceType": nearest.instance_type,
            "nodePool": nearest.node_pool,
            "resource": nearest.resource,
            "short": format_amount(nearest.resource, nearest.short),
        }
    return result


def _name(pod: PodReference) -> str:
    return f"{pod.namespace}/{pod.name}"


def _names(pods: Sequence[PodReference]) -> list[str]:
    return [_name(pod) for pod in pods]
