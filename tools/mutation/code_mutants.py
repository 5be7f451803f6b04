"""Mutants of a module: small mistakes as people make them, each one edit of its source.

Docstrings, logs, messages, annotations and imports are left alone: no promise depends on them. Neither are texts
changed, but for those that are compared. A constant that is named as a time in seconds, or that is private to its
module, is changed tenfold, other numbers by one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from hashlib import sha256

import msgspec

_SWAPPED_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_SWAPPED_OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.Pow: ("**", "*"),
}
_SWAPPED_NAMES = {"any": "all", "all": "any", "min": "max", "max": "min"}
_LOGGERS = ("_LOG", "logging", "warnings")
_LOGGED_NAMES = ("about", "extra", "facts", "what")
_MESSAGE_FUNCTIONS = ("facts", "_facts", "reason", "__repr__", "__str__")


class Mutant(msgspec.Struct, frozen=True):
    """One edit: characters `start` to `end` of a file become `after`.

    `key` stays the same while the function around it does: it names the file, the function, its source, and the place
    of the edit in it.
    """

    key: str
    path: str
    function: str
    line: int
    start: int
    end: int
    before: str
    after: str
    kind: str

    def applied_to(self, source: str) -> str:
        """The source of its file with the mistake in it."""
        return source[: self.start] + self.after + source[self.end :]

    def __str__(self) -> str:
        shown = self.before if len(self.before) < 70 else f"{self.before[:67]}..."
        return f"{self.path}:{self.line} {self.function}: {shown!r} -> {self.after!r}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of the source."""
    return sorted(_Module(path, source).mutants(), key=lambda mutant: (mutant.start, mutant.end, mutant.after))


_Edit = tuple[int, int, str, str]
"""Start, end, what is there instead, and the kind of mistake."""


class _Module:
    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))
        self._lines = source.splitlines()
        self._durations: set[ast.Constant] = set()

    def mutants(self) -> Iterator[Mutant]:
        tree = ast.parse(self._source)
        self._durations = _durations(tree)
        yield from self._in_scope(tree, "")

    def _in_scope(self, scope: ast.AST, name: str) -> Iterator[Mutant]:
        """Mutants of a module, class or function, and then of those within it."""
        inner: list[tuple[ast.AST, str]] = []
        base = self._offset(scope.lineno, scope.col_offset) if isinstance(scope, ast.stmt) else 0
        text = self._text(scope) if isinstance(scope, ast.FunctionDef) else ""
        for edit in self._edits(scope, name, inner):
            start, end, after, kind = edit
            before = self._source[start:end]
            # Of a constant of a module or class the place in the file says little, so that its line stands for it.
            line = self._source.count("\n", 0, start) + 1
            within = (
                f"{start - base}" if text else f"{self._lines[line - 1].strip()}/{start - self._line_starts[line - 1]}"
            )
            key = sha256(f"{self._path}/{name}/{text}/{within}/{end - start}/{after}".encode()).hexdigest()[:16]
            yield Mutant(key, self._path, name, line, start, end, before, after, kind)
        for node, inner_name in inner:
            yield from self._in_scope(node, inner_name)

    def _edits(self, scope: ast.AST, name: str, inner: list[tuple[ast.AST, str]]) -> Iterator[_Edit]:
        body = getattr(scope, "body", [])
        if isinstance(scope, ast.FunctionDef):
            for default in (*scope.args.defaults, *scope.args.kw_defaults):
                if default is not None:
                    yield from self._walk(default, name, inner)
        for statement in body:
            yield from self._walk(statement, name, inner)

    def _walk(self, node: ast.AST, name: str, inner: list[tuple[ast.AST, str]]) -> Iterator[_Edit]:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if node.name not in _MESSAGE_FUNCTIONS:
                inner.append((node, f"{name}.{node.name}".lstrip(".")))
            return
        if _is_left_alone(node):
            return
        yield from self._edits_of(node)
        for child in _children(node):
            yield from self._walk(child, name, inner)

    def _edits_of(self, node: ast.AST) -> Iterator[_Edit]:
        for kind, find in _FINDERS.items():
            if isinstance(node, kind):
                yield from find(self, node)

    def compare(self, node: ast.Compare) -> Iterator[_Edit]:
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            before, after = _SWAPPED_COMPARISONS[type(operator)]
            yield from self._replaced_between(left, right, before, after, "comparison")
            for side in (left, right):
                if isinstance(side, ast.Constant) and isinstance(side.value, str) and side.value:
                    yield (*self._span(side), repr(f"{side.value}x"), "text")
            left = right

    def bool_op(self, node: ast.BoolOp) -> Iterator[_Edit]:
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from self._replaced_between(left, right, before, after, "logic")

    def bin_op(self, node: ast.BinOp) -> Iterator[_Edit]:
        if type(node.op) in _SWAPPED_OPERATORS and not _is_text(node.left) and not _is_text(node.right):
            yield from self._replaced_between(node.left, node.right, *_SWAPPED_OPERATORS[type(node.op)], "arithmetic")

    def unary_op(self, node: ast.UnaryOp) -> Iterator[_Edit]:
        if isinstance(node.op, ast.Not | ast.USub):
            yield (*self._span(node), f"({self._text(node.operand)})", "sign")

    def constant(self, node: ast.Constant) -> Iterator[_Edit]:
        if isinstance(node.value, bool):
            yield (*self._span(node), str(not node.value), "flag")
        elif isinstance(node.value, int | float):
            is_duration = node in self._durations and node.value
            yield (*self._span(node), repr(node.value * 10 if is_duration else node.value + 1), "number")

    def condition(self, node: ast.If | ast.While | ast.IfExp) -> Iterator[_Edit]:
        if not isinstance(node.test, ast.Compare | ast.UnaryOp):
            yield (*self._span(node.test), f"(not ({self._text(node.test)}))", "condition")

    def filters(self, node: ast.comprehension) -> Iterator[_Edit]:
        for test in node.ifs:
            yield (*self._span(test), "True", "filter")

    def call(self, node: ast.Call) -> Iterator[_Edit]:
        if isinstance(node.func, ast.Name) and node.func.id in _SWAPPED_NAMES:
            yield (*self._span(node.func), _SWAPPED_NAMES[node.func.id], "function")
        for keyword in node.keywords:
            if keyword.arg not in (None, "key", "default", "strict", "extra"):
                yield from self._removed(keyword, "argument")

    def elements(self, node: ast.Tuple | ast.List | ast.Set) -> Iterator[_Edit]:
        if len(node.elts) < 2 or isinstance(getattr(node, "ctx", None), ast.Store):
            return
        whole = self._text(node)
        for left_out in node.elts:
            others = ", ".join(self._text(element) for element in node.elts if element is not left_out)
            fewer = f"{whole[0]}{others},{whole[-1]}"
            if whole[0] in "([{" and _is_collection(fewer):  # not a tuple without brackets
                yield (*self._span(node), fewer, "element")

    def dictionary(self, node: ast.Dict) -> Iterator[_Edit]:
        for key, value in zip(node.keys, node.values, strict=True):
            if key is not None:
                start, end = self._span(key)[0], self._span(value)[1]
                yield from self._cut(start, end, "element")

    def subscript(self, node: ast.Subscript) -> Iterator[_Edit]:
        if isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
            yield (*self._span(node), self._text(node.value), "slice")

    def statement(self, node: ast.Expr) -> Iterator[_Edit]:
        if isinstance(node.value, ast.Call):
            yield (*self._span(node), "pass", "statement")

    def changed_in_place(self, node: ast.AugAssign) -> Iterator[_Edit]:
        yield (*self._span(node), "pass", "statement")

    def jump(self, node: ast.Continue | ast.Break) -> Iterator[_Edit]:
        yield (*self._span(node), "break" if isinstance(node, ast.Continue) else "continue", "jump")

    def returned(self, node: ast.Return) -> Iterator[_Edit]:
        value = node.value
        if isinstance(value, ast.Call | ast.Name | ast.Attribute) and not isinstance(value, ast.Constant):
            yield (*self._span(value), "None", "result")

    def _removed(self, node: ast.expr | ast.keyword, kind: str) -> Iterator[_Edit]:
        yield from self._cut(*self._span(node), kind)

    def _cut(self, start: int, end: int, kind: str) -> Iterator[_Edit]:
        """Without an element and the comma behind it, or else the one before it."""
        rest = self._source[end:]
        gap = len(rest) - len(rest.lstrip())
        if rest[gap : gap + 1] == ",":
            yield start, end + gap + 1, "", kind
            return
        comma = self._source[:start].rstrip()
        if comma.endswith(","):
            yield len(comma) - 1, end, "", kind
        elif comma.endswith(("(", "{", "[")):
            yield start, end, "", kind

    def _replaced_between(self, left: ast.expr, right: ast.expr, before: str, after: str, kind: str) -> Iterator[_Edit]:
        start, end = self._span(left)[1], self._span(right)[0]
        place = self._source.find(before, start, end)
        if place >= 0:
            yield place, place + len(before), after, kind

    def _span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno or 0, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """`column` counts bytes of UTF-8."""
        return self._line_starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)  # type: ignore[arg-type]
        return self._source[start:end]


_FINDERS: dict[type | tuple[type, ...], Callable[..., Iterator[_Edit]]] = {
    ast.Compare: _Module.compare,
    ast.BoolOp: _Module.bool_op,
    ast.BinOp: _Module.bin_op,
    ast.UnaryOp: _Module.unary_op,
    ast.Constant: _Module.constant,
    (ast.If, ast.While, ast.IfExp): _Module.condition,
    ast.comprehension: _Module.filters,
    ast.Call: _Module.call,
    (ast.Tuple, ast.List, ast.Set): _Module.elements,
    ast.Dict: _Module.dictionary,
    ast.Subscript: _Module.subscript,
    ast.Expr: _Module.statement,
    ast.AugAssign: _Module.changed_in_place,
    (ast.Continue, ast.Break): _Module.jump,
    ast.Return: _Module.returned,
}


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params", "ctx"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _durations(tree: ast.Module) -> set[ast.Constant]:
    """Numbers of constants that are named as seconds, or private: 60 or 61 s, 50 or 51 items are nobody's promise."""
    found: set[ast.Constant] = set()
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_tuning(name):
                found |= {part for part in ast.walk(value) if isinstance(part, ast.Constant)}
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _is_tuning(name):
                found |= {part for part in ast.walk(value) if isinstance(part, ast.Constant)}
    return found


def _is_tuning(name: str) -> bool:
    return name.isupper() and (name.endswith("_S") or name.startswith("_"))


_LEFT_ALONE = (ast.Import, ast.ImportFrom, ast.Raise, ast.JoinedStr, ast.Assert)


def _is_left_alone(node: ast.AST) -> bool:
    """True if nothing within is changed: imports, messages, logs and types."""
    match node:
        case ast.Expr(value=value):
            return isinstance(value, ast.Constant) or _is_log(value)
        case ast.If():
            return _is_never_taken_or_logs(node)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return _is_never_run(name, value)
        case ast.AnnAssign(target=ast.Name(id=name)):
            return name in _LOGGED_NAMES
        case ast.keyword(arg=name):
            return name in ("extra", "strict")
        case _:
            return isinstance(node, _LEFT_ALONE)


def _is_never_taken_or_logs(node: ast.If) -> bool:
    is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    logs = not node.orelse and all(isinstance(item, ast.Expr) and _is_log(item.value) for item in node.body)
    return is_for_types or logs


def _is_never_run(name: str, value: ast.expr) -> bool:
    """True if an assignment is of what is logged only, or of a type."""
    if name in _LOGGED_NAMES or name == "_LOG":
        return True
    made_by = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
    is_type = isinstance(value, ast.Subscript | ast.BinOp) and name.lstrip("_")[:1].isupper() and not name.isupper()
    return made_by in ("TypeVar", "ParamSpec", "NewType") or is_type


def _is_log(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in _LOGGERS
    )


def _is_collection(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Tuple | ast.List | ast.Set)
    except SyntaxError:
        return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
