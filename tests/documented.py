"""Finds sentences in the pages of the docs."""

from __future__ import annotations

from functools import cache
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


@cache
def page(name: str) -> str:
    (found,) = DOCS.rglob(f"{name}.md")
    return " ".join(found.read_text().replace("**", "").split())


def says(name: str, sentence: str) -> bool:
    """True if a page of the docs has a sentence, however it is broken into lines."""
    return sentence in page(name)
