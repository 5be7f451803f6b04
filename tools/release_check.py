"""Says what a release lacks, one line each with what to do; exit code 1 if anything.

Below it, what other channels ask, each with its source: it fails nothing.
"""

from __future__ import annotations

import filecmp
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import shiplap
from shiplap_cli.commands.install.synthesis_inputs import read_for_synthesis
from tools import dist
from tools.attestation import KEY_VARIABLE, signing_key
from tools.locked_packages import Package, closure, locks, packages
from tools.release_channels import Demand, construct_hub, serverless_repository
from tools.release_version import files, other_versions

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
    for path in files():
        for line, other in other_versions(path.read_text(), version):
            place = f"{path.relative_to(ROOT)}:{line}"
            yield f"{place}: names version {other}, this is {version}: `make version VERSION={version}`, or write it"
    yield from _build()
    yield from _written_anew()


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
        try:
            built, again = dist.build_release(Path(one)), dist.build_release(Path(two))
        except (FileNotFoundError, ValueError) as error:
            yield f"nothing can be built: {error}"
            return
        except subprocess.CalledProcessError as error:
            yield f"nothing can be built: {error.cmd[0]} says {error.stdout}{error.stderr}"
            return
        for first, second in zip(built, again, strict=True):
            if not filecmp.cmp(first, second, shallow=False):
                yield f"{first.name}: two builds differ"
        wheel = built[0]
        if wheel.stat().st_size > _MOST_BYTES:
            yield f"{wheel.name}: {wheel.stat().st_size} bytes are more than {_MOST_BYTES}"
        needed = closure(dist.declared(wheel), dist.EXTRAS) - {"shiplap"}
        yield from licence_problems(packages(needed | set(locks("lambda.txt"))))


def _written_anew() -> Iterator[str]:
    """What tools write is written anew and compared."""
    for tool, name in (
        ("command_reference", "docs/reference/commands.md"),
        ("llms_text", "llms.txt"),
        ("terminal_picture", "docs/pictures/terminal.svg"),
    ):
        page = ROOT / name
        before = page.read_text()
        subprocess.run([sys.executable, f"tools/{tool}.py"], cwd=ROOT, check=True, capture_output=True)  # noqa: S603
        if page.read_text() != before:
            yield f"{name} was not current: commit what was written"


def demands() -> Iterator[Demand]:
    """What channels ask that a release does not need."""
    licence = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["license"]
    yield from construct_hub(json.loads((ROOT / "package.json").read_text()), licence)
    install = read_for_synthesis(dist.EXAMPLE / "shiplap.yaml")
    from shiplap_cdk.plain_template import write_template  # noqa: PLC0415 - it starts Node.js

    with tempfile.TemporaryDirectory() as folder:
        written = write_template(install, Path(folder))
        nested = [json.loads(path.read_text()) for path in written.assets if path.suffix == ".json"]
        yield from serverless_repository(json.loads(written.template.read_text()), nested)


def _said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


def main() -> int:
    """Print each problem, and what channels ask."""
    found = list(problems())
    for problem in found:
        print(problem)  # noqa: T201
    if not found:
        signed = "" if signing_key() else f", unsigned: {KEY_VARIABLE} names no key"
        print(f"{shiplap.__version__} can be released{signed}")  # noqa: T201
    for demand in demands():
        print(f"note: {demand.text}")  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
