"""Label and field selectors in the text form of list and watch requests, over objects as raw JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from shiplap.errors import ClusterError

Test = Callable[[dict[str, Any]], bool]

_SET_BASED = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^()]*)\)$")
_SPLIT = re.compile(r",(?![^(]*\))")
_COMPARISON = re.compile(r"^([^=!\s]+)\s*(==|!=|=)\s*(\S*)$")


def label_test(selector: str) -> Test:
    """A test of an object's labels, from text such as `app=web,tier!=db,env in (a, b),!legacy`.

    Raises:
        ClusterError: status 400, the text is not a selector.
    """
    tests = [_label_term(term.strip()) for term in _SPLIT.split(selector) if term.strip()]
    return lambda item: all(test(item.get("metadata", {}).get("labels") or {}) for test in tests)


def field_test(selector: str, known: Collection[str]) -> Test:
    """A test of an object's fields, from text such as `spec.nodeName=,status.phase!=Failed`; absent fields are "".

    Raises:
        ClusterError: status 400, the text is not a selector or names a field this kind cannot be selected by.
    """
    tests = []
    for term in filter(None, selector.split(",")):
        parsed = _COMPARISON.match(term.strip())
        if parsed is None:
            raise ClusterError(f"invalid field selector {term!r}", status=400)
        field, operator, value = parsed.groups()
        if field not in known:
            raise ClusterError(f"field label not supported: {field}", status=400)
        tests.append(_field_term(field.split("."), value, equal=operator != "!="))
    return _every(tests)


def _every(tests: list[Test]) -> Test:
    def test(item: dict[str, Any]) -> bool:
        for one in tests:  # noqa: SIM110 - a generator for each object of each list takes twice as long
            if not one(item):
                return False
        return True

    return test


def _label_term(term: str) -> Callable[[dict[str, str]], bool]:
    if parsed := _SET_BASED.match(term):
        key, operator, listed = parsed.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if parsed := _COMPARISON.match(term):
        key, operator, value = parsed.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if re.fullmatch(r"!?[^\s=!()]+", term):
        name = term.lstrip("!")
        return lambda labels: (name in labels) != term.startswith("!")
    raise ClusterError(f"invalid label selector {term!r}", status=400)


def _field_term(path: list[str], value: str, *, equal: bool) -> Test:
    def test(item: dict[str, Any]) -> bool:
        found: Any = item
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        if isinstance(found, str):
            return (found == value) == equal
        if isinstance(found, bool):
            found = str(found).lower()
        elif isinstance(found, dict):  # an event's `source` is selected by its component
            found = found.get("component")
        return (str(found or "") == value) == equal

    return test
