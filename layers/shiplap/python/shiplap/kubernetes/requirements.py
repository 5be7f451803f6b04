"""The algebra of node requirements: the values that `In`, `NotIn`, `Exists`, `Gt` … leave possible for each label.

A requirement is a set of label values, written either as the values themselves or, when `complement`, as everything
but them, with optional inclusive integer bounds. The empty concrete set is `DoesNotExist`, the complement of the empty
set `Exists`. The rules are Karpenter's (requirement.go, requirements.go), so that manifests mean here what they mean
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import lru_cache
from typing import Protocol, Self

import msgspec

from shiplap.kubernetes.labels import NORMALIZED

_LARGEST = 2**63 - 1

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte")


class RequirementLike(Protocol):
    """A requirement as it is written: a NodeSelectorRequirement, a RequirementSpec."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True, cache_hash=True):
    """The values one label may take. `at_least`/`at_most` are inclusive; `min_values` counts distinct values wanted."""

    key: str
    complement: bool = False
    values: frozenset[str] = frozenset()
    at_least: int | None = None
    at_most: int | None = None
    min_values: int | None = None

    @classmethod
    def one_of(cls, key: str, *values: str) -> Self:
        """The label has one of these values."""
        return cls(key, False, frozenset(values))

    @property
    def operator(self) -> str:
        """The operator this set would be written with, bounds aside."""
        if self.complement:
            return "NotIn" if self.values else "Exists"
        return "In" if self.values else "DoesNotExist"

    @property
    def allows_undefined(self) -> bool:
        """True for NotIn and DoesNotExist, which a node without the label satisfies; bounds need a value to compare."""
        return self.operator in ("NotIn", "DoesNotExist") and self.at_least is None and self.at_most is None

    def has(self, value: str) -> bool:
        """True if the label may have this value."""
        if (value in self.values) == self.complement:
            return False
        return self._within_bounds(value)

    def _within_bounds(self, value: str) -> bool:
        if self.at_least is None and self.at_most is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self.at_least is None or number >= self.at_least) and (self.at_most is None or number <= self.at_most)

    def intersection(self, other: Requirement) -> Requirement:
        """The values that both allow; the larger `min_values` is kept."""
        at_least = _tighter(max, self.at_least, other.at_least)
        at_most = _tighter(min, self.at_most, other.at_most)
        min_values = _tighter(max, self.min_values, other.min_values)
        if at_least is not None and at_most is not None and at_least > at_most:
            return Requirement(self.key, min_values=min_values)
        if self.complement and other.complement:
            return Requirement(self.key, True, self.values | other.values, at_least, at_most, min_values)
        if self.complement:
            survivors: Iterable[str] = other.values - self.values
        elif other.complement:
            survivors = self.values - other.values
        else:
            survivors = self.values & other.values
        bounded = Requirement(self.key, True, frozenset(), at_least, at_most)
        return Requirement(self.key, False, frozenset(v for v in survivors if bounded.has(v)), min_values=min_values)

    def intersects(self, other: Requirement) -> bool:
        """True if some value satisfies both requirements."""
        if self.at_least is None and self.at_most is None and other.at_least is None and other.at_most is None:
            if self.complement:
                return other.complement or not other.values <= self.values
            return not (self.values <= other.values if other.complement else self.values.isdisjoint(other.values))
        merged = self.intersection(other)
        return merged.complement or bool(merged.values)

    def __str__(self) -> str:
        bounds = [f"{sign}{n}" for sign, n in ((">=", self.at_least), ("<=", self.at_most)) if n is not None]
        listed = f" [{', '.join(sorted(self.values))}]" if self.values else ""
        told = [f"{self.operator}{listed}"] if listed or not bounds else []
        return " ".join([self.key, *told, *bounds])


def requirement(key: str, operator: str, values: Collection[str] = (), min_values: int | None = None) -> Requirement:
    """Build a requirement from its written form; older label spellings become the stable ones.

    Raises:
        ValueError: unknown operator, or values that do not suit it.
    """
    key = NORMALIZED.get(key, key)
    if operator in ("In", "NotIn"):
        if operator == "In" and not values:
            raise ValueError(f"{key}: operator In needs at least one value")
        return Requirement(key, operator == "NotIn", frozenset(values), min_values=min_values)
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise ValueError(f"{key}: operator {operator} takes no values")
        return Requirement(key, operator == "Exists", min_values=min_values)
    if operator in ("Gt", "Lt", "Gte", "Lte"):
        number = _integer(next(iter(values))) if len(values) == 1 else None
        if number is None:
            raise ValueError(f"{key}: operator {operator} needs exactly one integer value")
        if (operator == "Gt" and number == _LARGEST) or (operator == "Lt" and number == -_LARGEST - 1):
            return Requirement(key, min_values=min_values)
        if operator in ("Gt", "Gte"):
            return Requirement(key, True, at_least=number + (operator == "Gt"), min_values=min_values)
        return Requirement(key, True, at_most=number - (operator == "Lt"), min_values=min_values)
    raise ValueError(f"{key}: unknown operator {operator!r}; known are {', '.join(OPERATORS)}")


def contradiction(entries: Collection[Requirement]) -> str | None:
    """Requirements on one label that no node can meet together, or None.

    An empty intersection reads DoesNotExist, which a node without the label would satisfy although a value is asked
    for.
    """
    by_key: dict[str, list[Requirement]] = {}
    for entry in entries:
        by_key.setdefault(entry.key, []).append(entry)
    for key, merged in Requirements(entries).items():
        mine = by_key[key]
        if merged.operator == "DoesNotExist" and not all(entry.allows_undefined for entry in mine):
            return " and ".join(str(entry) for entry in mine)
    return None


def requirement_lines(rule: Requirement) -> list[tuple[str, str, tuple[str, ...]]]:
    """The (key, operator, values) lines that express a requirement; two when it has both bounds."""
    lines: list[tuple[str, str, tuple[str, ...]]] = []
    if rule.at_least is not None:
        lines.append((rule.key, "Gte", (str(rule.at_least),)))
    if rule.at_most is not None:
        lines.append((rule.key, "Lte", (str(rule.at_most),)))
    if not lines or rule.values or not rule.complement:
        lines.append((rule.key, rule.operator, tuple(sorted(rule.values))))
    return lines


class Requirements(Mapping[str, Requirement]):
    """An immutable conjunction of requirements, one per label."""

    __slots__ = ("_by_key", "_hash")

    def __init__(self, items: Iterable[Requirement] = ()) -> None:
        self._by_key: dict[str, Requirement] = {}
        self._hash: int | None = None
        self._add(items)

    def _add(self, items: Iterable[Requirement]) -> None:
        by_key = self._by_key
        for rule in items:
            known = by_key.get(rule.key)
            by_key[rule.key] = rule if known is None else known.intersection(rule)

    @classmethod
    def of(cls, written_items: Iterable[RequirementLike]) -> Requirements:
        """From written requirements. Raises ValueError as `requirement` does."""
        return cls(
            requirement(item.key, item.operator, item.values, getattr(item, "min_values", None))
            for item in written_items
        )

    @classmethod
    def of_labels(cls, labels: Mapping[str, str]) -> Requirements:
        """Each label as `In [value]`."""
        return cls(requirement(key, "In", (value,)) for key, value in labels.items())

    def __getitem__(self, key: str) -> Requirement:
        return self._by_key[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_key)

    def __len__(self) -> int:
        return len(self._by_key)

    # Mapping derives these from the methods above, one call for each entry.
    def items(self) -> ItemsView[str, Requirement]:
        return self._by_key.items()

    def values(self) -> ValuesView[Requirement]:
        return self._by_key.values()

    def __contains__(self, key: object) -> bool:
        return key in self._by_key

    def and_(self, other: Iterable[Requirement]) -> Requirements:
        """The conjunction of both."""
        merged = Requirements()
        merged._by_key = self._by_key.copy()
        merged._add(other)
        return merged

    def conflict(self, incoming: Mapping[str, Requirement], allow_undefined: Collection[str] = ()) -> str | None:
        """Return why a node with these requirements cannot satisfy `incoming`, or None when it can.

        A label the node side does not define satisfies only NotIn and DoesNotExist, unless it is in `allow_undefined`.
        """
        key = self._conflicting_key(incoming, allow_undefined)
        if key is None:
            return None
        if key in self._by_key:
            return f"{incoming[key]} does not meet {self._by_key[key]}"
        meant = self.most_like(key, allow_undefined)
        hint = f' (typo of "{meant}"?)' if meant else ""
        return f'label "{key}" does not have known values{hint}'

    def most_like(self, key: str, allow_undefined: Collection[str] = ()) -> str:
        """The label that a label which is not defined most likely means; empty when no label is like it."""
        return _alike(key, frozenset(allow_undefined)) or _alike(key, frozenset(self._by_key))

    def compatible(self, incoming: Mapping[str, Requirement], allow_undefined: Collection[str] = ()) -> bool:
        """True if `conflict` finds no conflict."""
        return self._conflicting_key(incoming, allow_undefined) is None

    def _conflicting_key(self, incoming: Mapping[str, Requirement], allow_undefined: Collection[str]) -> str | None:
        for key, wanted in incoming.items():
            mine = self._by_key.get(key)
            if mine is None:
                if key not in allow_undefined and not wanted.allows_undefined:
                    return key
            elif not mine.intersects(wanted) and not (mine.allows_undefined and wanted.allows_undefined):
                return key
        return None

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Requirements) and self._by_key == other._by_key)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._by_key.values()))
        return self._hash

    def __repr__(self) -> str:
        return f"Requirements({', '.join(str(self._by_key[key]) for key in sorted(self._by_key))})"


@lru_cache(maxsize=2048)  # explanations ask for the labels of one pod again and again
def _alike(key: str, known: frozenset[str]) -> str:
    """The known label that ends like the key, or else holds it."""
    ending = key.rpartition("/")[2]
    alike = [label for label in known if key in label or label.endswith(ending)]
    return min(alike, key=lambda label: (not label.endswith(ending), label), default="")


def _integer(text: str) -> int | None:
    """The number a label value spells; None for other text and for what does not fit 64 bits, as on a cluster."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 32:
        return None
    number = int(text)
    return number if -_LARGEST - 1 <= number <= _LARGEST else None


def _tighter(choose: Callable[..., int], left: int | None, right: int | None) -> int | None:
    if left is None or right is None:
        return left if right is None else right
    return choose(left, right)
