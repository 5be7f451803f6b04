"""The picture of a Region on the page of the playground: every node by its size, filled by the pods that are on it."""

from __future__ import annotations

from collections.abc import Sequence

from shiplap.drawing.capture import picture_of_cluster
from shiplap.drawing.dashboard_widget import WidgetCluster, WidgetLooks, widget_html
from shiplap.drawing.packing_map import pending_table
from shiplap_lab.checks.observation import ClusterObservation

_LOOKS = WidgetLooks(width=1400.0, height=100_000.0)
"""A page scrolls: boxes are not made smaller to fit, as they are on a dashboard."""


def region_markup(clusters: Sequence[ClusterObservation], now: float) -> str:
    """The dashboard's widget with the nodes and pods as they are at a moment, and the pods that wait.

    The deployed function draws by claims: it may not ask the clusters.
    """
    pictures = [picture_of_cluster(each.name, now, each.nodes, each.pods, each.claims) for each in clusters]
    waiting = "".join(f"<h2>{each.cluster}</h2>{pending_table(each)}" for each in pictures if each.pending)
    drawn = widget_html([WidgetCluster(picture) for picture in pictures], _LOOKS)
    return f'{drawn}<div class="sl inset">{waiting}</div>'
