"""Write llms.txt, the index of the documentation for programs that read, from docs/index.md."""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[1]
INDEX = _ROOT / "docs" / "index.md"
LLMS_TEXT = _ROOT / "llms.txt"
_HEAD = """# Shiplap

> An event-driven, serverless node provisioner for Kubernetes on AWS that reads Karpenter's manifests.
"""
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s#]+)\)")


def llms_text(index: str) -> str:
    """The index's headings that have pages, and under each one line per page with what the index says of it."""
    lines, heading = [_HEAD], ""
    for line in index.splitlines():
        if line.startswith("## "):
            heading = f"\n{line}\n"
        elif line.startswith(("| [", "* [")):
            note = line.strip("| ").rsplit(" | ", 1)[-1] if line.startswith("|") else line.partition("): ")[2]
            lines += [heading] if heading else []
            heading = ""
            lines += [f"- [{name}](docs/{path}): {note}" for name, path in _LINK.findall(line.rsplit(" | ", 1)[0])]
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    LLMS_TEXT.write_text(llms_text(INDEX.read_text()))
