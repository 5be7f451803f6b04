"""The option `--html FILE`, apart from what makes the pages: `--help` must not wait for numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

HtmlFile = Annotated[
    Path | None, typer.Option("--html", help="Also write it as a web page, one file that needs no network.")
]


def write_page(path: Path, made: str) -> None:
    """Write a page. Raises OSError, which the command line reports with the file's name."""
    path.write_text(made, encoding="utf-8")
