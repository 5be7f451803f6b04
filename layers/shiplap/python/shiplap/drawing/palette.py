"""Colours of pictures, in a light and a dark theme.

The colours of pools were searched for so that any two of them stay apart (a distance of at least 0.1 in OKLab) also for
people who cannot tell red from green, and so that each has a contrast of at least 3 to what lies below it; a test holds
both. Colour is never all there is to tell things apart: pools stand under their names, tiers have patterns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

POOLS_LIGHT = ("#4d5cd9", "#1ea4ad", "#ac396d", "#648f00", "#fd5a71", "#753101", "#542e77")
POOLS_DARK = ("#586af0", "#2ad9c5", "#c93b95", "#dccf3c", "#ff9075", "#927b2a", "#a7b1ff")

NEUTRAL = len(POOLS_LIGHT)
"""The number of the colour of foreign nodes, and of pools beyond those that have one of their own."""

_LIGHT = {
    "page": "#f5f6f8",
    "card": "#ffffff",
    "ink": "#1a1f29",
    "soft": "#566072",
    "line": "#d5d9e0",
    "room": "#e9ecf1",
    "accent": "#1d5fc4",
    "bad": "#b3261e",
    "good": "#1a7f37",
    f"p{NEUTRAL}": "#6f7787",
} | {f"p{place}": colour for place, colour in enumerate(POOLS_LIGHT)}

_DARK = {
    "page": "#0f1217",
    "card": "#171b22",
    "ink": "#e8ebf0",
    "soft": "#9aa4b5",
    "line": "#333b48",
    "room": "#262d38",
    "accent": "#7db0ff",
    "bad": "#ff8a80",
    "good": "#62d27f",
    f"p{NEUTRAL}": "#8891a1",
} | {f"p{place}": colour for place, colour in enumerate(POOLS_DARK)}


def variables(theme: str) -> str:
    """CSS custom properties of a theme, `light` or `dark`."""
    chosen = _DARK if theme == "dark" else _LIGHT
    return ";".join(f"--sl-{name}:{colour}" for name, colour in chosen.items())


def colour_numbers(pools: Iterable[str]) -> Mapping[str, int]:
    """The number of each pool's colour; by name, so that a pool keeps its colour from picture to picture."""
    named = sorted({pool for pool in pools if pool})
    return {pool: min(place, NEUTRAL) for place, pool in enumerate(named)} | {"": NEUTRAL}
