"""Chooses the tests of a mutant: those that run its statement, and first those that are about its function."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from tools.mutation.code_mutants import Mutant
from tools.mutation.covered_lines import CoveredTest

_QUICK_S = 0.03
"""CPU seconds of a test that is quick."""

_SLOW_S = 0.5
"""CPU seconds of a test that comes last whatever it is about: a few of them would take the time of all others."""


@lru_cache(maxsize=400)
def _parsed(source: str) -> ast.Module:
    """Most mutants are of the file of the one before, and many concern the same tests."""
    return ast.parse(source)


class CoveringTests:
    """Tests by the lines that they run.

    Hundreds of tests may run a line in passing. Tests that run the same lines of a file are taken for alike. Those of
    files that import the mutant's module come first, and those whose names share most words with its function and file;
    then quick ones, of these rare kinds.
    """

    def __init__(self, tests: Iterable[CoveredTest], root: Path = Path()) -> None:
        """`root` is the folder that the paths of tests begin in."""
        self._root = root
        self._sources: dict[str, str] = {}
        self._by_file: dict[str, dict[tuple[int, ...], list[CoveredTest]]] = defaultdict(lambda: defaultdict(list))
        self._words: dict[str, frozenset[str]] = {}
        self._by_test_file: dict[str, list[CoveredTest]] = defaultdict(list)
        for test in tests:
            self._words[test.test] = frozenset(_words(test.test))
            self._by_test_file[_file(test)].append(test)
            for path, lines in test.lines.items():
                self._by_file[path][lines].append(test)

    def of(
        self, path: str, lines: Iterable[int], *, function: str = "", is_imported: bool = False
    ) -> Sequence[CoveredTest]:
        """Tests that run one of the lines of a function; all of its file for lines that only an import runs."""
        kinds, wanted = self._by_file.get(path, {}), set(lines)
        hit = [alike for ran, alike in kinds.items() if not wanted.isdisjoint(ran)]
        if is_imported and not hit:
            hit = list(kinds.values())
        about = _words(f"{path}/{function}")

        def rank(test: CoveredTest) -> tuple[int, float, str]:
            return -len(about & self._words[test.test]), test.seconds, test.test

        ordered = [sorted(alike, key=rank) for alike in hit]
        ordered.sort(key=lambda alike: (rank(alike[0])[0], len(alike), *rank(alike[0])[1:]))
        turns = ((turn, place, test) for place, alike in enumerate(ordered) for turn, test in enumerate(alike))
        in_turn = [test for *_, test in sorted(turns, key=lambda item: item[:2])]
        # All cases of the file that is named after the module come first: one of them alone may find a mutant.
        named = _words(f"{Path(path).stem}/{function}")
        shared = {file: len(named & _words(Path(file).stem)) for file in {_file(test) for test in in_turn}}
        most = max(shared.values(), default=0)
        about_it = {file for file, number in shared.items() if (most and number == most) or self._imports(file, path)}
        own = [test for test in in_turn if _file(test) in about_it]
        others = [test for test in in_turn if _file(test) not in about_it]
        # Unit tests before stories that take a hundred times as long: more of them fit.
        ranked = [*sorted(own, key=rank), *sorted(others, key=lambda test: test.seconds > _QUICK_S)]
        return sorted(ranked, key=lambda test: test.seconds > _SLOW_S)

    def naming(self, path: str, name: str) -> Sequence[CoveredTest]:
        """Tests that read a constant of a module by its name: some compare it, and run no line of the product."""
        found: list[CoveredTest] = []
        for file, tests in sorted(self._by_test_file.items()):
            if name in self._source(file) and self._imports(file, path):
                readers = _functions_that_read(name, self._source(file))
                found += [test for test in tests if _function(test) in readers]
        return sorted(found, key=lambda test: (test.seconds, test.test))

    def _source(self, file: str) -> str:
        """Of a file of tests; empty if there is no such file."""
        if file not in self._sources:
            found = self._root / file
            self._sources[file] = found.read_text() if found.is_file() else ""
        return self._sources[file]

    def _imports(self, file: str, path: str) -> bool:
        """True if a file of tests imports something of a module of the product; False if there is no such file."""
        package, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
        return (
            re.search(
                rf"^(from {re.escape(package)}\.{name} import|from {re.escape(package)} import .*\b{name}\b)",
                self._source(file),
                re.MULTILINE,
            )
            is not None
        )


def lines_of(mutant: Mutant, source: str) -> set[int]:
    """The lines of the statement that a mutant changes; for a constant of a module, those that use its name."""
    statement = _statement_at(_parsed(source), mutant.line)
    if names := names_changed(mutant, source):
        return lines_that_use(names, source)
    return set(range(statement.lineno, _last_line(statement) + 1))


def names_changed(mutant: Mutant, source: str) -> set[str]:
    """The names that a changed constant of a module has, and of constants made of it; none for another mutant."""
    tree = _parsed(source)
    statement = _statement_at(tree, mutant.line)
    if mutant.function or not isinstance(statement, ast.Assign | ast.AnnAssign):
        return set()
    names = _assigned(statement)
    for item in tree.body:  # what is made of a constant stands below it
        if isinstance(item, ast.Assign | ast.AnnAssign) and item.value is not None:
            read = {part.id for part in ast.walk(item.value) if isinstance(part, ast.Name)}
            names |= set() if names.isdisjoint(read) else _assigned(item)
    return names


def _assigned(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}


def class_changed(mutant: Mutant, source: str) -> str:
    """The class whose body, outside of its functions, a mutant changes, as in a default of a field; else empty."""
    around = [
        node
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.lineno <= mutant.line <= (node.end_lineno or 0)
    ]
    innermost = max(around, key=lambda node: node.lineno, default=None)
    return innermost.name if isinstance(innermost, ast.ClassDef) else ""


def lines_that_use(names: Collection[str], source: str) -> set[int]:
    """The lines on which names are read."""
    used = [part for part in ast.walk(_parsed(source)) if isinstance(part, ast.Name) and part.id in names]
    return {part.lineno for part in used if isinstance(part.ctx, ast.Load)}


def runs_when_imported(mutant: Mutant, source: str) -> bool:
    """True if a mutant is outside of the bodies of functions, or in what a function is defined with."""
    statement = _statement_at(_parsed(source), mutant.line)
    return isinstance(statement, ast.FunctionDef | ast.ClassDef) or not _is_in_function(_parsed(source), mutant.line)


def _is_in_function(tree: ast.AST, line: int) -> bool:
    return any(
        node.body[0].lineno <= line <= (node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    )


def _statement_at(tree: ast.AST, line: int) -> ast.stmt:
    """The innermost statement of a line."""
    around = [
        node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)))


def _last_line(statement: ast.stmt) -> int:
    """Of a statement with a body, the last line of its head."""
    body = getattr(statement, "body", None)
    last = statement.end_lineno or statement.lineno
    return max(statement.lineno, min(last, body[0].lineno - 1)) if body else last


def _functions_that_read(name: str, source: str) -> set[str]:
    """The names of the functions whose source, decorators included, reads a name or an attribute of that name."""
    return {
        node.name
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.FunctionDef)
        and any(name in (getattr(part, "id", ""), getattr(part, "attr", "")) for part in ast.walk(node))
    }


def within_s(tests: Sequence[CoveredTest], most_s: float, most: int) -> Sequence[CoveredTest]:
    """The first of some tests, so that they take `most_s` seconds together at most; at least one.

    Tests of one file stay together: what they share is set up once.
    """
    chosen: list[CoveredTest] = []
    total_s = 0.0
    for test in tests:
        if chosen and (total_s + test.seconds > most_s or len(chosen) == most):
            continue
        chosen.append(test)
        total_s += test.seconds
    files = {file: place for place, file in reversed([*enumerate(map(_file, chosen))])}
    return sorted(chosen, key=lambda test: files[_file(test)])


_COMMON = frozenset(
    {"shiplap", "tests", "test", "unit", "integration", "py", "a", "an", "and", "is", "it", "of", "the"}
)


def _words(text: str) -> set[str]:
    """The words of a path or name that say what it is about: `tests/unit/flows/test_drain.py` is about flows and drain.

    A word stands for its plural, too.
    """
    return {word.removesuffix("s") for word in re.findall(r"[a-z]+", text.lower())} - _COMMON


def _file(test: CoveredTest) -> str:
    return test.test.partition("::")[0]


def _function(test: CoveredTest) -> str:
    return test.test.partition("[")[0].rpartition("::")[2]
