"""Input gone wrong: sound JSON with accidents, drawn by Hypothesis, how many examples are drawn, and kept input.

A run of the tests draws a few examples, the same ones each time. `make fuzz` draws as many of each kind of input as it
is asked for, others each time. A kind has several tests, which share its examples. Both put all kept input, too.
"""

from __future__ import annotations

import copy
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Steps = tuple[str | int, ...]
Test = TypeVar("Test", bound=Callable[..., None])

EXAMPLES = "FUZZ_EXAMPLES"
"""The variable of the environment that says how many examples of each kind are drawn."""

CORPUS = Path(__file__).parent / "corpus"
"""A folder of kept input for each kind: what was found, and what is worth trying each time."""

ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 2**31, 2**63, 2**64, 10**30, 0.5, 1e300, -0.0]),
    st.sampled_from(
        ["", " ", "0", "-1", "5%", "1e3", "*", "a*b*", "Never", "720h", "\u0661", "9" * 400, "a" * 300, "\0", "{{x}}"]
    ),
    st.sampled_from(["banana", "12 Gi", "2026-13-45T99:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]),
    st.text(max_size=6),
    st.sampled_from([[], {}, [[]], [None], {"": ""}, {"a": None}, [{}], {"a": {"b": {"c": []}}}]),
    st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=2), max_leaves=8),
)

NAMES = st.text(
    st.characters(categories=["Cc", "Cf", "Zl", "Zp", "Lu", "Ll", "Sm", "Po", "Co"]), min_size=1, max_size=20
) | st.sampled_from(
    [
        *("\x1b]0;owned\x07", "\x1b[2J", "\x9b31m", "[red]x[/red]", "[/]", "[link=file:///]x", ":boom:", "a\r\nb"),
        *("\u202egpj.exe", "{{x}}", "%s", "-o"),
    ]
)
"""Names that a terminal, a template or a printer of markup would obey, and others."""

NAMES_OF_AN_EXAMPLE = 50

SEEDS = st.integers(0, 2**64 - 1)
"""Seeds of plain generators: drawing small inputs one by one takes Hypothesis many times as long as trying them."""

INPUTS_OF_A_SEED = 40

NOT_JSON: st.SearchStrategy[Any] = ODD | st.sampled_from([float("inf"), float("nan")])
"""The same, and what YAML knows and JSON does not."""


def fuzzed(share: float, *, usual: int, is_slow: bool = False) -> Callable[[Test], Test]:
    """Mark a test of odd input: `usual` examples, or its share of the examples of its kind under `make fuzz`.

    Examples of one that `is_slow` may take long to draw.
    """
    asked = int(os.environ.get(EXAMPLES, "0"))
    profile = settings(
        deadline=None,
        max_examples=max(1, round(asked * share)) if asked else usual,
        derandomize=not asked,
        database=None,
        suppress_health_check=(HealthCheck.too_slow,) if is_slow else (),
    )
    return lambda test: pytest.mark.fuzz(profile(test))


def kept(kind: str) -> Callable[[Test], Test]:
    """Mark a test with the parameter `kept_input`: the path of each kept input of a kind, by its name."""
    files = sorted((CORPUS / kind).iterdir())
    assert files, f"nothing is kept of {kind}"
    cases = pytest.mark.parametrize("kept_input", [pytest.param(file, id=file.name) for file in files])
    return lambda test: pytest.mark.fuzz(cases(test))


def places(value: Any, path: Steps = ()) -> Iterator[Steps]:
    """Every path into a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in inner:
        yield (*path, step)
        yield from places(item, (*path, step))


def at(document: Any, path: Sequence[str | int]) -> Any:
    """Return the value at a path."""
    for step in path:
        document = document[step]
    return document


@st.composite
def spoilt(draw: st.DrawFn, sound: Sequence[Any], odd: st.SearchStrategy[Any] = ODD, most: int = 4) -> Any:
    """One of some sound documents after one to `most` accidents."""
    document: Any = copy.deepcopy(draw(st.sampled_from(sound)))
    for _ in range(draw(st.integers(1, most))):
        known = sorted(places(document), key=str)
        if not known:
            break
        path = draw(st.sampled_from(known))
        parent = at(document, path[:-1])
        accident = draw(st.sampled_from(["replace", "drop", "add", "rename", "double", "swap"]))
        if accident == "replace":
            parent[path[-1]] = copy.deepcopy(draw(odd))
        elif accident == "drop":
            del parent[path[-1]]
        elif accident == "double" and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[path[-1]]))
        elif accident == "swap":
            parent[path[-1]] = copy.deepcopy(at(document, draw(st.sampled_from(known))))
        elif isinstance(parent, dict):
            item = parent.pop(path[-1]) if accident == "rename" else copy.deepcopy(draw(odd))
            parent[draw(st.text(max_size=8))] = item
    return document


@st.composite
def damaged(draw: st.DrawFn, texts: Sequence[str], punctuation: str = "{}[]:#&*!|>'\"%@`,?-") -> str:
    """One of some texts with one to three parts cut out or overwritten."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(text)))
        gone = draw(st.integers(0, 5))
        new = draw(st.text(max_size=3) | st.sampled_from(list(punctuation)))
        text = text[:place] + new + text[place + gone :]
    return text


def controls(text: str) -> list[str]:
    """The control characters of a text, but for the ends of its lines and tabs."""
    return [character for character in text if unicodedata.category(character) == "Cc" and character not in "\n\t"]
