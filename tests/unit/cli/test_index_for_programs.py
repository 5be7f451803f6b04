"""llms.txt says what docs/index.md says, and its links lead to files."""

from __future__ import annotations

import re

from tools.llms_text import INDEX, LLMS_TEXT, llms_text


def test_the_file_is_as_make_docs_writes_it() -> None:
    assert LLMS_TEXT.read_text() == llms_text(INDEX.read_text())


def test_every_page_of_the_index_is_listed_and_exists() -> None:
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", LLMS_TEXT.read_text(), re.MULTILINE)
    rows = "\n".join(line for line in INDEX.read_text().splitlines() if line.startswith(("| ", "* ")))
    assert listed == [f"docs/{path}" for path in re.findall(r"\]\(([^)#]+)\)", rows)]
    assert len(listed) > 25
    assert [path for path in listed if not (LLMS_TEXT.parent / path).is_file()] == []


def test_a_row_with_two_pages_gives_two_lines() -> None:
    index = "# Docs\n\n## Look up\n\n| page | content |\n|---|---|\n| [A](a.md), [B](b/c.md) (generated) | both |\n"
    assert llms_text(index).endswith("\n\n## Look up\n\n- [A](docs/a.md): both\n- [B](docs/b/c.md): both\n")
