"""Files that the wheel carries beside the code: at the root of a checkout, in the wheel within this package."""

from __future__ import annotations

from pathlib import Path

_IN_WHEEL = Path(__file__).resolve().parent / "shipped"
CHECKOUT = Path(__file__).resolve().parents[2]
"""The checkout's root, where this is one."""


def is_installed() -> bool:
    """True if this is the wheel, not a checkout."""
    return _IN_WHEEL.exists()


def shipped(name: str) -> Path:
    """A file or folder by its path in the checkout; the build hook lists what there is."""
    return (_IN_WHEEL if is_installed() else CHECKOUT) / name
