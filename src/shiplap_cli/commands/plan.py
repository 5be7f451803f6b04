"""`shiplap plan`: what would be launched for a cluster state and manifests, and why."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Group, RenderableType

from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan as decide
from shiplap.scheduling.supply.pool_catalogs import accepted_overlays
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.money import Money
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import Format, Output, counted, emit, progress
from shiplap_cli.render.decision_documents import caveat_lines, caveat_texts, caveats_document, plan_document
from shiplap_cli.render.html import plan_report
from shiplap_cli.render.html_file import HtmlFile, write_page
from shiplap_cli.render.pages import plan_page
from shiplap_cli.render.totals import Totals, totals_of, without_pool_nodes


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
    which: InstallOptions,
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
        from shiplap_cli.commands.plan_diff import compare  # noqa: PLC0415 - only here

        return compare(sources, diff, which, from_scratch=from_scratch, html=html, output=output)
    inputs = load_inputs(sources, which)
    snapshot = without_pool_nodes(inputs.snapshot) if from_scratch else inputs.snapshot
    with progress(f"planning {counted(len(snapshot.view.pods), 'pod')}"):
        started = time.perf_counter()
        decided = decide(snapshot)
        solve_s = time.perf_counter() - started
    money = Money(inputs.snapshot)
    answer = plan_document(decided, solve_s, money) | caveats_document(inputs)
    rejected = _rejected_overlays(snapshot)
    if rejected:
        answer["rejectedOverlays"] = rejected
    totals = totals_of(inputs.snapshot, decided, money, from_scratch=from_scratch)
    if totals.priced or inputs.live:
        answer["totals"] = msgspec.to_builtins(totals)
    if html is not None:
        write_page(html, plan_report(snapshot, decided, inputs.snapshot, caveat_texts(inputs)))
    emit(answer, output, lambda: _page(inputs, plan_page(snapshot, decided, solve_s, money, rejected), totals))
    return 1 if decided.unschedulable else 0


def _page(inputs: LoadedInputs, page: RenderableType, totals: Totals) -> RenderableType:
    after = [totals.text] if totals.priced or inputs.live else []
    return Group(page, *after, *caveat_lines(inputs))


def _rejected_overlays(snapshot: Snapshot) -> list[str]:
    """Names of NodeOverlays that are applied nowhere because they conflict with another of equal weight, sorted."""
    accepted = {overlay.metadata.name for overlay in accepted_overlays(snapshot)}
    return sorted({overlay.metadata.name for overlay in snapshot.manifests.node_overlays} - accepted)
