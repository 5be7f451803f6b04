"""Names of fields that log lines carry beside the message: people's queries and metric filters name them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.formats.golden import Golden
from tests.formats.sources import all_calls, called, calls, code


def keys_of(expression: ast.expr, scope: ast.Module) -> Iterator[str]:
    """String keys of a dictionary, also where parts of it come from a name, a parameter or a function."""
    match expression:
        case ast.Dict():
            for key, value in zip(expression.keys, expression.values, strict=True):
                if key is None:
                    yield from keys_of(value, scope)
                else:
                    assert isinstance(key, ast.Constant), ast.unparse(expression)
                    yield str(key.value)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from keys_of(left, scope)
            yield from keys_of(right, scope)
        case ast.Call(func=ast.Name(id="dict"), keywords=keywords):
            yield from (str(keyword.arg) for keyword in keywords)
        case ast.Call():
            yield from _returned(called(expression))
        case ast.Name(id=name):
            yield from _assigned(name, scope)
            yield from _given(name, scope)
        case _:
            raise AssertionError(f"the fields of {ast.unparse(expression)} cannot be told")


def _returned(function: str) -> Iterator[str]:
    """Keys of dictionaries that a function of this name returns."""
    for tree, node in code().functions:
        if node.name == function:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Return) and isinstance(inner.value, ast.Dict):
                    yield from keys_of(inner.value, tree)


def _assigned(name: str, scope: ast.Module) -> Iterator[str]:
    """Keys of dictionaries that a name of a module stands for somewhere."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Name) and target.id == name and isinstance(node.value, ast.Dict | ast.Call):
                    yield from keys_of(node.value, scope)
                if isinstance(target, ast.Subscript) and ast.unparse(target.value) == name:
                    assert isinstance(target.slice, ast.Constant)
                    yield str(target.slice.value)


def _given(name: str, scope: ast.Module) -> Iterator[str]:
    """Keys of dictionaries that functions of a module which log are given as a parameter of this name."""
    for tree, function in code().functions:
        names = [argument.arg for argument in function.args.args]
        if tree is scope and name in names and "extra=" in ast.unparse(function):
            index = names.index(name) - (names[0] == "self")
            for caller, call in calls(function.name):
                given = [keyword.value for keyword in call.keywords if keyword.arg == name] or call.args[index:][:1]
                for value in given:
                    if isinstance(value, ast.Dict | ast.Call):
                        yield from keys_of(value, caller)
                    elif isinstance(value, ast.Name):
                        yield from _assigned(value.id, caller)


def fields() -> set[str]:
    found: set[str] = set()
    for tree, call in all_calls():
        for keyword in call.keywords:
            if keyword.arg == "extra" and ast.unparse(call.func) != "msgspec.Meta":  # it annotates a type
                keys = set(keys_of(keyword.value, tree))
                assert keys, f"the fields of {ast.unparse(keyword.value)} cannot be told"
                found |= keys
    return found


def test_fields_of_log_lines(golden: Golden) -> None:
    appended = {str(keyword.arg) for _, call in calls("append_keys") for keyword in call.keywords}
    golden.holds("log-fields", {"of a line": fields(), "of all lines of an invocation": appended})
