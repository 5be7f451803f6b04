"""Turning a document into a typed manifest while naming every field that does not fit, not only the first.

The shapes come from the structs themselves, with what `demands` adds to a type. As on an API server a null counts as
absent and a number such as 1.0 is a whole number.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from shiplap.kubernetes.objects import ObjectMeta, OwnerReference, Taint

T = TypeVar("T")
Path = tuple[str | int, ...]
Problem = tuple[Path, str]
"""Where in the object, and what is wrong there."""

MISSING = "required field is missing"
"""The reason of a problem with a field that is not written and has no default."""

UNKNOWN = "unknown field"
"""The reason of a problem with a field that nobody knows and that resembles none."""

_ALSO_ALLOWED: dict[type, frozenset[str]] = {
    ObjectMeta: frozenset({"generateName", "selfLink", "deletionGracePeriodSeconds", "managedFields"}),
    OwnerReference: frozenset({"apiVersion", "blockOwnerDeletion"}),
    Taint: frozenset({"timeAdded"}),
}
"""Fields of the API that Shiplap does not read in objects it otherwise shares with Kubernetes."""


class Constraint(msgspec.Struct, frozen=True):
    """One demand of an API server on a field beyond its type.

    `pattern` is looked for in a text and brings its own anchors; `form` says in words what is right, of a number with
    an example; `unit` is what a number that stands in place of the text most likely lacks. `least` and `most` bound a
    number and are allowed, `above` and `below` are not; `one_of` lists numbers. `shortest` and `longest` bound the
    characters of a text, `fewest` and `most_entries` a list or a map. `required` is for a field that its struct has a
    default for.
    """

    pattern: str = ""
    form: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    above: float | None = None
    below: float | None = None
    one_of: tuple[int, ...] = ()
    shortest: int = 0
    longest: int | None = None
    fewest: int = 0
    most_entries: int | None = None
    unique: bool = False
    required: bool = False

    def problems(self, value: Any) -> Iterator[str]:
        """Yield the reasons why a value of the right type does not satisfy the constraint."""
        if isinstance(value, str):
            yield from self._of_text(value)
        elif isinstance(value, list | dict):
            yield from self._of_entries(value)
        elif not isinstance(value, bool):
            yield from self._of_number(value)

    def _of_text(self, value: str) -> Iterator[str]:
        if self.choices and value not in self.choices:
            yield f"must be one of {', '.join(filter(None, self.choices))}, is {value!r}"
        if len(value) < self.shortest:
            yield "must not be empty" if self.shortest == 1 else f"must have at least {self.shortest} characters"
        elif self.longest is not None and len(value) > self.longest:
            yield f"must have at most {self.longest} characters, has {len(value)}"
        elif self.pattern and not re.search(self.pattern, value, re.ASCII):
            yield f"{value!r} is not {self.form}"

    def _of_number(self, value: float) -> Iterator[str]:
        if wanted := self._wanted(value):
            yield f"must {wanted}, is {value}" + (f"; {self.form}" if self.form else "")

    def _wanted(self, value: float) -> str:
        """The bound that a number is beyond; empty for none."""
        least, most, above, below = self.least, self.most, self.above, self.below
        if self.one_of and value not in self.one_of:
            return f"be one of {', '.join(map(str, self.one_of))}"
        if least == 0 and value < 0:
            return "not be negative"
        if (least is not None and value < least) or (most is not None and value > most):
            return f"be from {least} to {most}" if None not in (least, most) else f"be {least} or more"
        if (above is not None and value <= above) or (below is not None and value >= below):
            bounds = (("above", above), ("below", below))
            return "be " + " and ".join(f"{word} {at:,.10g}" for word, at in bounds if at is not None)
        return ""

    def _of_entries(self, value: list[Any] | dict[str, Any]) -> Iterator[str]:
        if len(value) < self.fewest:
            yield f"at least {self.fewest} must be there"
        if self.most_entries is not None and len(value) > self.most_entries:
            yield f"at most {self.most_entries} are allowed, there are {len(value)}"
        if self.unique and isinstance(value, list) and (twice := next(_repeated(value), None)) is not None:
            yield f"{twice} is listed twice"


def _repeated(values: list[Any]) -> Iterator[Any]:
    return (value for place, value in enumerate(values) if value in values[:place])


def demands(**limits: Any) -> msgspec.Meta:
    """For `Annotated`: the fields of a Constraint. Only `decode` heeds it, so that any problem leaves an object.

    A JSON schema of the field has the same bounds.
    """
    constraint = Constraint(**limits)
    words: dict[str, Any] = {
        "pattern": constraint.pattern.replace(r"\Z", "$") or None,
        "enum": list(constraint.choices or constraint.one_of) or None,
        "minimum": constraint.least,
        "maximum": constraint.most,
        "exclusiveMinimum": constraint.above,
        "exclusiveMaximum": constraint.below,
        "minLength": constraint.shortest or None,
        "maxLength": constraint.longest,
        "minItems": constraint.fewest or None,
        "maxItems": constraint.most_entries,
        "uniqueItems": constraint.unique or None,
    }
    schema = {word: value for word, value in words.items() if value is not None}
    return msgspec.Meta(extra={"constraint": constraint}, extra_json_schema=schema)


def decode(data: Mapping[str, Any], kind: type[T]) -> tuple[T | None, list[Problem]]:
    """The typed manifest and all problems of shape; no manifest when a field has the wrong type or is missing.

    Unknown fields are problems, but are left out and do not keep the rest from being read.
    """
    reader = _Reader()
    cleaned = reader.read(_shape_of(cast("type", kind)), data, ())
    if reader.broken:
        return None, reader.problems
    return msgspec.convert(cleaned, kind), reader.problems


@cache
def _shape_of(kind: type) -> inspect.Type:
    """The shape of a class; msgspec works it out again every time, which takes longer than reading a document."""
    return inspect.type_info(kind)


def field_name(path: Path) -> str:
    """A path as users write it: `spec.template.spec.requirements[0].key`, `spec.tags[a.b/c]`."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step or "/" in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


class _Reader:
    """Walks a document beside the type it should have; `broken` when it cannot be converted."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.broken = False

    def read(self, shape: inspect.Type, value: Any, path: Path) -> Any:
        match shape:
            case inspect.Metadata(type=inner, extra=extra):
                return self._read_constrained(inner, extra or {}, value, path)
            case inspect.UnionType(types=types):
                return self._read_union(types, value, path)
            case inspect.StructType():
                return self._read_struct(shape, value, path) if self._is(dict, value, path) else None
            case inspect.DictType(value_type=of) if self._is(dict, value, path):
                return {key: self.read(of, item, (*path, key)) for key, item in value.items() if item is not None}
            case inspect.VarTupleType(item_type=of) if self._is(list, value, path):
                return [self.read(of, item, (*path, number)) for number, item in enumerate(value)]
            case inspect.StrType() | inspect.BoolType():
                self._is(str if isinstance(shape, inspect.StrType) else bool, value, path)
            case inspect.EnumType(cls=kinds):
                self._is_one_of([str(kind.value) for kind in kinds], value, path)
            case inspect.IntType():
                value = _whole(value)
                if self._is(int, value, path):
                    self._within_64_bits(value, path)
            case inspect.FloatType():
                self._is_a_number(value, path)
            case inspect.AnyType():
                value = _as_stored(value)
        return value

    def _read_constrained(self, shape: inspect.Type, extra: Mapping[str, Any], value: Any, path: Path) -> Any:
        before = len(self.problems)
        choices = extra["constraint"].choices if "constraint" in extra else ()
        if isinstance(value, bool) and _SWITCH[value] in choices:
            return _SWITCH[value]
        if type(value) is int and "constraint" in extra and (unit := extra["constraint"].unit):
            self._refuse(path, f"expected text, got {kind_of(value)}; write {value}{unit}")
            return value
        value = self.read(shape, value, path)
        if len(self.problems) == before and "constraint" in extra:
            self.problems += [(path, reason) for reason in extra["constraint"].problems(value)]
        return value

    def _read_union(self, types: tuple[inspect.Type, ...], value: Any, path: Path) -> Any:
        """An optional field, or a quantity, which may be text or a number."""
        kinds = [shape for shape in types if not isinstance(shape, inspect.NoneType)]
        if len(kinds) == 1:
            return self.read(kinds[0], value, path)
        value = _whole(value)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self._refuse(path, f"expected a quantity, got {kind_of(value)}")
        elif isinstance(value, float) and not any(isinstance(shape, inspect.FloatType) for shape in kinds):
            self._refuse(path, f"expected a whole number or text, got {kind_of(value)}")
        elif isinstance(value, int):
            self._within_64_bits(value, path)
        return value

    def _is_one_of(self, names: list[str], value: Any, path: Path) -> None:
        if self._is(str, value, path) and value not in names:
            self._refuse(path, f"must be one of {', '.join(names)}, is {value!r}")

    def _is_a_number(self, value: Any, path: Path) -> None:
        """YAML has numbers that JSON lacks: no API server takes them, and no stored form keeps them."""
        if type(value) is int:
            self._within_64_bits(value, path)
        elif self._is(float, value, path) and not math.isfinite(value):
            self._refuse(path, f"must be a finite number, is {value}")

    def _within_64_bits(self, value: int, path: Path) -> None:
        if not -(2**63) <= value < 2**63:
            self._refuse(path, "must be a whole number of 64 bits")

    def _read_struct(self, shape: inspect.StructType, value: Mapping[str, Any], path: Path) -> dict[str, Any]:
        fields = {field.encode_name: field for field in shape.fields}
        cleaned = {}
        for key, item in value.items():
            if key in fields:
                if item is not None:
                    cleaned[key] = self.read(fields[key].type, item, (*path, key))
            elif key not in _ALSO_ALLOWED.get(shape.cls, ()):
                self.problems.append(((*path, key), _about_unknown((*path, key), fields)))
        for name, field in fields.items():
            if name not in cleaned:
                if field.required:
                    self._refuse((*path, name), MISSING)
                elif _constraint_of(field.type).required:
                    self.problems.append(((*path, name), MISSING))
        return cleaned

    def _is(self, wanted: type, value: Any, path: Path) -> bool:
        if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
            return True
        self._refuse(path, f"expected {_NAMES[wanted]}, got {kind_of(value)}{_remedy(wanted, value)}")
        return False

    def _refuse(self, path: Path, reason: str) -> None:
        self.problems.append((path, reason))
        self.broken = True


def _remedy(wanted: type, value: Any) -> str:
    """What to write instead of a value of another kind, where that is plain."""
    if wanted is str and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if wanted is list and isinstance(value, dict):
        return "; begin each entry with -"
    if not isinstance(value, str):
        return ""
    if wanted is list and value.isprintable():
        return f"; write [{', '.join(part.strip() for part in value.split(','))}]"
    number = _NUMBER.fullmatch(value)
    if wanted in (int, float) and number is not None:
        return "; write it without quotes" if number[1] else "; write the number alone, without a unit"
    return "; write true or false, without quotes" if wanted is bool and value.lower() in _TRUTHS else ""


_NUMBER = re.compile(r"([-+]?[0-9]+(?:\.[0-9]+)?)|\s*[-+$]?[0-9][0-9,]*(?:\.[0-9]+)?\s*[A-Za-z%]*\s*")
_TRUTHS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})

_SWITCH = {True: "on", False: "off"}
"""Words that YAML 1.1 reads as truth values; a field that has them among its choices means the words."""

_MOVED: dict[Path, str] = {
    ("spec", "template", "spec", "kubelet"): "it moved to spec.kubelet of the EC2NodeClass",
    ("spec", "disruption", "expireAfter"): "it moved to spec.template.spec.expireAfter",
    ("spec", "template", "spec", "resources"): "karpenter.sh/v1 has no such field any more",
    ("spec", "template", "spec", "nodeClassRef", "apiVersion"): "its group is written as nodeClassRef.group",
}
"""Where fields of karpenter.sh/v1beta1 went with v1."""

_ELSEWHERE: dict[Path, str] = {
    ("spec", "disruption", "budgets", "timeZone"): "annotation shiplap.dev/disruption-time-zone names it",
    ("spec", "disruption", "repairPolicies"): "`repairPolicies` of the cluster in shiplap.yaml has them",
}
"""Where what people look for in a field is written; indexes of lists are left out."""


def _about_unknown(path: Path, fields: Collection[str]) -> str:
    """Says of a field that a struct lacks where it went, or which field has almost its name."""
    if path in _MOVED:
        converts = "`shiplap migrate convert` converts karpenter.sh/v1beta1"
        return f"unknown field since karpenter.sh/v1: {_MOVED[path]}; {converts}"
    elsewhere = _ELSEWHERE.get(tuple(part for part in path if isinstance(part, str)))
    if elsewhere is not None:
        return f"{UNKNOWN}: {elsewhere}"
    close = difflib.get_close_matches(str(path[-1]), fields, 1)
    return UNKNOWN + (f", did you mean {close[0]}?" if close else "")


def _as_stored(value: Any) -> Any:
    """Anything as an API server keeps it where its schema is open: whole numbers of more than 64 bits as floats."""
    if isinstance(value, dict):
        return {key: _as_stored(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_stored(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


def _whole(value: Any) -> Any:
    """A number without a fraction as an int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _constraint_of(shape: inspect.Type) -> Constraint:
    extra = (shape.extra or {}) if isinstance(shape, inspect.Metadata) else {}
    constraint: Constraint = extra.get("constraint", _UNCONSTRAINED)
    return constraint


_UNCONSTRAINED = Constraint()

_NAMES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    type(None): "nothing",
}


def kind_of(value: object) -> str:
    """The kind of a YAML value in words, with the value itself when it is short."""
    name = _NAMES.get(type(value), type(value).__name__)
    return f"{name} ({value})" if isinstance(value, bool | int | float) else name
