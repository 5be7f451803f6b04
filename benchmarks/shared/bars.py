"""Ends benchmarks that judge their own bars."""

from __future__ import annotations

from collections.abc import Sequence


def exit_code(missed: Sequence[str], held: str = "all bars hold") -> int:
    """Print the bars that are missed, or that they hold; 1 if one is missed, else 0."""
    print("\n".join([f"missed: {text}" for text in missed] or [held]))
    return 1 if missed else 0
