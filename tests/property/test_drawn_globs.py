"""Globs mean what they say, and cost no more than their length times that of the value, whatever they are."""

from __future__ import annotations

from random import Random

from hypothesis import given

from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.tiers import allows
from tests.odd_input import INPUTS_OF_A_SEED, SEEDS, fuzzed

ALPHABET = ("a", "b", ".", "-", "\\", "[", "(", "+", "?", "$", "^", "\n", "é", "{2}", "a?", "(?i)")
IN_GLOBS = (*ALPHABET, *["*"] * 16, *["**"] * 5)


def by_table(glob: str, value: str) -> bool:
    """The textbook's way, character by character: reachable[n] says whether the glob so far can end before n."""
    reachable = [True] + [False] * len(value)
    for character in glob:
        if character == "*":
            reachable = [any(reachable[: end + 1]) for end in range(len(value) + 1)]
        else:
            reachable = [False] + [reachable[end] and value[end] == character for end in range(len(value))]
    return reachable[-1]


@fuzzed(0.8 / INPUTS_OF_A_SEED, usual=10)
@given(SEEDS)
def test_a_glob_allows_what_the_textbook_says(seed: int) -> None:
    draw = Random(seed)  # noqa: S311 - input
    for _ in range(INPUTS_OF_A_SEED):
        glob = "".join(draw.choices(IN_GLOBS, k=draw.randint(1, 14)))
        value = "".join(draw.choices(ALPHABET, k=draw.randint(0, 12)))
        stood_for = "".join("ab" if character == "*" else character for character in glob)
        holes = draw.sample(range(14), draw.randint(0, 3))
        spoilt = "".join(character for place, character in enumerate(stood_for) if place not in holes)
        spec = RequirementSpec("example.com/key", "In", (glob,))
        assert allows(spec, stood_for), (glob, stood_for)
        for each in (value, spoilt):
            assert allows(spec, each) == by_table(glob, each), (glob, each)


@fuzzed(0.2 / INPUTS_OF_A_SEED, usual=2)
@given(SEEDS)
def test_a_glob_of_many_stars_ends(seed: int) -> None:
    """With backtracking, a single one of these would not end in the life of the machine."""
    draw = Random(seed)  # noqa: S311 - input
    for _ in range(INPUTS_OF_A_SEED):
        glob = "".join(draw.choices(("*", "a", "ab", "**a"), k=draw.randint(20, 400))) + "*q"
        assert not allows(RequirementSpec("example.com/key", "In", (glob,)), "a" * draw.randint(1, 300)), glob
