"""Hypothesis strategies that composite strategies draw from again and again, made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")


def sampled_from(elements: Sequence[T]) -> SearchStrategy[T]:
    """As Hypothesis's own, which at every draw checks a new strategy and leaves it to the garbage collector."""
    try:
        return _made(*elements)
    except TypeError:  # elements that cannot be hashed
        return st.sampled_from(elements)


@lru_cache(maxsize=1024, typed=True)
def _made(*elements: Any) -> SearchStrategy[Any]:
    return st.sampled_from(elements)
