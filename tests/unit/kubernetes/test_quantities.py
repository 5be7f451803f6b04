"""Quantities as exact integers."""

from __future__ import annotations

from decimal import Decimal

import pytest

from shiplap.kubernetes.quantity import (
    add_resources,
    format_amount,
    format_part,
    format_resources,
    parse_amount,
    parse_quantity,
    parse_resources,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("100m", "0.1"),
        ("1.5Gi", 1610612736),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("5Ei", 5 * 2**60),
        (".5", "0.5"),
        ("1.", 1),
        ("+1", 1),
        ("-1k", -1000),
        ("1n", "1e-9"),
        ("2u", "2e-6"),
        ("1e-3", "0.001"),
        (3, 3),
        (0.25, "0.25"),
    ],
)
def test_values(text: str | float, value: str | int) -> None:
    assert parse_quantity(text) == Decimal(value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "1_0",
        "1kk",
        "1Mb",
        "1e3Ki",
        "1e",
        "e3",
        ".",
        "-",
        "--1",
        "0x10",
        "NaN",
        "Infinity",
        "1,5",
        "\u0661",
        "1e999",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)


@pytest.mark.parametrize("number", [float("inf"), float("nan")])
def test_numbers_without_an_end_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(number)


@pytest.mark.parametrize(
    ("resource", "text", "amount"),
    [
        ("cpu", "1", 1000),
        ("cpu", "1500m", 1500),
        ("cpu", "0.0001", 1),
        ("memory", "1Ki", 1024),
        ("memory", "128974848", 128974848),
        ("memory", "1500m", 2),
        ("pods", "110", 110),
        ("example.com/gpu", "500m", 1),
        ("cpu", 2, 2000),
    ],
)
def test_amounts_are_canonical_and_round_up(resource: str, text: str | int, amount: int) -> None:
    assert parse_amount(resource, text) == amount


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("cpu", 1930, "1930m"),
        ("cpu", 2000, "2"),
        ("cpu", 0, "0"),
        ("memory", 6903 * 2**20, "6903Mi"),
        ("memory", 2**40, "1Ti"),
        ("memory", 1000, "1k"),
        ("memory", 1025, "1025"),
        ("memory", 0, "0"),
        ("ephemeral-storage", 20 * 2**30, "20Gi"),
        ("hugepages-2Mi", 2**21, "2Mi"),
        ("pods", 1024, "1024"),
    ],
)
def test_writing(resource: str, amount: int, text: str) -> None:
    assert format_amount(resource, amount) == text


@pytest.mark.parametrize(
    ("resource", "part", "whole", "text"),
    [
        ("cpu", 99_120, 1_000_000, "99.12 of 1000"),
        ("cpu", 250, 1930, "0.25 of 1.93"),
        ("cpu", 0, 2000, "0 of 2"),
        ("cpu", 3000, 2000, "3 of 2"),
        ("cpu", 500, 0, "0.5 of 0"),
        ("memory", 1536 * 2**20, 4 * 2**30, "1.5Gi of 4Gi"),
        ("memory", 100 * 2**30, 2**40, "100Gi of 1024Gi"),
        ("memory", 8 * 2**30, 2**40, "8Gi of 1024Gi"),
        ("memory", 0, 4 * 2**30, "0Gi of 4Gi"),
        ("memory", 512, 0, "512 of 0"),
        ("ephemeral-storage", 10 * 2**30, 20 * 2**30, "10Gi of 20Gi"),
        ("hugepages-2Mi", 2**21, 2**30, "2Mi of 1024Mi"),
        ("pods", 3, 29, "3 of 29"),
        ("nvidia.com/gpu", 1, 8, "1 of 8"),
    ],
)
def test_a_part_and_its_whole_have_one_unit(resource: str, part: int, whole: int, text: str) -> None:
    assert format_part(resource, part, whole) == text


def test_lists_of_resources() -> None:
    assert parse_resources({"cpu": "1", "memory": "1Ki"}) == {"cpu": 1000, "memory": 1024}
    assert list(format_resources({"pods": 3, "cpu": 100})) == ["cpu", "pods"]
    assert add_resources({"cpu": 1}, {"cpu": 2, "pods": 1}, {}) == {"cpu": 3, "pods": 1}
    with pytest.raises(ValueError, match=r"^memory: 'x' is not a quantity"):
        parse_resources({"memory": "x"})
