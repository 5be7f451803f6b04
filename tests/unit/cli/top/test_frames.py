"""Frames of `shiplap top`: their size, what they keep in a narrow terminal, and what keys do."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from shiplap.drawing.packing_map import packing_map, totals
from shiplap.drawing.picture import Amounts, ClusterPicture, NodePictureState, PendingPicture, PodPicture
from shiplap.records.disruption_record import Headline
from shiplap_cli.commands.top.frame import Scene, age, frame, page_of
from shiplap_cli.commands.top.keyboard import parse
from shiplap_cli.commands.top.stream import StreamLine, changes_between, extended
from shiplap_cli.commands.top.view import SORTS, View, pressed, shown_nodes
from shiplap_cli.render.saving import least_hourly
from tests.unit.cli.top.framed import GIB, NOON, THREE, cluster, node


def text(picture: ClusterPicture, view: View | None = None, size: tuple[int, int] = (80, 24), *news: StreamLine) -> str:
    return "\n".join(line.plain.rstrip() for line in frame(Scene(picture), view or View(), news, *size))


def test_a_frame_at_80_by_24() -> None:
    news = (StreamLine(NOON - 5, "node b (flex, m5.large, spot, 0.0500 USD/h) was launched", "new"),)
    assert text(THREE, View(selected="b"), (80, 24), *news) == GOLDEN


GOLDEN = """\
prod  12:00:00  3 nodes (1 starting)  2 pods  2 waiting, oldest 1m
0.3500 USD/h  packing could save at most 0.2900  flex 1 (1 fallback)  general 2
cpu ██████████▊░░░░░░░░░░░░░░░░  40%  memory ████▌░░░░░░░░░░░░░░░░░░░░░░  17%
  NAME▼          TYPE           POOL       CPU       MEMORY    PRICE   STATE
  a              m5.large       general    █░░░  25% █░░░  25% 0.3000  Ready
> b              m5.large       flex/1 sp… ███▊  95% █░░░  25% 0.0500  Ready
  c              m5.large       general    ░░░░   0% ░░░░   0% ?       Startin…











── waiting 2 ───────────────────────────────────────────────────────────────────
   1m web/wait-0  0.5 CPU 0.0Gi  no node fits
   1m web/wait-1  0.5 CPU 0.0Gi  no node fits
── happened ────────────────────────────────────────────────────────────────────
11:59:55 node b (flex, m5.large, spot, 0.0500 USD/h) was launched
q quit  s sort: name  / filter  enter open  d decisions  ? help"""


def test_pods_that_wait_together_are_one_line() -> None:
    waits = [
        PendingPicture(namespace="ml", name=f"p{number}", millicores=500, age_s=90.0 - number, reason="none fits")
        for number in range(4)
    ]
    together = [msgspec.structs.replace(pod, group="gang ml/a: 2 wait") for pod in waits[1:3]]
    shown = text(msgspec.structs.replace(THREE, pending=(waits[0], *together, waits[3])))
    assert [line for line in shown.splitlines() if "none fits" in line] == [
        "   1m ml/p0  0.5 CPU 0.0Gi  none fits",
        "   1m gang ml/a: 2 wait  1 CPU 0.0Gi  none fits",
        "   1m ml/p3  0.5 CPU 0.0Gi  none fits",
    ]
    assert "4 waiting, oldest 1m" in shown


def test_a_wide_frame_has_every_column() -> None:
    (title,) = (line for line in text(THREE, size=(200, 50)).splitlines() if "NAME" in line)
    assert title.split() == ["NAME▼", "TYPE", "POOL", "CPU", "MEMORY", "PODS", "PRICE", "AGE", "STATE"]
    row = next(line for line in text(THREE, size=(200, 50)).splitlines() if line.startswith("  b"))
    assert row.split()[-4:] == ["3/29", "0.0500", "1m", "Ready"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(59.9, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (86399, "23h"), (86400, "1d"), (200_000, "2d")],
)
def test_an_age_is_in_its_largest_unit(seconds: float, shown: str) -> None:
    assert age(seconds) == shown


@pytest.mark.parametrize(("used", "shown"), [(600, 30), (2000, 100), (2400, 120)])
def test_a_node_is_as_full_on_a_page(used: int, shown: int) -> None:
    """A node can hold more than it turned out to have."""
    picture = cluster(node("n1", cpu=used), node("n2", cpu=used))
    assert text(picture).count(f" {shown}%") == 3
    assert packing_map(picture).count(f"CPU {shown} %") >= 2
    assert f"{shown} %" in totals(picture)


def test_a_node_that_is_opened() -> None:
    shown = text(THREE, View(selected="b", inside=True))
    for part in ("b  m5.large  us-east-1a  spot  pool flex  Ready", "1.9 of 2 CPU", "2.0Gi of 8.0Gi", "web/api"):
        assert part in shown
    assert "node gone is gone" in text(THREE, View(selected="gone", inside=True))


def test_what_could_not_be_seen_is_said() -> None:
    shown = text(msgspec.structs.replace(THREE, missing=("not permitted to list pods", "and nodes")))
    assert "not permitted to list pods (and 1 more)" in shown


def test_an_empty_cluster_and_a_filter_that_nothing_passes() -> None:
    assert "no nodes" in text(cluster())
    assert "no node passes the filter" in text(THREE, View(filter="nothing"))


def test_names_cannot_command_the_terminal() -> None:
    evil = node("\x1b[2Jevil", pool="p\x07", note="\x1b]0;x\x07", pods=(PodPicture("web", "\x1b[31mred"),))
    picture = cluster(evil, cluster="c\x1bc", missing=("no\x1b",))
    waits = PendingPicture(namespace="n\x1b", name="p\x1b", reason="r\x1b")
    picture = msgspec.structs.replace(picture, pending=(waits,))
    for view in (View(), View(selected=evil.name, inside=True)):
        assert "\x1b" not in text(picture, view, (120, 30), StreamLine(NOON, "x\x1b"))


@given(
    width=st.integers(20, 220),
    height=st.integers(6, 60),
    nodes=st.integers(0, 60),
    waiting=st.integers(0, 30),
    news=st.integers(0, 30),
    decided=st.none() | st.integers(0, 30),
    view=st.builds(
        View,
        sort=st.sampled_from(SORTS),
        filter=st.sampled_from(["", "n1", "nothing"]),
        reverse=st.booleans(),
        selected=st.sampled_from(["", "n3", "n59", "gone"]),
        inside=st.booleans(),
        decisions=st.booleans(),
        typing=st.booleans(),
        help=st.booleans(),
        scroll=st.integers(0, 99),
    ),
)
def test_every_frame_fits_the_terminal(
    width: int, height: int, nodes: int, waiting: int, news: int, decided: int | None, view: View
) -> None:
    picture = cluster(*(node(f"n{n}", cpu=n * 30) for n in range(nodes)), waiting=waiting)
    stream = [StreamLine(NOON, f"node {n} is Ready") for n in range(news)]
    line = Headline(NOON, "schedule", "3 pods → 2 nodes", "prod/2026-01-01/115955-41-3fb2c1d0aa51")
    decisions = None if decided is None else (line,) * decided
    lines = frame(Scene(picture, decisions), view, stream, width, height)
    assert len(lines) == height
    assert all(cell_len(line.plain) <= width for line in lines)


@given(at=st.integers(0, 99), height=st.integers(8, 40))
def test_the_chosen_node_is_always_in_sight(at: int, height: int) -> None:
    picture = cluster(*(node(f"n{n:02}") for n in range(100)), waiting=5)
    assert f"> n{at:02}" in text(picture, View(selected=f"n{at:02}"), (80, height))


@pytest.mark.parametrize(
    ("sort", "order"),
    [("name", "abc"), ("cpu", "bac"), ("price", "abc"), ("age", "abc"), ("pool", "bac"), ("state", "abc")],
)
def test_the_order_of_nodes(sort: str, order: str) -> None:
    assert "".join(item.name for item in shown_nodes(THREE, View(sort=sort))) == order
    assert "".join(item.name for item in shown_nodes(THREE, View(sort=sort, reverse=True))) == order[::-1]


def keys(view: View, *names: str) -> View:
    for name in names:
        view = pressed(view, name, shown_nodes(THREE, view), 2)
    return view


@pytest.mark.parametrize(
    ("pressed_keys", "expected"),
    [
        ("j", View(selected="a")),
        ("j j", View(selected="b")),
        ("down down down down", View(selected="c")),
        ("G", View(selected="c")),
        ("G k", View(selected="b")),
        ("G g", View(selected="a")),
        ("pagedown", View(selected="b")),
        ("s", View(sort="cpu")),
        ("s r", View(sort="cpu", reverse=True)),
        ("r s", View(sort="cpu")),
        ("p", View(paused=True)),
        ("? x", View()),
        ("/ s p o t enter", View(filter="spot")),
        ("/ s x backspace enter", View(filter="s")),
        ("/ s escape", View()),
        ("/ s enter escape", View()),
        ("enter", View(selected="a", inside=True)),
        ("j j enter escape", View(selected="b")),
        ("enter down", View(selected="a", inside=True, scroll=1)),
        ("enter pagedown g", View(selected="a", inside=True)),
        ("d j j k", View(decisions=True, scroll=1)),
        ("d d", View()),
        ("d escape", View()),
        ("enter d", View(selected="a", decisions=True)),
        ("d enter", View(selected="a", inside=True)),
        ("x", View()),
    ],
)
def test_what_keys_do(pressed_keys: str, expected: View) -> None:
    assert keys(View(), *pressed_keys.split()) == expected


def test_the_filter_looks_at_everything_a_row_says() -> None:
    assert [item.name for item in shown_nodes(THREE, View(filter="SPOT flex"))] == ["b"]
    assert [item.name for item in shown_nodes(THREE, View(filter="launched"))] == ["c"]


def test_keys_without_nodes_choose_nothing() -> None:
    assert pressed(View(), "j", [], 5) == View()
    assert pressed(View(), "enter", [], 5) == View()


@pytest.mark.parametrize(
    ("sent", "names"),
    [
        ("jq", ["j", "q"]),
        ("\x1b[A\x1b[B", ["up", "down"]),
        ("\x1b", ["escape"]),
        ("\x1b[5~\x1b[6~", ["pageup", "pagedown"]),
        ("\x1b[15~x", ["x"]),
        ("\x1b[1;5Cx", ["x"]),
        ("\r\x7f\x03", ["enter", "backspace", "q"]),
        ("\x01", []),
        ("\x1b[", []),
    ],
)
def test_what_a_terminal_sends(sent: str, names: list[str]) -> None:
    assert parse(sent) == names


def test_a_page_is_what_lies_below_the_head() -> None:
    assert page_of(THREE, 24) == 19
    assert page_of(THREE, 3) == 1


def test_what_happened_between_two_pictures() -> None:
    before = cluster(node("a"), node("b", state=NodePictureState.STARTING), node("d"), waiting=2)
    after = cluster(
        node("a", state=NodePictureState.LEAVING, note="Underutilized"),
        node("b", pods=(PodPicture("web", "wait-1"),)),
        node("c", state=NodePictureState.STARTING),
        waiting=1,
    )
    assert [item.text for item in changes_between(before, after)] == [
        "node a is Leaving: Underutilized",
        "node b is Ready",
        "node c (general, m5.large, on-demand, 0.1000 USD/h) was launched",
        "node d (general, m5.large, on-demand, 0.1000 USD/h) is gone",
        "pod web/wait-1 placed",
    ]
    assert [item.text for item in changes_between(cluster(), cluster(waiting=3))] == [
        "pods web/wait-0 and 2 more waiting for a node"
    ]
    assert changes_between(after, after) == []


def test_a_claim_that_becomes_a_node_is_not_gone() -> None:
    claim = node("general-x7kq2mzp", state=NodePictureState.STARTING, note="Launched")
    for joined, said in (
        (node("ip-1"), ["node ip-1 is Ready"]),
        (node("ip-1", state=NodePictureState.STARTING), []),
        (node("ip-1", zone="us-east-1b"), ["node general-x7kq2mzp", "node ip-1"]),
    ):
        told = changes_between(cluster(claim), cluster(joined))
        assert [line.text.split(" (")[0] for line in told] == said
    (line,) = changes_between(cluster(claim), cluster())
    assert line.text.endswith("is gone")
    going = node("old", state=NodePictureState.STARTING, note="")
    assert len(changes_between(cluster(going), cluster(node("ip-1")))) == 2


def test_the_stream_forgets_the_oldest() -> None:
    stream = extended((), [StreamLine(float(n), str(n)) for n in range(300)])
    assert (len(stream), stream[-1].text) == (200, "299")


def test_full_nodes_save_nothing() -> None:
    full = Amounts(2000, 8 * GIB, 3)
    assert least_hourly([node("a", used=full), node("b", used=full)]) == pytest.approx(0.2)


def test_half_empty_nodes_of_one_kind_could_be_one() -> None:
    half = Amounts(1000, 4 * GIB, 3)
    assert least_hourly([node("a", used=half), node("b", used=half)]) == pytest.approx(0.1)


def test_two_kinds_share_what_each_has_for_least() -> None:
    wide = node("c", price=0.2, allocatable=Amounts(8000, 8 * GIB, 9), used=Amounts(4000, 0, 1))
    tall = node("m", price=0.2, allocatable=Amounts(2000, 32 * GIB, 9), used=Amounts(0, 16 * GIB, 1))
    # 8a + 2b ≥ 4 and 8a + 32b ≥ 16: a = b = 0.4.
    assert least_hourly([wide, tall]) == pytest.approx(0.16)


def test_what_has_no_price_or_takes_no_pods_yet_is_left_out() -> None:
    assert least_hourly([node("a", price=0.0), node("b", state=NodePictureState.STARTING)]) == 0.0


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 256), st.floats(0.01, 5), st.floats(0, 1), st.floats(0, 1)),
        min_size=1,
        max_size=8,
    )
)
def test_the_bound_is_never_above_what_is_paid(kinds: list[tuple[int, int, float, float, float]]) -> None:
    nodes = [
        node(
            f"n{n}",
            price=price,
            allocatable=Amounts(cores * 1000, gib * GIB, 9),
            used=Amounts(int(cores * 1000 * cpu), int(gib * GIB * memory), 1),
        )
        for n, (cores, gib, price, cpu, memory) in enumerate(kinds)
    ]
    assert 0 <= least_hourly(nodes) <= sum(item.hourly for item in nodes) * (1 + 1e-9)
