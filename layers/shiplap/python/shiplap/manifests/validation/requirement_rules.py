"""Checks every written requirement, in a NodePool, a NodeOverlay or a pod's node affinity."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence

from shiplap.kubernetes import labels
from shiplap.kubernetes.names import label_key_problem, label_value_problem
from shiplap.kubernetes.requirements import OPERATORS
from shiplap.manifests import tiers
from shiplap.manifests.custom_resources import RequirementSpec
from shiplap.manifests.decoding import Path, Problem

CAPACITY_TYPES = (labels.ON_DEMAND, labels.SPOT, labels.RESERVED)

_CLOSED = {labels.CAPACITY_TYPE: CAPACITY_TYPES, labels.AWS_PREFIX + "instance-tenancy": ("default", "dedicated")}
"""Labels of which only these values exist, in whatever Region; others beside them are ignored, as upstream does."""
_COMPARISONS = ("Gt", "Lt", "Gte", "Lte")
_CEL_INT = re.compile(r"[-+]?[0-9]+", re.ASCII)

AWS_LABELS = labels.AWS_WELL_KNOWN - {labels.AWS_PREFIX + "nitro-sandbox"} | {labels.NODE_CLASS}
"""Labels of its domain that the CRD of NodePools allows."""


def admission_problems(specs: Sequence[RequirementSpec], path: Path) -> Iterator[Problem]:
    """Of a list of requirements, what the API server refuses, keys aside."""
    for number, spec in enumerate(specs):
        here = (*path, number, "values")
        if spec.operator == "In" and not spec.values:
            yield here, "operator In needs at least one value"
        elif spec.operator in _COMPARISONS and not (len(spec.values) == 1 and _is_natural(spec.values[0])):
            yield here, f"operator {spec.operator} needs exactly one value, a whole number ≥ 0"


def _is_natural(text: str) -> bool:
    """As CEL's `int(…) >= 0`."""
    return _CEL_INT.fullmatch(text) is not None and 0 <= int(text) < 2**63


def reserved_label(key: str, of_aws: Collection[str], also_allowed: Collection[str] = ()) -> str | None:
    """Return why the API server lets no manifest name a label, or None when a manifest may name it.

    The system sets the label, its domain is reserved, or no instance type has the label.
    """
    domain = key.partition("/")[0]
    if key in (labels.HOSTNAME, labels.NODE_POOL) and key not in also_allowed:
        return f"the label {key} is set by the system and cannot be asked for"
    if domain.endswith("karpenter.sh") and key not in (labels.CAPACITY_TYPE, labels.NODE_POOL):
        return f"labels of {domain} are reserved; only {labels.CAPACITY_TYPE} can be asked for"
    if domain.endswith(labels.AWS_PREFIX.rstrip("/")) and key not in of_aws:
        close = difflib.get_close_matches(key, sorted(of_aws), 1)
        return f"no instance type has the label {key}" + (f", did you mean {close[0]}?" if close else "")
    return None


def list_problems(
    specs: Sequence[RequirementSpec], path: Path, also_allowed: Collection[str] = ()
) -> Iterator[Problem]:
    """Of a whole list, what makes it unusable; `also_allowed` are keys that would be refused elsewhere."""
    for number, spec in enumerate(specs):
        yield from requirement_problems(spec, (*path, number), also_allowed)


def requirement_problems(spec: RequirementSpec, path: Path, also_allowed: Collection[str] = ()) -> Iterator[Problem]:
    """Of one requirement."""
    if wrong := key_problem(spec.key, also_allowed):
        yield (*path, "key"), wrong
    if spec.operator not in OPERATORS:
        yield (*path, "operator"), f"unknown operator {spec.operator!r}; known are {', '.join(OPERATORS)}"
        return
    yield from _value_problems(spec, path)
    yield from _min_values_problems(spec, path)
    yield from _closed_problems(spec, path)


def key_problem(key: str, also_allowed: Collection[str] = ()) -> str | None:
    """Of a label key that nodes are to carry or be chosen by."""
    if wrong := label_key_problem(key):
        return wrong
    key = labels.NORMALIZED.get(key, key)
    if key in also_allowed or key == labels.CAPACITY_TYPE:
        return None
    if key in (labels.HOSTNAME, labels.NODE_POOL):
        return f"the label {key} is set by the system and cannot be asked for"
    prefix = key.rpartition("/")[0]
    if prefix.endswith("karpenter.sh"):
        return f"labels of {prefix} are reserved; only {labels.CAPACITY_TYPE} can be asked for"
    if prefix + "/" == labels.AWS_PREFIX and key not in labels.WELL_KNOWN:
        close = difflib.get_close_matches(key, sorted(labels.AWS_WELL_KNOWN), 1)
        return f"no instance type has the label {key}" + (f", did you mean {close[0]}?" if close else "")
    return None


def _value_problems(spec: RequirementSpec, path: Path) -> Iterator[Problem]:
    count = len(spec.values)
    if spec.operator == "In" and not count:
        yield (*path, "values"), "operator In needs at least one value"
    elif spec.operator in ("Exists", "DoesNotExist") and count:
        yield (*path, "values"), f"operator {spec.operator} takes no values"
    if wrong := tiers.problem_of(spec):
        yield (*path, "values"), wrong
    elif spec.operator in _COMPARISONS:
        if count != 1 or not (spec.values[0].isascii() and spec.values[0].isdigit()):
            yield (*path, "values"), f"operator {spec.operator} needs exactly one value, a whole number ≥ 0"
    else:
        for number, value in enumerate(spec.values):
            # What a glob's star stands for is not known here, so the rest must fit beside a letter.
            if wrong := label_value_problem(value.replace("*", "x")):
                yield (*path, "values", number), wrong


def _min_values_problems(spec: RequirementSpec, path: Path) -> Iterator[Problem]:
    wanted = spec.min_values
    if wanted is None:
        return
    if not 1 <= wanted <= 50:
        yield (*path, "minValues"), f"must be from 1 to 50, is {wanted}"
    elif spec.operator == "In" and not any(map(tiers.is_glob, spec.values)) and len(set(spec.values)) < wanted:
        yield (*path, "minValues"), f"asks for {wanted} different values, but only {len(set(spec.values))} are listed"


def _closed_problems(spec: RequirementSpec, path: Path) -> Iterator[Problem]:
    known = _CLOSED.get(spec.key)
    if known is None or spec.operator != "In" or any(map(tiers.is_glob, spec.values)):
        return
    if len(set(spec.values) & set(known)) < max(1, spec.min_values or 1):
        wanted = f"at least {spec.min_values} values" if spec.min_values else "at least one value"
        yield (*path, "values"), f"{wanted} must be of {', '.join(known)}"
