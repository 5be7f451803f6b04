"""`--html FILE`: what a command says as one self-contained page, with the packing of the cluster as a map."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shiplap.disruption.candidates import reschedulable_pods
from shiplap.disruption.commands import Decision
from shiplap.disruption.current_prices import node_prices
from shiplap.drawing import markup
from shiplap.drawing.capture import picture_after_plan, picture_of_snapshot
from shiplap.drawing.cost_shares import cost_table, share_costs
from shiplap.drawing.packing_map import (
    MOST_PODS,
    bound_note,
    detail_level,
    legend,
    missing_list,
    node_table,
    packing_map,
    pending_table,
    sections,
    totals,
)
from shiplap.drawing.picture import ClusterPicture, NodePictureState, PendingPicture
from shiplap.drawing.style import colour_numbers
from shiplap.instances.offerings.node_prices import NodePrices
from shiplap.kubernetes import labels
from shiplap.kubernetes.objects import TERMINAL_PHASES
from shiplap.kubernetes.pod_requests import pod_requests
from shiplap.kubernetes.quantity import PODS, add_resources, format_part
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.model.planned_pods import owner_kind
from shiplap.scheduling.model.scheduling_plan import Placement, Plan, PlannedClaim
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap.scheduling.packing.compiled_snapshot import compile_snapshot
from shiplap.scheduling.supply.limits import NODES
from shiplap_cli.money import Money, dollars, per_hour_and_month
from shiplap_cli.output import grouped, summary
from shiplap_cli.render.page import page
from shiplap_cli.render.totals import LeftOut, NodeTotal, PlanDifference
from shiplap_lab.simulation.packing_bounds import hourly_bound, offers_of

_MOST_ROWS = 200


class PageNotes(msgspec.Struct, frozen=True):
    """The notes of a page beside its subject: the Region of its prices, what could not be seen (a line each), the label
    by whose values costs are shared out, and a paragraph about the costs of a month; each may be empty.
    """

    region: str = ""
    missing: tuple[str, ...] = ()
    cost_label: str = ""
    month: str = ""


_NO_NOTES = PageNotes()


def plan_report(snapshot: Snapshot, plan: Plan, present: Snapshot | None = None, notes: PageNotes = _NO_NOTES) -> str:
    """The cluster once the plan has come true, what is new in it standing out, and what changes.

    Args:
        snapshot: what the plan was made on.
        plan: made on it.
        present: the cluster as it is, where the plan was made on another, as with `--from-scratch`.
        notes: what else is said.
    """
    money = Money(snapshot)
    before = picture_of_snapshot(present or snapshot, money.prices)
    after = replace(
        picture_after_plan(snapshot, plan, money.prices),
        bound_hourly=_lower_bound(snapshot, plan),
        limits=limits_after(snapshot, plan.node_claims),
    )
    reused = sum(len(node.pods) for node in plan.existing_nodes)
    placed = sum(len(claim.pods) for claim in plan.node_claims)
    lead = (
        f"{markup.counted(len(plan.node_claims), 'node')} to launch for {markup.counted(placed, 'pod')}, "
        f"{markup.counted(reused, 'pod')} on nodes that exist, {len(plan.unschedulable)} without a place; "
        f"{_where_and_when(snapshot, notes)}"
    )
    body = [
        missing_list(notes.missing),
        f"<p>{markup.text(notes.month)}</p>" if notes.month else "",
        totals(after, before),
        bound_note(after),
        "<h2>The nodes once it is done</h2>",
        packing_map(after),
        _launches(plan.node_claims, money),
        pending_table(after),
        *_cost_tables(after, snapshot, notes.cost_label),
        node_table(after),
    ]
    return page(f"Plan for {_title(snapshot)}", lead, "".join(body))


def disrupt_report(snapshot: Snapshot, decision: Decision, notes: PageNotes = _NO_NOTES) -> str:
    """The cluster as it is, and as it would be when every command is done, side by side."""
    money = Money(snapshot)
    before = picture_of_snapshot(snapshot, money.prices)
    after = after_commands(snapshot, decision, money.prices)
    gone = {name for command in decision.commands for name in command.nodes}
    claims = [claim for command in decision.commands for claim in command.replacements]
    marked = replace(
        before,
        limits=limits_after(snapshot, claims),
        nodes=tuple(
            replace(node, state=NodePictureState.LEAVING) if node.name in gone else node for node in before.nodes
        ),
    )
    chosen = detail_level(max(before.nodes, after.nodes, key=len), most_pods=MOST_PODS // 2, zoom=0.85)
    colours = colour_numbers({*before.pools, *after.pools})
    saved = money.saved(decision.commands)
    new = sum(len(command.replacements) for command in decision.commands)
    lead = (
        f"{markup.counted(len(gone), 'node')} to remove, {new} to launch for them, {len(decision.blocked)} stay; "
        f"{per_hour_and_month(saved, 'saved')}; {_where_and_when(snapshot, notes)}"
    )
    body = [
        missing_list(notes.missing),
        totals(after, before),
        _commands(decision, money),
        legend((*marked.nodes, *after.nodes)),
        f'<div class="sides map"><div><h2>Before</h2>{sections(marked, chosen, colours)}</div>',
        f"<div><h2>After</h2>{sections(after, chosen, colours)}</div></div>",
        _by_reason(
            "What stays",
            ("nodes", "which", "stay because"),
            ((entry.reason, entry.node) for entry in decision.blocked),
        ),
        pending_table(after),
        *_cost_tables(after, snapshot, notes.cost_label),
        node_table(after),
    ]
    return page(f"Disruption of {_title(snapshot)}", lead, "".join(body))


def _where_and_when(snapshot: Snapshot, notes: PageNotes) -> str:
    return ", ".join(filter(None, (notes.region, rfc3339(snapshot.now))))


def limits_after(snapshot: Snapshot, claims: Iterable[PlannedClaim]) -> dict[str, str]:
    """Return in words, by pool, how much of its limits its nodes and these claims use; pools without limits are not
    in it.
    """
    by_pool: dict[str, list[PlannedClaim]] = {}
    for claim in claims:
        by_pool.setdefault(claim.node_pool, []).append(claim)
    words: dict[str, str] = {}
    for template in compile_snapshot(snapshot).templates:
        pool = template.pool.metadata.name
        if pool in words or not template.pool.spec.limits:
            continue
        limits, table = template.limits.copy(), template.table
        for claim in by_pool.get(pool, ()):
            if claim.launch.instance_type in table.index:
                limits.charge(table.capacity[table.index[claim.launch.instance_type]])
        left = {**limits.axis.amounts(limits.left), NODES: limits.nodes_left}
        words[pool] = ", ".join(
            f"{name} {format_part(name, max(limits.amounts[name] - left.get(name, 0), 0), limits.amounts[name])}"
            for name in sorted(template.pool.spec.limits)
        )
    return words


def _cost_tables(picture: ClusterPicture, snapshot: Snapshot, label: str) -> Iterator[str]:
    """Yield tables of the nodes' cost by namespace, and by a label's values if `label` is given."""
    by_namespace = share_costs(picture.nodes, lambda pod: pod.namespace)
    yield cost_table("Cost by namespace", "namespace", by_namespace, estimated=picture.estimated)
    if label:
        values = {pod.key: pod.metadata.labels.get(label, "") for pod in snapshot.view.pods}
        by_label = share_costs(picture.nodes, lambda pod: values.get(pod.key, ""))
        yield cost_table(f"Cost by label {label}", label, by_label, estimated=picture.estimated)


def after_commands(snapshot: Snapshot, decision: Decision, prices: NodePrices) -> ClusterPicture:
    """The cluster when every command is done: its nodes are gone, replacements are there, and pods are on them."""
    gone = {name for command in decision.commands for name in command.nodes}
    merged: dict[str, Placement] = {}
    for command in decision.commands:
        for placement in command.placements:
            known = merged.get(placement.name)
            merged[placement.name] = Placement(placement.name, (*known.pods, *placement.pods)) if known else placement
    claims = tuple(claim for command in decision.commands for claim in command.replacements)
    after = picture_after_plan(snapshot, Plan(node_claims=claims, existing_nodes=tuple(merged.values())), prices)
    nodes = tuple(node for node in after.nodes if node.name not in gone)
    return replace(after, nodes=nodes, pending=(*after.pending, *_without_a_place(snapshot, decision)))


def _without_a_place(snapshot: Snapshot, decision: Decision) -> Iterator[PendingPicture]:
    """The pods whose node goes before anything is planned for them: of static pools, and where the node goes first."""
    on_nodes = snapshot.view.of_pods(reschedulable_pods)
    for command in decision.commands:
        parts: tuple[PlannedClaim | Placement, ...] = (*command.replacements, *command.placements)
        placed = {ref.key for part in parts for ref in part.pods}
        for node in command.nodes:
            for pod in on_nodes.get(node, ()):
                if pod.key not in placed:
                    reason = f"kube-scheduler finds its place once {node} goes"
                    yield PendingPicture(namespace=pod.metadata.namespace, name=pod.metadata.name, reason=reason)


def _lower_bound(snapshot: Snapshot, plan: Plan) -> float | None:
    """The least cost of our nodes for the pods that are on them or get a place, without those of DaemonSets."""
    ours = {node.metadata.name for node in snapshot.view.nodes if labels.NODE_POOL in node.metadata.labels}
    placed = {ref.key for claim in plan.node_claims for ref in claim.pods}
    placed |= {ref.key for node in plan.existing_nodes if node.name in ours for ref in node.pods}
    counted = [
        pod_requests(pod) | {PODS: 1}
        for pod in snapshot.view.pods
        if pod.status.phase not in TERMINAL_PHASES
        and (pod.spec.node_name in ours or pod.key in placed)
        and owner_kind(pod) not in ("DaemonSet", "Node")
    ]
    offers = offers_of(snapshot) if counted else None
    return hourly_bound(offers, add_resources(*counted)) if offers is not None else None


def _launches(claims: Iterable[PlannedClaim], money: Money) -> str:
    """Claims that are launched alike in one row."""
    alike: dict[tuple[str, ...], list[PlannedClaim]] = {}
    for claim in claims:
        launch = claim.launch
        key = (
            claim.node_pool,
            str(claim.tier),
            launch.instance_type,
            launch.capacity_type,
            launch.zone,
            markup.dollars(launch.price, estimated=money.of_launch(claim).estimated),
            markup.short("; ".join(claim.reasons), 140),  # all of it is on the card of each node
        )
        alike.setdefault(key, []).append(claim)
    if not alike:
        return ""
    rows = [
        (f"{len(launched):,}", kind, bought, zone, pool, tier if tier != "0" else "", price, _pods(launched), why)
        for (pool, tier, kind, bought, zone, price, why), launched in list(alike.items())[:_MOST_ROWS]
    ]
    head = ("nodes", "type", "bought as", "zone", "pool", "fallback", "per hour", "pods", "why not the better tier")
    return f"<h2>To launch</h2>{markup.table(head, rows, numbers=(0, 6, 7), stacks=True)}{_omitted(len(alike))}"


def _pods(claims: Iterable[PlannedClaim]) -> str:
    return f"{sum(len(claim.pods) for claim in claims):,}"


def _commands(decision: Decision, money: Money) -> str:
    rows = [
        (
            str(command.reason),
            summary(command.nodes, 4),
            ", ".join(claim.launch.instance_type for claim in command.replacements) or markup.NOTHING,
            f"{command.moved:,}",
            markup.dollars(command.savings_hourly, estimated=money.saved([command]).estimated),
            command.detail,
        )
        for command in decision.commands[:_MOST_ROWS]
    ]
    if not rows:
        return "<p>Nothing would be removed or replaced.</p>"
    head = ("reason", "nodes", "new nodes", "pods moved", "saved per hour", "why")
    return f"<h2>Commands</h2>{markup.table(head, rows, numbers=(3, 4), stacks=True)}{_omitted(len(decision.commands))}"


def _by_reason(title: str, head: tuple[str, str, str], pairs: Iterable[tuple[str, str]]) -> str:
    """Names by their reason, the most frequent reason first."""
    reasons = grouped(pairs)
    if not reasons:
        return ""
    rows = [
        (f"{len(names):,}", summary(names, 4), reason)
        for reason, names in sorted(reasons.items(), key=lambda entry: (-len(entry[1]), entry[0]))[:_MOST_ROWS]
    ]
    return f"<h2>{title}</h2>{markup.table(head, rows, numbers=(0,), stacks=True)}{_omitted(len(reasons))}"


def _omitted(count: int) -> str:
    return f"<p>{count - _MOST_ROWS:,} more are not listed.</p>" if count > _MOST_ROWS else ""


def _title(snapshot: Snapshot) -> str:
    """Files do not say which cluster they are of."""
    return "the cluster" if snapshot.cluster == "files" else snapshot.cluster


def diff_report(
    compared: PlanDifference, snapshots: Sequence[Snapshot], plans: Sequence[Plan], missing: tuple[str, ...] = ()
) -> str:
    """The differences in numbers, then the nodes of both plans, drawn alike.

    Args:
        compared: the difference.
        snapshots: what OLD and NEW were made on.
        plans: made on them.
        missing: what could not be seen, a line each.
    """
    old, new = (
        picture_after_plan(snapshot, plan, node_prices(snapshot))
        for snapshot, plan in zip(snapshots, plans, strict=True)
    )
    chosen = detail_level(max(old.nodes, new.nodes, key=len), most_pods=MOST_PODS // 2, zoom=0.85)
    colours = colour_numbers({*old.pools, *new.pools})
    lead = (
        f"{compared.new.manifests} instead of {compared.old.manifests}: "
        f"{_signed(compared.new.nodes - compared.old.nodes, 'node')}, "
        f"{_signed_dollars(compared.new.hourly - compared.old.hourly)} per hour, "
        f"{len(compared.newly_left_out)} left out that had a place, "
        f""
        f"{len(compared.newly_placed)} placed that had none; {rfc3339(snapshots[1].now)}"
    )
    body = [
        missing_list(missing),
        totals(new, old),
        _numbers(compared),
        _drift(compared),
        _pods_left_out("Placed by OLD, left out by NEW", compared.newly_left_out),
        _pods_left_out("Left out by OLD, placed by NEW", compared.newly_placed),
        _launch_comparison("By pool", "pool", compared.old.pools, compared.new.pools),
        _launch_comparison(
            "By instance type", "instance type", compared.old.instance_types, compared.new.instance_types
        ),
        "<h2>The nodes once it is done</h2>",
        legend((*old.nodes, *new.nodes)),
        f'<div class="sides map"><div><h3>With {markup.text(compared.old.manifests)}</h3>'
        f"{sections(old, chosen, colours)}</div>",
        f"<div><h3>With {markup.text(compared.new.manifests)}</h3>{sections(new, chosen, colours)}</div></div>",
    ]
    return page("Two sets of manifests compared", lead, "".join(body))


def _drift(compared: PlanDifference) -> str:
    """The nodes that drift by the new manifests, and why."""
    if not compared.drifting:
        return ""
    rows = [entry.row for entry in compared.drifting]
    head = markup.counted(compared.drifting_nodes, "node")
    return f"<h2>{head} would drift and be replaced</h2>{markup.table(('why', 'nodes', 'a month'), rows, numbers=(2,))}"


def _numbers(compared: PlanDifference) -> str:
    old, new = compared.old, compared.new
    rows = [(name, f"{before:,}", f"{after:,}", _signed(after - before)) for name, before, after in compared.counts]
    for name, before, after in (
        ("launched, per hour", old.price, new.price),
        ("the cluster then, per hour", old.totals.then.price, new.totals.then.price),
    ):
        rows.append((name, dollars(before), dollars(after), _signed_dollars(after.hourly - before.hourly)))
    moved = (
        f"<p>{markup.counted(compared.moved, 'pod')} would get a node of another pool.</p>" if compared.moved else ""
    )
    table = markup.table(("", "old", "new", "change"), rows, numbers=(1, 2, 3))
    return f"<h2>What changes</h2>{table}{moved}"


def _launch_comparison(title: str, what: str, old: Mapping[str, NodeTotal], new: Mapping[str, NodeTotal]) -> str:
    none = NodeTotal(0, 0.0)
    rows = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name, none), new.get(name, none)
        rows.append(
            (
                name,
                f"{before.nodes:,}",
                f"{after.nodes:,}",
                _signed(after.nodes - before.nodes),
                dollars(before.price),
                dollars(after.price),
                _signed_dollars(after.hourly - before.hourly),
            )
        )
    if not rows:
        return ""
    head = (what, "nodes, old", "nodes, new", "change", "per hour, old", "per hour, new", "change of it")
    table = markup.table(head, rows[:_MOST_ROWS], numbers=(1, 2, 3, 4, 5, 6), stacks=True)
    return f"<h2>{title}</h2>{table}{_omitted(len(rows))}"


def _pods_left_out(title: str, entries: Sequence[LeftOut]) -> str:
    return _by_reason(title, ("pods", "which", "why"), ((entry.message, entry.pod) for entry in entries))


def _signed(change: int, noun: str = "") -> str:
    words = markup.counted(abs(change), noun) if noun else f"{abs(change):,}"
    return f"{'+' if change > 0 else '−' if change else '±'}{words}"  # noqa: RUF001 - a minus sign


def _signed_dollars(change: float) -> str:
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{markup.dollars(abs(change))}"  # noqa: RUF001 - as above
