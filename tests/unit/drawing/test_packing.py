"""The packing map: areas are amounts, nothing is lost, names are only ever text, and pages stay small."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shiplap.drawing.packing_map import (
    bound_note,
    box,
    detail_level,
    node_table,
    packing_map,
    pending_table,
    side,
    totals,
)
from shiplap.drawing.picture import Amounts, ClusterPicture, NodePicture, NodePictureState, PendingPicture, PodPicture
from shiplap_cli.render.page import page
from tests.builders.pictures import GIB, HOSTILE, cluster
from tests.builders.pictures import drawn_node as node
from tests.thoroughness import draws
from tests.unit.drawing.page_reader import Reader

_OWN = frozenset(
    {"html", "head", "meta", "link", "title", "style", "body", "main", "script", "h1", "h2", "h3", "p", "small", "div"}
    | {"dl", "dt", "dd", "ul", "li", "i", "b", "br", "span", "section", "details", "summary", "table", "thead", "tbody"}
    | {"tr", "th", "td", "svg", "defs", "pattern", "rect", "circle", "g", "path"}
)


def whole(picture: ClusterPicture) -> str:
    parts = [totals(picture), bound_note(picture), packing_map(picture), pending_table(picture), node_table(picture)]
    return page(f"Cluster {picture.cluster}", "as it is", "".join(parts))


def pieces(markup: str, kind: str) -> list[tuple[float, float]]:
    """Of each piece of a kind the area in the CPU part and in the memory part, px²."""
    found = []
    for path in re.findall(rf'<path class={kind} d="([^"]*)"', markup):
        sizes = re.findall(r"v-([\d.]+)h([\d.]+)", path)
        found.append(tuple(float(high) * float(wide) for high, wide in sizes))
    return found  # type: ignore[return-value]


def test_equal_areas_are_equal_amounts() -> None:
    pod = PodPicture("shop", "api", 2000, 4 * GIB)
    small, large = node(8000, 32, pod), node(32000, 64, pod)
    chosen = detail_level([small, large], most_pods=100)
    (of_small,), (of_large,) = (pieces(box(each, chosen), "pod") for each in (small, large))
    for left, right in zip(of_small, of_large, strict=True):
        assert abs(left - right) < 0.03 * left
    assert abs(side(small, chosen) ** 2 / side(large, chosen) ** 2 - 16 / 48) < 1e-9
    assert of_small[0] / of_small[1] > 1.8  # two processors are twice what four GiB are


def columns(markup: str, kind: str) -> list[list[tuple[float, float]]]:
    """Of each piece of a kind its columns, from the left: height and width, px."""
    return [
        [(float(high), float(wide)) for high, wide in re.findall(r"v-([\d.]+)h([\d.]+)", path)]
        for path in re.findall(rf'<path class={kind} d="([^"]*)"', markup)
    ]


def test_accelerators_are_a_third_column_filled_by_the_pods_that_ask_for_them() -> None:
    train = PodPicture("ml", "train", 4000, 16 * GIB, accelerators=3)
    web = PodPicture("ml", "web", 1000, GIB)
    room = Amounts(48_000, 192 * GIB, 58, accelerators=4)
    gpu = node(0, 0, train, web, allocatable=room, used=train.amounts + web.amounts)
    plain = node(48_000, 192, web)
    chosen = detail_level([gpu, plain], most_pods=100)

    drawn = box(gpu, chosen)
    first, second = columns(drawn, "pod")
    assert len(columns(drawn, "room")[0]) == len(first) == 3
    assert len(second) == 2, "a pod without accelerators has no piece in their column"
    assert abs(first[2][0] - 0.75 * side(gpu, chosen)) < 0.1
    assert "accelerators 3 of 4" in drawn
    assert "3 accelerators" in drawn
    assert len(columns(box(plain, chosen), "room")[0]) == 2
    assert side(gpu, chosen) == side(plain, chosen), "the square stays to scale"
    seen = " ".join(Reader(whole(ClusterPicture(cluster="c", taken_at=0, nodes=(gpu,)))).words)
    assert "accelerators used" in seen
    assert "GPUs and other accelerators" in seen
    assert "GPUs" not in whole(ClusterPicture(cluster="c", taken_at=0, nodes=(plain,)))


def test_limits_estimates_and_the_bound_are_explained() -> None:
    one = node(8000, 32, hourly=0.4, estimated=True)
    picture = ClusterPicture(cluster="c", taken_at=0, nodes=(one,), limits={"web": "cpu 8 of 100"}, bound_hourly=0.3)
    seen = " ".join(Reader(whole(picture)).words)
    assert "limits: cpu 8 of 100" in seen
    assert "per hour, estimated" in seen
    assert "No packing costs less" in seen
    known = replace(picture, nodes=(replace(one, estimated=False),), limits={}, bound_hourly=None)
    seen = " ".join(Reader(whole(known)).words)
    assert "limits:" not in seen
    assert "estimated" not in seen
    assert "No packing costs less" not in seen


def test_what_is_used_and_not_listed_is_drawn_in_one_piece() -> None:
    pods = tuple(PodPicture("shop", f"p{place}", 100, GIB // 4) for place in range(30))
    full = node(8000, 32, *pods, used=Amounts(4000, 16 * GIB, 33))
    chosen = replace(detail_level([full], most_pods=100), pods=10)
    drawn = box(full, chosen)
    assert len(pieces(drawn, "pod")) == 10
    assert "20 further pods" in drawn
    covered = sum(high for kind in ("pod", "rest") for high, _ in pieces(drawn, kind))
    (room,) = pieces(drawn, "room")
    assert abs(covered / room[0] - 0.5) < 0.02
    assert "DaemonSets, and pods that are not listed" in box(full, replace(chosen, pods=100))


def test_more_than_there_is_fills_the_box_and_not_more() -> None:
    over = node(1000, 4, PodPicture("a", "b", 3000, 4 * GIB), PodPicture("a", "c", 1000, 4 * GIB))
    drawn = box(over, detail_level([over], most_pods=10))
    (room,) = pieces(drawn, "room")
    assert abs(sum(cpu for cpu, _ in pieces(drawn, "pod")) / room[0] - 1) < 0.03


def test_a_node_of_which_nothing_is_known_is_still_there() -> None:
    unknown = NodePicture(name="fresh", pool="web", state=NodePictureState.STARTING)
    drawn = packing_map(ClusterPicture(cluster="c", taken_at=0.0, nodes=(unknown,)))
    assert "fresh" in drawn
    assert "nan" not in drawn
    assert "No nodes." in packing_map(ClusterPicture(cluster="c", taken_at=0.0))


def test_every_node_is_drawn_once_and_can_be_reached_by_keyboard() -> None:
    picture = cluster(120)
    tags = Reader(whole(picture)).tags
    drawn = [attributes for _, attributes in tags if attributes.get("class") == "b"]
    assert len(drawn) == 120
    assert all(attributes["tabindex"] == "0" and attributes["role"] == "img" for attributes in drawn)
    told = [str(attributes["aria-label"]) for attributes in drawn]
    assert {label.partition(",")[0] for label in told} == {each.name for each in picture.nodes}


def test_tiers_and_states_are_more_than_colours() -> None:
    known = {
        "url(#sl-hatch)": node(1000, 4, tier=1),
        "url(#sl-dots)": node(1000, 4, tier=2),
        "class=cross": node(1000, 4, state=NodePictureState.LEAVING),
        '"n starting"': node(1000, 4, state=NodePictureState.STARTING),
        '"n notready"': node(1000, 4, state=NodePictureState.NOT_READY),
        '"n planned"': node(1000, 4, state=NodePictureState.PLANNED),
    }
    for mark, drawn in known.items():
        chosen = detail_level([drawn], most_pods=1)
        assert mark in box(drawn, chosen), mark
        assert mark not in box(node(1000, 4), chosen)


def test_names_are_text_whatever_they_are() -> None:
    picture = cluster(6, name=HOSTILE)
    nodes = tuple(
        replace(each, name=HOSTILE + each.name, pool=each.pool and HOSTILE, note=HOSTILE) for each in picture.nodes
    )
    waits = tuple(replace(each, reason=HOSTILE) for each in picture.pending)
    read = Reader(whole(replace(picture, cluster=HOSTILE, nodes=nodes, pending=waits)))
    assert {tag for tag, _ in read.tags} <= _OWN
    assert sum(tag == "script" for tag, _ in read.tags) == 1
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on") or name == "srcdoc"]
    assert any("alert(1)" in words for words in read.words)
    assert "\x00" not in whole(replace(picture, nodes=nodes))


@settings(max_examples=draws(60), deadline=None)
@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_comes_out_as_it_went_in(name: str, why: str) -> None:
    drawn = node(1000, 4, PodPicture("ns", name, 100, GIB), name=name, note=why, state=NodePictureState.LEAVING)
    waits = PendingPicture(namespace="ns", name=name, reason=why)
    picture = ClusterPicture(cluster=name, taken_at=0.0, nodes=(drawn,), pending=(waits,))
    assert {tag for tag, _ in Reader(whole(picture)).tags} <= _OWN
    whole(picture).encode()


def test_pages_of_large_clusters_stay_small() -> None:
    picture = cluster(1000, pods_per_node=28)
    assert sum(len(each.pods) for each in picture.nodes) > 15_000
    assert len(packing_map(picture)) < 2_500_000
    huge = replace(
        picture, nodes=tuple(replace(each, name=f"{each.name}-{copy}") for copy in range(5) for each in picture.nodes)
    )
    assert len(whole(huge)) < 5_000_000


def test_totals_say_what_there_was_before_and_how_far_the_bound_is() -> None:
    before = cluster(10)
    after = replace(
        before, nodes=before.nodes[:8], bound_hourly=sum(n.hourly for n in before.nodes[:8] if n.pool) / 1.25
    )
    words = " ".join(Reader(totals(after, before)).words)
    assert "was 10" in words
    assert "+25.0 % over it" in words
    unbounded = totals(replace(after, bound_hourly=None))
    assert "lower bound" not in unbounded


def test_pods_that_wait_stand_by_reason_with_the_oldest_first() -> None:
    words = Reader(pending_table(cluster(2))).words
    assert words.index("5") < words.index("3")
    assert "ml/svc-0, ml/svc-1, ml/svc-2, ml/svc-3 and 1 more" in words
    assert pending_table(ClusterPicture(cluster="c", taken_at=0.0)) == ""


def test_the_same_picture_is_the_same_page() -> None:
    assert whole(cluster(40)) == whole(cluster(40))
