"""Files as documents: YAML as an API server sees it, JSON, lists, folders, lines, and what cannot be read."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shiplap.errors import InvalidInput
from shiplap.manifests.files.documents import STDIN, read_documents, read_text

TWO = """\
# two documents
apiVersion: v1
kind: Pod
metadata:
  name: a
---
---
kind: Node
metadata: {labels: {a.b/c: d}}
spec:
  taints:
  - key: x
    effect: NoSchedule
"""


def test_documents_have_names_lines_and_numbers() -> None:
    first, second = read_text("file.yaml", TWO)
    assert (first.name, first.index, first.line) == ("Pod/a", 0, 2)
    assert (second.name, second.index, second.line) == ("Node", 1, 8)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ((), 8),
        (("spec", "taints", 0, "effect"), 13),
        (("spec", "taints", 0, "value"), 12),
        (("spec", "taints", 4), 11),
        (("metadata", "labels", "a.b/c"), 9),
        (("kind", "deeper"), 8),
    ],
)
def test_lines_of_fields_are_those_of_the_deepest_part_that_is_written(path: tuple[str | int, ...], line: int) -> None:
    assert read_text("file.yaml", TWO)[1].line_of(path) == line


def test_scalars_are_what_an_api_server_would_see() -> None:
    text = """
date: 2026-01-02
time: 12:30
none: ~
absent:
whole: 10
octal: 0644
hex: 0x1F
decimal: 0.5
exponent: 1e3
truth: yes
text: "10"
1: numeric key
true: truth key
"""
    assert read_text("f", text)[0].data == {
        "date": "2026-01-02",
        "time": "12:30",
        "none": None,
        "absent": None,
        "whole": 10,
        "octal": 420,
        "hex": 31,
        "decimal": 0.5,
        "exponent": 1000.0,
        "truth": True,
        "text": "10",
        "1": "numeric key",
        "true": "truth key",
    }


def test_aliases_and_merges() -> None:
    (document,) = read_text("f", "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd: {<<: [*a, {z: 4}]}\n")
    assert document.data["b"] == {"x": 1, "y": 2}
    assert document.data["c"] == {"x": 1, "y": 3}
    assert document.data["d"] == {"x": 1, "y": 2, "z": 4}


def test_lists_are_flattened_and_typed_lists_name_their_items() -> None:
    text = """
kind: List
items:
- {kind: PodList, apiVersion: v1, items: [{metadata: {name: p}}]}
- kind: Node
  metadata: {name: n}
"""
    pod, node = read_text("f", text)
    assert (pod.name, pod.data["apiVersion"]) == ("Pod/p", "v1")
    assert (node.name, node.index, node.line_of(("metadata", "name"))) == ("Node/n", 1, 6)


def test_json_single_several_and_lists() -> None:
    assert [document.name for document in read_text("f", '{"kind": "Pod", "metadata": {"name": "a"}}')] == ["Pod/a"]
    several = read_text("f", '{"kind": "A"}\n\n{"kind": "BList", "items": [{}, {"metadata": {"name": "b"}}]} ')
    assert [(document.name, document.line) for document in several] == [("A", 1), ("B", 3), ("B/b", 3)]


def test_lines_in_json() -> None:
    (document,) = read_text("f", '{\n  "kind": "A",\n  "spec": {\n    "x": 1}}')
    assert document.line_of(("spec", "x")) == 4
    several = read_text("f", '{"kind": "A"}\n{\n"kind": "B"}')
    assert several[1].line_of(("kind",)) == 2  # where the value begins: YAML, which finds lines, is no JSON stream


@pytest.mark.parametrize("text", ["", "\n---\n---\n", "# nothing\n"])
def test_nothing_is_no_document(text: str) -> None:
    assert read_text("f", text) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "f:3: the key 'a' is written twice"),
        ("a: &x [*x]", "f:1: an alias stands inside of what it names"),
        ("a: !!python/name:os.system x", "f:1: not YAML: could not determine a constructor"),
        ("a: !mine x", "f:1: not YAML: could not determine a constructor"),
        ("a: [1", "f:2: not YAML:"),
        ("a: b: c", "f:1: not YAML:"),
        ("a: \x01", "f: not YAML: control characters are not allowed"),
        ("? [a]\n: b", "f:1: a key must be plain text"),
        ("a: 0x_", "f:1: '0x_' is not a number"),
        ("x: 1\ny: {<<: 3}", "f:2: << takes a mapping or a list of mappings"),
        ("- a", "f:1: document 1: expected a mapping, got a list"),
        ("x: 1\n---\njust text", "f:3: document 2: expected a mapping, got text"),
        ('{"a":\n}', "f:2: not JSON: Expecting value at column 1"),
        ('{"a": 1} {', "f:1: not JSON:"),
        ('{"a": NaN}', "f: not JSON: "),
        ('\n{"a": "\\ud800"}\n', "f: not JSON: "),
        ('{"a":' + "[" * 200_000, "f: its lists and mappings are nested too deeply"),
        ("a: " + "[" * 5000 + "]" * 5000, "f:1: nested more than 200 levels deep"),
        ("[" * 100_000, "f:1: nested more than 200 levels deep"),
        ("- " * 100_000, "f:1: nested more than 200 levels deep"),
        ("? " * 100_000, "f:1: nested more than 200 levels deep"),
        ("a: " + "[" * 150 + "]" * 149 + "\nb: " + "[" * 150, "f:2: not YAML:"),
        (
            "a0: &a0 [x, x, x, x, x, x, x, x]\n"
            + "".join(f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 8)}]\n" for n in range(8)),
            "f:1: its aliases multiply to too many values",
        ),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_text("f", text)
    assert str(caught.value).startswith(message)


def test_standard_input_that_is_not_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_given = io.BytesIO(b"kind: \xff")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(bytes_given, encoding="utf-8", errors="surrogateescape"))
    with pytest.raises(InvalidInput, match="stdin: not UTF-8 text: byte 6"):
        read_documents(Path("-"))


def test_a_folder_is_read_in_order_of_names(tmp_path: Path) -> None:
    for name in ("b/two.yml", "b/one.json", "a.yaml", "notes.txt", "b/.keep"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"kind: {file.stem}" if file.suffix != ".json" else json.dumps({"kind": file.stem}))
    assert [document.name for document in read_documents(tmp_path)] == ["a", "one", "two"]


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"holds no \.yaml, \.yml, \.json file"):
        read_documents(tmp_path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file or directory"):
        read_documents(tmp_path / "absent.yaml")


def test_bytes_that_are_not_utf_8_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"a: \xe9")
    with pytest.raises(InvalidInput, match="not UTF-8 text: byte 3"):
        read_documents(file)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "bom.json"
    file.write_bytes(b'\xef\xbb\xbf{"kind": "A"}')
    assert read_documents(file)[0].name == "A"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("kind: A"))
    (document,) = read_documents(STDIN)
    assert (document.source, document.name) == ("stdin", "A")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into everything")
def test_a_folder_that_must_not_be_looked_into_is_named(tmp_path: Path) -> None:
    (tmp_path / "pools.yaml").write_text(TWO)
    secret = tmp_path / "secret"
    secret.mkdir()
    secret.chmod(0)
    with pytest.raises(InvalidInput, match=r"secret: cannot be read: Permission denied"):
        read_documents(tmp_path)
    with pytest.raises(InvalidInput, match=r"pools.yaml: cannot be read: Permission denied"):
        read_documents(secret / "pools.yaml")


def test_a_folder_that_cannot_be_looked_into_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk(top: Path, *, onerror: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
        yield str(top), ["secret"], ["pools.yaml"]
        onerror(PermissionError(13, "Permission denied", f"{top}/secret"))

    (tmp_path / "pools.yaml").write_text(TWO)
    monkeypatch.setattr("shiplap.manifests.files.documents.os.walk", walk)
    with pytest.raises(InvalidInput, match=r"secret: cannot be read: Permission denied"):
        read_documents(tmp_path)
