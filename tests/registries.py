"""Tests that need what a registry of packages has: without a network, and without it in a cache, they are skipped."""

from __future__ import annotations

import os
import re
from typing import NoReturn

import pytest

from shiplap.errors import ShiplapError

_UNREACHABLE = re.compile(
    r"dial tcp|no such host|network is unreachable|i/o timeout|TLS handshake timeout|connection re(fused|set)"
    r"|proxyconnect|module lookup disabled|403 Forbidden|407 Proxy|50[234] |dns error|network was disabled"
    r"|error sending request"
)
"""What Go and uv say when their registry is out of reach, or when they may not ask it."""


def leave_out(reason: str) -> NoReturn:
    """Skip the test that needs what is not there; CI must have it."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must have what tests need: {reason}")
    pytest.skip(reason)


def leave_out_if_unreachable(said: str, what: str) -> None:
    """Skip the test if a program could not download something, by what the program has said."""
    if _UNREACHABLE.search(said):
        leave_out(f"{what} cannot be had: in no cache, and the registry is out of reach")


def leave_out_if_not_built(error: BaseException) -> None:
    """Skip the test if what the layers hold could not be downloaded."""
    if isinstance(error, ShiplapError) and str(error).startswith("layer dependencies:"):
        leave_out_if_unreachable(str(error), "what the layers hold")
