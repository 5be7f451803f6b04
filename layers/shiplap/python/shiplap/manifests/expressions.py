"""Arithmetic that users may write where a number depends on the instance type: a small, checked part of CEL.

Numbers, texts, comparisons, `&&` `||` `!`, `a ? b : c`, `+ - * / %`, lists after `in`, `min`, `max`, `int`, `double`
and a text's `startsWith`, `endsWith`, `contains`. As in CEL every part has one type, whole numbers have 64 bits and are
divided towards zero, and int and double do not mix without `int(…)` or `double(…)`, except in comparisons. Unlike
CEL's, a double that is not finite is an error, and `min` and `max` need no prefix. Nothing else can be reached: no
attributes, no calls into Python, no loops; texts are short and nesting is bounded. An EC2NodeClass may hold expressions
in `maxPods` and `SECTIONS` of its kubelet map, over `VARIABLES`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shiplap.kubernetes.quantity import parse_quantity

LONGEST = 1000
"""Characters of an expression."""

MOST_TOKENS = 300
"""Numbers, texts, names and signs of an expression, which bound the steps of each evaluation."""

_DEEPEST = 40
_LARGEST = 2**63 - 1


class ValueType(StrEnum):
    """The type of a value, by CEL's name."""

    INT = "int"
    DOUBLE = "double"
    STRING = "string"
    BOOL = "bool"


Value = int | float | str | bool
Values = Mapping[str, Value]

_Run = Callable[[Values], Any]
_NUMBERS = (ValueType.INT, ValueType.DOUBLE)


@dataclass(frozen=True)
class Expression:
    """A checked expression; equal texts are equal."""

    text: str
    type: ValueType = field(compare=False)
    run: _Run = field(compare=False, repr=False)

    def evaluate(self, values: Values) -> Value:
        """Its value for values of all its variables. Raises ValueError: division by zero, a number too large."""
        result: Value = self.run(values)
        return result


def parse(text: str, variables: Mapping[str, ValueType]) -> Expression:
    """Read and check an expression.

    Raises:
        ValueError: its form, an unknown name, or types that do not go together.
    """
    if len(text) > LONGEST:
        raise ValueError(f"an expression has at most {LONGEST} characters, this one has {len(text)}")
    tokens = _tokens(text)
    if len(tokens) > MOST_TOKENS:
        raise ValueError(f"an expression has at most {MOST_TOKENS} names, numbers and signs, not {len(tokens)}")
    parser = _Parser(tokens, variables)
    made = parser.choice(0)
    parser.end()
    return Expression(text, made.type, made.run)


@dataclass(frozen=True)
class _Compiled:
    type: ValueType
    run: _Run


_TOKEN = re.compile(
    r"""\s*(?:(?P<double>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)|(?P<int>\d+)|(?P<name>[A-Za-z_][A-Za-z_0-9]*)
    |(?P<string>"[^"\\]*"|'[^'\\]*')|(?P<sign>&&|\|\||[=!<>]=|[-+*/%<>!?:(),.\[\]]))""",
    re.VERBOSE | re.ASCII,
)


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        match = _TOKEN.match(text, place)
        if match is None:
            raise ValueError(f"cannot be read from {text[place:].strip()[:20]!r} on")
        kind = str(match.lastgroup)
        tokens.append((kind, match[kind]))
        place = match.end()
    return tokens


class _Parser:
    """Recursive descent, one method per precedence, lowest first; each returns a checked part."""

    def __init__(self, tokens: list[tuple[str, str]], variables: Mapping[str, ValueType]) -> None:
        self._tokens = tokens
        self._variables = variables
        self._place = 0

    def end(self) -> None:
        if self._place < len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._place][1]!r}")

    def choice(self, depth: int) -> _Compiled:
        if depth > _DEEPEST:
            raise ValueError(f"nested more than {_DEEPEST} deep")
        condition = self._either(depth)
        if not self._takes("?"):
            return condition
        yes = self._either(depth + 1)  # a choice within needs parentheses here, as in CEL
        self._expect(":")
        no = self.choice(depth + 1)
        _check(condition.type is ValueType.BOOL, f"what stands before ? must be bool, is {condition.type}")
        _check(yes.type is no.type, f"both sides of : must be of one type, are {yes.type} and {no.type}")
        return _Compiled(yes.type, lambda values: yes.run(values) if condition.run(values) else no.run(values))

    def _either(self, depth: int) -> _Compiled:
        left = self._both(depth)
        while self._takes("||"):
            left = _logic("||", left, self._both(depth))
        return left

    def _both(self, depth: int) -> _Compiled:
        left = self._relation(depth)
        while self._takes("&&"):
            left = _logic("&&", left, self._relation(depth))
        return left

    def _relation(self, depth: int) -> _Compiled:
        left = self._sum(depth)
        while True:
            sign = self._takes(*_COMPARISONS)
            if sign:
                left = _comparison(sign, left, self._sum(depth))
            elif self._peek() == ("name", "in"):
                self._place += 1
                left = self._membership(left, depth)
            else:
                return left

    def _membership(self, left: _Compiled, depth: int) -> _Compiled:
        self._expect("[")
        items = self._list("]", depth)
        for item in items:
            _check(item.type is left.type, f"a list after in must hold {left.type}, holds {item.type}")
        return _Compiled(ValueType.BOOL, lambda values: left.run(values) in [item.run(values) for item in items])

    def _sum(self, depth: int) -> _Compiled:
        left = self._product(depth)
        while sign := self._takes("+", "-"):
            left = _arithmetic(sign, left, self._product(depth))
        return left

    def _product(self, depth: int) -> _Compiled:
        left = self._unary(depth)
        while sign := self._takes("*", "/", "%"):
            left = _arithmetic(sign, left, self._unary(depth))
        return left

    def _unary(self, depth: int) -> _Compiled:
        if depth > _DEEPEST:
            raise ValueError(f"nested more than {_DEEPEST} deep")
        if self._takes("!"):
            inner = self._unary(depth + 1)
            _check(inner.type is ValueType.BOOL, f"! needs bool, got {inner.type}")
            return _Compiled(ValueType.BOOL, lambda values: not inner.run(values))
        if self._takes("-"):
            if self._peek() == ("int", str(_LARGEST + 1)):  # the smallest number of 64 bits has no positive counterpart
                self._place += 1
                return self._methods(_constant(ValueType.INT, -_LARGEST - 1), depth)
            inner = self._unary(depth + 1)
            _check(inner.type in _NUMBERS, f"- needs a number, got {inner.type}")
            return _Compiled(inner.type, lambda values: _bounded(-inner.run(values)))
        return self._methods(self._primary(depth), depth)

    def _methods(self, part: _Compiled, depth: int) -> _Compiled:
        while self._takes("."):
            kind, name = self._next()
            _check(kind == "name" and name in _METHODS, f"unknown method {name!r}: {', '.join(_METHODS)}")
            self._expect("(")
            given = self._list(")", depth)
            right = len(given) == 1 and given[0].type is ValueType.STRING and part.type is ValueType.STRING
            _check(right, f"{name} is a method of a string and takes one string")
            part = _method(name, part, given[0])
        return part

    def _primary(self, depth: int) -> _Compiled:
        kind, text = self._next()
        if kind == "int":
            return _constant(ValueType.INT, _bounded(int(text)))
        if kind == "double":
            return _constant(ValueType.DOUBLE, float(text))
        if kind == "string":
            return _constant(ValueType.STRING, text[1:-1])
        if text == "(":
            inner = self.choice(depth + 1)
            self._expect(")")
            return inner
        _check(kind == "name", f"unexpected {text!r}")
        if self._takes("("):
            return _call(text, self._list(")", depth))
        return self._named(text)

    def _named(self, name: str) -> _Compiled:
        if name in ("true", "false"):
            return _constant(ValueType.BOOL, name == "true")
        _check(name in self._variables, f"unknown variable {name!r}; known are {', '.join(self._variables)}")
        return _Compiled(self._variables[name], operator.itemgetter(name))

    def _list(self, closing: str, depth: int) -> list[_Compiled]:
        items: list[_Compiled] = []
        while not self._takes(closing):
            if items:
                self._expect(",")
            items.append(self.choice(depth + 1))
        return items

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "the end")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        _check(token[0] != "end", "ends too early")
        self._place += 1
        return token

    def _takes(self, *signs: str) -> str:
        kind, text = self._peek()
        if kind != "sign" or text not in signs:
            return ""
        self._place += 1
        return text

    def _expect(self, sign: str) -> None:
        _check(bool(self._takes(sign)), f"expected {sign!r}, found {self._peek()[1]!r}")


def _check(right: bool, reason: str) -> None:  # noqa: FBT001 - reads as an assertion
    if not right:
        raise ValueError(reason)


def _constant(kind: ValueType, value: Value) -> _Compiled:
    return _Compiled(kind, lambda _: value)


def _logic(sign: str, left: _Compiled, right: _Compiled) -> _Compiled:
    _check(
        left.type is right.type is ValueType.BOOL, f"{sign} needs bool on both sides, got {left.type} and {right.type}"
    )
    settles = sign == "||"
    return _Compiled(ValueType.BOOL, lambda values: _decided(values, left.run, right.run, settles))


def _decided(values: Values, left: _Run, right: _Run, settles: bool) -> bool:  # noqa: FBT001 - a value of the language
    """`left || right` where `settles` is true, else `left && right`.

    As in CEL the order of the sides does not matter: a side that settles the result hides the other side's error.
    """
    try:
        settled = bool(left(values)) is settles
    except ValueError:
        if bool(right(values)) is settles:
            return settles
        raise
    return settles if settled else bool(right(values))


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def _comparison(sign: str, left: _Compiled, right: _Compiled) -> _Compiled:
    alike = left.type is right.type or (left.type in _NUMBERS and right.type in _NUMBERS)
    _check(alike, f"{left.type} and {right.type} cannot be compared")
    compare = _COMPARISONS[sign]
    return _Compiled(ValueType.BOOL, lambda values: compare(left.run(values), right.run(values)))


def _arithmetic(sign: str, left: _Compiled, right: _Compiled) -> _Compiled:
    fits = left.type is right.type and left.type in _NUMBERS and not (sign == "%" and left.type is ValueType.DOUBLE)
    _check(fits, f"{left.type} {sign} {right.type} is not defined; int(…) and double(…) convert")
    work = _OF_INT[sign] if left.type is ValueType.INT else _OF_DOUBLE[sign]
    return _Compiled(left.type, lambda values: _bounded(work(left.run(values), right.run(values))))


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise ValueError("division by zero")
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _remainder(left: int, right: int) -> int:
    return left - _quotient(left, right) * right


def _float_quotient(left: float, right: float) -> float:
    if right == 0:
        raise ValueError("division by zero")
    return left / right


_OF_INT: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
}
_OF_DOUBLE = {**_OF_INT, "/": _float_quotient}


def _bounded(number: float) -> float:
    """A number as it is, unless it has left the range of its type."""
    if isinstance(number, int):
        if not -_LARGEST - 1 <= number <= _LARGEST:
            raise ValueError("a number is too large")
    elif not math.isfinite(number):
        raise ValueError("a number is not finite")
    return number


def _call(name: str, given: list[_Compiled]) -> _Compiled:
    if name in ("min", "max"):
        _check(len(given) == 2, f"{name} takes two numbers")
        left, right = given
        same = left.type is right.type and left.type in _NUMBERS
        _check(same, f"{name} takes two numbers of one type, got {left.type} and {right.type}")
        choose = min if name == "min" else max
        return _Compiled(left.type, lambda values: choose(left.run(values), right.run(values)))
    kind = {"int": ValueType.INT, "double": ValueType.DOUBLE}.get(name)
    if kind is None:
        raise ValueError(f"unknown function {name!r}; known are min, max, int and double")
    _check(len(given) == 1 and given[0].type in _NUMBERS, f"{name} takes one number")
    inner = given[0]
    convert = _whole if kind is ValueType.INT else float
    return _Compiled(kind, lambda values: convert(inner.run(values)))


def _whole(number: float) -> int:
    """Cut off towards zero. As in CEL a double must lie within the range of int, its ends excluded."""
    if isinstance(number, float) and not -_LARGEST - 1 < number < _LARGEST:
        raise ValueError("a number is too large")
    return int(number)


_METHODS: dict[str, Callable[[str, str], bool]] = {
    "startsWith": str.startswith,
    "endsWith": str.endswith,
    "contains": operator.contains,
}


def _method(name: str, part: _Compiled, given: _Compiled) -> _Compiled:
    work = _METHODS[name]
    return _Compiled(ValueType.BOOL, lambda values: work(part.run(values), given.run(values)))


VARIABLES = {
    "vcpus": ValueType.INT,
    "memory_mib": ValueType.INT,
    "default_enis": ValueType.INT,
    "ips_per_eni": ValueType.INT,
    "max_pods": ValueType.INT,
    "instance_type": ValueType.STRING,
}
"""Of the instance type; `max_pods` is the default number of pods in `maxPods`, and the number in force elsewhere."""

SECTIONS = ("kubeReserved", "systemReserved", "evictionHard", "evictionSoft")
"""Maps whose values may be expressions; besides them `maxPods` may be one."""


def is_expression(text: object) -> bool:
    """True if a text is neither a quantity nor a percentage. The code that allows a percentage reads it."""
    if not isinstance(text, str) or text.endswith("%"):
        return False
    try:
        parse_quantity(text)
    except ValueError:
        return True
    return False


def parse_number_expression(text: str) -> Expression:
    """An expression that comes to a number.

    Raises:
        ValueError: it cannot be read, or comes to something else.
    """
    try:
        made = parse(text, VARIABLES)
    except ValueError as error:
        raise ValueError(f"{text!r} is neither a quantity nor a valid expression: {error}") from error
    if made.type not in (ValueType.INT, ValueType.DOUBLE):
        raise ValueError(f"the expression {text!r} must come to a number, comes to {made.type}")
    return made
