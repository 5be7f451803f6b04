"""`shiplap plan --diff OLD NEW --html FILE`: one cluster under two sets of manifests, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiplap.disruption.current_prices import node_prices
from shiplap.drawing import boxes, markup
from shiplap.drawing.capture import picture_after_plan
from shiplap.drawing.packing_map import MOST_PODS, legend, missing_list, sections, totals
from shiplap.drawing.palette import colour_numbers
from shiplap.kubernetes.timestamps import rfc3339
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import Snapshot
from shiplap_cli.money import dollars
from shiplap_cli.render.page import page
from shiplap_cli.render.totals import Launches, LeftOut, PlanDifference

_MOST_ROWS = 200


def diff_report(
    found: PlanDifference, snapshots: Sequence[Snapshot], plans: Sequence[Plan], missing: tuple[str, ...] = ()
) -> str:
    """What changes in numbers, then the nodes of both plans, drawn alike.

    Args:
        found: the difference.
        snapshots: what OLD and NEW were made on.
        plans: made on them.
        missing: what could not be seen, a line each.
    """
    old, new = (
        picture_after_plan(snapshot, plan, node_prices(snapshot))
        for snapshot, plan in zip(snapshots, plans, strict=True)
    )
    chosen = boxes.detail_level(max(old.nodes, new.nodes, key=len), most_pods=MOST_PODS // 2, zoom=0.85)
    colours = colour_numbers({*old.pools, *new.pools})
    lead = (
        f"{found.new.manifests} instead of {found.old.manifests}: "
        f"{_signed(found.new.nodes - found.old.nodes, 'node')}, "
        f"{_money(found.new.hourly - found.old.hourly)} per hour, {len(found.newly_left_out)} left out that had a "
        f"place, {len(found.newly_placed)} placed that had none; {rfc3339(snapshots[1].now)}"
    )
    body = [
        missing_list(missing),
        totals(new, old),
        _numbers(found),
        _left_out("Placed by OLD, left out by NEW", found.newly_left_out),
        _left_out("Left out by OLD, placed by NEW", found.newly_placed),
        _launches("By pool", "pool", found.old.pools, found.new.pools),
        _launches("By instance type", "instance type", found.old.instance_types, found.new.instance_types),
        "<h2>The nodes once it is done</h2>",
        legend((*old.nodes, *new.nodes)),
        f'<div class="sides map"><div><h3>With {markup.text(found.old.manifests)}</h3>'
        f"{sections(old, chosen, colours)}</div>",
        f"<div><h3>With {markup.text(found.new.manifests)}</h3>{sections(new, chosen, colours)}</div></div>",
    ]
    return page("Two sets of manifests compared", lead, "".join(body))


def _numbers(found: PlanDifference) -> str:
    old, new = found.old, found.new
    counts = (
        ("nodes to launch", old.nodes, new.nodes),
        ("pods on new nodes", old.pods_on_new, new.pods_on_new),
        ("pods on nodes that exist", old.pods_on_existing, new.pods_on_existing),
        ("pods without a place", old.unschedulable, new.unschedulable),
        ("pods left alone", old.ignored, new.ignored),
        ("nodes of the cluster then", old.totals.then.nodes, new.totals.then.nodes),
    )
    rows = [(name, f"{before:,}", f"{after:,}", _signed(after - before)) for name, before, after in counts]
    for name, before, after in (
        ("launched, per hour", old.price, new.price),
        ("the cluster then, per hour", old.totals.then.price, new.totals.then.price),
    ):
        rows.append((name, dollars(before), dollars(after), _money(after.hourly - before.hourly)))
    moved = f"<p>{markup.counted(found.moved, 'pod')} would get a node of another pool.</p>" if found.moved else ""
    table = markup.table(("", "old", "new", "change"), rows, numbers=(1, 2, 3))
    return f"<h2>What changes</h2>{table}{moved}"


def _launches(title: str, what: str, old: Mapping[str, Launches], new: Mapping[str, Launches]) -> str:
    none = Launches(0, 0.0)
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
                _money(after.hourly - before.hourly),
            )
        )
    if not rows:
        return ""
    head = (what, "nodes, old", "nodes, new", "change", "per hour, old", "per hour, new", "change of it")
    table = markup.table(head, rows[:_MOST_ROWS], numbers=(1, 2, 3, 4, 5, 6), stacks=True)
    more = f"<p>{len(rows) - _MOST_ROWS:,} more are not listed.</p>" if len(rows) > _MOST_ROWS else ""
    return f"<h2>{title}</h2>{table}{more}"


def _left_out(title: str, entries: Sequence[LeftOut]) -> str:
    """Pods by what is said of them, most first."""
    said: dict[str, list[str]] = {}
    for entry in entries:
        said.setdefault(entry.message, []).append(entry.pod)
    if not said:
        return ""
    rows = [
        (f"{len(pods):,}", ", ".join(pods[:4]) + (f" and {len(pods) - 4} more" if len(pods) > 4 else ""), message)
        for message, pods in sorted(said.items(), key=lambda item: (-len(item[1]), item[0]))[:_MOST_ROWS]
    ]
    return f"<h2>{title}</h2>{markup.table(('pods', 'which', 'why'), rows, numbers=(0,), stacks=True)}"


def _signed(change: int, noun: str = "") -> str:
    words = markup.counted(abs(change), noun) if noun else f"{abs(change):,}"
    return f"{'+' if change > 0 else '−' if change else '±'}{words}"  # noqa: RUF001 - a minus sign


def _money(change: float) -> str:
    return f"{'+' if change > 0 else '−' if change < 0 else '±'}{markup.dollars(abs(change))}"  # noqa: RUF001 - as above
