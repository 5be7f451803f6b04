"""Texts that match a regular expression, and texts that nearly do, drawn by a random generator."""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import Any

_PARSER: Any = re._parser  # type: ignore[attr-defined]  # the only reader of expressions in the standard library
_MOST_REPEATS = 4
_WILD = (
    "",
    " ",
    "\n",
    "é",
    "٣",
    "-",
    ".",
    "/",
    "_",
    "A",
    "0",
    "%",
    "'",
    '"',
    "\u017f",
    "\u212a",
    "\t",
    "@",
    "+",
    "x" * 64,
)


def matching(pattern: str, random: Random) -> str:
    """A text that the pattern matches; anchors add nothing."""
    return _of_sequence(_parsed(pattern), random)


@cache
def _parsed(pattern: str) -> Any:
    return _PARSER.parse(pattern)


def near(text: str, random: Random) -> str:
    """A text with a character dropped, doubled, replaced or added."""
    place = random.randrange(len(text) + 1)
    match random.randrange(5):
        case 0:
            return text[:place] + text[place + 1 :]
        case 1:
            return text[:place] + text[place : place + 1] * 2 + text[place + 1 :]
        case 2:
            return text[:place] + random.choice(_WILD) + text[place + 1 :]
        case 3:
            return text + random.choice(_WILD)
        case _:
            return text[:place] + random.choice(_WILD) + text[place:]


def _of_sequence(parts: Any, random: Random) -> str:
    return "".join(_of_part(str(kind).lower(), value, random) for kind, value in parts)


def _of_part(kind: str, value: Any, random: Random) -> str:
    match kind:
        case "literal":
            return chr(value)
        case "any":
            return random.choice("a1-*/,")
        case "at":
            return ""
        case "in":
            return _of_class(value, random)
        case "category":
            return _of_category(str(value).lower(), random)
        case "branch":
            return _of_sequence(random.choice(value[1]), random)
        case "subpattern":
            return _of_sequence(value[3], random)
        case "max_repeat" | "min_repeat":
            least, most, part = value
            count = random.randint(least, min(int(most), least + _MOST_REPEATS))
            return "".join(_of_sequence(part, random) for _ in range(count))
        case "not_literal":
            return random.choice([character for character in "ab1@/" if ord(character) != value])
    raise NotImplementedError(f"a pattern with {kind}")


def _of_class(members: Any, random: Random) -> str:
    named = [(str(kind).lower(), value) for kind, value in members]
    if named[0][0] == "negate":
        refused = {chr(value) for kind, value in named[1:] if kind == "literal"}
        return random.choice([character for character in "ab1@/-" if character not in refused])
    kind, value = random.choice(named)
    if kind == "range":
        return chr(random.randint(*value))
    return _of_part(kind, value, random)


def _of_category(name: str, random: Random) -> str:
    return {"category_space": " ", "category_digit": random.choice("0123456789"), "category_word": "w"}[name]
