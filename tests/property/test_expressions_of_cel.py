"""Expressions of kubelet settings mean what Google's CEL says they mean; the judge is its C++ implementation.

Documented differences are left out of what is drawn or compared: `min` and `max` are ours, numbers of two types may be
compared, and a double that is not finite is an error.
"""

from __future__ import annotations

import re
from typing import Any

from cel_expr_python import cel
from hypothesis import given, settings
from hypothesis import strategies as st

from shiplap.manifests.expressions import MOST_TOKENS, ValueType, parse
from tests.thoroughness import draws

VARIABLES = {"vcpus": ValueType.INT, "share": ValueType.DOUBLE, "name": ValueType.STRING}
JUDGE = cel.NewEnv(variables={"vcpus": cel.Type.INT, "share": cel.Type.DOUBLE, "name": cel.Type.STRING})

_EDGES = (0, 1, 2, 3, 7, 2**31, 2**53 + 1, 2**63 - 1)
INTS = st.one_of(st.sampled_from(_EDGES), st.integers(0, 300)).map(str) | st.just("-9223372036854775808")
DOUBLES = st.sampled_from(["0.0", "0.5", "1.0", "1.5e1", "2e-3", "0.1", "9223372036854775807.0", "1e300"])
TEXTS = st.sampled_from(['"m5"', "'m5.large'", "''", "'large'", '"\'"'])


def _joined(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda made: template.format(*made))


def _expressions(depth: int) -> dict[ValueType, st.SearchStrategy[str]]:
    """Texts of each type, nested at most so deep; every sign of the language occurs."""
    if depth == 0:
        return {
            ValueType.INT: st.one_of(INTS, st.just("vcpus")),
            ValueType.DOUBLE: st.one_of(DOUBLES, st.just("share")),
            ValueType.STRING: st.one_of(TEXTS, st.just("name")),
            ValueType.BOOL: st.sampled_from(["true", "false"]),
        }
    inner = _expressions(depth - 1)
    int_, double, text, bool_ = (inner[kind] for kind in ValueType)
    of_each = [_joined("{} ? ({}) : {}", bool_, part, part) for part in (int_, double, text, bool_)]
    comparison = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
    compared = [_joined("{} {} {}", part, comparison, part) for part in (int_, double, text, bool_)]
    contained = [_joined("{} in [{}, {}]", part, part, part) for part in (int_, text, bool_)]
    return {
        ValueType.INT: st.one_of(
            int_,
            _joined("{} {} {}", int_, st.sampled_from(["+", "-", "*", "/", "%"]), int_),
            _joined("({})", int_),
            _joined("-({})", int_),
            _joined("int({})", double),
            of_each[0],
        ),
        ValueType.DOUBLE: st.one_of(
            double,
            _joined("{} {} {}", double, st.sampled_from(["+", "-", "*", "/"]), double),
            _joined("({})", double),
            _joined("double({})", int_),
            of_each[1],
        ),
        ValueType.STRING: st.one_of(text, _joined("({})", of_each[2])),
        ValueType.BOOL: st.one_of(
            *(bool_, *compared, *contained, of_each[3]),
            _joined("{} {} {}", bool_, st.sampled_from(["&&", "||"]), bool_),
            _joined("!({})", bool_),
            _joined("({})", bool_),
            _joined("({}).{}({})", text, st.sampled_from(["startsWith", "endsWith", "contains"]), text),
        ),
    }


EXPRESSIONS = st.one_of(*_expressions(3).values()).filter(lambda text: len(text) <= MOST_TOKENS)
VALUES = st.fixed_dictionaries(
    {
        "vcpus": st.integers(-(2**63), 2**63 - 1) | st.integers(0, 448),
        "share": st.floats(allow_nan=False, allow_infinity=False),
        "name": st.sampled_from(["m5.large", "m5.2xlarge", "large", ""]),
    }
)


def judged(text: str, values: dict[str, Any]) -> tuple[str, Any]:
    """("refused", None), ("error", None) or ("value", its value)."""
    try:
        compiled = JUDGE.compile(text)
    except RuntimeError:
        return "refused", None
    return _evaluated(compiled, values)


def judged_unchecked(text: str, values: dict[str, Any]) -> tuple[str, Any]:
    """The same without the check of types: CEL compares numbers of two types when it runs, its checker refuses them."""
    return _evaluated(JUDGE.compile(text, disable_check=True), values)


def _evaluated(compiled: Any, values: dict[str, Any]) -> tuple[str, Any]:
    result = compiled.eval(data=values)
    return ("error", None) if result.type() == cel.Type.ERROR else ("value", result.value())


def ours(text: str, values: dict[str, Any]) -> tuple[str, Any]:
    try:
        expression = parse(text, VARIABLES)
    except ValueError:
        return "refused", None
    try:
        return "value", expression.evaluate(values)
    except ValueError:
        return "error", None


def same(first: Any, second: Any) -> bool:
    return type(first) is type(second) and first == second


_DOUBLE = re.compile(r"share|double|\d\.\d|\de")


@settings(max_examples=draws(400))
@given(EXPRESSIONS, VALUES)
def test_an_expression_comes_to_what_cel_says(text: str, values: dict[str, Any]) -> None:
    verdict, value = judged(text, values)
    our_verdict, our_value = ours(text, values)
    if verdict == "value" and our_verdict == "error":
        assert _DOUBLE.search(text), "only a double that CEL lets be infinite may be an error"
        return
    assert our_verdict == verdict
    assert verdict != "value" or same(our_value, value)


_TOKENS = st.sampled_from(
    [
        *("1", "2.5", "'a'", "true", "vcpus", "share", "name", "(", ")", "[", "]", ",", "?", ":", ".", "in", "!"),
        *("&&", "||", "==", "<", "+", "-", "*", "/", "%", "int", "double", "startsWith", "contains", "unknown"),
    ]
)


@settings(max_examples=draws(400))
@given(EXPRESSIONS, st.lists(st.tuples(st.integers(0, 60), _TOKENS), min_size=1, max_size=3), VALUES)
def test_what_is_accepted_is_cel(text: str, changes: list[tuple[int, str]], values: dict[str, Any]) -> None:
    parts = text.split(" ")
    for place, token in changes:
        parts[place % len(parts)] = token
    changed = " ".join(parts)
    our_verdict, our_value = ours(changed, values)
    if our_verdict != "value":
        return
    verdict, value = judged(changed, values)
    if verdict == "refused":
        verdict, value = judged_unchecked(changed, values)
    assert verdict == "value"
    assert same(our_value, value)
