"""Kubernetes quantities as exact integers.

Everywhere inside Shiplap a resource amount is one integer in the resource's canonical unit: millicores for `cpu`,
bytes for memory and storage, plain counts for the rest. Fractions round up, as the scheduler rounds them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from math import ceil

CPU = "cpu"
MEMORY = "memory"
HUGE_PAGES = "hugepages-"
"""Prefix of the resource names of huge pages; their size follows."""
PODS = "pods"
EPHEMERAL_STORAGE = "ephemeral-storage"

NVIDIA_GPU, AMD_GPU, GAUDI = "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi"
NEURON, NEURON_CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"
ACCELERATORS = (NVIDIA_GPU, AMD_GPU, GAUDI, NEURON, NEURON_CORE)
"""Extended resources of accelerators, as their device plugins call them."""
ACCELERATOR_DEVICES = tuple(name for name in ACCELERATORS if name != NEURON_CORE)
"""Those that count devices: a Neuron device offers its cores as well, which would count it twice."""

LARGEST = 2**57
"""No amount counts as more: 128 PiB is beyond any node, and dozens of them still add up within 64 bits."""

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_FACTORS = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{suffix: Decimal(factor) for suffix, factor in (_BINARY | _DECIMAL).items()},
}
# An exponent or a suffix, never both.
_QUANTITY = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,2}(?![A-Za-z]))?)([numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_BYTES = (MEMORY, EPHEMERAL_STORAGE, "storage")


def parse_quantity(text: str | int | float) -> Decimal:
    """The exact value of a quantity such as `1500m`, `2Gi`, `1e3` or `0.5`.

    Raises:
        ValueError: the text is not a Kubernetes quantity.
    """
    match = _QUANTITY.fullmatch(text if isinstance(text, str) else str(text))
    if match is None:
        raise ValueError(f"{text!r} is not a quantity: expected digits and an optional suffix such as m, k, Mi, Gi")
    number, suffix = match.groups()
    return Decimal(number) * _FACTORS[suffix or ""]


@lru_cache(maxsize=65536)
def parse_amount(resource: str, text: str | int | float) -> int:
    """A quantity of `resource` in its canonical unit, rounded up; `LARGEST` at most, above or below nothing.

    Raises:
        ValueError: the text is not a quantity.
    """
    value = parse_quantity(text)
    return max(min(ceil(value * 1000) if resource == CPU else ceil(value), LARGEST), -LARGEST)


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
    if amount and (resource in _BYTES or resource.startswith(HUGE_PAGES)):
        for suffix, factor in reversed(_BINARY.items()):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
        for suffix, factor in reversed(_DECIMAL.items()):
            if amount % factor == 0:
                return f"{amount // factor}{suffix}"
    return str(amount)


def format_part(resource: str, part: int, whole: int) -> str:
    """Two canonical amounts in one unit, rounded to be read: `99.12 of 1000` cores, `8Gi of 1024Gi`, `3 of 29`."""
    if resource == CPU:
        return f"{_rounded(part / 1000)} of {_rounded(whole / 1000)}"
    if resource in _BYTES or resource.startswith(HUGE_PAGES):
        fitting = [(suffix, factor) for suffix, factor in _BINARY.items() if factor <= (min(part, whole) or whole)]
        suffix, factor = fitting[-1] if fitting else ("", 1)
        return f"{_rounded(part / factor)}{suffix} of {_rounded(whole / factor)}{suffix}"
    return f"{part} of {whole}"


def _rounded(amount: float) -> str:
    return f"{amount:.2f}".rstrip("0").rstrip(".")


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
