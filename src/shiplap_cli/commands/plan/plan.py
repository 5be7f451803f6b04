"""`shiplap plan`: what would be launched for a cluster state, and why; with --diff, under two sets of manifests."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from shiplap.errors import InvalidInput
from shiplap.instances.offerings.node_prices import Price, total_price
from shiplap.scheduling.model.scheduling_plan import Plan, is_asleep
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.planner import plan as decide
from shiplap.scheduling.supply.pool_catalogs import accepted_overlays
from shiplap_cli.commands.plan.drifting_nodes import drifting_nodes
from shiplap_cli.commands.plan.monthly_costs import MOST_NODES, MonthlyCosts, consolidation_of, monthly_costs
from shiplap_cli.commands.plan.plan_answers import PlanCosts, RejectedOverlays
from shiplap_cli.inputs.disruption_inputs import disruption_snapshot, rehearsed_nodes, told_of_missing_kinds
from shiplap_cli.inputs.loaded_inputs import LoadedInputs, load_inputs, load_inputs_per_manifests
from shiplap_cli.installs.find_install import InstallOptions
from shiplap_cli.joined_documents import joined
from shiplap_cli.money import Money, dollar_figure, hourly_text
from shiplap_cli.options import Sources, takes_sources
from shiplap_cli.output import (
    CostLabel,
    Format,
    HtmlFile,
    MarkdownFile,
    Output,
    counted,
    emit,
    grouped,
    progress,
    summary,
    write_page,
)
from shiplap_cli.policy_views import plan_lines, policy_answers, policy_documents, policy_lines
from shiplap_cli.render.arm_comparison import (
    ArmDocument,
    architecture_side,
    arm_page,
    on_arm64,
    on_new_nodes,
    read_named,
    workload_pods,
)
from shiplap_cli.render.decision_documents import caveat_lines, caveat_texts, caveats_of, plan_document
from shiplap_cli.render.html import PageNotes, diff_report, plan_report
from shiplap_cli.render.markdown_reports import difference_markdown
from shiplap_cli.render.pages import plan_page
from shiplap_cli.render.totals import (
    DriftingNodes,
    LeftOut,
    NodeTotal,
    PlanDifference,
    PlanSide,
    Totals,
    totals_of,
    without_pool_nodes,
)


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
    details: Annotated[
        bool, typer.Option("--details", help="Account for the pods, types and price of each launch in the table.")
    ] = False,
    arm: Annotated[
        list[str] | None,
        typer.Option(
            help="What this workload would cost on arm64, as [KIND/][NAMESPACE/]NAME; again for several.",
            metavar="WORKLOAD",
        ),
    ] = None,
    cost_label: CostLabel = "",
    which: InstallOptions,
    html: HtmlFile = None,
    markdown: MarkdownFile = None,
    output: Output = Format.TABLE,
) -> int:
    """What would be launched for the pending pods of a cluster, for whom, at what price, and why.

    The cluster is asked by its kubeconfig context, with lists only, or given as files. With --cluster, an install's
    settings, claims on their way and learned capacity count as well: what its functions would decide now. Exit code 0
    when every pod that does not sleep has a place (with --diff: when NEW leaves out no pod that OLD places), 1 when
    not, 2 for bad input. Pods left alone, such as those outside the claim rules, do not count.

    Example: shiplap plan --context prod --manifests pools/

    Example: shiplap plan --context prod --cluster prod

    Example: shiplap plan --context prod --arm web --arm job/batch/import

    Example: kubectl get -A -o json
    pods,nodes,daemonsets,replicasets,pdb,pv,pvc,storageclasses,csinodes,csidrivers,namespaces,nodepools,ec2nodeclasses
    | shiplap plan -f -
    """
    if markdown is not None and diff is None:
        raise InvalidInput("--markdown", "writes a comparison: name the two sets of manifests with --diff OLD NEW")
    if arm:
        if diff is not None or from_scratch or html is not None:
            raise InvalidInput("--arm", "plans the workloads alone: leave --diff, --from-scratch and --html out")
        return _on_arm(load_inputs(sources, which), arm, output)
    if diff is not None:
        return _compare(sources, diff, which, _Written(html, markdown, output), from_scratch=from_scratch)
    inputs = load_inputs(sources, which)
    snapshot = without_pool_nodes(inputs.snapshot) if from_scratch else inputs.snapshot
    with progress(f"planning {counted(len(snapshot.view.pods), 'pod')}"):
        started = time.perf_counter()
        snapshot, decided = (snapshot, decide(snapshot)) if from_scratch else inputs.decided()
        solve_s = time.perf_counter() - started
    money = Money(inputs.snapshot)
    rehearsed = rehearsed_nodes(inputs)
    rejected = _rejected_overlays(snapshot)
    totals = totals_of(inputs.snapshot, decided, money, from_scratch=from_scratch)
    month = _month(inputs, decided, totals, money, from_scratch=from_scratch)
    inputs = told_of_missing_kinds(inputs) if month is not None else inputs
    answer = joined(
        plan_document(decided, solve_s, money),
        caveats_of(inputs),
        RejectedOverlays(tuple(rejected)),
        policy_answers()(**policy_documents(snapshot, decided, rehearsed)),
        PlanCosts(totals, month) if month is not None else PlanCosts(),
    )
    if html is not None:
        notes = PageNotes(inputs.region, caveat_texts(inputs), cost_label, month.text if month is not None else "")
        write_page(html, plan_report(snapshot, decided, inputs.snapshot, notes))

    def page() -> RenderableType:
        made = plan_page(snapshot, decided, solve_s, money, rejected, details=details)
        costs = [totals.text, Text(), Text(month.text)] if month is not None else []
        return Group(
            made,
            *plan_lines(snapshot, decided),
            *costs,
            *policy_lines(inputs.snapshot, rehearsed),
            *caveat_lines(inputs),
        )

    emit(answer, output, page)
    return 0 if all(map(is_asleep, decided.unschedulable)) else 1


def _month(
    inputs: LoadedInputs, decided: Plan, totals: Totals, money: Money, *, from_scratch: bool
) -> MonthlyCosts | None:
    """The costs of a month; None of files without a node that has a price. Raises InvalidInput as `decide`."""
    if not totals.priced and not inputs.live:
        return None
    snapshot, consolidation = inputs.snapshot, None
    if not from_scratch and len(snapshot.view.nodes) <= MOST_NODES:
        with progress(f"consolidating {counted(totals.now.nodes, 'node')}"):
            consolidation = consolidation_of(disruption_snapshot(inputs))
    return monthly_costs(snapshot, decided, totals, money, consolidation)


def _on_arm(inputs: LoadedInputs, workloads: Sequence[str], output: Format) -> int:
    """Plan workloads as they are and on arm64; exit code 1 when a pod has no place there. Raises InvalidInput."""
    pods = workload_pods(inputs.snapshot, [read_named(text) for text in workloads])
    alone = on_new_nodes(inputs.snapshot, pods)
    with progress(f"planning {counted(len(pods), 'pod')} twice"):
        usual, arm64 = (architecture_side(decide(snapshot)) for snapshot in (alone, on_arm64(alone)))
    document = ArmDocument(tuple(workloads), len(pods), usual, arm64)
    answer = joined(document, caveats_of(inputs))
    emit(answer, output, lambda: Group(arm_page(document), *caveat_lines(inputs)))
    return 1 if document.arm64.left_out else 0


def _rejected_overlays(snapshot: Snapshot) -> list[str]:
    """Names of NodeOverlays that are applied nowhere because they conflict with another of equal weight, sorted."""
    accepted = {overlay.metadata.name for overlay in accepted_overlays(snapshot)}
    return sorted({overlay.metadata.name for overlay in snapshot.manifests.node_overlays} - accepted)


class _Written(NamedTuple):
    """The forms in which a comparison is written."""

    html: Path | None
    markdown: Path | None
    output: Format


def _compare(
    sources: Sources,
    diff: tuple[Path, Path],
    which: InstallOptions,
    written: _Written,
    *,
    from_scratch: bool,
) -> int:
    """Plan under both and print the difference; the exit code of `shiplap plan --diff`. Raises InvalidInput."""
    if sources.manifests:
        raise InvalidInput("--diff", "names both sets of manifests; leave --manifests out")
    inputs_of_each = load_inputs_per_manifests(sources, [[path] for path in diff], which)
    plans, snapshots = [], []
    for inputs, path in zip(inputs_of_each, diff, strict=True):
        snapshot = without_pool_nodes(inputs.snapshot) if from_scratch else inputs.snapshot
        with progress(f"planning with {path}"):
            snapshot, made = (snapshot, decide(snapshot)) if from_scratch else inputs.decided()
        plans.append(made)
        snapshots.append(snapshot)
    moneys = [Money(inputs.snapshot) for inputs in inputs_of_each]
    sides = [
        _side(str(path), made, totals_of(inputs.snapshot, made, money, from_scratch=from_scratch), money)
        for path, made, inputs, money in zip(diff, plans, inputs_of_each, moneys, strict=True)
    ]
    drifting = drifting_nodes(*map(disruption_snapshot, inputs_of_each))
    difference = _difference(sides, plans, _by_reason(drifting, moneys[0]))
    answer = joined(difference, caveats_of(inputs_of_each[1]))
    caveats = caveat_texts(inputs_of_each[1])
    if written.html is not None:
        write_page(written.html, diff_report(difference, snapshots, plans, caveats))
    if written.markdown is not None:
        write_page(written.markdown, difference_markdown(difference, caveats))
    emit(answer, written.output, lambda: _difference_page(difference, inputs_of_each[1]))
    return 1 if difference.newly_left_out else 0


def _by_reason(drifting: Mapping[str, str], money: Money) -> tuple[DriftingNodes, ...]:
    """Nodes that drift, by reason; each at the price that it has now."""
    found = []
    for reason, nodes in grouped((reason, name) for name, reason in drifting.items()).items():
        price = total_price(map(money.of_node, nodes))
        found.append(DriftingNodes(reason, tuple(nodes), price.hourly, price.estimated))
    return tuple(found)


def _difference(
    sides: Sequence[PlanSide], plans: Sequence[Plan], drifting: tuple[DriftingNodes, ...]
) -> PlanDifference:
    """The changes from the first side to the second."""
    left = [{entry.pod.key: entry.message for entry in made.unschedulable} for made in plans]
    pools = [{pod.key: claim.node_pool for claim in made.node_claims for pod in claim.pods} for made in plans]
    return PlanDifference(
        old=sides[0],
        new=sides[1],
        newly_left_out=_only_in_first(left[1], left[0]),
        newly_placed=_only_in_first(left[0], left[1]),
        moved=sum(pools[1].get(name, pool) != pool for name, pool in pools[0].items()),
        drifting=drifting,
    )


def _only_in_first(these: Mapping[str, str], those: Mapping[str, str]) -> tuple[LeftOut, ...]:
    return tuple(LeftOut(name, these[name]) for name in sorted(these.keys() - those.keys()))


def _side(path: str, made: Plan, totals: Totals, money: Money) -> PlanSide:
    return PlanSide(
        manifests=path,
        nodes=len(made.node_claims),
        hourly=made.hourly,
        estimated=money.of_launches(made.node_claims).estimated,
        pods_on_new=sum(len(claim.pods) for claim in made.node_claims),
        pods_on_existing=sum(len(place.pods) for place in made.existing_nodes),
        unschedulable=len(made.unschedulable),
        ignored=len(made.ignored),
        pools=_launches((claim.node_pool, money.of_launch(claim)) for claim in made.node_claims),
        instance_types=_launches((claim.launch.instance_type, money.of_launch(claim)) for claim in made.node_claims),
        totals=totals,
    )


def _launches(priced: Iterable[tuple[str, Price]]) -> dict[str, NodeTotal]:
    by_name: dict[str, list[Price]] = {}
    for name, price in priced:
        by_name.setdefault(name, []).append(price)
    sums = {name: total_price(prices) for name, prices in sorted(by_name.items())}
    return {name: NodeTotal(len(by_name[name]), found.hourly, found.estimated) for name, found in sums.items()}


def _difference_page(difference: PlanDifference, inputs: LoadedInputs) -> RenderableType:
    old, new = difference.old, difference.new
    right = [Column(header, justify="right") for header in ("old", "new", "change")]
    table = Table("", *right, box=None, pad_edge=False)
    for name, before, after in difference.counts:
        table.add_row(name, str(before), str(after), _count_change(after - before))
    for name, spent, spends in (
        ("$/h of what is launched", old.price, new.price),
        ("$/h of the cluster then", old.totals.then.price, new.totals.then.price),
    ):
        change = _hourly_change(spends.hourly - spent.hourly, spent.hourly)
        table.add_row(name, dollar_figure(spent), dollar_figure(spends), change)
    parts: list[RenderableType] = [Text.assemble(("- ", "red"), old.manifests, ("  + ", "green"), new.manifests), table]
    for title, before_by, after_by in (
        ("pool", old.pools, new.pools),
        ("instance type", old.instance_types, new.instance_types),
    ):
        parts += [Text(), _launch_table(title, before_by, after_by)]
    for title, entries, style in (
        ("Placed by OLD, left out by NEW", difference.newly_left_out, "red"),
        ("Left out by OLD, placed by NEW", difference.newly_placed, "green"),
    ):
        parts += _pods(title, entries, style)
    if difference.moved:
        parts += [Text(), Text(f"{counted(difference.moved, 'pod')} would get a node of another pool")]
    return Group(*parts, *_drift(difference), *caveat_lines(inputs))


def _drift(difference: PlanDifference) -> Iterator[RenderableType]:
    """Yield the lines about nodes that drift."""
    if not difference.drifting:
        return
    price = hourly_text(difference.drifting_price)
    yield Text()
    yield Text(f"{counted(difference.drifting_nodes, 'node')} would drift and be replaced: {price}", style="yellow")
    for entry in difference.drifting:
        yield Text.assemble((f"  {summary(entry.nodes)}", "bold"), f"\n    {entry.reason}")


def _launch_table(title: str, old: Mapping[str, NodeTotal], new: Mapping[str, NodeTotal]) -> Table:
    columns = ("nodes old", "new", "change", "$/h old", "new", "change")
    table = Table(title, *(Column(name, justify="right") for name in columns), box=None, pad_edge=False)
    none = NodeTotal(0, 0.0)
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, none), new.get(name, none)
        table.add_row(
            name,
            str(before.nodes),
            str(after.nodes),
            _count_change(after.nodes - before.nodes),
            dollar_figure(before.price),
            dollar_figure(after.price),
            _hourly_change(after.hourly - before.hourly),
        )
    return table


def _pods(title: str, entries: Sequence[LeftOut], style: str) -> list[RenderableType]:
    by_message = grouped((entry.message, entry.pod) for entry in entries)
    lines: list[RenderableType] = [
        Text.assemble((f"  {summary(pods)}", "bold"), f"\n    {message}") for message, pods in by_message.items()
    ]
    return [Text(), Text(title, style=style), *lines] if lines else []


def _count_change(number: int) -> str:
    return f"{number:+d}" if number else "="


def _hourly_change(change: float, before: float = 0.0) -> str:
    if abs(change) < 0.00005:
        return "="
    share = f" ({change / before:+.1%})" if before else ""
    return f"{change:+.4f}{share}"
