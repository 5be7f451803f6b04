"""Globs mean what they say, and cost no more than their length times that of the value, whatever they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.tiers import allows
from tests.odd_input import fuzzed

ALPHABET = st.sampled_from(["a", "b", ".", "-", "\\", "[", "(", "+", "?", "$", "^", "\n", "é", "{2}", "a?", "(?i)"])
VALUES = st.lists(ALPHABET, max_size=12).map("".join)
GLOBS = st.lists(ALPHABET | st.sampled_from(["*", "*", "**"]), min_size=1, max_size=14).map("".join)


def by_table(glob: str, value: str) -> bool:
    """The textbook's way, character by character: reachable[n] says whether the glob so far can end before n."""
    reachable = [True] + [False] * len(value)
    for character in glob:
        if character == "*":
            reachable = [any(reachable[: end + 1]) for end in range(len(value) + 1)]
        else:
            reachable = [False] + [reachable[end] and value[end] == character for end in range(len(value))]
    return reachable[-1]


@fuzzed(0.8, usual=300)
@given(GLOBS, VALUES, st.lists(st.integers(0, 13), max_size=3))
def test_a_glob_allows_what_the_textbook_says(glob: str, value: str, holes: list[int]) -> None:
    spec = RequirementSpec("example.com/key", "In", (glob,))
    assert allows(spec, value) == by_table(glob, value)
    stood_for = "".join("ab" if character == "*" else character for character in glob)
    assert allows(spec, stood_for)
    spoilt = "".join(character for place, character in enumerate(stood_for) if place not in holes)
    assert allows(spec, spoilt) == by_table(glob, spoilt)


@fuzzed(0.2, usual=60)
@given(st.lists(st.sampled_from(["*", "a", "ab", "**a"]), min_size=20, max_size=400), st.integers(1, 300))
def test_a_glob_of_many_stars_ends(parts: list[str], length: int) -> None:
    """With backtracking, a single one of these would not end in the life of the machine."""
    assert not allows(RequirementSpec("example.com/key", "In", ("".join(parts) + "*q",)), "a" * length)
