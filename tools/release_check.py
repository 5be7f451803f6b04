"""Says what a release lacks, one line each with what to do; exit code 1 if anything."""

from __future__ import annotations

import filecmp
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import shiplap
from tools import dist
from tools.locked_packages import Package, closure, locks, packages

ROOT = Path(__file__).resolve().parents[1]
_MOST_BYTES = 10 * 2**20
# Licences that ask no more of users than naming them, and weak ones of packages that are used as they are.
_ALLOWED = re.compile(
    r"\b(Apache|BSD|CNRI|HPND|ISC|MIT|MPL|Mozilla|PSF|Python|Unlicense|ZPL|Zlib|CC0|0BSD)\b|Apache-2|PSF-2|MPL-2",
    re.IGNORECASE,
)


def problems() -> Iterator[str]:
    """Everything that is missing."""
    version = shiplap.__version__
    yield from _tree(version)
    yield from changelog_problems((ROOT / "CHANGELOG.md").read_text(), version)
    yield from _build()
    yield from _docs()


def changelog_problems(text: str, version: str) -> Iterator[str]:
    """Yield what the changelog lacks for a version; headings are `## [1.2.0] - 2026-01-31`."""
    sections = dict(re.findall(r"^## \[([^]]+)\]([^\n]*\n.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    if re.search(r"^\* ", sections.get("Unreleased", ""), re.MULTILINE):
        yield (
            f"CHANGELOG.md: what is unreleased belongs below `## [{version}] - DATE`; "
            f"if {version} was released, raise the version in layers/shiplap/python/shiplap/__init__.py first"
        )
    if not re.match(r" - \d{4}-\d\d-\d\d\n", sections.get(version, "")):
        yield f"CHANGELOG.md: `## [{version}] - DATE` is missing"


def licence_problems(parts: Iterable[Package]) -> Iterator[str]:
    """Packages whose licence is not known to be fit."""
    for part in parts:
        if not _ALLOWED.search(part.licence):
            said = part.licence or "none"
            yield f"licence of {part.name} {part.version}: {said}; read it, then name it in tools/locked_packages.py"


def _tree(version: str) -> Iterator[str]:
    if _said("git", "status", "--porcelain"):
        yield "the work tree has changes: commit them"
    if _said("git", "tag", "--list", f"v{version}"):
        yield f"v{version} was released: raise the version in layers/shiplap/python/shiplap/__init__.py"


def _build() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        built = dist.build(Path(one))
        again = dist.build(Path(two))
        for first, second in zip(built, again, strict=True):
            if not filecmp.cmp(first, second, shallow=False):
                yield f"{first.name}: two builds differ"
        wheel = built[0]
        if wheel.stat().st_size > _MOST_BYTES:
            yield f"{wheel.name}: {wheel.stat().st_size} bytes are more than {_MOST_BYTES}"
        needed = closure(dist.declared(wheel), dist.EXTRAS) - {"shiplap"}
        yield from licence_problems(packages(needed | set(locks("lambda.txt"))))


def _docs() -> Iterator[str]:
    """`docs/reference/commands.md` is written anew and compared."""
    page = ROOT / "docs" / "reference" / "commands.md"
    before = page.read_text()
    subprocess.run([sys.executable, "tools/command_reference.py"], cwd=ROOT, check=True, capture_output=True)
    if page.read_text() != before:
        yield "docs/reference/commands.md was not current: commit what was written"


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def main() -> int:
    """Print each problem."""
    found = list(problems())
    for problem in found:
        print(problem)  # noqa: T201
    if not found:
        print(f"{shiplap.__version__} can be released")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
