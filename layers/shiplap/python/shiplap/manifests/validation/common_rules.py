"""Checks that the rules of several kinds, or several selector terms of an EC2NodeClass, share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shiplap.kubernetes.names import label_key_problem, label_value_problem, subdomain_problem
from shiplap.kubernetes.objects import ObjectMeta
from shiplap.kubernetes.quantity import parse_amount
from shiplap.manifests.decoding import Path, Problem


def attempt(parse: Callable[[str], object], text: str, path: Path) -> Iterator[Problem]:
    """Yield the problem that `parse` finds in a text, if any."""
    try:
        parse(text)
    except ValueError as error:
        yield path, str(error)


def within(value: int | None, lowest: int, highest: int, path: Path) -> Iterator[Problem]:
    """An optional number with bounds."""
    if value is not None and not lowest <= value <= highest:
        yield path, f"must be from {lowest} to {highest}, is {value}"


def absent(data: Mapping[str, Any], path: Path) -> bool:
    """True if a field is absent; a null counts as absent."""
    value: Any = data
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value is None


def metadata_problems(metadata: ObjectMeta) -> Iterator[Problem]:
    """Of an object's name, labels and annotations."""
    if wrong := subdomain_problem(metadata.name):
        yield ("metadata", "name"), wrong
    for key, value in metadata.labels.items():
        if wrong := label_key_problem(key) or label_value_problem(value):
            yield ("metadata", "labels", key), wrong
    for key in metadata.annotations:
        if wrong := label_key_problem(key.lower()):
            yield ("metadata", "annotations", key), wrong


def quantity_problems(amounts: Mapping[str, str | int | float], path: Path) -> Iterator[Problem]:
    """Of a resource list: every amount is a quantity and not negative."""
    for resource, text in amounts.items():
        try:
            if parse_amount(resource, text) < 0:
                yield (*path, resource), f"must not be negative, is {text!r}"
        except ValueError as error:
            yield (*path, resource), str(error)


_ID_TAIL = re.compile(r"[0-9a-z]+", re.ASCII)


def written_fields(value: Mapping[str, Any]) -> set[str]:
    """Names of the fields that are there, empty ones too; what CEL's `has` is true for."""
    return {name for name, item in value.items() if item is not None}


def selector_tags(tags: Mapping[str, str], path: Path) -> Iterator[Problem]:
    """Of the tags of a selector term; a value of `*` stands for any."""
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
