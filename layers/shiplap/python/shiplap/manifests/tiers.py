"""Globs and ordered preferences in the requirements of a NodePool, compiled away before scheduling.

`values` of an `In` may hold globs, in which `*` stands for any text. A list that ends with the catch-all `*` is an
order: each value before it is one tier, and the last tier restricts nothing. A pool with such lists becomes several
virtual pools, tried in order, so that tiers and weights are one mechanism.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from itertools import product

import msgspec

from shiplap.kubernetes.labels import NORMALIZED
from shiplap.kubernetes.requirements import Requirement, Requirements, requirement
from shiplap.manifests.custom_resources import NodePool, RequirementSpec

CATCH_ALL = "*"


class Tier(msgspec.Struct, frozen=True):
    """One step of a pool: its requirements without globs. `index` counts from 0, the most preferred.

    `text` names what the lists with globs came to in this tier, for reasons and reports; it is empty without globs.
    """

    pool: str
    index: int
    requirements: Requirements
    text: str = ""


class _Choice(msgspec.Struct, frozen=True):
    """The form that one requirement takes in one tier; None as requirement restricts nothing."""

    requirement: Requirement | None
    text: str


def is_glob(value: str) -> bool:
    """True if a value is a pattern for other values; `*` is not a character of label values."""
    return "*" in value


def is_tiered(spec: RequirementSpec) -> bool:
    """True if the values are an order of preference."""
    return spec.operator == "In" and CATCH_ALL in spec.values


def problem_of(spec: RequirementSpec) -> str | None:
    """Return what is wrong with the globs of a requirement, or None."""
    globs = [value for value in spec.values if is_glob(value)]
    if not globs:
        return None
    if spec.operator != "In":
        return f"operator {spec.operator} takes no globs (found {globs[0]!r}); only In does"
    if CATCH_ALL in spec.values[:-1]:
        return "the catch-all '*' must be the last value and stand there once: nothing can come after 'anything else'"
    return None


def allows(spec: RequirementSpec, value: str) -> bool:
    """True if a valid requirement allows a value of its label; a glob allows every value that it matches."""
    if spec.operator == "In":
        return any(_pattern(written).fullmatch(value) for written in spec.values)
    return requirement(spec.key, spec.operator, spec.values).has(value)


def expand(pool: NodePool, values_of: Callable[[str], Collection[str]]) -> tuple[Tier, ...]:
    """The tiers of a pool, most preferred first; one for a pool without ordered lists.

    Several ordered lists multiply: the one written first changes last. A combination that contradicts itself (a tier
    against another requirement on the same label) is left out, and its index is given to no other; when all do, there
    is no tier.

    Args:
        pool: a valid NodePool; its labels and name are not part of the tiers' requirements.
        values_of: all values that a label (in its stable spelling) takes in the catalogue.

    Raises:
        ValueError: a requirement is malformed, as `requirements.requirement` says.
    """
    specs = pool.spec.template.spec.requirements
    fixed = Requirements.of(spec for spec in specs if not any(map(is_glob, spec.values)))
    lists = [_choices(spec, values_of) for spec in specs if any(map(is_glob, spec.values))]
    tiers = []
    for index, choices in enumerate(product(*lists)):
        chosen = [choice.requirement for choice in choices if choice.requirement is not None]
        requirements = fixed.and_(chosen)
        # An empty intersection reads DoesNotExist, which types without the label would satisfy.
        if all(requirements[rule.key].operator != "DoesNotExist" for rule in chosen):
            text = ", ".join(choice.text for choice in choices)
            tiers.append(Tier(pool.metadata.name, index, requirements, text))
    return tuple(tiers)


def _choices(spec: RequirementSpec, values_of: Callable[[str], Collection[str]]) -> tuple[_Choice, ...]:
    """The tiers of one requirement that holds globs."""
    key = NORMALIZED.get(spec.key, spec.key)
    known = sorted(values_of(key))
    if not is_tiered(spec):
        return (_choice(key, spec.values, known, spec.min_values),)
    named = []
    for value in spec.values[:-1]:
        reachable = len(_matching(value, known)) >= (spec.min_values or 0)
        named.append(_choice(key, (value,), known, spec.min_values if reachable else None))
    rest = None if spec.min_values is None else requirement(key, "Exists", min_values=spec.min_values)
    return (*named, _Choice(rest, f"{key} {CATCH_ALL}"))


def _choice(key: str, values: tuple[str, ...], known: list[str], min_values: int | None) -> _Choice:
    matches = {value: _matching(value, known) for value in values}
    allowed = [match for value in values for match in matches[value] or [value]]
    notes = [value if matches[value] else f"{value} (matches nothing in the catalogue)" for value in values]
    return _Choice(requirement(key, "In", allowed, min_values), f"{key} {', '.join(notes)}")


def _matching(value: str, known: list[str]) -> list[str]:
    """The known values a glob stands for; a plain value stands for itself, known or not."""
    if not is_glob(value):
        return [value]
    pattern = _pattern(value)
    return [candidate for candidate in known if pattern.fullmatch(candidate)]


@lru_cache(maxsize=1024)
def _pattern(glob: str) -> re.Pattern[str]:
    """The pattern of a glob. Each text between two stars is matched where it first occurs, and never again: a glob of
    many stars takes time that grows with the length of the value, not with the number of ways to part it.
    """
    first, *rest = map(re.escape, glob.split("*"))
    if not rest:
        return re.compile(first)
    between = "".join(f"(?>.*?{part})" for part in rest[:-1] if part)
    return re.compile(f"{first}{between}.*{rest[-1]}", re.DOTALL)
