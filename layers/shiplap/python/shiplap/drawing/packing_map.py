"""The packing map: every node of a cluster as a box, pool by pool.

The area of a box is the capacity of its node, its left part CPU, its right part memory, each filled by its pods. One
vCPU counts as much as 4 GiB. So everywhere in a picture the same area is the same amount, a memory-optimised type shows
by its wide right part, and what is empty is what is paid for and not used. A node with accelerators has a third column
beside its square, which is not to scale.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import sqrt

import msgspec

from shiplap.drawing import markup
from shiplap.drawing.markup import counted, dollars, monthly, percent, text
from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PodPicture
from shiplap.drawing.style import NEUTRAL, colour_numbers

_BYTES_PER_UNIT = 4 * 2**30
_GAP = 1.0
_ACCELERATOR_SHARE = 0.28
"""The width of the column of accelerators, as a part of the square's side."""
_SMALLEST, _LARGEST = 12.0, 260.0
_STATES = {NodePictureState.PLANNED: "+", NodePictureState.LEAVING: "−"}  # noqa: RUF001 - a minus sign

DEFS = (
    '<svg class=defs width="0" height="0" aria-hidden="true"><defs>'
    '<pattern id="sl-hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="2.2" height="6" class="stripe"/></pattern>'
    '<pattern id="sl-dots" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<circle cx="2.5" cy="2.5" r="1.2" class="stripe"/></pattern></defs></svg>'
)
"""Patterns that boxes refer to; once per document, before them."""


class DetailLevel(msgspec.Struct, frozen=True):
    """The detail of each drawn node: pods in its box, pods in its card (-1: no card), labels, its average side in px.

    `scale` is px² per unit, a vCPU or 4 GiB.
    """

    pods: int
    listed: int
    labels: bool
    scale: float


def units(amounts: Amounts) -> tuple[float, float]:
    """CPU and memory as what their areas stand for: vCPUs, and parts of 4 GiB."""
    return max(amounts.millicores, 0) / 1000, max(amounts.memory_bytes, 0) / _BYTES_PER_UNIT


def detail_level(nodes: Sequence[NodePicture], *, most_pods: int, zoom: float = 1.0) -> DetailLevel:
    """Return how much to draw of these nodes so that a page stays small and a reader can tell its boxes apart.

    Args:
        nodes: all nodes of all pictures that are drawn alike.
        most_pods: how many pods may be drawn one by one, on all nodes together; a node gets one at least.
        zoom: of the sides of the boxes; a narrow place needs smaller ones.
    """
    count = max(len(nodes), 1)
    average = next(side for most, side in _SIDES if count <= most) * zoom
    sizes = [sum(units(node.allocatable)) for node in nodes]
    mean = sum(sizes) / count or 1.0
    return DetailLevel(
        pods=max(most_pods // count, 1),
        listed=next(listed for most, listed in _LISTED if count <= most),
        labels=count <= _MOST_LABELS,
        scale=average * average / mean,
    )


_SIDES = ((2, 150.0), (8, 120.0), (30, 96.0), (100, 72.0), (300, 52.0), (800, 40.0), (2500, 30.0), (10**9, 20.0))
"""Up to how many nodes the average box has which side, px."""

_LISTED = ((60, 16), (250, 8), (1500, 3), (10**9, -1))
_MOST_LABELS = 100


def side(node: NodePicture, chosen: DetailLevel) -> float:
    """The side of a node's square, px; the smallest and the largest are bounded, and then not to scale."""
    return min(max(sqrt(chosen.scale * sum(units(node.allocatable))), _SMALLEST), _LARGEST)


def box(node: NodePicture, chosen: DetailLevel) -> str:
    """A node as an item of a list: the box, a label below it where there is room, and a card for those who enter it."""
    length = side(node, chosen)
    cpu, memory = units(node.allocatable)
    share = cpu / (cpu + memory) if cpu + memory else 0.5
    strip = length * _ACCELERATOR_SHARE if node.allocatable.accelerators or node.used.accelerators else 0.0
    box_parts = _BoxParts(length, (length - _GAP) * min(max(share, 0.15), 0.85), strip)
    wide = length + (strip + _GAP if strip else 0.0)
    classes = ["n", *_classes(node)]
    full = (length, length, length)
    drawn = [f'<path class=room d="{box_parts.path(_FLOOR, full)}"/>', *_pods(node, chosen, box_parts)]
    if node.tier:
        fill = "url(#sl-hatch)" if node.tier == 1 else "url(#sl-dots)"
        drawn.append(f'<path d="{box_parts.path(_FLOOR, box_parts.filled(node))}" fill="{fill}" class=tier />')
    drawn.append(f'<rect class=frame x=".5" y=".5" width="{_px(wide - 1)}" height="{_px(length - 1)}" rx="2"/>')
    if node.state is NodePictureState.LEAVING:
        drawn.append(f'<path class=cross d="M1 1L{_px(wide - 1)} {_px(length - 1)}"/>')
    width, size, line = _px(wide), _px(length), text(summary(node))
    title = f' title="{line}"' if chosen.listed < 0 else ""  # without a card, a tooltip
    label = _label(node) if chosen.labels else ""
    card = _card(node, chosen.listed) if chosen.listed >= 0 else ""
    return (
        f'<li class="{" ".join(classes)}"><div class=b role=img tabindex=0 aria-label="{line}"{title}>'
        f'<svg width="{width}" height="{size}" viewBox="0 0 {width} {size}" aria-hidden=true>{"".join(drawn)}</svg>'
        f"</div>{label}{card}</li>"
    )


def summary(node: NodePicture) -> str:
    """A node in one line."""
    used, room = node.used, node.allocatable
    parts = [
        markup.short(node.name, 80),
        node.instance_type,
        node.capacity_type,
        node.zone,
        f"CPU {percent(used.millicores, room.millicores)}",
        f"memory {percent(used.memory_bytes, room.memory_bytes)}",
        f"accelerators {used.accelerators} of {room.accelerators}" if room.accelerators else "",
        counted(used.pods, "pod"),
        f"{dollars(node.hourly, estimated=node.estimated)} per hour" if node.hourly else "",
        str(node.state),
        markup.short(node.note, 160),
    ]
    return ", ".join(part for part in parts if part)


def _classes(node: NodePicture) -> list[str]:
    return [] if node.state is NodePictureState.READY else [str(node.state).lower()]


_Heights = tuple[float, float, float]
"""Of CPU, memory and accelerators, px."""

_FLOOR: _Heights = (0.0, 0.0, 0.0)


class _BoxParts(msgspec.Struct, frozen=True):
    """The parts of a box: `cpu` px of its side are the left one's; `strip` px beside it stand for accelerators."""

    side: float
    cpu: float
    strip: float

    def path(self, above: _Heights, high: _Heights) -> str:
        """A piece of each part, from so many px above the floor and so high; parts of no height have none."""
        right = self.cpu + _GAP
        columns = ((0.0, self.cpu), (right, self.side - right), (self.side + _GAP, self.strip))
        return "".join(
            _rect(left, self.side - floor, width, height)
            for (left, width), floor, height in zip(columns, above, high, strict=True)
            if width and height
        )

    def heights(self, amounts: Amounts, node: NodePicture) -> _Heights:
        """Return the heights of these amounts; where more is used than there is, all that is used fills the box."""
        room, used = node.allocatable, node.used
        pairs = (
            (amounts.millicores, max(room.millicores, used.millicores)),
            (amounts.memory_bytes, max(room.memory_bytes, used.memory_bytes)),
            (amounts.accelerators, max(room.accelerators, used.accelerators)),
        )
        cpu, memory, accelerators = (self.side * max(part, 0) / max(whole, 1) for part, whole in pairs)
        return cpu, memory, accelerators

    def filled(self, node: NodePicture) -> _Heights:
        """All that is used."""
        return self.heights(node.used, node)


def _rect(left: float, bottom: float, width: float, height: float) -> str:
    return f"M{_px(left)} {_px(bottom)}v-{_px(height)}h{_px(width)}v{_px(height)}z"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _pods(node: NodePicture, chosen: DetailLevel, box_parts: _BoxParts) -> list[str]:
    """The pods from the floor up, those that a plan adds on top; those beyond what is drawn are one piece."""
    ordered = sorted(node.pods, key=lambda pod: (pod.fresh, -max(_fractions(pod, node)), pod.key))
    drawn, above = [], _FLOOR
    # Of many, the largest are drawn, wherever they stand.
    kept = set(sorted(range(len(ordered)), key=lambda place: -max(_fractions(ordered[place], node)))[: chosen.pods])
    rest = msgspec.structs.replace(node.used, pods=len(ordered) - len(kept))
    for place, pod in enumerate(ordered):
        if place not in kept:
            continue
        high = box_parts.heights(pod.amounts, node)
        rest = msgspec.structs.replace(rest - pod.amounts, pods=rest.pods)
        title = text(f"{markup.short(pod.key, 120)}\n{_asks(pod.amounts)}")
        kind = "fresh" if pod.fresh else "pod"
        drawn.append(f'<path class={kind} d="{box_parts.path(above, high)}"><title>{title}</title></path>')
        above = (above[0] + high[0], above[1] + high[1], above[2] + high[2])
    high = box_parts.heights(rest, node)
    if max(high) >= 0.1:
        what = counted(rest.pods, "further pod") if rest.pods else "DaemonSets, and pods that are not listed"
        title = f"{what}\n{_asks(rest)}"
        drawn.append(f'<path class=rest d="{box_parts.path(above, high)}"><title>{title}</title></path>')
    return drawn


def _fractions(pod: PodPicture, node: NodePicture) -> _Heights:
    room = node.allocatable
    return (
        pod.millicores / max(room.millicores, 1),
        pod.memory_bytes / max(room.memory_bytes, 1),
        pod.accelerators / max(room.accelerators, 1),
    )


def _asks(amounts: Amounts) -> str:
    asked = f"{markup.cores(max(amounts.millicores, 0))} CPU, {markup.memory(max(amounts.memory_bytes, 0))}"
    return f"{asked}, {counted(amounts.accelerators, 'accelerator')}" if amounts.accelerators > 0 else asked


def _label(node: NodePicture) -> str:
    price = f"{dollars(node.hourly, estimated=node.estimated)}/h" if node.hourly else ""
    mark = f"{_STATES[node.state]} " if node.state in _STATES else ""
    first = text(mark + (node.instance_type or markup.short(node.name, 20)))
    second = text(" ".join(part for part in (price, node.capacity_type) if part))
    return f"<div class=l>{first}<br>{second}</div>"


def _card(node: NodePicture, listed: int) -> str:
    room, used = node.allocatable, node.used
    place = ", ".join(part for part in (node.instance_type, node.zone, node.capacity_type) if part)
    listed_at = (
        f" (on-demand {dollars(node.list_hourly, estimated=node.estimated)})"
        if node.list_hourly > node.hourly + 1e-9
        else ""
    )
    facts = [
        place,
        f"pool {node.pool or 'none: not one of ours'}" + (f", fallback tier {node.tier}" if node.tier else ""),
        f"{node.state}{': ' + markup.short(node.note, 300) if node.note else ''}",
        f"{dollars(node.hourly, estimated=node.estimated)} per hour{listed_at}" if node.hourly else "price not known",
        f"CPU {markup.cores(used.millicores)} of {markup.cores(room.millicores)}, "
        f"memory {markup.memory(used.memory_bytes)} of {markup.memory(room.memory_bytes)}, "
        f"pods {used.pods} of {room.pods or '?'}"
        + (f", accelerators {used.accelerators} of {room.accelerators}" if room.accelerators else ""),
    ]
    lines = "".join(f"<div>{text(fact)}</div>" for fact in facts if fact)
    largest = sorted(node.pods, key=lambda pod: (-max(_fractions(pod, node)), pod.key))[:listed]
    pods = "".join(
        f"<li{' class=new' if pod.fresh else ''}>{text(markup.short(pod.key, 120))} "
        f"<span>{_asks(pod.amounts)}</span></li>"
        for pod in largest
    )
    more = len(node.pods) - len(largest)
    more_text = f"<li>and {more:,} more</li>" if more > 0 and pods else ""
    return f"<div class=k><b>{text(node.name)}</b>{lines}{f'<ul>{pods}{more_text}</ul>' if pods else ''}</div>"


MOST_PODS = 8_000
"""Pods of one page that are drawn one by one: about a megabyte."""

MOST_NODES = 6_000
"""Nodes of a pool that are drawn."""

_FAR = 100.0
"""Per cent above the bound beyond which the bound says more about what it leaves out than about the packing."""

_GROUPS = 12
_NAMED = 4
_MOST_ROWS = 1000


def packing_map(picture: ClusterPicture) -> str:
    """The map with its legend, in as much detail as suits the picture."""
    level = detail_level(picture.nodes, most_pods=MOST_PODS)
    return f'<div class="map">{legend(picture.nodes)}{sections(picture, level, colour_numbers(picture.pools))}</div>'


def sections(
    picture: ClusterPicture, chosen: DetailLevel, colours: Mapping[str, int], most_nodes: int = MOST_NODES
) -> str:
    """All pools, of each at most so many boxes; empty clusters say so."""
    if not picture.nodes:
        return "<p class=empty>No nodes.</p>"
    return "".join(
        section(pool, nodes, chosen, colours, most_nodes, picture.limits.get(pool, ""))
        for pool, nodes in by_pool(picture)
    )


def by_pool(picture: ClusterPicture) -> Iterator[tuple[str, Sequence[NodePicture]]]:
    """Nodes by pool; in it the preferred tier first, then the largest, then by name."""
    for pool in picture.pools:
        nodes = [node for node in picture.nodes if node.pool == pool]
        nodes.sort(key=lambda node: (node.tier, -sum(units(node.allocatable)), node.instance_type, node.name))
        yield pool, nodes


def section(
    pool: str,
    nodes: Sequence[NodePicture],
    chosen: DetailLevel,
    colours: Mapping[str, int],
    most: int = MOST_NODES,
    limits: str = "",
) -> str:
    """One pool: what it comes to, the use of its limits, and its boxes."""
    items = "".join(box(node, chosen) for node in nodes[:most])
    more = len(nodes) - most
    rest = f"<p>{counted(more, 'further node')} not drawn.</p>" if more > 0 else ""
    return (
        f'<section class="pool p{colours.get(pool, NEUTRAL)}{fading(nodes)}">{heading(pool, nodes, limits)}'
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


def heading(pool: str, nodes: Sequence[NodePicture], limits: str = "") -> str:
    """A pool's name, sums and limits."""
    room = sum((node.allocatable for node in nodes), Amounts())
    used = sum((node.used for node in nodes), Amounts())
    tiers = Counter(node.tier for node in nodes)
    hourly = sum(node.hourly for node in nodes)
    facts = [
        counted(len(nodes), "node"),
        counted(used.pods, "pod"),
        f"CPU {percent(used.millicores, room.millicores)}",
        f"memory {percent(used.memory_bytes, room.memory_bytes)}",
        f"accelerators {used.accelerators} of {room.accelerators}" if room.accelerators else "",
        f"{dollars(hourly, estimated=any(node.estimated for node in nodes))}/h" if hourly else "",
    ]
    if any(tiers):
        facts.append(", ".join(f"{tiers[tier]} on {_tier(tier)}" for tier in sorted(tiers)))
    if limits:
        facts.append(f"limits: {limits}")
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
        (
            '<path class=room d="M0 24v-24h16v24zM17 24v-24h7v24z"/>'
            '<path class=pod d="M0 24v-12h16v12zM17 24v-18h7v18z"/>'
            '<rect class=frame x=".5" y=".5" width="23" height="23"/>',
            "the column at the right: GPUs and other accelerators, not to scale",
            any(node.allocatable.accelerators for node in nodes),
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
    return f"{DEFS}<ul class=legend>{items}</ul>"


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
        ("per hour, estimated" if picture.estimated else "per hour", _cost(picture), _cost(before) if before else ""),
        ("a month", _month(picture), _month(before) if before else ""),
    ]
    if room.accelerators:
        had = _accelerators(before) if before else ""
        facts.insert(5, ("accelerators used", _accelerators(picture), had))
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


def bound_note(picture: ClusterPicture) -> str:
    """Explain the lower bound, if there is one."""
    return _BOUND if picture.bound_hourly is not None else ""


_BOUND = (
    "<p><small>Lower bound: what the pods would cost if pods and nodes could be divided freely and bought in the "
    "cheapest mixture that any NodePool may launch. No packing costs less. Zones, taints, spreads and weights are not "
    "in it.</small></p>"
)


def _accelerators(picture: ClusterPicture) -> str:
    return f"{picture.used.accelerators} of {picture.allocatable.accelerators}"


def _cost(picture: ClusterPicture) -> str:
    return dollars(picture.hourly, estimated=picture.estimated)


def _month(picture: ClusterPicture) -> str:
    return monthly(picture.hourly, estimated=picture.estimated)


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


def node_table(picture: ClusterPicture) -> str:
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
    more = f"<p>{counted(len(rows) - _MOST_ROWS, 'further node')} not listed.</p>" if len(rows) > _MOST_ROWS else ""
    table = markup.table(head, rows[:_MOST_ROWS], numbers=(6, 7, 8, 9))
    return f"<details><summary>All nodes as a table</summary>{table}{more}</details>"
