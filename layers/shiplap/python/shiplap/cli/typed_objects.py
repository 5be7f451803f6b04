"""Kubernetes objects of a document, typed, or the file, line, field and reason why not."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from shiplap.api.documents import Document
from shiplap.api.nulls import without_nulls
from shiplap.cli import soundness
from shiplap.errors import InvalidInput
from shiplap.kubernetes.quantity import parse_resources

T = TypeVar("T")


def object_of(document: Document, kind: type[T]) -> T:
    """An object with sound metadata; a null field counts as absent. Raises InvalidInput."""
    item = converted(document, without_nulls(document.data), kind)
    name = getattr(item, "metadata").name  # noqa: B009 - every kind read here has metadata
    if not name:
        raise refused(document, "metadata.name", "is missing; objects need a name of their own (not generateName)")
    must_be(document, soundness.metadata(getattr(item, "metadata")))  # noqa: B009
    return item


def must_be(document: Document, problems: soundness.Problems) -> None:
    """Refuse an object at the first problem found. Raises InvalidInput."""
    for field, reason in problems:
        raise refused(document, field, reason)


def converted(document: Document, data: Any, kind: type[T]) -> T:
    """Data of a document as a type. Raises InvalidInput."""
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        reason, field = _reason_and_field(str(error))
        raise refused(document, field, reason) from error


def _reason_and_field(text: str) -> tuple[str, str]:
    """Take msgspec's "Expected `int`, got `str` - at `$.spec.x[0]`" apart."""
    found = re.fullmatch(r"(.*?)(?: - at `(?:key in )?\$\.?(.*)`)?", text, re.DOTALL)
    return (found[1].replace("`", ""), (found[2] or "").replace("[...]", "")) if found else (text, "")


def refused(document: Document, field: str, reason: str) -> InvalidInput:
    """What is wrong with a field of a document, with its line."""
    path = tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", field))
    return InvalidInput(document.source, reason, document=document.name, field=field, line=document.line_of(path))


def amounts_of(document: Document, field: str, quantities: dict[str, str | int | float]) -> dict[str, int]:
    """Quantities in canonical units. Raises InvalidInput."""
    must_be(document, soundness.amounts(quantities, field))
    return parse_resources(quantities)
