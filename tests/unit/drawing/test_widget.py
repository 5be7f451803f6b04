"""The widget's markup: what CloudWatch takes and nothing else, in its theme, small enough, with links."""

from __future__ import annotations

import re

from msgspec.structs import replace

from shiplap.drawing.capture import picture_of_claims
from shiplap.drawing.dashboard_widget import MOST_BYTES, WidgetCluster, WidgetLooks, problem_html, widget_html
from shiplap.drawing.picture import Amounts, ClusterPicture, NodePictureState
from shiplap.drawing.style import POOLS_DARK, POOLS_LIGHT
from shiplap.manifests.nodeclaim import ClaimState
from tests.builders.claims import with_fields
from tests.builders.pictures import HOSTILE, cluster
from tests.unit.drawing.captured import CLAIM, GIB, NOW
from tests.unit.drawing.page_reader import Reader

FORBIDDEN = {"script", "iframe", "use", "link", "object", "embed", "form", "html", "body"}
ARN = "arn:aws:lambda:eu-west-1:123456789012:function:shiplap-widget:live"


def test_claims_are_drawn_as_what_they_are_for() -> None:
    room, asked = {"cpu": 2000, "memory": 8 * GIB, "pods": 29}, {"cpu": 1500, "memory": 4 * GIB}
    claims = [
        with_fields(
            CLAIM,
            name="done",
            state=ClaimState.INITIALIZED,
            node_name="ip-1",
            allocatable=room,
            requests=asked,
            hourly=0.1,
        ),
        with_fields(CLAIM, name="flies", state=ClaimState.LAUNCHED, allocatable=room, requests=asked),
        with_fields(CLAIM, name="goes", state=ClaimState.DRAINING, failure="SpotInterruption"),
        with_fields(CLAIM, name="gone", state=ClaimState.GONE),
        with_fields(CLAIM, name="failed", state=ClaimState.FAILED),
    ]
    made = picture_of_claims("c", NOW, claims)
    drawn = {node.name: (node.state, node.note) for node in made.nodes}
    assert drawn == {
        "flies": (NodePictureState.STARTING, "Launched"),
        "goes": (NodePictureState.LEAVING, "SpotInterruption"),
        "ip-1": (NodePictureState.READY, ""),
    }
    (ready,) = (node for node in made.nodes if node.name == "ip-1")
    assert (ready.allocatable, ready.used.millicores) == (Amounts(2000, 8 * GIB, 29), 1500)


def test_only_what_cloudwatch_takes_is_in_it() -> None:
    made = widget_html([WidgetCluster(cluster(20, name=HOSTILE), note=HOSTILE)], WidgetLooks())
    read = Reader(made)
    assert not {tag for tag, _ in read.tags} & FORBIDDEN
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert made.count("<style>") == 1
    assert "url(#sl-hatch)" in made
    # Every rule is below .sl: the console around it keeps its own looks.
    rules = made[made.index("<style>") + 7 : made.index("</style>")]
    selectors = [one for head in re.findall(r"([^{}]+)\{", rules) if "@media" not in head for one in head.split(",")]
    assert all(re.match(r"(\.js )?\.sl\b", selector.strip()) for selector in selectors), selectors


def test_it_has_the_theme_of_the_dashboard() -> None:
    light, dark = (widget_html([WidgetCluster(cluster(3))], WidgetLooks(theme)) for theme in ("light", "dark"))
    assert POOLS_LIGHT[0] in light
    assert POOLS_DARK[0] not in light
    assert POOLS_DARK[0] in dark
    assert "prefers-color-scheme" not in light + dark


def boxes(made: str) -> list[float]:
    return [float(high) for high in re.findall(r'<svg width="[\d.]+" height="([\d.]+)" viewBox', made)]


def test_boxes_shrink_and_lose_their_labels_before_anything_is_cut_off() -> None:
    """A legend, a heading, and four pools of at most a row each have to fit."""
    few, many = WidgetCluster(cluster(6)), WidgetCluster(cluster(60))
    high, low = (widget_html([many], WidgetLooks("light", 1380, height)) for height in (4000, 450))
    roomy = widget_html([few], WidgetLooks("light", 1380, 900))

    assert "class=l>" in roomy
    assert "class=l>" in high
    assert "class=l>" not in low
    assert max(boxes(low)) < max(boxes(high))
    assert len(boxes(low)) == len(boxes(high))


def test_a_cluster_that_cannot_be_read_says_why_and_the_others_are_drawn() -> None:
    failed = WidgetCluster(ClusterPicture(cluster="west", taken_at=0.0), failure="It cannot be read: AccessDenied <x>")
    made = widget_html([WidgetCluster(cluster(3)), failed], WidgetLooks())
    assert "It cannot be read: AccessDenied &lt;x&gt;" in made
    assert made.count('class="b"') + made.count("class=b ") == 3
    assert "why &lt;not&gt;" in problem_html(WidgetLooks(), "why <not>")
    assert "no clusters" in widget_html([], WidgetLooks())


def test_links_lead_to_one_cluster_and_back() -> None:
    two = [WidgetCluster(cluster(1)), WidgetCluster(replace(cluster(1), cluster="west</cwdb-action><b>"))]
    both = widget_html(two, WidgetLooks(), endpoint=ARN, several=True)
    assert both.count("<cwdb-action") == both.count("</cwdb-action>") == 2
    assert f'endpoint="{ARN}"' in both
    assert '{"cluster":"prod"}' in both
    alone = widget_html(two[:1], WidgetLooks(), endpoint=ARN, several=True)
    assert '{"cluster":""}' in alone
    assert "<cwdb-action" not in widget_html(two[:1], WidgetLooks(), endpoint=ARN)


def test_a_thousand_nodes_fit_and_more_are_cut() -> None:
    thousand = widget_html([WidgetCluster(cluster(1000, pods_per_node=28))], WidgetLooks(width=588))
    assert len(thousand) < MOST_BYTES
    assert "further node" not in thousand
    many = cluster(1000)
    copies = tuple(replace(node, name=f"{node.name}-{copy}") for copy in range(5) for node in many.nodes)
    cut = widget_html([WidgetCluster(replace(many, nodes=copies))], WidgetLooks())
    assert len(cut) <= MOST_BYTES
    assert "further nodes not drawn" in cut
