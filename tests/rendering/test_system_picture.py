"""The diagram of the system in README: the functions, tables and resources that it names exist, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.browser import running
from tests.rendering.shades import shades

ROOT = Path(__file__).parents[2]
FILE = ROOT / "docs" / "pictures" / "system.svg"
OPTIONAL = {"audit", "widget"}
"""Functions that an install has only where it is asked for them."""


def texts() -> list[str]:
    return [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)", FILE.read_text())]


def test_every_function_is_drawn_and_what_it_is_said_to_call_is_one() -> None:
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert functions - set(texts()) == OPTIONAL
    assert {
        name for text in texts() for name in re.findall(r"\((\w+)\)|\bby (\w+):", text) for name in name if name
    } <= (functions)


def test_tables_and_queues_have_the_names_of_the_stack() -> None:
    constructs = "\n".join(path.read_text() for path in (ROOT / "src" / "shiplap_cdk" / "constructs").rglob("*.py"))
    drawn = texts()
    tables = [text.removeprefix("DynamoDB table ") for text in drawn if text.startswith("DynamoDB table ")]
    queues = drawn[drawn.index("Bus, queues") + 1 : drawn.index("Lambda functions")]
    assert len(tables) == 2
    assert len(queues) == 3
    assert [name for name in (*tables, *queues) if f'"{name}"' not in constructs.lower()] == []


def test_it_is_drawn_and_loads_nothing() -> None:
    with running() as browser:
        seen = browser.see(FILE.as_uri(), width=1200)
    assert shades(seen.png) > 10
    assert seen.requests == []


@pytest.mark.parametrize("page", ["README.md", "docs/explanation/architecture.md"])
def test_pages_show_it(page: str) -> None:
    assert "pictures/system.svg)" in (ROOT / page).read_text()
