"""A mutant in a process that has imported everything: the code of one function, or one constant, is exchanged.

To import the product and collect the tests takes some hundred times as long as the test that finds a mutant.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

from tools.mutation.code_mutants import Mutant


class NotExchangeableError(Exception):
    """A mutant takes effect only in a process that imports its module anew."""


class LiveFunctions:
    """The functions of some files that exist in this process."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._by_name: dict[tuple[str, str], list[FunctionType]] = defaultdict(list)
        prefix = f"{root}/"
        gc.unfreeze()  # what is frozen is not reported
        for item in gc.get_objects():
            if isinstance(item, FunctionType) and item.__code__.co_filename.startswith(prefix):
                path = item.__code__.co_filename.removeprefix(prefix)
                self._by_name[path, item.__code__.co_qualname].append(item)
        gc.freeze()

    def exchange(self, mutant: Mutant, source: str) -> None:
        """Have this process run the mutant. `source` is that of its file, without the mistake.

        Raises NotExchangeableError if it has to be imported, SyntaxError if it cannot be compiled, and whatever a
        changed constant raises.
        """
        changed = mutant.applied_to(source)
        function = _outermost_function(source, mutant.function)
        if not function:
            _exchange_constant(mutant, source, changed)
            return
        before = _codes(compile(source, self._name(mutant), "exec", dont_inherit=True), function)
        after = _codes(compile(changed, self._name(mutant), "exec", dont_inherit=True), function)
        live = self._by_name[mutant.path, function]
        if len(before) != 1 or len(after) != 1 or not live or before == after or self._has_inner(mutant.path, function):
            raise NotExchangeableError(function)
        for item in live:
            if item.__code__.co_freevars != after[0].co_freevars:
                raise NotExchangeableError(function)
        for item in live:
            item.__code__ = after[0]

    def _name(self, mutant: Mutant) -> str:
        return str(self._root / mutant.path)

    def _has_inner(self, path: str, function: str) -> bool:
        """True if the function has run already and left functions behind, which keep the code that they have."""
        return any(where == path and name.startswith(f"{function}.<locals>.") for where, name in self._by_name)


def _outermost_function(source: str, name: str) -> str:
    """The outermost function of a chain of classes and functions, as in `C.f` of `C.f.g`; empty if there is none."""
    scope: ast.AST = ast.parse(source)
    found: list[str] = []
    for part in name.split(".") if name else ():
        found.append(part)
        scope = next(
            node
            for node in _definitions(scope)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == part
        )
        if isinstance(scope, ast.FunctionDef):
            return ".".join(found)
    return ""


def _definitions(scope: ast.AST) -> Iterable[ast.AST]:
    """Functions and classes of a scope, also those within its conditions."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node
        elif isinstance(node, ast.stmt):
            yield from _definitions(node)


def _codes(code: CodeType, name: str) -> list[CodeType]:
    """The codes of that qualified name within another."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [item for item in inner if item.co_qualname == name] + [
        found for item in inner if name.startswith(f"{item.co_qualname}.") for found in _codes(item, name)
    ]


def _exchange_constant(mutant: Mutant, source: str, changed: str) -> None:
    """Evaluate the statement of a module that a mutant changes, and those that use what it names."""
    module = sys.modules.get(mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    if mutant.function or module is None:
        raise NotExchangeableError(mutant.path)
    old, new = ast.parse(source).body, ast.parse(changed).body
    if len(old) != len(new):
        raise NotExchangeableError(mutant.path)
    stale: set[str] = set()
    for before, after in zip(old, new, strict=True):
        has_changed = ast.dump(before) != ast.dump(after)
        if not has_changed and not stale & _names_evaluated(before):
            continue
        names = _assigned(after)
        if not names:
            raise NotExchangeableError(mutant.path)
        stale |= names
        was = {name: vars(module)[name] for name in names}
        exec(compile(ast.Module([after], []), mutant.path, "exec"), vars(module))  # noqa: S102 - a statement of ours
        _spread(was, vars(module))


def _assigned(statement: ast.stmt) -> set[str]:
    """The names that an assignment sets; none if it is something else."""
    match statement:
        case ast.Assign(targets=targets):
            parts = [part for target in targets for part in ast.walk(target)]
            return {part.id for part in parts if isinstance(part, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
            return {name}
        case _:
            return set()


def _names_evaluated(statement: ast.stmt) -> set[str]:
    """Names that a statement reads when its module is imported: not those in the bodies of functions."""
    parts: Sequence[ast.AST] = [statement]
    found: set[str] = set()
    while parts:
        found |= {part.id for part in parts if isinstance(part, ast.Name)}
        parts = [
            child
            for part in parts
            for field, value in ast.iter_fields(part)
            if not (isinstance(part, ast.FunctionDef | ast.Lambda) and field in ("body", "returns"))
            for child in (value if isinstance(value, list) else [value])
            if isinstance(child, ast.AST) and field not in ("annotation", "returns")
        ]
    return found


def _spread(was: Mapping[str, object], now: Mapping[str, object]) -> None:
    """Give modules that have imported a constant its other value."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        for name, value in was.items():
            if not name.startswith("_") and names.get(name, names) is value:
                names[name] = now[name]
