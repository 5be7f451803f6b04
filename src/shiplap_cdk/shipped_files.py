"""Tells what the wheel carries beside the code, at the root of a checkout or within this package, and its extras."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import msgspec

_IN_WHEEL = Path(__file__).resolve().parent / "shipped"
CHECKOUT = Path(__file__).resolve().parents[2]
"""The checkout's root, where this is one."""


def is_installed() -> bool:
    """True if this is the wheel, not a checkout."""
    return _IN_WHEEL.exists()


def shipped(name: str) -> Path:
    """A file or folder by its path in the checkout; the build hook lists what there is."""
    return (_IN_WHEEL if is_installed() else CHECKOUT) / name


def at_hand(name: str) -> str:
    """The path of a shipped file for a command line: short if this folder has it as it is shipped, else in full."""
    here = Path(name)
    return name if here.is_file() and here.read_bytes() == shipped(name).read_bytes() else str(shipped(name))


def work_folder(name: str) -> Path:
    """A folder for what is made and kept: below the checkout, or else in the user's folder for caches."""
    if not is_installed():
        return CHECKOUT / "build" / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shiplap" / name


def rbac_manifests() -> list[Path]:
    """Return the RBAC manifests that are shipped, and the kustomization of them."""
    docs = shipped("docs/kustomization.yaml").parent
    return sorted(path for pattern in ("kustomization.yaml", "rbac*.yaml") for path in docs.glob(pattern))


def install_of(extra: str) -> str:
    """Return the command that installs an extra: from the wheel that runs, as no package index has Shiplap."""
    source = _source()
    if "dir_info" in source:
        return "`make setup` in the checkout"
    return f"pip install 'shiplap[{extra}] @ {source.get('url', 'file:///path/to/WHEEL')}'"


def _source() -> dict[str, Any]:
    """The place that this installation came from, as PEP 610 records it; nothing where no installer wrote it."""
    try:
        written = distribution("shiplap").read_text("direct_url.json")
    except PackageNotFoundError:
        return {}
    return msgspec.json.decode(written, type=dict[str, Any]) if written else {}
