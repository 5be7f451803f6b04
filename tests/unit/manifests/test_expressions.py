"""The expressions of kubelet settings: what they come to, and what is refused before they are ever worked out."""

from __future__ import annotations

import pytest

from shiplap.manifests.expressions import LONGEST, MOST_TOKENS, ValueType, parse

VARIABLES = {"vcpus": ValueType.INT, "share": ValueType.DOUBLE, "name": ValueType.STRING}
VALUES = {"vcpus": 8, "share": 0.5, "name": "m5.2xlarge"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 - 3 - 4", -5),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("--3", 3),
        ("vcpus * 10", 80),
        ("double(vcpus) * share", 4.0),
        ("int(double(vcpus) * 0.3)", 2),
        ("1.5e1", 15.0),
        ("min(vcpus, 4) + max(1, 2)", 6),
        ("max(0.25, share)", 0.5),
        ("vcpus > 4 ? 100 : 10", 100),
        ("vcpus > 4 && vcpus < 8 ? 1 : vcpus == 8 || false ? 2 : 3", 2),
        ("!(vcpus >= 8) ? 1 : 0", 0),
        ("share < 1 ? 1 : 2", 1),
        ('name.startsWith("m5.") ? 1 : 2', 1),
        ("name.endsWith('large') && !name.contains('metal') ? 1 : 2", 1),
        ("name in ['m5.large', 'm5.2xlarge'] ? 1 : 2", 1),
        ("vcpus in [] ? 1 : 2", 2),
        ("name != 'a' ? 1 : 2", 1),
        (" 1\n+ 1 ", 2),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1 / 0 == 1 || true ? 1 : 2", 1),
        ("1 / 0 == 1 && false ? 1 : 2", 2),
        ("vcpus > 4 ? (vcpus > 7 ? 1 : 2) : 3", 1),
        ("vcpus >= share ? 1 : 2", 1),
    ],
)
def test_what_it_comes_to(text: str, expected: float) -> None:
    found = parse(text, VARIABLES).evaluate(VALUES)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "ends too early"),
        ("1 +", "ends too early"),
        ("1 2", "unexpected '2'"),
        ("(1", r"expected '\)', found 'the end'"),
        ("1 ? 2 : 3", "must be bool, is int"),
        ("true ? true ? 1 : 2 : 3", "expected ':', found '?'"),
        ("true ? 1 : 2.0", "must be of one type"),
        ("vcpus * 1.5", r"int \* double is not defined"),
        ("1.5 % 2.0", "double % double is not defined"),
        ("name + name", "string . string is not defined"),
        ("-name", "needs a number"),
        ("!vcpus", "needs bool"),
        ("vcpus && true", "needs bool on both sides"),
        ("name == 1", "string and int cannot be compared"),
        ("cores", "unknown variable 'cores'; known are vcpus, share, name"),
        ("pow(2, 3)", "unknown function 'pow'"),
        ("min(1)", "min takes two numbers"),
        ("min(1, 2, 3)", "min takes two numbers"),
        ("max(1, 2.0)", "of one type"),
        ("int(name)", "int takes one number"),
        ("name.size()", "unknown method 'size'"),
        ("vcpus.contains('1')", "method of a string"),
        ("name in ['a', 1]", "must hold string, holds int"),
        ("name.__class__", "unknown method"),
        ("1 @ 2", "cannot be read from '@ 2' on"),
        (r"name == 'a\n'", "cannot be read"),
        ("9223372036854775808", "too large"),
        ("(" * 60 + "1" + ")" * 60, "nested more than"),
        ("-" * 60 + "1", "nested more than"),
        ("1+" * LONGEST + "1", "at most 1000 characters"),
        ("1+" * (MOST_TOKENS // 2) + "1", "at most 300 names, numbers and signs"),
        ("name in [" + "''," * (MOST_TOKENS // 2) + "'']", "at most 300 names, numbers and signs"),
    ],
)
def test_what_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse(text, VARIABLES)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / (vcpus - 8)", "division by zero"),
        ("1 % (vcpus - 8)", "division by zero"),
        ("1.0 / (share - 0.5)", "division by zero"),
        ("9223372036854775807 + vcpus", "too large"),
        ("1e308 * 10.0", "not finite"),
        ("int(1e300)", "too large"),
        ("int(double(-9223372036854775807))", "too large"),
        ("1 / 0 == 1 || false ? 1 : 2", "division by zero"),
        ("true && 1 / 0 == 1 ? 1 : 2", "division by zero"),
    ],
)
def test_what_cannot_be_worked_out(text: str, reason: str) -> None:
    made = parse(text, VARIABLES)
    with pytest.raises(ValueError, match=reason):
        made.evaluate(VALUES)


def test_only_the_chosen_branch_is_worked_out() -> None:
    assert parse("vcpus == 8 ? 1 : 1 / 0", VARIABLES).evaluate(VALUES) == 1
    assert parse("vcpus == 8 || 1 / 0 == 1 ? 1 : 2", VARIABLES).evaluate(VALUES) == 1


def test_the_longest_sum_can_be_worked_out() -> None:
    most = MOST_TOKENS // 2
    assert parse("1+" * (most - 1) + "1", VARIABLES).evaluate(VALUES) == most


def test_equal_texts_are_equal_expressions() -> None:
    assert parse("vcpus", VARIABLES) == parse("vcpus", VARIABLES)
    assert parse("vcpus", VARIABLES) != parse("vcpus ", VARIABLES)
