"""Colours stay apart for the colour-blind and stand out from what is below them."""

from __future__ import annotations

from itertools import combinations
from math import dist

import pytest

from shiplap.drawing.style import NEUTRAL, POOLS_DARK, POOLS_LIGHT, colour_numbers, variables

# Matrices in linear RGB for complete colour blindness: G. M. Machado et al., 2009, doi 10.1109/TVCG.2009.113, table 1.
_SIGHT = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
    "all": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
}
_SURFACE = {"light": "#ffffff", "dark": "#171b22"}


def linear(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def oklab(colour: str, sight: str) -> tuple[float, float, float]:
    """B. Ottosson, 2020."""
    seen = [sum(weight * part for weight, part in zip(row, linear(colour), strict=True)) for row in _SIGHT[sight]]
    r, g, b = (min(max(part, 0.0), 1.0) for part in seen)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    medium = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * medium - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * medium + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * medium - 0.8086757660 * short,
    )


def contrast(one: str, other: str) -> float:
    light = sorted(0.2126 * r + 0.7152 * g + 0.0722 * b for r, g, b in (linear(one), linear(other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


@pytest.mark.parametrize("sight", _SIGHT)
@pytest.mark.parametrize("colours", [POOLS_LIGHT, POOLS_DARK], ids=["light", "dark"])
def test_any_two_pools_can_be_told_apart(colours: tuple[str, ...], sight: str) -> None:
    nearest = min(dist(oklab(one, sight), oklab(other, sight)) for one, other in combinations(colours, 2))
    assert nearest > 0.09


@pytest.mark.parametrize(("theme", "colours"), [("light", POOLS_LIGHT), ("dark", POOLS_DARK)])
def test_pools_stand_out_and_text_can_be_read(theme: str, colours: tuple[str, ...]) -> None:
    known = dict(part.removeprefix("--sl-").split(":") for part in variables(theme).split(";"))
    assert known["card"] == _SURFACE[theme]
    assert all(contrast(colour, known["card"]) >= 3 for colour in colours)
    for ink in ("ink", "soft", "bad", "good", "accent"):
        assert contrast(known[ink], known["card"]) >= 4.5, ink
        assert contrast(known[ink], known["page"]) >= 4.5, ink


def test_a_pool_keeps_its_colour_by_name() -> None:
    many = [f"pool-{place:02d}" for place in range(9)]
    numbers = colour_numbers(reversed(many))
    assert [numbers[pool] for pool in many] == [0, 1, 2, 3, 4, 5, 6, NEUTRAL, NEUTRAL]
    assert colour_numbers(["b", "", "a"]) == {"a": 0, "b": 1, "": NEUTRAL}
