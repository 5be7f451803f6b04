"""The page of `shiplap lab dev --keep` in a browser: it follows what happens without being asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shiplap_lab.dev.playground import widget_page
from tests.browser import Browser, running

UNTIL = """new Promise(done => {
    const seen = () => document.body.innerText.includes("TEXT") ? done(true) : setTimeout(seen, 10);
    seen();
})"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as found:
        yield found


def test_an_open_page_is_drawn_anew_when_something_changes(browser: Browser) -> None:
    shown = ["one node"]
    drawn: list[str] = []

    def draw() -> str:
        drawn.append(shown[0])
        return f"<p>{shown[0]}</p>"

    with widget_page(draw, lambda: shown[0].replace(" ", "-"), look_s=0.01) as address:
        browser.open(address)
        assert browser.evaluate("document.body.innerText") == "one node"
        for text in ("two nodes", "no node"):
            shown[0] = text
            assert browser.evaluate(UNTIL.replace("TEXT", text))
        assert browser.problems() == []
        browser.open("about:blank")
    assert [text for text, before in zip(drawn, ["", *drawn], strict=False) if text != before] == [
        "one node",
        "two nodes",
        "no node",
    ]
