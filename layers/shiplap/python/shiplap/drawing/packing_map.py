"""The packing map: every node of a cluster as a box, pool by pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from shiplap.drawing import boxes, markup
from shiplap.drawing.boxes import DetailLevel, box
from shiplap.drawing.markup import counted, dollars, percent, text
from shiplap.drawing.palette import NEUTRAL, colour_numbers
from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState

MOST_PODS = 8_000
"""Pods of one page that are drawn one by one: about a megabyte."""

MOST_NODES = 6_000
"""Nodes of a pool that are drawn."""

_FAR = 100.0
"""Per cent above the bound beyond which the bound says more about what it leaves out than about the packing."""

_GROUPS = 12
_NAMED = 4


def packing_map(picture: ClusterPicture, *, chosen: DetailLevel | None = None, pools: Iterable[str] = ()) -> str:
    """The map with its legend.

    Args:
        picture: of the cluster.
        chosen: how much is drawn; without, what suits this picture. Maps to compare should be drawn alike.
        pools: names that get colours too, so that they are the same in every picture of a page.
    """
    known = chosen or boxes.detail_level(picture.nodes, most_pods=MOST_PODS)
    colours = colour_numbers({*pools, *picture.pools})
    return f'<div class="map">{legend(picture.nodes)}{sections(picture, known, colours)}</div>'


def sections(
    picture: ClusterPicture, chosen: DetailLevel, colours: Mapping[str, int], most_nodes: int = MOST_NODES
) -> str:
    """All pools, of each at most so many boxes; empty clusters say so."""
    if not picture.nodes:
        return "<p class=empty>No nodes.</p>"
    return "".join(section(pool, nodes, chosen, colours, most_nodes) for pool, nodes in by_pool(picture))


def by_pool(picture: ClusterPicture) -> Iterator[tuple[str, Sequence[NodePicture]]]:
    """Nodes by pool; in it the preferred tier first, then the largest, then by name."""
    for pool in picture.pools:
        nodes = [node for node in picture.nodes if node.pool == pool]
        nodes.sort(key=lambda node: (node.tier, -sum(boxes.units(node.allocatable)), node.instance_type, node.name))
        yield pool, nodes


def section(
    pool: str, nodes: Sequence[NodePicture], chosen: DetailLevel, colours: Mapping[str, int], most: int = MOST_NODES
) -> str:
    """One pool: what it comes to, and its boxes."""
    items = "".join(box(node, chosen) for node in nodes[:most])
    more = len(nodes) - most
    rest = f"<p>{counted(more, 'further node')} not drawn.</p>" if more > 0 else ""
    return (
        f'<section class="pool p{colours.get(pool, NEUTRAL)}{fading(nodes)}">{heading(pool, nodes)}'
        f'<ul class="{list_class(chosen)}">{items}</ul>{rest}</section>'
    )


def list_class(chosen: DetailLevel) -> str:
    """The class of a list of boxes."""
    return "nodes named" if chosen.labels else "nodes"


def fading(nodes: Iterable[NodePicture]) -> str:
    """A class under which pods that are there already stand back behind those that a plan adds."""
    return " planning" if any(node.state is NodePictureState.PLANNED or _has_fresh(node) for node in nodes) else ""


def _has_fresh(node: NodePicture) -> bool:
    return node.state is not NodePictureState.STARTING and any(pod.fresh for pod in node.pods)


def heading(pool: str, nodes: Sequence[NodePicture]) -> str:
    """A pool's name and sums."""
    room = sum((node.allocatable for node in nodes), Amounts())
    used = sum((node.used for node in nodes), Amounts())
    tiers = Counter(node.tier for node in nodes)
    hourly = sum(node.hourly for node in nodes)
    facts = [
        counted(len(nodes), "node"),
        counted(used.pods, "pod"),
        f"CPU {percent(used.millicores, room.millicores)}",
        f"memory {percent(used.memory_bytes, room.memory_bytes)}",
        f"{dollars(hourly, estimated=any(node.estimated for node in nodes))}/h" if hourly else "",
    ]
    if any(tiers):
        facts.append(", ".join(f"{tiers[tier]} on {_tier(tier)}" for tier in sorted(tiers)))
    name = text(pool) if pool else "Nodes of others"
    return f"<h3><i class=swatch></i>{name} <small>{text(' · '.join(fact for fact in facts if fact))}</small></h3>"


def _tier(tier: int) -> str:
    return f"fallback tier {tier}" if tier else "the preferred tier"


def legend(nodes: Sequence[NodePicture]) -> str:
    """The meaning of the shapes that occur."""
    states = {node.state for node in nodes}
    tiers = {node.tier for node in nodes}
    shown = [
        (
            '<path class=room d="M0 24v-24h11v24zM12 24v-24h12v24z"/>'
            '<path class=pod d="M0 24v-17h11v17zM12 24v-11h12v11z"/>'
            '<rect class=frame x=".5" y=".5" width="23" height="23"/>',
            "a node: CPU left, memory right, filled by its pods; light is unused; equal areas are equal amounts",
            True,
        ),
        (_sample("pod") + '<path d="M0 24v-24h24v24z" fill="url(#sl-hatch)"/>', "fallback tier", 1 in tiers),
        (
            _sample("pod") + '<path d="M0 24v-24h24v24z" fill="url(#sl-dots)"/>',
            "a later tier",
            max(tiers, default=0) > 1,
        ),
        (_sample("fresh"), "a pod that the plan adds", any(_has_fresh(node) for node in nodes)),
        (_framed("planned"), "would be launched", NodePictureState.PLANNED in states),
        (_framed("starting"), "starting", NodePictureState.STARTING in states),
        (_framed("notready"), "not ready", NodePictureState.NOT_READY in states),
        (_framed("leaving") + '<path class=cross d="M1 1L23 23"/>', "leaving", NodePictureState.LEAVING in states),
    ]
    items = "".join(
        f'<li><svg width="24" height="24" viewBox="0 0 24 24" aria-hidden=true>{drawn}</svg>{what}</li>'
        for drawn, what, occurs in shown
        if occurs
    )
    return f"{boxes.DEFS}<ul class=legend>{items}</ul>"


def _sample(kind: str) -> str:
    return f'<path class={kind} d="M0 24v-24h24v24z"/>'


def _framed(state: str) -> str:
    return (
        f'<g class={state}><path class=room d="M0 24v-24h24v24z"/>'
        '<rect class=frame x=".5" y=".5" width="23" height="23" rx="2"/></g>'
    )


def totals(picture: ClusterPicture, before: ClusterPicture | None = None) -> str:
    """The numbers above a map; with what they were before."""
    room, used = picture.allocatable, picture.used
    facts: list[tuple[str, str, str]] = [
        ("nodes", f"{len(picture.nodes):,}", f"{len(before.nodes):,}" if before else ""),
        ("pods on them", f"{used.pods:,}", f"{before.used.pods:,}" if before else ""),
        ("pods that wait", f"{len(picture.pending):,}", f"{len(before.pending):,}" if before else ""),
        ("CPU used", percent(used.millicores, room.millicores), _cpu(before)),
        ("memory used", percent(used.memory_bytes, room.memory_bytes), _memory(before)),
        ("per hour", _cost(picture), _cost(before) if before else ""),
    ]
    if picture.unpriced:
        facts.append(("of unknown price", counted(picture.unpriced, "node"), ""))
    if picture.list_hourly > picture.hourly + 1e-9:
        facts.append(("at on-demand list price", dollars(picture.list_hourly, estimated=picture.estimated), ""))
    if picture.bound_hourly is not None:
        ours = sum(node.hourly for node in picture.nodes if node.pool)
        over = 100 * (ours / picture.bound_hourly - 1) if picture.bound_hourly else 0.0
        facts.append(
            (
                "lower bound",
                dollars(picture.bound_hourly, estimated=picture.estimated),
                f"{over:+.1f} % over it" if 0 < over <= _FAR else "",
            )
        )
    shown = "".join(f"<div><dt>{name}</dt><dd>{text(value)}{_was(was, value)}</dd></div>" for name, value, was in facts)
    return f"<dl class=totals>{shown}</dl>"


def _cost(picture: ClusterPicture) -> str:
    return dollars(picture.hourly, estimated=picture.estimated)


def _was(was: str, value: str) -> str:
    if not was or was == value:
        return ""
    return f" <small>{text(was)}</small>" if "over" in was else f" <small>was {text(was)}</small>"


def _cpu(picture: ClusterPicture | None) -> str:
    return percent(picture.used.millicores, picture.allocatable.millicores) if picture else ""


def _memory(picture: ClusterPicture | None) -> str:
    return percent(picture.used.memory_bytes, picture.allocatable.memory_bytes) if picture else ""


def pending_table(picture: ClusterPicture) -> str:
    """The pods that wait, by reason: the reason that the oldest has comes first."""
    if not picture.pending:
        return ""
    reasons: dict[str, list[int]] = {}
    for place, pod in enumerate(picture.pending):
        reasons.setdefault(pod.reason or "no reason is known yet", []).append(place)
    rows = []
    for reason, places in list(reasons.items())[:_GROUPS]:
        pods = [picture.pending[place] for place in places]
        names = ", ".join(markup.short(pod.key, 80) for pod in pods[:_NAMED])
        names += f" and {len(pods) - _NAMED:,} more" if len(pods) > _NAMED else ""
        asks = (
            f"{markup.cores(sum(p.millicores for p in pods))} CPU, {markup.memory(sum(p.memory_bytes for p in pods))}"
        )
        age = markup.duration(pods[0].age_s) if pods[0].age_s else markup.NOTHING
        rows.append((f"{len(pods):,}", age, names, asks, markup.short(reason, 600)))
    more = len(reasons) - len(rows)
    rest = f"<p>{counted(more, 'further reason')} not listed.</p>" if more > 0 else ""
    head = ("pods", "oldest", "which", "together", "why")
    return f"<h2>Pods that wait</h2>{markup.table(head, rows, numbers=(0, 1), stacks=True)}{rest}"


def missing_list(lines: Sequence[str]) -> str:
    """The list of things that a picture cannot show."""
    items = "".join(f"<li>{text(markup.short(line, 600))}</li>" for line in lines)
    return f"<ul class=unseen>{items}</ul>" if items else ""


def node_table(picture: ClusterPicture, most: int = 1000) -> str:
    """All nodes as a table that is folded away, for those who do not see the map."""
    if not picture.nodes:
        return ""
    rows = [
        (
            node.name,
            node.pool,
            str(node.tier) if node.tier else "",
            node.instance_type,
            node.zone,
            node.capacity_type,
            dollars(node.hourly, estimated=node.estimated) if node.hourly else "",
            percent(node.used.millicores, node.allocatable.millicores),
            percent(node.used.memory_bytes, node.allocatable.memory_bytes),
            f"{node.used.pods:,}",
            str(node.state),
        )
        for _, nodes in by_pool(picture)
        for node in nodes
    ]
    head = ("node", "pool", "fallback", "type", "zone", "bought as", "per hour", "CPU", "memory", "pods", "state")
    more = f"<p>{counted(len(rows) - most, 'further node')} not listed.</p>" if len(rows) > most else ""
    table = markup.table(head, rows[:most], numbers=(6, 7, 8, 9))
    return f"<details><summary>All nodes as a table</summary>{table}{more}</details>"
