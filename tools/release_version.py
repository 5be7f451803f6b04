"""Makes the tree the one of a version: `make version VERSION=0.2.0`, dated today unless DATE is given.

What is unreleased in the changelog gets the version and the date, and every place that names the version is changed.
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = ROOT / "CHANGELOG.md"
_PLACE = re.compile(
    r'(?P<before>\bshiplap-|\bshiplap==|/action@v|^__version__ = "|^version: |^appVersion: )'
    r"(?P<version>\d+\.\d+\.\d+)(?![\w.]*\.\d)",
    re.MULTILINE,
)
_FILES = (
    "README.md",
    "action/*.*",
    "charts/*/Chart.yaml",
    "docs/**/*.md",
    "examples/**/*.*",
    "layers/shiplap/python/shiplap/__init__.py",
)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


def files(root: Path = ROOT) -> list[Path]:
    """The files that name the version of the release they belong to."""
    return sorted(path for pattern in _FILES for path in root.glob(pattern) if path.is_file())


def other_versions(text: str, version: str) -> list[tuple[int, str]]:
    """Places of a text that name another version: the line of each, and the version."""
    found = _PLACE.finditer(text)
    return [(text.count("\n", 0, at.start()) + 1, at["version"]) for at in found if at["version"] != version]


def raised(text: str, version: str) -> str:
    """The text with this version in all places."""
    return _PLACE.sub(lambda place: place["before"] + version, text)


def dated(changelog: str, version: str, date: str) -> str:
    """The changelog with what is unreleased below the version and the date.

    Raises ValueError where nothing is unreleased, or the version is in it already.
    """
    if f"## [{version}]" in changelog:
        raise ValueError(f"CHANGELOG.md has {version} already: name the next version")
    section = re.search(r"^## \[Unreleased\]\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if section is None or not re.search(r"^\* ", section[1], re.MULTILINE):
        raise ValueError("CHANGELOG.md has nothing under `## [Unreleased]`: there is nothing to release")
    head = f"## [Unreleased]\n\n## [{version}] - {date}\n"
    return changelog[: section.start()] + head + section[1] + changelog[section.end() :]


def main(version: str, date: str) -> int:
    """Change the files; say which."""
    if not _VERSION.fullmatch(version):
        print(f"VERSION is {version!r}: write three numbers, as 0.2.0", file=sys.stderr)  # noqa: T201
        return 2
    try:
        day = datetime.strptime(date, "%Y-%m-%d").date() if date else datetime.now(UTC).date()  # noqa: DTZ007 - a day
    except ValueError:
        print(f"DATE is {date!r}: write one as 2026-01-31", file=sys.stderr)  # noqa: T201
        return 2
    try:
        changes = {CHANGELOG: dated(CHANGELOG.read_text(), version, day.isoformat())}
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    changes |= {path: raised(path.read_text(), version) for path in files()}
    for path, text in changes.items():
        if text != path.read_text():
            path.write_text(text)
            print(path.relative_to(ROOT))  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(*[*sys.argv[1:], "", ""][:2]))
