"""Decides if IAM policies allow a request: the part of IAM's logic that identity policies of roles need.

Of what the PyPI offers, moto's evaluator takes an Allow whose condition does not hold for a Deny, and the others only
lint; so this is our own. What it does not know it refuses to judge, rather than guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

Values = tuple[str, ...]
Statement = Mapping[str, Any]


class Request(NamedTuple):
    """One authorisation: an action on a resource (`*` where the service knows none), and what conditions may ask about.

    Names of context keys are compared without regard to case, as IAM does.
    """

    action: str
    resource: str = "*"
    context: tuple[tuple[str, Values], ...] = ()

    def values(self, key: str) -> Values | None:
        """The values of a context key; None when the request carries none."""
        for name, values in self.context:
            if name.lower() == key.lower():
                return values
        return None


def of(action: str, resource: str, context: Mapping[str, str | Iterable[str]]) -> Request:
    """A Request whose context is a mapping to a value or to several."""
    made = {key: (value,) if isinstance(value, str) else tuple(value) for key, value in context.items()}
    return Request(action, resource, tuple(sorted(made.items())))


def allowed(statements: Iterable[Statement], wanted: Request) -> bool:
    """True if some statement allows the request and no statement denies it."""
    effects = {statement["Effect"] for statement in statements if concerns(statement, wanted)}
    return effects == {"Allow"}


def concerns(statement: Statement, wanted: Request) -> bool:
    """True if a statement concerns the request: action, resource and every condition match."""
    unknown = set(statement) - {"Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Condition"}
    if unknown:
        raise NotImplementedError(f"elements of a statement: {sorted(unknown)}")
    return (
        _element(statement, "Action", wanted.action, fold=True)
        and _element(statement, "Resource", wanted.resource, fold=False)
        and all(
            _condition(operator, key, _listed(values), wanted)
            for operator, tests in statement.get("Condition", {}).items()
            for key, values in tests.items()
        )
    )


def _element(statement: Statement, name: str, value: str, *, fold: bool) -> bool:
    negated = f"Not{name}" in statement
    patterns = _listed(statement[f"Not{name}" if negated else name])
    return any(_like(pattern, value, fold=fold) for pattern in patterns) is not negated


def _condition(operator: str, key: str, tests: Values, wanted: Request) -> bool:
    quantifier, _, operator = operator.rpartition(":")
    base = operator.removesuffix("IfExists")
    values = wanted.values(key)
    if base == "Null":
        return (values is None) is (tests == ("true",))
    if values is None:
        # Nothing is a member of no set; and what is asked of each member holds for none at all.
        return base != operator or quantifier == "ForAllValues" or (not quantifier and _negates(base))
    holds = [_holds(base, tests, value) for value in values]
    if quantifier == "ForAllValues":
        return all(holds)
    if quantifier == "ForAnyValue":
        return any(holds)
    if len(values) != 1:
        raise NotImplementedError(f"{operator} on the many values of {key}")
    return holds[0]


def _negates(operator: str) -> bool:
    return "Not" in operator


def _holds(operator: str, tests: Values, value: str) -> bool:
    match operator:
        case "StringEquals":
            return value in tests
        case "StringNotEquals":
            return value not in tests
        case "StringLike" | "ArnLike" | "ArnEquals":
            return any(_like(test, value, fold=False) for test in tests)
        case "StringNotLike" | "ArnNotLike":
            return not any(_like(test, value, fold=False) for test in tests)
        case "Bool":
            return value.lower() in {test.lower() for test in tests}
    raise NotImplementedError(f"condition operator {operator}")


def _listed(value: Any) -> Values:
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _like(pattern: str, value: str, *, fold: bool) -> bool:
    return _compiled(pattern, fold).fullmatch(value) is not None


@lru_cache(maxsize=10_000)
def _compiled(pattern: str, fold: bool) -> re.Pattern[str]:
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), (re.IGNORECASE if fold else 0) | re.DOTALL)
