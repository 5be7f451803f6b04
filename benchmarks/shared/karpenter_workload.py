"""The workload of Karpenter's public scheduling benchmark, drawn from the same random sequence (Go's math/rand).

Go's generator is an additive lagged Fibonacci one whose start state is itself that generator far along its sequence;
the state is computed here by raising x to that power modulo the recurrence's polynomial, so no table is needed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_LONG, _SHORT = 607, 273
_MASK = (1 << 64) - 1
_COOKED_STEPS = 7_800_000_000_000
_M31 = (1 << 31) - 1

Words = NDArray[np.uint64]

CPUS_M = (100, 250, 500, 1000, 1500)
MEMORY_MI = (100, 256, 512, 1024, 2048, 4096)
LABELS = "abcdefg"

CHECKSUMS = {
    1: "fbb0ee12c7bcff59",
    50: "d4273a55843be6aa",
    100: "6312b523299c6533",
    500: "8987d5c9772e15ec",
    1000: "1ad0d83a3724040e",
    1500: "5ab24b0c3069c43f",
    2000: "d0e63fa1b3d7e987",
    5000: "978f486d2f942e2e",
    10_000: "48af77d0a4f4a890",
    20_000: "184fa4d998f84b51",
}
"""First 16 hex digits of the SHA-256 of the drawn pods, by number of pods."""


@dataclass(frozen=True, slots=True)
class DrawnPod:
    """One pod. `kind`: g generic, z zone spread, h hostname spread, a zone affinity, x hostname anti-affinity."""

    kind: str
    label: str
    selector: str
    cpu_m: int
    memory_mi: int

    def __str__(self) -> str:
        selector = self.label if self.kind == "a" else self.selector
        return f"{self.kind},{self.label or '-'},{selector or '-'},{self.cpu_m},{self.memory_mi}"


def _lcg(seed: int) -> Iterator[int]:
    x = seed
    while True:
        x = 48271 * x % _M31
        yield x


def _start(seed: int, shifts: tuple[int, int]) -> list[int]:
    """The generator's vector filled from a linear congruential one, after 20 warm-up steps."""
    numbers = _lcg(seed)
    for _ in range(20):
        next(numbers)
    high, middle = shifts
    return [(next(numbers) << high) ^ (next(numbers) << middle) ^ next(numbers) for _ in range(_LONG)]


def _times(left: Words, right: Words) -> Words:
    """The product of two polynomials modulo x^607 − x^334 − 1, coefficients modulo 2^64."""
    product = np.zeros(2 * _LONG - 1, np.uint64)
    for place, factor in enumerate(left):
        if factor:
            product[place : place + _LONG] += factor * right
    for place in range(2 * _LONG - 2, _LONG - 1, -1):
        product[place - _SHORT] += product[place]
        product[place - _LONG] += product[place]
    return product[:_LONG]


def _power_of_x(exponent: int) -> Words:
    result = np.zeros(_LONG, np.uint64)
    result[0] = 1
    for bit in bin(exponent)[2:]:
        result = _times(result, result)
        if bit == "1":
            result = np.roll(result, 1)
            carried, result[0] = result[0], 0
            result[0] += carried
            result[_LONG - _SHORT] += carried
    return result


@lru_cache(maxsize=1)
def _cooked() -> list[int]:
    """The generator's state, seeded with 1, after 7.8·10¹² steps, in the order of Go's table."""
    history = _in_order_of_age(_start(1, (20, 10)))
    with np.errstate(over="ignore"):  # all sums are modulo 2^64
        power = _power_of_x(_COOKED_STEPS)
    later = list(history)
    for place in range(_LONG, 2 * _LONG):
        later.append((later[place - _LONG] + later[place - _SHORT]) & _MASK)
    known = np.array(later, np.uint64)
    state = [int((power * known[place : place + _LONG]).sum(dtype=np.uint64)) for place in range(_LONG)]
    vector = [0] * _LONG
    feed = (_LONG - _SHORT - _COOKED_STEPS) % _LONG
    for age, value in enumerate(reversed(state)):  # the newest value stands at `feed`
        vector[(feed + age) % _LONG] = value
    return vector


def _in_order_of_age(vector: list[int]) -> list[int]:
    """Oldest first: the next step overwrites the oldest value, just below `feed`."""
    feed = _LONG - _SHORT
    return [vector[(feed - 1 - place) % _LONG] & _MASK for place in range(_LONG)]


class GoRandom:
    """math/rand as `rand.New(rand.NewSource(seed))` gives it, as far as Intn of small numbers."""

    def __init__(self, seed: int) -> None:
        start = _start(seed % _M31 or 89482311, (40, 20))
        self._vector = [(mine ^ cooked) & _MASK for mine, cooked in zip(start, _cooked(), strict=True)]
        self._tap, self._feed = 0, _LONG - _SHORT

    def _int31(self) -> int:
        self._tap = (self._tap - 1) % _LONG
        self._feed = (self._feed - 1) % _LONG
        value = (self._vector[self._feed] + self._vector[self._tap]) & _MASK
        self._vector[self._feed] = value
        return (value & ((1 << 63) - 1)) >> 32

    def intn(self, n: int) -> int:
        """A number below n."""
        value = self._int31()
        if n & (n - 1) == 0:
            return value & (n - 1)
        while value > _M31 - (1 << 31) % n:
            value = self._int31()
        return value % n


def diverse(number: int, seed: int = 42) -> list[DrawnPod]:
    """The benchmark's diverse pods: a fifth each of five kinds, then generic ones to fill up."""
    source = GoRandom(seed)
    each = number // 5

    def label() -> str:
        return LABELS[source.intn(len(LABELS))]

    def cpu() -> int:
        return CPUS_M[source.intn(len(CPUS_M))]

    def memory() -> int:
        return MEMORY_MI[source.intn(len(MEMORY_MI))]

    pods = [DrawnPod("g", label(), "", cpu(), memory()) for _ in range(each)]
    pods += [DrawnPod("z", label(), label(), cpu(), memory()) for _ in range(each)]
    pods += [DrawnPod("h", label(), label(), cpu(), memory()) for _ in range(each)]
    pods += [DrawnPod("a", label(), "", cpu(), memory()) for _ in range(each)]
    pods += [DrawnPod("x", "", "", cpu(), memory()) for _ in range(each)]
    pods += [DrawnPod("g", label(), "", cpu(), memory()) for _ in range(number - 5 * each)]
    return pods


def checksum(pods: list[DrawnPod]) -> str:
    """Identifies a drawn workload; see `CHECKSUMS`."""
    return hashlib.sha256("".join(f"{pod}\n" for pod in pods).encode()).hexdigest()[:16]


def verified(number: int) -> list[DrawnPod]:
    """The diverse pods, checked against the published sequence where its checksum is known."""
    pods = diverse(number)
    assert number not in CHECKSUMS or checksum(pods) == CHECKSUMS[number], f"{number}: {checksum(pods)}"
    return pods


if __name__ == "__main__":
    for size in CHECKSUMS:
        print(f"{size:6d} pods {checksum(verified(size))}")
