"""Terms of node affinity that differ in the values of one label alone, as the one term that they are together.

Terms are tried one after the other. A spread over a label fills all its values at once, so pods that name each zone in
a term of its own are placed like pods that list the zones in one term.
"""

from __future__ import annotations

from collections.abc import Iterable

from shiplap.kubernetes.requirements import Requirement, Requirements

TermPair = tuple[Requirements, Requirements]
"""The requirements of the pod itself, and the same joined with those of its volumes."""


def merged_over(key: str, pairs: Iterable[TermPair]) -> list[TermPair]:
    """The same alternatives; those that list values of `key` and are else equal become one, where the first was."""
    merged: dict[object, TermPair] = {}
    for pair in pairs:
        identity = tuple(_rest(term, key) for term in pair) if _lists_values(pair, key) else pair
        known = merged.get(identity)
        merged[identity] = pair if known is None else (_union(known[0], pair[0], key), _union(known[1], pair[1], key))
    return list(merged.values())


def _lists_values(pair: TermPair, key: str) -> bool:
    """True if the term lists values of a label, and the pod's own part lists some, too, or allows every value."""
    own, joined = (term.get(key) for term in pair)
    return joined is not None and joined.operator == "In" and (own is None or own.operator == "In")


def _rest(term: Requirements, key: str) -> tuple[Requirements, bool]:
    """The requirements on other labels, and True if there is one on this label."""
    return Requirements(entry for entry in term.values() if entry.key != key), key in term


def _union(one: Requirements, other: Requirements, key: str) -> Requirements:
    if key not in one:
        return one
    either = Requirement.one_of(key, *one[key].values, *other[key].values)
    return Requirements(either if entry.key == key else entry for entry in one.values())
