"""YAML as an API server comes to see it, on PyYAML's parser, and the lines of fields."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar

import yaml

from shiplap.errors import InvalidInput, InvalidManifests

_TAG = "tag:yaml.org,2002:"
_MAX_DEPTH = 200
"""Levels of nesting that are read; the deepest schema of Kubernetes has some sixty."""
_OPENERS = re.compile(r"[\[{]|[-?][ \t]+(?=[-?][ \t\r\n])")
"""What can nest without indentation: flow collections, and sequences and complex keys on one line."""
_LoaderBase: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_ALIASED_VALUES = 100_000
"""What aliases may add to a document's values; without them a text has fewer values than characters."""


class _Loader(_LoaderBase):  # type: ignore[misc]
    """Takes plain scalars for whole numbers, decimals, truth values and null, and for nothing else.

    YAML 1.1 also knows dates, and reads `12:30` as a number of minutes; an API server sees text.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, Any]]]] = {}


for _name, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)$", "tTfFyYnNoO"),
    ("int", r"^[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$", "-+0123456789"),
    (
        "float",
        r"^[-+]?(?:(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$",
        "-+.0123456789",
    ),
    ("null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
    ("merge", r"^<<$", "<"),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), [*_first.replace("\0", ""), ""])


def read(source: str, text: str) -> Iterator[tuple[int, Any]]:
    """Each document's first line and value; null for an empty document.

    Raises:
        InvalidManifests: not YAML, a tag other than YAML's own, a key written twice, an alias inside of what it names;
            with every problem before the first that ends the reading.
    """
    plain = read_quickly(text)
    if plain is None:
        yield from read_thoroughly(source, text)
    else:
        yield from plain


class _RareError(Exception):
    """Something that the quick reading leaves to the thorough one: an anchor, a tag, or anything that is wrong."""


def read_quickly(text: str) -> list[tuple[int, Any]] | None:
    """The documents of what kubectl and people mostly write; None where there is anything else in them.

    Built from the parser's events, without a tree of nodes: `kubectl get pods -o yaml` of 10,000 pods (38 MB) takes 4 s
    and 0.2 GB, by the tree 24 s and 1.3 GB.
    """
    loader = _Loader(text)
    try:
        return _Plain(loader).documents()
    except (_RareError, yaml.YAMLError, ValueError):
        return None
    finally:
        loader.dispose()


class _Plain:
    """Values straight from events.

    Raises _RareError, yaml.YAMLError or ValueError for what `read_thoroughly` must see.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._known: dict[str, Any] = {}

    def documents(self) -> list[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        event = self._loader.get_event()
        while event is not None:
            if type(event) is yaml.DocumentStartEvent:
                event = self._loader.get_event()
                found.append((event.start_mark.line + 1, self._value(event)))
            event = self._loader.get_event()
        return found

    def _value(self, event: Any) -> Any:
        """One value, without recursion; `stack` holds the containers around `top` and the key each waits with."""
        if type(event) is yaml.ScalarEvent:
            return self._scalar(event)
        top = self._opened(event)
        key: str | None = None
        stack: list[tuple[Any, str | None]] = []
        get = self._loader.get_event
        while True:
            event = get()
            kind = type(event)
            if kind is yaml.ScalarEvent:
                if type(top) is list:
                    top.append(self._scalar(event))
                elif key is None:
                    key = self._key(event, top)
                else:
                    top[key] = self._scalar(event)
                    key = None
            elif kind in _ENDS:
                if not stack:
                    return top
                top, key = stack.pop()
            else:
                inner = self._opened(event)
                if len(stack) + 1 >= _MAX_DEPTH or (key is None and type(top) is dict):
                    raise _RareError
                if type(top) is list:
                    top.append(inner)
                else:
                    top[key] = inner
                stack.append((top, None))
                top, key = inner, None

    def _opened(self, event: Any) -> Any:
        kind = type(event)
        if kind not in _STARTS or event.anchor is not None or event.tag is not None:
            raise _RareError
        return _STARTS[kind]()

    def _key(self, event: Any, built: dict[str, Any]) -> str:
        value = self._scalar(event)
        key = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(event.value)
        if key in built or key == "<<":
            raise _RareError
        return sys.intern(key)

    def _scalar(self, event: Any) -> Any:
        if event.anchor is not None or event.tag is not None:
            raise _RareError
        text = event.value
        if not event.implicit[0]:
            return text
        if text in self._known:
            return self._known[text]
        value = text
        for tag, pattern in _Loader.yaml_implicit_resolvers.get(text[:1], ()):
            if pattern.match(text):
                value = self._loader.construct_object(yaml.ScalarNode(tag, text)) if not tag.endswith("merge") else text
                break
        if len(self._known) < _KNOWN_SCALARS:
            self._known[text] = value
        return value


_STARTS: dict[Any, Any] = {yaml.MappingStartEvent: dict, yaml.SequenceStartEvent: list}
_ENDS = frozenset({yaml.MappingEndEvent, yaml.SequenceEndEvent})
_KNOWN_SCALARS = 100_000
"""Scalars that are remembered while a text is read: most of a cluster's are written over and over."""


def read_thoroughly(source: str, text: str) -> Iterator[tuple[int, Any]]:
    """Any YAML, with its anchors, tags and merges, and every mistake named. Raises InvalidManifests as `read`."""
    _refuse_depth(source, text)
    loader = _Loader(text)
    problems: dict[str, InvalidInput] = {}
    try:
        while loader.check_node():
            node = loader.get_node()
            yield node.start_mark.line + 1, _Builder(source, loader, len(text) + _ALIASED_VALUES, problems).value(node)
    except yaml.YAMLError as error:
        raise InvalidManifests([*problems.values(), _refusal(source, error)]) from error
    except _TooMuch as error:
        raise InvalidManifests([*problems.values(), error.problem]) from error
    finally:
        loader.dispose()
    if problems:
        raise InvalidManifests(tuple(problems.values()))


def _refuse_depth(source: str, text: str) -> None:
    """Raises InvalidInput for text nested too deeply.

    PyYAML's composer recurses in C without a limit and would end the process; its parser, asked here, does not recurse.
    Most files show by their number of openers that they need not be parsed twice.
    """
    if sum(1 for _ in islice(_OPENERS.finditer(text), _MAX_DEPTH)) < _MAX_DEPTH:
        return
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _MAX_DEPTH:
                reason = f"nested more than {_MAX_DEPTH} levels deep"
                raise InvalidInput(source, reason, line=event.start_mark.line + 1 if event.start_mark else 0)
    except yaml.YAMLError as error:
        raise _refusal(source, error) from error


@lru_cache(maxsize=8)
def _nodes(text: str) -> tuple[Any, ...]:
    """The node tree of every document; empty when the text is not YAML (JSON may be indented by tabs)."""
    try:
        return tuple(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError:
        return ()


def line_of(text: str, position: int, path: tuple[str | int, ...]) -> int:
    """The line, from 1, of the deepest written part of `path` in a document of the text; 0 when there is none."""
    nodes = _nodes(text)
    if position >= len(nodes):
        return 0
    node, line = nodes[position], nodes[position].start_mark.line + 1
    for step in path:
        if isinstance(node, yaml.MappingNode):
            found = [(key, value) for key, value in node.value if key.value == step]
            if not found:
                break
            line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return int(line)


class _TooMuch(Exception):
    """Aliases multiply a document without end, so the reading of the text stops at this problem."""

    def __init__(self, problem: InvalidInput) -> None:
        super().__init__(problem.reason)
        self.problem = problem


class _Builder:
    """Turns one document's nodes into dicts, lists and scalars; `most` bounds what aliases of aliases multiply to.

    It adds what is wrong to `problems`, by its text, and reads on: a person sees all mistakes of a file at once.
    """

    def __init__(self, source: str, loader: Any, most: int, problems: dict[str, InvalidInput]) -> None:
        self._source = source
        self._loader = loader
        self._left = most
        self._problems = problems
        self._open: set[int] = set()

    def value(self, node: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise _TooMuch(self._refusal(node, "its aliases multiply to too many values"))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._refuse(node, "an alias stands inside of what it names")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node)
            return [self.value(item) for item in node.value]
        finally:
            self._open.remove(id(node))

    def _scalar(self, node: Any) -> Any:
        try:
            return self._loader.construct_object(node)
        except ValueError as error:  # for example `0x_`, which looks like a number
            self._refuse(node, f"{node.value!r} is not a number: {error}")
        except yaml.constructor.ConstructorError as error:  # a tag such as `!Ref`
            self._add(_refusal(self._source, error))
        return None

    def _mapping(self, node: Any) -> dict[str, Any]:
        built: dict[str, Any] = {}
        lines: dict[str, int] = {}
        merged: list[Any] = []
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                continue
            key = self._key(key_node)
            if key in lines:
                self._refuse(key_node, f"the key {key!r} is written twice, first in line {lines[key]}: keep one")
            lines.setdefault(key, key_node.start_mark.line + 1)
            built[key] = self.value(value_node)
        for part in merged:
            if not isinstance(part, yaml.MappingNode):
                self._refuse(part, "<< takes a mapping or a list of mappings")
                continue
            for key, value in (self.value(part) or {}).items():
                built.setdefault(key, value)
        return built

    def _key(self, node: Any) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self._refuse(node, "a key must be plain text")
            return repr(node.start_mark.index)
        value = self._scalar(node)
        return str(value).lower() if isinstance(value, bool) else str(node.value)

    def _refuse(self, node: Any, reason: str) -> None:
        self._add(self._refusal(node, reason))

    def _add(self, problem: InvalidInput) -> None:
        self._problems.setdefault(str(problem), problem)

    def _refusal(self, node: Any, reason: str) -> InvalidInput:
        return InvalidInput(self._source, reason, line=node.start_mark.line + 1)


def _refusal(source: str, error: yaml.YAMLError) -> InvalidInput:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
    return InvalidInput(source, f"not YAML: {problem}", line=mark.line + 1 if mark else 0)
