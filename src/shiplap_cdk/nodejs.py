"""Looks at the Node.js that the CDK runs on, before the CDK is imported: importing it starts Node.js."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from shiplap.errors import InvalidInput
from shiplap.printable import printable

_TIMEOUT_S = 20.0
_VERSION = re.compile(r"v(\d+)\.")
_SUPPORTED = 22
"""The oldest Node.js that still gets fixes."""


def require_nodejs() -> None:
    """Look at the program that $JSII_NODE names, or `node` on the path; an old Node.js is told in a line.

    jsii would tell it in a frame of twenty lines, each printed as bytes.

    Raises InvalidInput when the program is not Node.js.
    """
    named = os.environ.get("JSII_NODE", "")
    program, source = named or "node", "JSII_NODE" if named else "node"
    wanted = "the CDK needs Node.js 22: install it, or let JSII_NODE name it"
    try:
        asked = subprocess.run(  # noqa: S603 - the program that jsii would start
            [program, "--version"], capture_output=True, text=True, errors="replace", timeout=_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise InvalidInput(source, f"{program} cannot be run: {error.strerror}; {wanted}") from error
    except subprocess.TimeoutExpired as error:
        raise InvalidInput(source, f"{program} does not answer; {wanted}") from error
    version = _VERSION.match(asked.stdout)
    if asked.returncode or version is None:
        raise InvalidInput(source, f"{program} is not Node.js; {wanted}")
    if int(version[1]) < _SUPPORTED:
        os.environ.setdefault("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", version[1])
        told = f"{program} is Node.js {version[1]}, which gets no fixes; {wanted}"
        print(printable(told), file=sys.stderr)  # noqa: T201
