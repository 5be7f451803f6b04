"""Checks that the selector terms of an EC2NodeClass share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from shiplap.api.decoding import Path, Problem

_ID_TAIL = re.compile(r"[0-9a-z]+", re.ASCII)


def count_problems(count: int, most: int, path: Path) -> Iterator[Problem]:
    """Of the number of terms of a selector that must be there."""
    if not 1 <= count <= most:
        yield path, f"1 to {most} terms are needed, there are {count}"


def selector_tags(tags: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Of the tags of a selector term; a value of `*` stands for any."""
    if len(tags) > 20:
        yield path, f"at most 20 tags are allowed, there are {len(tags)}"
    for key, value in tags.items():
        if not key:
            yield path, "a tag's key must not be empty"
        elif not value:
            yield (*path, key), "a tag's value must not be empty; '*' means any"


def id_problems(kind: str, text: str, path: Path) -> Iterator[Problem]:
    """Of the id of an AWS resource; an absent one is fine."""
    prefix, _, tail = text.partition("-")
    if text and not (prefix == kind and _ID_TAIL.fullmatch(tail)):
        yield path, f"{text!r} is not of the form {kind}-0123abcd"
