"""A node as a box: its area is its capacity, its left part CPU, its right part memory, each filled by its pods.

One vCPU counts as much as 4 GiB. So everywhere in a picture the same area is the same amount, a memory-optimised type
shows by its wide right part, and what is empty is what is paid for and not used.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import msgspec

from shiplap.drawing import markup
from shiplap.drawing.markup import counted, dollars, percent, text
from shiplap.drawing.picture import Amounts, NodePicture, NodePictureState, PodPicture

_BYTES_PER_UNIT = 4 * 2**30
_GAP = 1.0
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
    """How much of each node is drawn: pods in its box, pods in its card (-1: no card), labels, its average side in px.

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
    """How much can be drawn of these nodes so that a page stays small and its boxes can be told apart.

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
    box_parts = _BoxParts(length, (length - _GAP) * min(max(share, 0.15), 0.85))
    classes = ["n", *_classes(node)]
    drawn = [f'<path class=room d="{box_parts.path(0, 0, length, length)}"/>', *_pods(node, chosen, box_parts)]
    if node.tier:
        fill = "url(#sl-hatch)" if node.tier == 1 else "url(#sl-dots)"
        drawn.append(f'<path d="{box_parts.path(*box_parts.filled(node))}" fill="{fill}" class=tier />')
    drawn.append(f'<rect class=frame x=".5" y=".5" width="{_px(length - 1)}" height="{_px(length - 1)}" rx="2"/>')
    if node.state is NodePictureState.LEAVING:
        drawn.append(f'<path class=cross d="M1 1L{_px(length - 1)} {_px(length - 1)}"/>')
    size, line = _px(length), text(summary(node))
    title = f' title="{line}"' if chosen.listed < 0 else ""  # without a card, a tooltip
    label = _label(node) if chosen.labels else ""
    card = _card(node, chosen.listed) if chosen.listed >= 0 else ""
    return (
        f'<li class="{" ".join(classes)}"><div class=b role=img tabindex=0 aria-label="{line}"{title}>'
        f'<svg width="{size}" height="{size}" viewBox="0 0 {size} {size}" aria-hidden=true>{"".join(drawn)}</svg></div>'
        f"{label}{card}</li>"
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
        counted(used.pods, "pod"),
        f"{dollars(node.hourly, estimated=node.estimated)} per hour" if node.hourly else "",
        str(node.state),
        markup.short(node.note, 160),
    ]
    return ", ".join(part for part in parts if part)


def _classes(node: NodePicture) -> list[str]:
    return [] if node.state is NodePictureState.READY else [str(node.state).lower()]


class _BoxParts(msgspec.Struct, frozen=True):
    """The two parts of a box: `cpu` px of its side are the left one's."""

    side: float
    cpu: float

    def path(self, cpu_from: float, memory_from: float, cpu_high: float, memory_high: float) -> str:
        """A piece of each part, from so many px above the floor and so high."""
        right = self.cpu + _GAP
        return _rect(0, self.side - cpu_from, self.cpu, cpu_high) + _rect(
            right, self.side - memory_from, self.side - right, memory_high
        )

    def heights(self, millicores: int, memory_bytes: int, node: NodePicture) -> tuple[float, float]:
        """How high so much stands; where more is used than there is, all of it together fills the box."""
        room, used = node.allocatable, node.used
        cpu = max(room.millicores, used.millicores, 1)
        memory = max(room.memory_bytes, used.memory_bytes, 1)
        return self.side * max(millicores, 0) / cpu, self.side * max(memory_bytes, 0) / memory

    def filled(self, node: NodePicture) -> tuple[float, float, float, float]:
        """All that is used, as arguments of `path`."""
        return 0, 0, *self.heights(node.used.millicores, node.used.memory_bytes, node)


def _rect(left: float, bottom: float, width: float, height: float) -> str:
    return f"M{_px(left)} {_px(bottom)}v-{_px(height)}h{_px(width)}v{_px(height)}z"


def _px(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _pods(node: NodePicture, chosen: DetailLevel, box_parts: _BoxParts) -> list[str]:
    """The pods from the floor up, those that a plan adds on top; those beyond what is drawn are one piece."""
    ordered = sorted(node.pods, key=lambda pod: (pod.fresh, -max(_fractions(pod, node)), pod.key))
    drawn, cpu, memory = [], 0.0, 0.0
    # Of many, the largest are drawn, wherever they stand.
    kept = set(sorted(range(len(ordered)), key=lambda place: -max(_fractions(ordered[place], node)))[: chosen.pods])
    rest = msgspec.structs.replace(node.used, pods=len(ordered) - len(kept))
    for place, pod in enumerate(ordered):
        if place not in kept:
            continue
        high = box_parts.heights(pod.millicores, pod.memory_bytes, node)
        rest = Amounts(rest.millicores - pod.millicores, rest.memory_bytes - pod.memory_bytes, rest.pods)
        title = text(f"{markup.short(pod.key, 120)}\n{_asks(pod.millicores, pod.memory_bytes)}")
        kind = "fresh" if pod.fresh else "pod"
        drawn.append(f'<path class={kind} d="{box_parts.path(cpu, memory, *high)}"><title>{title}</title></path>')
        cpu, memory = cpu + high[0], memory + high[1]
    high = box_parts.heights(rest.millicores, rest.memory_bytes, node)
    if max(high) >= 0.1:
        what = counted(rest.pods, "further pod") if rest.pods else "DaemonSets, and pods that are not listed"
        title = f"{what}\n{_asks(rest.millicores, rest.memory_bytes)}"
        drawn.append(f'<path class=rest d="{box_parts.path(cpu, memory, *high)}"><title>{title}</title></path>')
    return drawn


def _fractions(pod: PodPicture, node: NodePicture) -> tuple[float, float]:
    room = node.allocatable
    return pod.millicores / max(room.millicores, 1), pod.memory_bytes / max(room.memory_bytes, 1)


def _asks(millicores: int, memory_bytes: int) -> str:
    return f"{markup.cores(max(millicores, 0))} CPU, {markup.memory(max(memory_bytes, 0))}"


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
        f"pods {used.pods} of {room.pods or '?'}",
    ]
    lines = "".join(f"<div>{text(fact)}</div>" for fact in facts if fact)
    largest = sorted(node.pods, key=lambda pod: (-max(_fractions(pod, node)), pod.key))[:listed]
    pods = "".join(
        f"<li{' class=new' if pod.fresh else ''}>{text(markup.short(pod.key, 120))} "
        f"<span>{_asks(pod.millicores, pod.memory_bytes)}</span></li>"
        for pod in largest
    )
    more = len(node.pods) - len(largest)
    more_text = f"<li>and {more:,} more</li>" if more > 0 and pods else ""
    return f"<div class=k><b>{text(node.name)}</b>{lines}{f'<ul>{pods}{more_text}</ul>' if pods else ''}</div>"
