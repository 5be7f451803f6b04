"""The packing map as a custom widget of a CloudWatch dashboard.

CloudWatch takes HTML with styles and SVG, removes scripts, and tells its theme instead of leaving it to the reader's
system; links to other views of the widget are its own element `cwdb-action`. The size is bounded: a
dashboard asks again every few minutes, and Lambda gives back no more than 6 MB.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import msgspec

from shiplap.drawing.markup import counted, dollars, percent, text
from shiplap.drawing.packing_map import DetailLevel, by_pool, detail_level, legend, sections, side
from shiplap.drawing.picture import ClusterPicture, NodePicture
from shiplap.drawing.style import colour_numbers, style_sheet

MOST_BYTES = 1_000_000
_MOST_PODS = 1_500
_FULL_WIDTH = 1400.0
_ZOOMS = (1.0, 0.85, 0.7, 0.55, 0.45, 0.35)
_MOST_ZOOMED = 4
"""Boxes have the first of these sizes at which everything fits: of the larger ones with labels, then without. At the
last one, readers scroll."""

_HEAD_PX, _POOL_PX, _LABEL_PX, _LABEL_WIDTH_PX, _GAP_PX = 64.0, 46.0, 36.0, 100.0, 12.0
"""Heights of the legend, of a cluster's heading, of a pool's; of a label, and its width; the gap of boxes."""


class WidgetLooks(msgspec.Struct, frozen=True):
    """The appearance: `theme` is `light` or `dark`; `width` and `height` in px."""

    theme: str = "light"
    width: float = 1200.0
    height: float = 600.0


class WidgetCluster(msgspec.Struct, frozen=True):
    """A cluster to draw; `note` is a warning, `failure` says why nothing is known of it, `told` names the source."""

    picture: ClusterPicture
    note: str = ""
    failure: str = ""
    told: str = ""


def widget_html(
    subjects: Sequence[WidgetCluster], looks: WidgetLooks, *, endpoint: str = "", several: bool = False
) -> str:
    """All of some clusters, one below the other.

    Args:
        subjects: the clusters.
        looks: of the place.
        endpoint: ARN of the function that draws, for links.
        several: whether there are other clusters to go to.
    """
    most_nodes = max((len(subject.picture.nodes) for subject in subjects), default=0)
    made = _drawn(subjects, looks, most_nodes, endpoint if several else "")
    while len(made) > MOST_BYTES and most_nodes > 1:
        most_nodes = int(most_nodes * min(0.9, 0.95 * MOST_BYTES / len(made)))
        made = _drawn(subjects, looks, most_nodes, endpoint if several else "")
    return made


def problem_html(looks: WidgetLooks, why: str) -> str:
    """A widget with only the reason why there is nothing to show."""
    return _framed(f"<p class=bad>{text(why)}</p>", looks)


def _drawn(subjects: Sequence[WidgetCluster], looks: WidgetLooks, most_nodes: int, endpoint: str) -> str:
    nodes = [node for subject in subjects for node in subject.picture.nodes]
    chosen = _fitting(subjects, nodes, looks)
    colours = colour_numbers(node.pool for node in nodes)
    parts = [legend(nodes)] if nodes else []
    for subject in subjects:
        parts.append(_heading(subject, endpoint, alone=len(subjects) == 1))
        if subject.note:
            parts.append(f"<p class=bad>{text(subject.note)}</p>")
        if subject.failure:
            parts.append(f"<p class=bad>{text(subject.failure)}</p>")
        else:
            parts.append(f"<p><small>{text(subject.told)}</small></p>" if subject.told else "")
            parts.append(sections(subject.picture, chosen, colours, most_nodes))
    return _framed("".join(parts) or "<p>This install has no clusters.</p>", looks)


def _fitting(subjects: Sequence[WidgetCluster], nodes: Sequence[NodePicture], looks: WidgetLooks) -> DetailLevel:
    """The largest boxes with which nothing is cut off below, as far as that can be known without drawing."""
    widest = max(min(looks.width / _FULL_WIDTH, 1.0), _ZOOMS[_MOST_ZOOMED - 1])
    levels = [
        msgspec.structs.replace(detail_level(nodes, most_pods=_MOST_PODS, zoom=zoom), listed=-1)
        for zoom in _ZOOMS
        if zoom <= widest
    ]
    named = [level for level in levels[:_MOST_ZOOMED] if level.labels]
    plain = [msgspec.structs.replace(level, labels=False) for level in levels]
    fitting = (level for level in (*named, *plain) if _height(subjects, level, looks.width) <= looks.height)
    return next(fitting, plain[-1])


def _height(subjects: Sequence[WidgetCluster], chosen: DetailLevel, width: float) -> float:
    """About how high all of it is, px."""
    height = _HEAD_PX
    for subject in subjects:
        height += _HEAD_PX
        for _, nodes in by_pool(subject.picture):
            sides = [side(node, chosen) for node in nodes]
            wide = sum(max(each, _LABEL_WIDTH_PX if chosen.labels else 0.0) + _GAP_PX for each in sides)
            height += _POOL_PX + ceil(wide / width) * (max(sides) + _GAP_PX + (_LABEL_PX if chosen.labels else 0.0))
    return height


def _heading(subject: WidgetCluster, endpoint: str, *, alone: bool) -> str:
    picture = subject.picture
    room, used = picture.allocatable, picture.used
    cpu, memory = percent(used.millicores, room.millicores), percent(used.memory_bytes, room.memory_bytes)
    facts = [
        counted(len(picture.nodes), "node"),
        f"CPU {cpu} and memory {memory} asked for",
        f"{dollars(picture.hourly, estimated=picture.estimated)} per hour",
    ]
    said = "" if subject.failure else f" <small>{text(' · '.join(facts))}</small>"
    return f"<h2>{text(picture.cluster)}{said}</h2>{_link(picture.cluster, endpoint, alone=alone) if endpoint else ''}"


def _link(cluster: str, endpoint: str, *, alone: bool) -> str:
    """To this cluster alone, or back to all of them."""
    wanted = msgspec.json.encode({"cluster": "" if alone else cluster}).decode().replace("<", "\\u003c")
    label = "all clusters" if alone else "only this one"
    action = f'<cwdb-action action="call" display="widget" endpoint="{text(endpoint)}">{wanted}</cwdb-action>'
    return f"<p><a>{label}</a>{action}</p>"


def _framed(body: str, looks: WidgetLooks) -> str:
    plain = '<div class="cwdb-no-default-styles"></div>'
    return f'{plain}<style>{style_sheet(looks.theme)}</style><div class="sl inset">{body}</div>'
