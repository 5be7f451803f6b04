"""Builds the documentation as a web site into build/site, with MkDocs and its theme Material: `make site`.

The pages are those of the repository, in the same folders, so that a link leads to the same page on both. README is the
first one. The navigation is docs/index.md; there is no second list. Files that a page links are copied.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / "build" / "mkdocs" / "bin" / "python"
"""The interpreter that has MkDocs."""

SITE = ROOT / "build" / "site"
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_TARGET = re.compile(r"\]\(([^)\s#]+)")
_ITEM = re.compile(r" *([*+-]|\d+\.) +\S")
_CODE = re.compile(r"`[^`]+`")
_FENCE = re.compile(r" *(```|~~~)")

_SLUGIFY = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
"""Anchors as GitHub makes them, for MkDocs."""

_AFTER_OTHERS = "---\nsearch: {boost: 0.1}\n---\n\n"
"""What has search show a page after others: long ones beside the documentation, such as the changelog."""

Entry = dict[str, Any]


def navigation(root: Path = ROOT) -> list[Entry]:
    """The sections of docs/index.md with the pages that each links, in its order, and by the names that it uses.

    A link to a part of a page is a section of its own: of the pages that this part links.
    """
    index = root / "docs" / "index.md"
    entries: list[Entry] = [{"Shiplap": "README.md"}, {"Documentation": "docs/index.md"}]
    seen = {index}
    for heading, text in _sections(index.read_text()).items():
        pages = list(_linked(root, index, text, seen))
        entries += [{heading: pages}] if pages else []
    return entries


def _linked(root: Path, page: Path, text: str, seen: set[Path]) -> Iterator[Entry | str]:
    for name, path, anchor in _LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        if target.suffix != ".md":
            continue
        if anchor:
            parts = _sections(target.read_text())
            inner = [
                list(_linked(root, target, part, seen)) for head, part in parts.items() if slug(head) == anchor[1:]
            ]
            yield from ({name: pages} for pages in inner if pages)
        elif target not in seen:
            seen.add(target)
            shown = target.relative_to(root).as_posix()
            # A page that is linked by its number has the name of its title.
            yield shown if name.isdigit() else {name: shown}


def _sections(text: str) -> dict[str, str]:
    """The text under each heading of the second level."""
    _, *parts = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def shown_files(root: Path = ROOT) -> list[Path]:
    """Every file of docs, README, and what these link, and what that links, sorted."""
    ahead = [root / "README.md", *(path for path in (root / "docs").rglob("*") if path.is_file())]
    found: set[Path] = set()
    while ahead:
        path = ahead.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            targets = (target for target in _TARGET.findall(path.read_text()) if ":" not in target)
            ahead += [there for target in targets if (there := (path.parent / target).resolve()).is_file()]
    return sorted(found)


def for_python_markdown(text: str) -> str:
    """A page as Python-Markdown has to be told what GitHub understands.

    A list has a blank line before it, and a comment where it follows a list of the other kind. What belongs to an item
    is indented by four spaces for each level. Bars within code need no backslash in a table.
    """
    lines = [""]
    fence = listed = ""
    moved = 0
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        mark = _FENCE.match(line)
        if not fence:
            # A block of code moves as a whole.
            moved = 4 * min(2, (indent + 2) // 3) - indent
            item = _ITEM.match(line)
            if item and not indent:
                kind = "1." if item[1][0].isdigit() else item[1]
                lines += ["<!-- -->", ""] if listed not in ("", kind) else [""] if lines[-1] and not listed else []
                listed = kind
            elif line and not indent and not lines[-1]:
                listed = ""
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        if line.startswith("|"):
            line = _CODE.sub(lambda code: code[0].replace("\\|", "|"), line)  # noqa: PLW2901 - the same line
        lines.append(" " * moved + line if line.strip() else "")
    return "\n".join(lines[1:]) + "\n"


def configuration(pages: Path, site: Path, entries: list[Entry]) -> dict[str, Any]:
    """The settings of MkDocs: nothing is loaded from elsewhere, and a link that leads nowhere fails the build."""
    palette = [
        {
            "media": f"(prefers-color-scheme: {shade})",
            "scheme": scheme,
            "toggle": {"icon": "material/theme-light-dark", "name": f"Show it {other}"},
        }
        for shade, scheme, other in (("light", "default", "dark"), ("dark", "slate", "light"))
    ]
    features = ["navigation.sections", "navigation.top", "search.highlight", "search.suggest", "content.code.copy"]
    found = dict.fromkeys(("not_found", "anchors", "absolute_links", "unrecognized_links"), "warn")
    return {
        "site_name": "Shiplap",
        "site_description": "An event-driven, serverless node provisioner for Kubernetes on AWS",
        "docs_dir": str(pages),
        "site_dir": str(site),
        "use_directory_urls": False,
        "theme": {"name": "material", "font": False, "palette": palette, "features": features},
        "plugins": ["search"],
        "markdown_extensions": [
            "tables",
            "pymdownx.superfences",
            "pymdownx.highlight",
            "pymdownx.magiclink",
            {"toc": {"permalink": True, "slugify": _SLUGIFY}},
        ],
        "validation": {"links": found, "nav": {"not_found": "warn", "omitted_files": "warn"}},
        "nav": entries,
        # Pages beside docs are there because one of docs links them.
        "not_in_nav": "/*.md\n/action\n/examples\n/tests",
    }


def build(site: Path = SITE, root: Path = ROOT, *, epoch: int = 0) -> Path:
    """Build the site; `epoch` is the date that its map gets.

    Raises FileNotFoundError where MkDocs is not installed, subprocess.CalledProcessError with what MkDocs said.
    """
    if not PYTHON.exists():
        raise FileNotFoundError(f"{PYTHON} is missing: `make site` installs it")
    with tempfile.TemporaryDirectory() as folder:
        pages, entries = Path(folder) / "pages", navigation(root)
        for path in shown_files(root):
            copy = pages / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".md":
                head = "" if f'"{path.relative_to(root).as_posix()}"' in json.dumps(entries) else _AFTER_OTHERS
                copy.write_text(head + for_python_markdown(path.read_text()))
            else:
                shutil.copyfile(path, copy)
        file = Path(folder) / "mkdocs.yml"
        settings = json.dumps(configuration(pages, site, entries), indent=1)
        file.write_text(settings.replace(f'"{_SLUGIFY}"', _SLUGIFY))
        command = [str(PYTHON), "-m", "mkdocs", "build", "--strict", "--config-file", str(file)]
        # The theme would advertise its successor.
        environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "NO_MKDOCS_2_WARNING": "true"}
        subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own
    return site


def main() -> int:
    """Build it, and say where it is or what is wrong."""
    try:
        site = build()
    except FileNotFoundError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 3
    except subprocess.CalledProcessError as error:
        print(f"{error.stdout}{error.stderr}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{site / 'index.html'}; `python3 -m http.server -d {site}` serves it, with its search")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
