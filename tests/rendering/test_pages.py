"""Pages as a browser draws them: on a phone and a desk, light and dark, with and without scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from shiplap.drawing.packing_map import node_table, packing_map, pending_table, totals
from shiplap.drawing.picture import ClusterPicture
from shiplap.drawing.style import POOLS_DARK, POOLS_LIGHT
from shiplap.instances.catalog.resolved_nodeclass import NodeClassProblem
from shiplap.instances.readiness.nodeclass_status import NodeClassStatus, PoolStatus, conditions
from shiplap.manifests.custom_resources import Manifests
from shiplap.scheduling.model.scheduling_plan import Plan
from shiplap.scheduling.model.snapshot import ClusterView, Snapshot
from shiplap_cli.installs.install_metrics import (
    FailedClaim,
    FunctionMetrics,
    InstallMetrics,
    LearnedCapacityValue,
    PoolUsage,
    QueueMetrics,
    RefusedOffering,
)
from shiplap_cli.render.charts import charts
from shiplap_cli.render.html import diff_report
from shiplap_cli.render.html_simulation import moments
from shiplap_cli.render.html_status import status_report
from shiplap_cli.render.page import page
from shiplap_cli.render.status_page import CatalogDocument, ClusterStatusDocument, StatusDocument
from shiplap_cli.render.totals import LeftOut, NodeTotal, PlanDifference, PlanSide, Totals
from shiplap_lab.simulation.timeline import Frame, Sample, Timeline, TimelineEvent
from tests.browser import Browser, running
from tests.builders.pictures import HOSTILE, cluster
from tests.rendering.shades import shades

PHONE, DESK = 360, 1440


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as found:
        yield found


def whole(picture: ClusterPicture) -> str:
    parts = [totals(picture), "<h2>Nodes</h2>", packing_map(picture), pending_table(picture), node_table(picture)]
    return page(f"Cluster {picture.cluster}", "as it is", "".join(parts))


def over_time() -> str:
    full = cluster(30)
    frames, samples = [], []
    for step in range(31):
        nodes = full.nodes[:step]
        by_pool: dict[str, int] = {}
        for node in nodes:
            by_pool[node.pool] = by_pool.get(node.pool, 0) + 1
        picture = replace(full, nodes=nodes, pending=full.pending[step // 2 :])
        frames.append(Frame(60.0 * step, picture))
        spent = (picture.hourly, picture.list_hourly, picture.hourly * 0.9)
        samples.append(Sample(60.0 * step, max(200 - 8 * step, 0), by_pool, *spent))
    events = tuple(TimelineEvent(60.0 * step, ("launched", "joined")[step % 2], f"i-{step}") for step in range(30))
    timeline = Timeline(1800.0, tuple(samples), events, tuple(frames))
    return page("Simulation", "seed 1", charts(timeline) + moments(timeline.frames, timeline.ends_s))


def install() -> str:
    why = NodeClassProblem(
        "SubnetsReady", "SubnetsNotFound", "subnetSelectorTerms match no subnet: tags {discovery: prod}"
    )
    classes = (
        NodeClassStatus("default", "0" * 12, conditions(()), instance_types=812),
        NodeClassStatus("gpu", "1" * 12, conditions((why,)), warnings=("ami-0123456789abcdef0 is deprecated",)),
    )
    pools = (PoolStatus("web", "default", "True", 10), PoolStatus("trino", "gpu", "False", 0, "gpu is not ready"))
    at = "2026-01-31T12:00:00Z"
    found = StatusDocument(
        (ClusterStatusDocument("prod", "eu-west-1", at, 240, classes, pools),),
        (CatalogDocument("eu-west-1", "v1", 1380, at, 1800, at, at),),
    )
    limits = {"cpu": "200", "memory": "1Ti", "ephemeral-storage": "100Ti"}
    vitals = InstallMetrics(
        pool_use=(PoolUsage("prod", "web", 14, 2, 1, 3.21, {"cpu": "120", "memory": "400Gi"}, limits),),
        failures=(
            FailedClaim("prod", HOSTILE, at, "InsufficientInstanceCapacity: no c7i-flex.large in eu-west-1a" * 3),
        ),
        resting=(RefusedOffering("c7i-flex.large", "eu-west-1a", "spot", at, "InsufficientInstanceCapacity"),),
        learned=LearnedCapacityValue(12, 345, 41.2, 0.731, 0.4),
        queues=(QueueMetrics("lifecycle", 0, 12, 2, {"malformed": 2}),),
        functions=(FunctionMetrics("interrupt", "7", 60, 0, None),),
        unseen=("functions: cloudwatch:GetMetricData is not allowed",),
    )
    return status_report(found, vitals, [cluster(12)], ["The nodes of beta cannot be read"], 1.77e9)


def compared() -> str:
    old, new = ({"web": NodeTotal(3, 1.5)}, {"web": NodeTotal(2, 1.1), "batch-with-a-long-name": NodeTotal(1, 0.3)})
    totals_then = Totals(NodeTotal(4, 2.0), NodeTotal(7, 3.5))
    sides = [
        PlanSide(name, 3, 1.5, True, 40, 8, 3, 0, by, by, totals_then) for name, by in (("old/", old), ("new/", new))
    ]
    left = (LeftOut("ml/etl-0", "r5a.8xlarge in pool trino: memory short by 6846Mi: 246400Mi needed"),)
    seen = [Snapshot(cluster="prod", now=1.77e9, view=ClusterView(), manifests=Manifests())] * 2
    return diff_report(PlanDifference(*sides, left, left, 7), seen, [Plan(), Plan()], ("pods are not seen",))


PAGES = {
    "status": install,
    "compared": compared,
    "nothing": lambda: whole(ClusterPicture(cluster="empty", taken_at=0.0)),
    "planning": lambda: whole(cluster(24, planning=True)),
    "hostile": lambda: whole(cluster(6, name=HOSTILE)),
    "large": lambda: whole(cluster(1000, pods_per_node=28)),
    "over-time": over_time,
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The pages' addresses."""
    folder = tmp_path_factory.mktemp("pages")
    for name, make in PAGES.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in PAGES}


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("name", PAGES)
def test_it_is_drawn_and_asks_nobody(
    browser: Browser, written: dict[str, str], name: str, width: int, dark: bool
) -> None:
    seen = browser.see(written[name], width=width, dark=dark)
    assert shades(seen.png) > 40
    assert seen.wider == 0, "it must be scrolled sideways"
    assert seen.problems == []
    assert seen.requests == []


@pytest.mark.parametrize(("dark", "colours"), [(False, POOLS_LIGHT), (True, POOLS_DARK)], ids=["light", "dark"])
def test_pods_have_the_colour_of_their_pool(
    browser: Browser, written: dict[str, str], dark: bool, colours: tuple[str, ...]
) -> None:
    browser.open(written["planning"], dark=dark)
    filled = browser.evaluate(
        "[...document.querySelectorAll('.pool')].map(pool => [pool.className,"
        " getComputedStyle(pool.querySelector('.pod,.fresh')).fill])"
    )
    named = {kind.split()[1]: fill for kind, fill in filled}
    for place, kind in enumerate(("p0", "p1", "p2")):
        red, green, blue = (int(colours[place][at : at + 2], 16) for at in (1, 3, 5))
        assert named[kind] == f"rgb({red}, {green}, {blue})"


def test_boxes_are_walked_by_arrow_keys_and_tell_what_they_are(browser: Browser, written: dict[str, str]) -> None:
    browser.open(written["planning"], width=PHONE)
    stops = browser.evaluate("document.querySelectorAll('.b[tabindex=\"0\"]').length")
    assert stops == 4  # one for each pool
    browser.evaluate("document.querySelector('.b').focus()")
    first = browser.evaluate("document.activeElement.ariaLabel")
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="ArrowRight", code="ArrowRight")
    assert browser.evaluate("document.activeElement.ariaLabel") != first
    card = browser.evaluate(
        "(() => { const card = document.activeElement.parentElement.querySelector('.k');"
        " const at = card.getBoundingClientRect();"
        " return [getComputedStyle(card).display, at.left >= 0, at.right <= innerWidth, at.bottom <= innerHeight,"
        " card.textContent] })()"
    )
    assert card[:4] == ["block", True, True, True]
    assert "memory" in card[4]
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key="Escape", code="Escape")
    assert browser.evaluate("document.activeElement.tagName") == "BODY"


def test_the_slider_shows_any_moment(browser: Browser, written: dict[str, str]) -> None:
    browser.open(written["over-time"])

    def at(moment: int) -> list[object]:
        found = browser.evaluate(
            f"(() => {{ const slider = document.getElementById('moment'); slider.value = {moment};"
            " slider.dispatchEvent(new Event('input'));"
            " return [document.querySelectorAll('#map .n').length, document.getElementById('when').textContent,"
            " document.querySelector('#totals dd').textContent,"
            " document.querySelector('.cursor').getBoundingClientRect().left] })()"
        )
        return list(found)

    last, early = at(30), at(5)
    assert last[:3] == [30, "30 min", "30"]
    assert early[:3] == [5, "5 min", "5"]
    assert float(str(early[3])) < float(str(last[3]))
    assert browser.problems() == []


def test_without_scripts_the_last_moment_is_there(browser: Browser, written: dict[str, str]) -> None:
    browser.open(written["over-time"], scripts=False)
    browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert browser.evaluate("document.querySelectorAll('#map .n').length") == 30
    assert browser.evaluate("getComputedStyle(document.querySelector('.moment')).display") == "none"


def test_hostile_names_run_nothing(browser: Browser, written: dict[str, str]) -> None:
    browser.open(written["hostile"])
    assert browser.evaluate("document.querySelectorAll('script').length") == 1
    assert browser.evaluate("document.querySelectorAll('img').length") == 0
    assert not [event for event in browser.events if event["method"] == "Page.javascriptDialogOpening"]


def test_the_policy_stops_a_script_that_somebody_slips_in(browser: Browser, tmp_path: Path) -> None:
    made = page("t", "l", "<script>document.title = 'run'</script><p onclick='1'>x</p>")
    (tmp_path / "slipped.html").write_text(made)
    browser.open((tmp_path / "slipped.html").as_uri())
    assert browser.evaluate("document.title") == "t"
    assert browser.problems()
