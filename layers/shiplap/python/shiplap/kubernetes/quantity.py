"""Kubernetes quantities as exact integers.

Everywhere inside Shiplap a resource amount is one integer in the resource's canonical unit: millicores for `cpu`,
bytes for memory and storage, plain counts for the rest. Fractions round up, as the scheduler rounds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from math import ceil

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
}
_BYTES = (MEMORY, EPHEMERAL_STORAGE, "storage")


def parse_quantity(text: str | int | float) -> Decimal:
    """The exact value of a quantity such as `1500m`, `2Gi`, `1e3` or `0.5`.

    Raises:
        ValueError: the text is not a Kubernetes quantity.
    """
    if not isinstance(text, str):
        return Decimal(str(text))
    for suffix, factor in _BINARY.items():
        if text.endswith(suffix):
            return _number(text, text[: -len(suffix)]) * factor
    if text and text[-1] in _DECIMAL and not text[-1].isdigit():
        return _number(text, text[:-1]) * _DECIMAL[text[-1]]
    return _number(text, text)


def _number(whole: str, digits: str) -> Decimal:
    try:
        value = Decimal(digits)
    except InvalidOperation:
        raise ValueError(
            f"{whole!r} is not a quantity: expected digits and an optional suffix such as m, k, Mi, Gi"
        ) from None
    if not value.is_finite() or digits != digits.strip() or "_" in digits:
        raise ValueError(f"{whole!r} is not a quantity: expected digits and an optional suffix such as m, k, Mi, Gi")
    return value


@lru_cache(maxsize=65536)
def parse_amount(resource: str, text: str | int | float) -> int:
    """A quantity of `resource` in its canonical unit, rounded up.

    Raises:
        ValueError: the text is not a quantity.
    """
    value = parse_quantity(text)
    return ceil(value * 1000) if resource == CPU else ceil(value)


def parse_resources(quantities: Mapping[str, str | int | float]) -> dict[str, int]:
    """A resource list in canonical units.

    Raises:
        ValueError: one of the quantities is malformed; the message names the resource.
    """
    amounts = {}
    for resource, text in quantities.items():
        try:
            amounts[resource] = parse_amount(resource, text)
        except ValueError as error:
            raise ValueError(f"{resource}: {error}") from None
    return amounts


def format_amount(resource: str, amount: int) -> str:
    """A canonical amount as the shortest exact Kubernetes quantity (`1930m`, `6903Mi`, `29`)."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if amount and (resource in _BYTES or resource.startswith("hugepages-")):
        for suffix, factor in reversed(_BINARY.items()):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
        for suffix in ("E", "P", "T", "G", "M", "k"):
            if amount % int(_DECIMAL[suffix]) == 0:
                return f"{amount // int(_DECIMAL[suffix])}{suffix}"
    return str(amount)


def format_resources(amounts: Mapping[str, int]) -> dict[str, str]:
    """A resource list as quantities, sorted by name."""
    return {resource: format_amount(resource, amounts[resource]) for resource in sorted(amounts)}


def add_resources(*lists: Mapping[str, int]) -> dict[str, int]:
    """The sum of several resource lists in canonical units."""
    total: dict[str, int] = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0) + amount
    return total
