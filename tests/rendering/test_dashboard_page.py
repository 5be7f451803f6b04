"""The dashboard as a person sees it: every widget in its place, titles that fit, the widget's map in its theme."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shiplap.drawing.dashboard_widget import WidgetCluster, WidgetLooks, widget_html
from tests.browser import Browser, running
from tests.builders.pictures import cluster
from tests.infra.dashboard_page import page

pytest.importorskip("tests.nodejs")  # before the CDK's binding is imported

from shiplap_cdk.install_document import read
from shiplap_cdk.synthesis import build
from tests.infra.synthesised import INSTALL
from tests.rendering.shades import shades


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def widgets(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """After the browser, so that nothing is synthesised where nothing can be looked at."""
    from aws_cdk.assertions import Template  # noqa: PLC0415 - starts Node.js

    assert browser.events is not None
    template = Template.from_stack(
        build(read(INSTALL), outdir=str(tmp_path_factory.mktemp("out"))).node.find_child("Shiplap")
    )
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    parts = dashboard["Properties"]["DashboardBody"]["Fn::Join"][1]
    found: list[dict[str, Any]] = json.loads("".join(p if isinstance(p, str) else "reference" for p in parts))[
        "widgets"
    ]
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_everything_stands_in_its_place(
    browser: Browser, widgets: list[dict[str, Any]], tmp_path: Path, dark: bool
) -> None:
    drawn = widget_html([WidgetCluster(cluster(60))], WidgetLooks("dark" if dark else "light", 1380, 560))
    (tmp_path / "dashboard.html").write_text(page(widgets, drawn))
    seen = browser.see((tmp_path / "dashboard.html").as_uri(), width=1440, dark=dark)
    assert shades(seen.png) > 40
    assert seen.wider == 0
    assert seen.problems == seen.requests == []
    cut = browser.evaluate(
        "[...document.querySelectorAll('.widget > h4')]"
        ".filter(title => title.scrollWidth > title.clientWidth).map(title => title.textContent)"
    )
    assert cut == [], "titles that do not fit"
    sizes = browser.evaluate(
        "[...document.querySelectorAll('.widget')].map(w => Math.round(w.getBoundingClientRect().height))"
    )
    assert sizes[:4] == [sizes[0]] * 4
    assert sizes[0] >= 100, "big numbers"
    assert min(sizes[4:]) >= 250
    drawn_px, given_px = browser.evaluate(
        "(() => { const box = document.querySelector('.custom'); return [box.scrollHeight, box.clientHeight]; })()"
    )
    assert drawn_px <= given_px, "the map is cut off"


@pytest.mark.parametrize("width", [360, 588, 1380])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_widget_fits_where_it_is_put(browser: Browser, tmp_path: Path, width: int, theme: str) -> None:
    """CloudWatch gives it a box that is scrolled downwards."""
    made = widget_html([WidgetCluster(cluster(200))], WidgetLooks(theme, width))
    ground = "#0f1b2a" if theme == "dark" else "#ffffff"
    (tmp_path / "widget.html").write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<link rel="icon" href="data:,"><body style="margin:0;background:{ground}">{made}'
    )
    seen = browser.see((tmp_path / "widget.html").as_uri(), width=width)
    assert seen.wider == 0
    assert shades(seen.png) > 40
    assert seen.problems == seen.requests == []
