"""Reading YAML and JSON files as the Kubernetes tools do, with the line of every document and field.

The reading of YAML is stricter than a library's: a key written twice is an error, timestamps and clock times stay text
and keys become strings, as they do on their way to an API server. JSON goes through a fast decoder, because a dumped
cluster state can be large. Only command lines and builds read files; PyYAML is imported when the first YAML is met.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shiplap.errors import InvalidInput, InvalidManifests
from shiplap.manifests.decoding import kind_of

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = Path("-")

_MOST_WRITTEN_JSON = 1_000_000
"""Characters of JSON that a person may have written; a program that prints more writes no key twice."""

TEMPLATE_SIGN = "{{"
RENDER_CHART = "such as by `helm template {chart}`"
"""How to render a chart, by its folder."""


class Document(msgspec.Struct, frozen=True):
    """One Kubernetes object as it was written.

    `source` is the file, `index` counts the objects of that file from 0, `line` is where the YAML document or JSON
    value begins (from 1) and `name` is `Kind/name` as far as the object says so, else `document N`. `text` is the whole
    file and `path` leads to the object from the top of the file's `position`th document; they serve to find lines.
    """

    source: str
    index: int
    line: int
    name: str
    data: dict[str, Any]
    text: str = ""
    position: int = 0
    path: tuple[str | int, ...] = ()

    def line_of(self, path: tuple[str | int, ...]) -> int:
        """The line of a field, or of the deepest part of its path that is written."""
        if not self.text:  # the object did not come from a file
            return self.line
        from shiplap.manifests.files import yaml_reader  # noqa: PLC0415 - PyYAML is loaded only when a line is asked for

        return yaml_reader.line_of(self.text, self.position, self.path + path) or self.line


def files_of(path: Path) -> tuple[Path, ...]:
    """The path itself, or what a folder holds below it, in order of names; hidden folders and files are passed over.

    Raises:
        InvalidInput: a folder without manifest files, or one in it that cannot be looked into.
    """
    if path == STDIN or not _is_folder(path):
        return (path,)
    files = tuple(sorted(found for found in _below(path) if found.suffix in SUFFIXES and found.is_file()))
    if not files:
        raise InvalidInput(str(path), f"the folder holds no {', '.join(SUFFIXES)} file")
    return files


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except PermissionError:  # reading it will say so
        return False


def _below(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise InvalidInput(str(error.filename), f"cannot be read: {error.strerror or error}") from error

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = (name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in names if not name.startswith("."))


def read_documents(path: Path) -> tuple[Document, ...]:
    """All objects of a file, of `-` (standard input) or of a folder with everything below it, in order of names.

    `kind: List` and typed lists (`PodList`) are flattened; empty documents are skipped.

    Raises:
        InvalidInput: the path cannot be read, holds no manifest file, or is not YAML or JSON mappings.
    """
    return tuple(document for file in files_of(path) for document in read_file(file))


def read_file(path: Path) -> tuple[Document, ...]:
    """All objects of one file, or of `-`. Raises InvalidInput."""
    if path == STDIN:
        text = _text_of("stdin", _standard_input)
        if not text.strip():
            raise InvalidInput("stdin", "is empty; see whether the command before the pipe has failed")
        return read_text("stdin", text)
    text = text_of(path)
    try:
        return read_text(str(path), text)
    except InvalidInput as error:
        if TEMPLATE_SIGN in text:
            raise helm_template(path, text) from error
        raise


def helm_template(file: Path, text: str, chart: Path | None = None) -> InvalidInput:
    """Return the error for a file that only Helm can read, in the folder `chart` if that is known."""
    line = text[: text.index(TEMPLATE_SIGN)].count("\n") + 1
    remedy = RENDER_CHART.format(chart=chart or "CHART")
    return InvalidInput(str(file), f"is a Helm template, not YAML: render it first, {remedy}", line=line)


def text_of(path: Path) -> str:
    """The text of a file, which is UTF-8. Raises InvalidInput."""
    return _text_of(str(path), lambda: path.read_text(encoding="utf-8-sig"))


def read_text(source: str, text: str) -> tuple[Document, ...]:
    """All objects of one text, JSON or YAML by its first character. Raises InvalidInput."""
    try:
        return _documents(source, text)
    except RecursionError as error:
        raise InvalidInput(source, "its lists and mappings are nested too deeply") from error


def _documents(source: str, text: str) -> tuple[Document, ...]:
    if text.lstrip().startswith("{"):
        parsed = list(_json(source, text))
    else:
        from shiplap.manifests.files import yaml_reader  # noqa: PLC0415 - JSON, the large case, does without PyYAML

        parsed = list(yaml_reader.read(source, text))
    documents: list[Document] = []
    problems: list[InvalidInput] = []
    for position, (line, value) in enumerate(parsed):
        if value is None:
            continue
        for path, data in _objects(value, ()):
            number = len(documents)
            if not isinstance(data, dict):
                where = f"document {number + 1}"
                reason = f"expected a mapping, got {kind_of(data)}"
                problems.append(InvalidInput(source, reason, document=where, line=line))
            kept = data if isinstance(data, dict) else {}
            documents.append(Document(source, number, line, _name(kept, number), kept, text, position, path))
    if problems:
        raise InvalidManifests(problems)
    return tuple(documents)


def _standard_input() -> str:
    """Standard input as UTF-8; in some locales Python would take bytes that are none and carry them along."""
    if sys.stdin is None:
        raise InvalidInput("stdin", "cannot be read: it is closed")
    if isinstance(sys.stdin, io.TextIOWrapper):
        return str(sys.stdin.buffer.read(), "utf-8-sig")
    return sys.stdin.read()


def _text_of(source: str, read: Callable[[], str]) -> str:
    try:
        return read()
    except UnicodeDecodeError as error:
        raise InvalidInput(source, f"not UTF-8 text: byte {error.start} cannot be decoded") from error
    except OSError as error:
        raise InvalidInput(source, f"cannot be read: {error.strerror or error}") from error


def _json(source: str, text: str) -> Iterator[tuple[int, Any]]:
    """One JSON value, or several one after the other as `jq` prints them."""
    try:
        value = msgspec.json.decode(text)
        if len(text) < _MOST_WRITTEN_JSON:
            _refuse_twice(source, text)
        yield 1, value
        return
    except msgspec.DecodeError as error:
        refusal = error  # of several values, or of an error whose line the slower decoder knows
    decoder = json.JSONDecoder()
    at, end = 0, len(text.rstrip())
    while at < end:
        if text[at].isspace():
            at += 1
            continue
        try:
            value, after = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise InvalidInput(source, f"not JSON: {error.msg} at column {error.colno}", line=error.lineno) from error
        if not text[:at].strip() and after == end:
            # One value that only the more lenient decoder takes, such as a lone surrogate or NaN.
            raise InvalidInput(source, f"not JSON: {refusal}")
        yield text.count("\n", 0, at) + 1, value
        at = after


def _refuse_twice(source: str, text: str) -> None:
    """Raises InvalidManifests for keys that one object has twice."""
    twice: list[str] = []

    def note(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                twice.append(key)
            seen.add(key)

    json.loads(text, object_pairs_hook=note)
    if twice:
        from shiplap.manifests.files import yaml_reader  # noqa: PLC0415 - for the lines, which JSON's decoder does not tell

        list(yaml_reader.read(source, text))
        raise InvalidManifests([InvalidInput(source, f"the key {key!r} is written twice") for key in twice])


def _objects(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The object itself, or the items of a list object; items of a typed list take its kind and version."""
    kind = value.get("kind") if isinstance(value, dict) else None
    kind = kind if isinstance(kind, str) else ""
    items = value.get("items") if kind.endswith("List") else None
    if not isinstance(items, list):
        yield path, value
        return
    for number, item in enumerate(items):
        typed = isinstance(item, dict) and kind != "List"
        implied = {"apiVersion": value.get("apiVersion", ""), "kind": kind.removesuffix("List")} if typed else {}
        yield from _objects({**implied, **item} if typed else item, (*path, "items", number))


def _name(data: dict[str, Any], number: int) -> str:
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = data.get("kind")
    if isinstance(kind, str) and kind:
        return f"{kind}/{name}" if isinstance(name, str) and name else kind
    return f"document {number + 1}"
