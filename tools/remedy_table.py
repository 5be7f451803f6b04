"""Writes the table of remedies in docs/how-to/operations.md from the list that Shiplap's texts are made of."""

from __future__ import annotations

from pathlib import Path

from shiplap.instances.offerings.remedies import REMEDIES, Remedy

PAGE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "operations.md"
BEGIN = "<!-- tools/remedy_table.py writes the table -->\n"
END = "<!-- end of the table -->\n"


def table() -> str:
    """One line for each remedy."""
    lines = ["| error of AWS | what Shiplap does | what you do |", "|---|---|---|"]
    return "\n".join([*lines, *map(_line, REMEDIES)]) + "\n"


def _line(known: Remedy) -> str:
    codes = ", ".join(f"`{code}`" for code in known.codes)
    error = f'{codes} with "{known.phrase}"' if known.phrase else codes
    return f"| {error} | {known.effect} | {known.action} |"


def written(page: str) -> str:
    """The page with the table as it should be. Raises ValueError: it lacks a mark."""
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    return f"{page[:begin]}\n{table()}\n{page[end:]}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
