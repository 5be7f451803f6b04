"""The packing map as a custom widget of a CloudWatch dashboard.

CloudWatch takes HTML with styles and SVG, removes scripts, and tells its theme instead of leaving it to the reader's
system; links to other views of the widget are its own element `cwdb-action`. The size is bounded: a
dashboard asks again every few minutes, and Lambda gives back no more than 6 MB.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shiplap.drawing import packing_map
from shiplap.drawing.markup import counted, dollars, percent, text
from shiplap.drawing.packing_map import legend, sections
from shiplap.drawing.picture import ClusterPicture
from shiplap.drawing.style import colour_numbers, style_sheet

MOST_BYTES = 1_000_000
_MOST_PODS = 1_500
_FULL_WIDTH = 1400.0
_SMALLEST_ZOOM = 0.55


class WidgetLooks(msgspec.Struct, frozen=True):
    """The appearance: `theme` is `light` or `dark`, `width` in px."""

    theme: str = "light"
    width: float = 1200.0


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
    zoom = min(max(looks.width / _FULL_WIDTH, _SMALLEST_ZOOM), 1.0)
    chosen = msgspec.structs.replace(packing_map.detail_level(nodes, most_pods=_MOST_PODS, zoom=zoom), listed=-1)
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
