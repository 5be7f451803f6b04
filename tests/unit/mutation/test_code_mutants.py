"""Tests the mistakes that are made in a module, and the code that is left alone."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from tools.mutation.code_mutants import mutants_of

ROOT = Path(__file__).parents[3]


def mistakes(source: str) -> list[str]:
    """The bodies of `f` that are made of one, or the whole lines where there is no `f`."""
    text = dedent(source)
    return [mutant.applied_to(text) for mutant in mutants_of("m.py", text)]


def lines(source: str) -> set[str]:
    """The last line of a module with each mistake in it."""
    return {changed.rstrip().splitlines()[-1].strip() for changed in mistakes(source)}


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("return a < b", {"return a <= b"}),
        ("return a >= b", {"return a > b"}),
        ("return a is not b", {"return a is b"}),
        ("return a not in b", {"return a in b"}),
        ("return a == 'Ready'", {"return a != 'Ready'", "return a == 'Readyx'"}),
        ("x = a and b and c", {"x = a or b and c", "x = a and b or c"}),
        ("x = a + b", {"x = a - b"}),
        ("x = a // b", {"x = a * b"}),
        ("x = not a", {"x = (a)"}),
        ("x = -a", {"x = (a)"}),
        ("x = 7", {"x = 8"}),
        ("x = 0.5", {"x = 1.5"}),
        ("x = True", {"x = False"}),
        ("x = min(a)", {"x = max(a)"}),
        ("x = any(a)", {"x = all(a)"}),
        ("x = a[:b]", {"x = a"}),
        ("x = (a, b, c)", {"x = (b, c,)", "x = (a, c,)", "x = (a, b,)"}),
        ("x = [a], (b)", set()),
        ("x = frozenset({a, b})", {"x = frozenset({b,})", "x = frozenset({a,})"}),
        ("x = {a: b, c: d}", {"x = { c: d}", "x = {a: b}"}),
        ("x = [a for a in b if a.c]", {"x = [a for a in b if True]"}),
        ("x = a if b else c", {"x = a if (not (b)) else c"}),
        ("x = g(a, b=c)", {"x = g(a)"}),
        ("g(a)", {"pass"}),
        ("x += a", {"pass"}),
        ("return g(a)", {"return None"}),
    ],
)
def test_each_kind_of_mistake(line: str, mutants: set[str]) -> None:
    assert lines(f"def f(a, b, c, d):\n    {line}\n") == mutants


@pytest.mark.parametrize(
    "line",
    [
        '"""Adds 1 and 2."""',
        '_LOG.warning("%d of %d", 1, 2, extra={"a": 1, "b": 2})',
        'raise ValueError("not 1", 2)',
        'x = f"{a + 1} of {b}"',
        'x = "text"',
        "about = {'a': 1, 'b': 2}",
        "facts = {'a': 1, 'b': 2}",
        "what = 'one' if a == 1 else 'more'",
        "if a < b:\n        _LOG.info('%d', a)",
        "from a import b, c",
        "x: dict[1, 2]",
        "assert a < b",
    ],
)
def test_messages_logs_types_and_imports_are_left_alone(line: str) -> None:
    assert mistakes(f"def f(a, b):\n    {line}\n") == []


def test_text_is_found_behind_letters_of_several_bytes() -> None:
    assert lines("def f(a, b):\n    x = g('äöü€'), a < b\n") == {"x = g('äöü€'), a <= b"}


def test_constants_of_modules_classes_and_defaults_are_changed() -> None:
    source = """
        LIMIT = 3
        class C:
            size: int = 4
            def f(self, most: int = 5, *, least: int = 6) -> None:
                def g() -> int:
                    return a < b
        """
    assert {mutant.function for mutant in mutants_of("m.py", dedent(source))} == {"", "C", "C.f", "C.f.g"}
    assert len(mistakes(source)) == 5


def test_a_time_in_seconds_is_changed_tenfold_and_any_other_number_by_one() -> None:
    assert mistakes("WAIT_S = 60.0\n") == ["WAIT_S = 600.0\n"]
    assert mistakes("_PAUSES_S: tuple[float, ...] = 2\n") == ["_PAUSES_S: tuple[float, ...] = 20\n"]
    assert mistakes("_NEVER_S = 0\nMOST = 60\n") == ["_NEVER_S = 1\nMOST = 60\n", "_NEVER_S = 0\nMOST = 61\n"]
    assert mistakes("def f():\n    wait_s = 60\n") == ["def f():\n    wait_s = 61\n"]


def test_a_private_constant_is_changed_tenfold() -> None:
    assert mistakes("_MOST = 50\n") == ["_MOST = 500\n"]
    assert mistakes("class C:\n    _most = 50\n") == ["class C:\n    _most = 51\n"]


def test_what_a_log_line_carries_is_left_alone() -> None:
    assert mistakes("def facts(a):\n    return {'a': a, 'b': 1}\n") == []
    assert mistakes("def f(a):\n    if a:\n        _LOG.info('a')\n        g(a)\n") != []


def test_types_of_types_are_left_alone() -> None:
    assert mistakes('Item = TypeVar("Item", bound=1)\nKey = tuple[1, 2]\n') == []
    assert mistakes("if TYPE_CHECKING:\n    x = 1\n") == []


def test_a_key_stays_while_its_function_does_and_changes_with_it() -> None:
    one = "def f(a, b):\n    return a < b\n"
    (before,) = mutants_of("m.py", one)
    moved, _ = mutants_of("m.py", f"X = 1\n\n\n{one}")[::-1]
    (other_file,) = mutants_of("n.py", one)
    (changed,) = mutants_of("m.py", one.replace("return", "return  "))
    assert before.key == moved.key
    assert len({before.key, other_file.key, changed.key}) == 3


@pytest.mark.parametrize("path", ["flows/schedule/resume.py", "disruption/candidates.py", "aws/ec2/ec2_compute.py"])
def test_mutants_of_the_product_can_be_parsed_and_have_keys_of_their_own(path: str) -> None:
    source = (ROOT / "layers/shiplap/python/shiplap" / path).read_text()
    found = mutants_of(path, source)
    assert len(found) > 50
    assert len({mutant.key for mutant in found}) == len(found)
    for mutant in found:
        assert source[mutant.start : mutant.end] == mutant.before
        ast.parse(mutant.applied_to(source))
