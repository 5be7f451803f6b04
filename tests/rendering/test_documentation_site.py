"""The documentation as a site: its pages say what the repository's say, and nothing is loaded from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from tests.browser import running
from tests.rendering.shades import shades
from tools.documentation_site import PYTHON, ROOT, build, for_python_markdown, navigation, shown_files, slug

STRUCTURE = ("blockquote", "code", "em", "h1", "h2", "h3", "img", "li", "ol", "pre", "strong", "td", "th", "tr", "ul")


class Shown(HTMLParser):
    """What a reader sees of a page: its words and its structure, without the theme's links to headings."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: Counter[str] = Counter()
        self._in_link = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += tag in STRUCTURE
        self._in_link = self._in_link or ("class", "headerlink") in attrs

    def handle_endtag(self, tag: str) -> None:
        self._in_link = self._in_link and tag != "a"

    def handle_data(self, data: str) -> None:
        self.texts += [] if self._in_link else data.split()

    @property
    def text(self) -> str:
        return "".join(self.texts)


def paths(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            yield from paths(value) if isinstance(value, list) else [value]


def written(site: Path, page: Path) -> Path:
    shown = (site / page.relative_to(ROOT)).with_suffix(".html")
    return shown.with_name("index.html") if page.name == "README.md" else shown


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not PYTHON.exists():
        pytest.skip("MkDocs is not installed; `make site` installs it")
    return build(tmp_path_factory.mktemp("site"))


def test_every_page_of_docs_is_in_the_navigation_once() -> None:
    shown = list(paths(navigation()))
    assert sorted(set(shown)) == sorted(shown)
    pages = {page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert pages - set(shown) == set()


def test_the_navigation_has_the_names_and_the_order_of_the_index(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\n## Records\n\n[1](one.md), [Second](two.md), [B](b.md)\n")
    (tmp_path / "docs" / "index.md").write_text(
        "# Docs\n\nSee [a page](a.md).\n\n## Do\n\n* [B](b.md), [data](c.yaml)\n* [A](a.md)\n* [B again](b.md#x)\n\n"
        "[Records](a.md#records) of old.\n\n## Nothing\n\nNo page.\n"
    )
    (tmp_path / "docs" / "b.md").write_text("# B\n\n## X\n")
    _, _, *sections = navigation(tmp_path)
    records = {"Records": ["docs/one.md", {"Second": "docs/two.md"}]}
    assert sections == [{"Do": [{"B": "docs/b.md"}, {"A": "docs/a.md"}, records]}]


def test_what_a_page_links_outside_docs_is_shown_too() -> None:
    shown = {path.relative_to(ROOT).as_posix() for path in shown_files()}
    assert shown >= {"CONTRIBUTING.md", "examples/README.md", "examples/terraform/main.tf", "LICENSE"}
    assert not any(path.startswith(("src/", "layers/")) for path in shown)


@pytest.mark.parametrize(
    ("github", "python_markdown"),
    [
        ("Text:\n* one\n* two\n", "Text:\n\n* one\n* two\n"),
        ("* one\n  goes on\n* two\n", "* one\n    goes on\n* two\n"),
        ("* one\n\n1. first\n", "* one\n\n<!-- -->\n\n1. first\n"),
        ("* one\n\nText.\n\n1. first\n", "* one\n\nText.\n\n1. first\n"),
        ("1. one\n   * in it\n", "1. one\n    * in it\n"),
        (
            "1. one:\n\n   ```sh\n   a:\n     b\n   ```\n\n2. two\n",
            "1. one:\n\n    ```sh\n    a:\n      b\n    ```\n\n2. two\n",
        ),
        ("```yaml\na:\n* b\n  - c\n```\n", "```yaml\na:\n* b\n  - c\n```\n"),
        ("| `a\\|b` | c \\| d |\n", "| `a|b` | c \\| d |\n"),
    ],
)
def test_pages_are_told_to_python_markdown_as_it_understands_them(github: str, python_markdown: str) -> None:
    assert for_python_markdown(github) == python_markdown


def test_each_page_says_what_another_reader_of_markdown_makes_of_it(site: Path) -> None:
    reader = MarkdownIt("commonmark").enable("table")
    for page in shown_files():
        if page.suffix == ".md":
            whole = written(site, page).read_text()
            shown = Shown(whole[whole.index("<article") : whole.index("</article>")])
            meant = Shown(reader.render(page.read_text()))
            assert shown.text == meant.text, page
            assert shown.elements == meant.elements, page


def test_search_finds_every_heading_where_it_is(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    places = {entry["location"]: entry["title"] for entry in found}
    page = ROOT / "docs" / "how-to" / "deployment.md"
    headings = re.findall(r"^## (.*)$", page.read_text(), re.MULTILINE)
    assert len(headings) > 5
    for heading in headings:
        assert places[f"docs/how-to/deployment.html#{slug(heading)}"] == heading
        assert f'id="{slug(heading)}"' in written(site, page).read_text()


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^\s>]*")
    assert {page.name: found for page in site.rglob("*.html") if (found := loaded.findall(page.read_text()))} == {}
    assert not any(re.search(r"(url\(|@import)\W*https?:", sheet.read_text()) for sheet in site.rglob("*.css"))


def test_two_builds_are_the_same(site: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    files = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    assert files == sorted(path.relative_to(again) for path in again.rglob("*") if path.is_file())
    assert [name for name in files if (site / name).read_bytes() != (again / name).read_bytes()] == []


class Quiet(SimpleHTTPRequestHandler):
    """Prints no line for each request."""

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_browser_finds_a_page_by_search_and_shows_it_on_a_phone_in_both_themes(site: Path) -> None:
    first_result = """new Promise(found => {
      const look = () => {
        const link = document.querySelector(".md-search-result__link");
        link && link.href.includes("?h=") ? found(link.href) : requestAnimationFrame(look);
      };
      look();
    })"""
    with served(site) as address, running() as browser:
        for width, dark in ((390, False), (390, True), (1440, True)):
            seen = browser.see(f"{address}/docs/how-to/deployment.html", width=width, dark=dark)
            assert (seen.wider, seen.problems) == (0, [])
            assert all(request.startswith(address) for request in seen.requests)
            assert shades(seen.png) > 10
        browser.open(f"{address}/index.html?q=boundary+qualifier", width=1440)
        assert browser.evaluate(first_result).startswith(f"{address}/docs/how-to/deployment.html")


@pytest.mark.parametrize("link", ["b.md", "index.md#nowhere", "/index.md", "folder/"])
def test_a_link_that_leads_nowhere_fails_the_build(site: Path, tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# Name\n\n[Docs](docs/index.md)\n")
    index = tmp_path / "docs" / "index.md"
    index.write_text("# Docs\n\n[Here](../README.md)\n")
    assert (build(tmp_path / "site", tmp_path) / "docs" / "index.html").exists()
    index.write_text(f"# Docs\n\n[Here]({link})\n")
    with pytest.raises(subprocess.CalledProcessError) as failed:
        build(tmp_path / "site", tmp_path)
    assert link in failed.value.stdout + failed.value.stderr
