"""Bounded retries with jitter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

Sleep = Callable[[float], None]


def attempts(count: int, *, first_s: float = 0.02, longest_s: float = 0.5, sleep: Sleep = time.sleep) -> Iterator[int]:
    """The numbers 0 … count − 1 with a pause before each but the first.

    A pause is a random part of `first_s`, doubled each time, of at most `longest_s` seconds ("full jitter"), so that
    writers in conflict once are not in conflict again.
    """
    for number in range(count):
        if number:
            sleep(random.uniform(0, min(first_s * 2**number, longest_s)))  # noqa: S311 - not a secret
        yield number
