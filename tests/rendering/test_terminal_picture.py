"""The terminal in README: a picture that plays by itself, loads nothing, and stands still for those who want that."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.browser import Browser, running
from tests.rendering.shades import shades
from tools.terminal_picture import FILE, answers, picture


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running() as found:
        yield found


def test_it_shows_what_the_commands_print_now(monkeypatch: pytest.MonkeyPatch) -> None:
    # What a person has set must not get into it.
    for name, value in (
        ("AWS_PROFILE", "other"),
        ("AWS_REGION", "us-east-1"),
        ("KUBECONFIG", "/nowhere"),
        ("COLUMNS", "40"),
    ):
        monkeypatch.setenv(name, value)
    assert FILE.read_text() == picture(answers()) + "\n", "`make pictures` draws it anew"


def test_every_line_has_its_moment_and_nothing_is_loaded() -> None:
    drawn = FILE.read_text()
    lines = set(re.findall(r'<text class="s-r\d+"[^>]*clip-path="(url\(#s-line-\d+\))"', drawn))
    shown = {rule: float(at) for rule, at in re.findall(r'\[clip-path="([^"]+)"\].*?opacity:0}([\d.]+)%', drawn)}

    assert lines <= shown.keys()
    assert list(shown.values()) == sorted(shown.values())
    assert max(shown.values()) < 75, "the last line stays for a while"
    assert "prefers-reduced-motion" in drawn
    assert not re.search(r"(href|src|url)\W+https?:", drawn)
    assert len(drawn) < 100_000


def test_it_is_drawn(browser: Browser) -> None:
    seen = browser.see(FILE.as_uri(), width=1200)

    assert shades(seen.png) > 10
    assert seen.requests == []
